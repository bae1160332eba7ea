# The same commands on a laptop and in CI: make install, demo, check, docs, test, wheel-test.
PYTHON ?= python3
BIN := .venv/bin
TORCH_CPU ?= https://download.pytorch.org/whl/cpu

.PHONY: install demo serve-demo check docs test wheel-test

# torch first: on Linux the plain package brings several gigabytes of CUDA. Without an NVIDIA GPU its CPU build is
# taken from PyTorch's own index, where that answers within five seconds.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip -c constraints.txt
	@set --; \
	if [ "$$(uname)" = Linux ] && ! command -v nvidia-smi >/dev/null && timeout 5 $(BIN)/python -c \
	    "import urllib.request; urllib.request.urlopen('$(TORCH_CPU)/torch/', timeout=4)" 2>/dev/null; \
	then set -- --extra-index-url $(TORCH_CPU); fi; \
	echo "pip install torch $$*"; \
	$(BIN)/pip install --quiet torch -c constraints.txt "$$@"
	$(BIN)/pip install --quiet --editable ".[dev]" -c constraints.txt
	touch $@

install: .venv/installed

demo: install
	rm -rf runs/demo
	$(BIN)/selfsent fit pydocs --minutes 5 --out runs/demo
	$(BIN)/selfsent search runs/demo/model pydocs "delete a directory with everything in it"

serve-demo: install
	test -d runs/demo/model || $(MAKE) demo
	test -f runs/demo-kept.index/index.json || $(BIN)/selfsent index pydocs --model runs/demo/model --out runs/demo-kept.index
	test -f runs/demo-base.index/index.json || $(BIN)/selfsent index pydocs --model builtin-static --out runs/demo-base.index
	$(BIN)/selfsent serve --index runs/demo-kept.index --index runs/demo-base.index

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: install
	$(BIN)/mkdocs build --strict

# Two processes, each with whole files: fixtures are shared by the tests of a file, and every process opens torch.
test: install
	$(BIN)/pytest -n 2 --dist loadfile

# Build sdist and wheel, install the wheel without extras into an empty environment, and use it there.
wheel-test: install
	$(BIN)/python .ci/wheel_test.py
