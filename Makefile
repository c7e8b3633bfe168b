# `make demo` and `make test` are all a fresh machine needs: each makes .venv, installs
# what it lacks there, and runs.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint format clean

demo: .venv/.installed-examples
	$(BIN)/python -u examples/translation.py

test: .venv/.installed-test lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

lint: .venv/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: .venv/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/.installed-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[$*]"
	touch $@

$(BIN)/python:
	$(PYTHON) -m venv .venv

clean:
	rm -rf .venv runs build *.egg-info .pytest_cache .ruff_cache .hypothesis
