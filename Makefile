PYTHON ?= python3
BIN := .venv/bin
BENCH := .venv-bench/bin
FAST := $(addprefix tests/test_,cells.py changes.py config.py data_*.py episodes.py equations.py \
	inputs.py laws.py storage.py tasks.py)

# Byte code is kept, also where the environment says otherwise: tests start many processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: reproduce test check lint bench clean

reproduce: .venv/ready
	$(BIN)/mtnet reproduce table1 --quick
	@echo "In full: $(BIN)/mtnet reproduce table1, table2, figure4 (see README.md)"

test: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist loadfile $(FAST)

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv-bench/ready
	taskset -c 0 $(BENCH)/python bench/sine.py
	taskset -c 0 $(BENCH)/python bench/adapt.py
	$(BENCH)/python bench/images.py
	$(BENCH)/python bench/embedding.py
	taskset -c 0 $(BENCH)/python bench/layers.py
	$(BENCH)/python bench/processes.py
	$(BENCH)/python bench/start.py
	$(BENCH)/python bench/scale.py
	$(BENCH)/python bench/serve.py

clean:
	rm -rf .venv .venv-bench

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[cli,dev]'
	touch $@

.venv-bench/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-bench
	$(BENCH)/python -m pip install --quiet --constraint constraints.txt --editable '.[serve,bench]'
	touch $@
