# `make demo` and `make test` need nothing but Python 3.10+ and this folder: they make their own .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint bench results training recovery embeddings reliability growth scale index mutations clean

demo: $(READY)
	$(BIN)/dbull demo

# Two processes with one thread each: most tests are too small for a thread to pay.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[umap]'
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/arrivals.py

# The result tables of README.md and docs/results.md, from the folders in experiments/results/.
results: $(READY)
	$(BIN)/python experiments/publish.py

training: $(READY)
	$(BIN)/python benchmarks/training.py

recovery: $(READY)
	$(BIN)/python benchmarks/recovery.py

embeddings: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[umap]'
	$(BIN)/python benchmarks/embeddings.py

reliability: $(READY)
	$(BIN)/python benchmarks/corruption.py
	$(BIN)/python benchmarks/writers.py
	$(BIN)/python benchmarks/kills.py
	$(BIN)/python benchmarks/learn_kills.py
	$(BIN)/python benchmarks/learn_writers.py
	$(BIN)/python benchmarks/log_kills.py
	$(BIN)/python benchmarks/input_fuzz.py

mutations: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/mutations.py

growth: $(READY)
	$(BIN)/python benchmarks/growth.py

# Needs DBULL_DATA for MNIST, and 4 GB of disk for 16 million rows.
scale: index
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/scale.py

index: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[scale]'
	$(BIN)/python benchmarks/index.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
