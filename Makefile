# Everything here sets itself up: a virtual environment in .venv with pinned versions.
VENV := .venv
BIN := $(VENV)/bin
# The first interpreter of a supported version; override with make PYTHON=...
PYTHON ?= $(shell for p in python3 python3.12 python3.11; do $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null && echo $$p && break; done)
STAMP := $(VENV)/.installed

.PHONY: demo demo-network test test-all attacks fuzz coverage docs wheel wheel-test check format clean
.DEFAULT_GOAL := demo
# Tests start hundreds of processes, and each would compile this package again.
unexport PYTHONDONTWRITEBYTECODE

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo 'securefl needs Python 3.11 or 3.12; install one or pass PYTHON=/path/to/python'; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[text,images,plots,service,flower,batched,test,lint]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/securefl demo

# All parties of the service as processes of this machine, one of them killed on the way.
demo-network: $(STAMP)
	$(BIN)/securefl demo --network

# Files start in the order of tests/conftest.py. A worker that dies ends the run: one started in its
# place would wait for ever. Three workers on two cores, for many tests wait for other processes;
# each with one thread for linear algebra, for threads of several workers only wait for one another.
test: $(STAMP)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

test-all: $(STAMP)
	$(BIN)/python -m pytest -m 'slow or not slow'

# Every attack on the protocols: what the attacker holds, what it got, what it gets.
attacks: $(STAMP)
	$(BIN)/python -m tests.attacks

# Changed samples of every parser of foreign bytes, for as long as you like: make fuzz MINUTES=60
MINUTES ?= 10
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

# Lines and branches that the everyday tests run, commands in their own processes included.
coverage: $(STAMP)
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report
	$(BIN)/python -m coverage html --quiet --directory build/coverage

# The site in build/site.
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

wheel: $(STAMP)
	rm -rf build/lib build/bdist.* dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

# The wheel and its dependencies in an environment that has nothing else.
wheel-test: wheel
	rm -rf build/clean
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.whl
	build/clean/bin/python tests/smoke.py build/clean/bin

# The last line imports every test: a name that moved is found before the tests run.
check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --collect-only --quiet --quiet

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .coverage .coverage.*
