# srm: build, try and test. `make help` lists the targets.

UV_VERSION := 0.13.8
BIN := .venv/bin
STAMP := .venv/.installed

# Without bytecode files each of the many processes of a run compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test test-touched test-all deflake lint spec simulate mutants bench clients wheels release-check lock compose-check clean check-java

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: check-java $(STAMP) ## Set up .venv, again when pinned versions change

demo: venv ## Run the main job end to end into build/demo (DEMO_ARGS=--keep leaves it running)
	@$(BIN)/srm demo $(DEMO_ARGS)

# Most tests wait for brokers, so three processes share two cores well.
TEST_JOBS ?= 3

PARALLEL := -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder

test: lint ## Check the style, run the fast tests (TEST_ARGS are pytest's, TEST_JOBS its processes)
	@$(BIN)/python -m tests.archives
	@$(BIN)/python -m tests.again $(PARALLEL) -m "not (slow or search or quarantined)" $(TEST_ARGS)

test-touched: venv ## Run the slow tests affected by changes since SINCE (.ci/landed by default)
	@$(BIN)/python -m tests.archives
	@$(BIN)/python -m tests.touched $(if $(SINCE),--since $(SINCE)) $(PARALLEL) \
	    -m "not (search or quarantined)" $(TEST_ARGS)

test-all: lint ## Run all tests and all searches with new seeds, next to two busy loops
	@$(BIN)/python -m tests.archives
	@$(BIN)/python -m tests.everything $(PARALLEL) $(TEST_ARGS)

deflake: venv ## Run the changed tests with real processes five times next to two busy loops
	@$(BIN)/python -m tests.archives
	@$(BIN)/python -m tests.deflake $(if $(SINCE),--since $(SINCE))

lint: venv ## Check style, types and the direction of imports
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@PYTHONPATH=plugins $(BIN)/lint-imports

spec: venv ## Check the models of moves and returns with TLC (docs/spec)
	@$(BIN)/pytest -q -s tests/spec

simulate: venv ## Play 100 000 seeds of the simulated world (SEEDS=0:3000 fewer; docs/testing.md)
	@$(BIN)/python -m srm_lab.testing.simulation --seeds $(or $(SEEDS),0:100000) --jobs $$(nproc)

mutants: venv ## Remove each safety mechanism in turn and check that a simulation fails
	@$(BIN)/python -m tests.mutants

bench: venv ## Measure the replicator and MirrorMaker 2 into build/bench (BENCH_ARGS=--full: all cases; --fleet, --scale, --moves)
	@$(BIN)/python bench/run.py $(BENCH_ARGS)

clients: venv ## Measure how unmodified clients follow an address (root, Debian; CLIENTS_ARGS="--case dns/dead")
	@$(BIN)/python -m bench.redirect.run $(CLIENTS_ARGS)

compose-check: venv ## Run docker-compose.yaml with podman, and a failover in it (root, Debian)
	@$(BIN)/python -m tests.compose.check

lock: venv ## Resolve the requirements files again from pyproject.toml
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras \
	    --custom-compile-command "make lock" --output-file requirements.txt pyproject.toml
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras \
	    --custom-compile-command "make lock" --constraint requirements.txt --group dev \
	    --output-file requirements-dev.txt pyproject.toml

# Zig's name of the target, and the tag of the wheel.
WHEELS := x86_64-linux-gnu.2.17=manylinux2014_x86_64 aarch64-linux-gnu.2.17=manylinux2014_aarch64 \
    x86_64-macos=macosx_11_0_x86_64 aarch64-macos=macosx_11_0_arm64 x86_64-windows-gnu=win_amd64

wheels: venv ## Build a wheel for each platform into dist, compiled by Zig (docs/running.md)
	@for wheel in $(WHEELS); do \
	    SRM_NATIVE=$$wheel $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
	        --wheel-dir dist . || exit 1; \
	done; ls dist

release-check: venv ## Build and check what a release uploads, with SBOM and checksums, in dist
	@$(BIN)/uv build --quiet --sdist --out-dir dist
	@$(BIN)/uv build --quiet --wheel --out-dir build/release dist/*.tar.gz
	@$(BIN)/uv tool run --quiet twine check --strict dist/*.whl dist/*.tar.gz
	@$(BIN)/uv tool run --quiet --from cyclonedx-bom cyclonedx-py requirements requirements.txt \
	    --pyproject pyproject.toml --output-reproducible --output-file dist/sbom.cdx.json
	@if grep -q 'example\.org' pyproject.toml; then \
	    echo "srm: not to be uploaded yet: set [project.urls] in pyproject.toml" >&2; fi
	@cd dist && sha256sum *.whl *.tar.gz sbom.cdx.json >SHA256SUMS && cat SHA256SUMS

clean: ## Stop the stack in build/stack, remove all build results except .venv
	@if [ -x $(BIN)/srm ] && [ -d build/stack ]; then $(BIN)/srm stack down; fi
	@rm -rf build dist spark-warehouse metastore_db derby.log .pytest_cache .mypy_cache \
	    .ruff_cache .hypothesis .import_linter_cache

check-java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	if ! command -v "$$java" >/dev/null 2>&1; then \
	    echo "srm: $$java is missing: install a JDK 17 or newer, or point JAVA_HOME at one" >&2; \
	    exit 1; \
	fi; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p'); \
	if [ "$${version:-0}" -lt 17 ]; then \
	    echo "srm: $$java is Java $${version:-unknown}, but 17 or newer is needed:" \
	        "install a JDK 17 and point JAVA_HOME at it" >&2; \
	    exit 1; \
	fi

# The first recent interpreter that can create a virtual environment. PYTHON=... overrides it.
$(BIN)/python:
	@for python in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	    if "$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	        2>/dev/null; then \
	        if "$$python" -c 'import venv, ensurepip' 2>/dev/null; then \
	            exec "$$python" -m venv .venv; \
	        fi; \
	        unusable="$$python"; \
	    fi; \
	done; \
	if [ -n "$$unusable" ]; then \
	    echo "srm: $$unusable has no venv module: install it (on Debian and Ubuntu the package" \
	        "python3-venv)" >&2; \
	else \
	    echo "srm: Python 3.11, 3.12 or 3.13 is missing: install one, or name it with" \
	        "make PYTHON=/path/to/python3.12" >&2; \
	fi; \
	exit 1

NATIVE := $(wildcard src/srm/replication/native/*.[ch])

$(STAMP): requirements-dev.txt pyproject.toml hatch_build.py $(NATIVE) | $(BIN)/python
	@echo "srm: setting up .venv (about 1.4 GB, the first time a minute or two)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python \
	    -r requirements-dev.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@
