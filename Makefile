# The same commands on a laptop and in CI: make install, dev, demo, picture, settings, check, docs, test, wheel-test.
PYTHON ?= python3
BIN := .venv/bin
TORCH_CPU ?= https://download.pytorch.org/whl/cpu

# Container images set it, and then every process compiles torch and all others from their sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install dev demo picture serve-demo settings check docs test wheel-test

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
	$(BIN)/pip install --quiet --no-compile torch -c constraints.txt "$$@"
	$(BIN)/pip install --quiet --no-compile --editable . -c constraints.txt
	rm -rf .venv/lib/python*/site-packages/torch/test # 83 MB of C++ tests that its wheel brings
	touch $@

.venv/developed: .venv/installed
	$(BIN)/pip install --quiet --no-compile --editable ".[dev]" -c constraints.txt
	touch $@

# What a user needs: every command but those of an extra (serve, mteb, onnx, ray, sweep, pairs).
install: .venv/installed

# The extras, and what checks, tests and documents.
dev: .venv/developed

demo: install
	rm -rf runs/demo
	$(BIN)/selfsent fit pydocs --minutes 5 --out runs/demo
	$(BIN)/selfsent search pydocs "wait for a process to end" --model runs/demo/model

# docs/fit.svg: what the selection of the demo prints on a terminal.
picture: install
	$(BIN)/python docs/screen.py docs/fit.svg fit pydocs --minutes 5 --out runs/demo --resume

serve-demo: install
	$(BIN)/pip install --quiet --no-compile --editable ".[serve]" -c constraints.txt
	test -d runs/demo/model || $(MAKE) demo
	test -f runs/demo-kept.index/index.json || $(BIN)/selfsent index pydocs --model runs/demo/model --out runs/demo-kept.index
	test -f runs/demo-base.index/index.json || $(BIN)/selfsent index pydocs --model builtin-static --out runs/demo-base.index
	$(BIN)/selfsent serve --index runs/demo-kept.index --index runs/demo-base.index

# The keys that `selfsent settings` lists and the shell completes, from the configuration classes.
settings: install
	$(BIN)/python -c "from selfsent.cli import listing; listing.write()"

check: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python benchmarks/house.py

docs: dev
	$(BIN)/mkdocs build --strict

# Two processes, each with whole files: fixtures are shared by the tests of a file, and every process opens torch.
test: dev
	$(BIN)/pytest -n 2 --dist loadfile

# Build sdist and wheel, install the wheel without extras into an empty environment, and use it there.
wheel-test: dev
	$(BIN)/python .ci/wheel_test.py
