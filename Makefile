# The same few words on a laptop and in CI: make install, make demo, make check, make test.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo check test

# torch first and alone: elsewhere its CPU build comes from https://download.pytorch.org/whl/cpu, and plain `torch`
# would bring several gigabytes of CUDA along.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/pip install --quiet torch -c constraints.txt
	$(BIN)/pip install --quiet --editable ".[dev]" -c constraints.txt
	touch $@

install: .venv/installed

demo: install
	rm -rf runs/demo
	$(BIN)/selfsent train selfsent/recipes/demo.toml --out runs/demo
	$(BIN)/selfsent search runs/demo/model pydocs "remove all files in a folder"

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: install
	$(BIN)/pytest
