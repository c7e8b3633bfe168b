# Each command first creates .venv and installs the missing dependencies there, so that
# `make demo` and `make test` run on a new machine.
PYTHON ?= python3
BIN := .venv/bin
PYTEST = $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo quick test lint format clean

demo: .venv/.installed-examples
	$(BIN)/python -u examples/translation.py

# Everyday checks, in less than three minutes: one case of each test, and no slow tests,
# subprocesses, exported models, other backends or examples of docstrings.
quick: .venv/.installed-test lint
	$(PYTEST) --max-cases 1 --ignore tests/test_docstrings.py \
		-m "not (slow or export or subprocess or backend)"

# All tests: all backends, exported models, examples, docstrings, types.
test: .venv/.installed-test lint
	$(PYTEST)

lint: .venv/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: .venv/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# `compat` lets type checkers and editors find the package, too.
.venv/.installed-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --config-settings editable_mode=compat \
		--editable ".[$*]"
	touch $@

$(BIN)/python:
	$(PYTHON) -m venv .venv

clean:
	rm -rf .venv runs build *.egg-info .pytest_cache .ruff_cache .hypothesis
