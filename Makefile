# Everything sets itself up: `make demo` and `make test` work on a fresh machine with Python 3.11+ and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --constraint constraints.txt --editable

.PHONY: help demo test fuzz test-all test-journeys test-sweeps test-data test-devices test-own-model test-gpu test-adapters test-kills test-ray test-sinks test-browser screenshots vendor lint format bench bench-accounting bench-attacks bench-audit bench-dashboard bench-dashboard-load bench-fast-forgetting bench-forecasts bench-norms bench-recorder bench-relearning bench-requests bench-study peers docs reference clean bench-streams bench-verdicts
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo "Installing Remanence into $(VENV) (about two minutes the first time)"
	$(INSTALL) .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "Installing the tools for tests and linters"
	$(INSTALL) '.[dev,parquet,web]'
	@touch $@

demo: $(VENV)/.core ## the whole story on scikit-learn's digits; writes demo/report.html
	$(BIN)/remanence demo --out demo

# A test that hangs in native code cannot be interrupted from within: after this many seconds the whole run is ended.
TEST_SECONDS ?= 1200
LIMITED := $(if $(shell command -v timeout),timeout --foreground --kill-after=20 $(TEST_SECONDS))
# those that need packages of their own have targets of their own
ELSEWHERE := $(addprefix --ignore=tests/,adapters browser data devices ray sinks)

test: $(VENV)/.dev ## all tests that need no more than this machine
	@$(LIMITED) $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart=0 -m 'not data and not sweep and not own_model and not journey' $(ELSEWHERE) $(PYTEST) || { \
		code=$$?; test $$code -ne 124 || echo "The tests did not end within $(TEST_SECONDS) seconds and were stopped (TEST_SECONDS=... changes that)." >&2; \
		exit $$code; }

# seconds of the whole run on two cores; the many kinds of cases share them equally
FUZZ_SECONDS ?= 1200
FUZZ_KINDS := 31
fuzz: $(VENV)/.dev ## fuzz command lines, files, byte flips and forged evidence for FUZZ_SECONDS (1200) on two cores; prints the cases per kind
	@rm -f .fuzz-counts
	@FUZZ_COUNTS=$(CURDIR)/.fuzz-counts FUZZ_SECONDS=$$(( 2 * $(FUZZ_SECONDS) / $(FUZZ_KINDS) )) \
		$(BIN)/python -m pytest tests/fuzz -q -n 2 --timeout 0 $(PYTEST); code=$$?; sort -k 2 .fuzz-counts; rm -f .fuzz-counts; exit $$code

test-all: ## make test, then all other tests: damaged files, real data, a pretended accelerator, Ray, Lightning and Hugging Face, TensorBoard and MLflow, Chromium, twenty kills
	$(MAKE) test
	$(MAKE) test-journeys
	$(MAKE) test-sweeps
	$(MAKE) test-data
	$(MAKE) test-devices
	$(MAKE) test-own-model
	$(MAKE) test-adapters
	$(MAKE) test-sinks
	$(MAKE) test-kills
	$(MAKE) test-ray
	$(MAKE) test-browser

test-journeys: $(VENV)/.dev ## long journeys: the tutorial, every command interrupted, killed and continued, requests in a queue, the choice of a method; five minutes
	$(BIN)/python -m pytest -n 2 --dist loadfile -m journey tests/journeys tests/docs tests/kills

test-sweeps: $(VENV)/.dev ## every page of the dashboard with every file of a run damaged, the error rates of all verdict rules, and the reference problem of the certificates; four minutes on two cores
	$(BIN)/python -m pytest -n 2 -m sweep tests/web tests/unit/study tests/oracles

test-own-model: $(VENV)/.dev ## examples/own_model.py, several labels, a person in a table, DDP and FSDP, up to verified evidence; three minutes
	$(BIN)/python -m pytest -m own_model tests/journeys tests/unit/training

test-devices: $(VENV)/.dev ## training, recording, all methods, metrics, barriers and a request on a pretended accelerator: the CPU's numbers
	$(BIN)/python -m pytest tests/devices

test-gpu: $(VENV)/.dev ## the same on a real accelerator: make test-gpu DEVICE=cuda
	REMANENCE_TEST_DEVICE=$(or $(DEVICE),cuda) $(BIN)/python -m pytest tests/devices

test-data: $(VENV)/.dev ## the slow checks, on the real data in ../shared/data
	$(BIN)/python -m pytest -m data

$(VENV)-adapters/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-adapters
	@echo "Installing Lightning, transformers and model-signing into $(VENV)-adapters"
	$(VENV)-adapters/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt \
		--editable '.[model-signing]' lightning transformers accelerate pytest pytest-timeout hypothesis
	@touch $@

test-adapters: $(VENV)-adapters/.done ## the Lightning and Hugging Face callbacks and the model signature against the real packages
	$(VENV)-adapters/bin/python -m pytest tests/adapters

$(VENV)/.ray: $(VENV)/.dev
	@echo "Installing Ray (257 MB)"
	$(INSTALL) '.[ray]'
	@touch $@

$(VENV)-sinks/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-sinks
	@echo "Installing TensorBoard and MLflow into $(VENV)-sinks"
	$(VENV)-sinks/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt \
		--editable . tensorboard mlflow-skinny sqlalchemy alembic pytest pytest-timeout hypothesis
	@touch $@

test-sinks: $(VENV)-sinks/.done ## measurements of a study in the real TensorBoard and MLflow
	$(VENV)-sinks/bin/python -m pytest tests/sinks

test-ray: $(VENV)/.ray ## studies, calibration, tuning and shadow models on Ray, two nodes of which one is killed: the same bits as on processes
	$(BIN)/python -m pytest tests/ray

$(VENV)/axe.min.js: $(VENV)/.dev
	(cd $(VENV) && npm pack --silent axe-core@4.14.0 && tar --extract --gzip --file axe-core-4.14.0.tgz --strip-components 1 package/axe.min.js && touch axe.min.js) \
		|| echo "No axe-core here (npm is missing or has no network): the tests will say so and skip"

test-browser: $(VENV)/.dev $(VENV)/axe.min.js ## the dashboard in a real Chromium
	$(PIP) install --quiet --constraint constraints.txt playwright
	@command -v chromium >/dev/null || { echo "Installing Chromium"; apt-get update --quiet=2 && apt-get install --quiet=2 --yes chromium >/dev/null; } \
		|| echo "No Chromium here: the tests will say so and skip"
	mkdir -p .bench/screenshots
	REMANENCE_SCREENSHOTS=.bench/screenshots REMANENCE_AXE=$(VENV)/axe.min.js $(BIN)/python -m pytest tests/browser

screenshots: test-browser ## put what test-browser saw into the documentation
	for picture in docs/images/dashboard-*.png; do cp ".bench/screenshots/$$(basename "$$picture")" docs/images/; done

vendor: $(VENV)/.dev ## fetch the JavaScript that the dashboard ships, as tools/vendor.py pins it
	$(BIN)/python tools/vendor.py

bench-requests: $(VENV)/.core ## twenty deletion requests on digits at 0, 12 and 40 reference models, beside real oracles; an hour on two cores
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/requests.py --work .bench/requests --workers 2

bench-forecasts: $(VENV)/.core ## how often the interval of a forecast holds on fresh runs of digits; half an hour on one core
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/forecast_coverage.py --models 12 --seeds 42 43 44 --work .bench/coverage
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/forecast_coverage.py --models 40 --seeds 42 --work .bench/coverage
	$(BIN)/python benchmarks/requests.py --only-page

bench-verdicts: $(VENV)/.core ## how often the verdict on a request is right, for models 10 points short and for oracles; 40 minutes on one core
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/verdicts.py --work .bench/verdicts

bench-streams: $(VENV)/.core ## twenty requests in sequence, in one batch, and retrained once; ten minutes on one core
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/streams.py --work .bench/streams

bench-study: $(VENV)/.core ## two workers against one on equal stages, and ten kills against none; ten minutes on two cores
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/study.py --kills 10

# examples of each run; at 2,000, the nine dense runs take about three hours on one core, and each is kept when it is done
EXAMPLES ?= 2000
bench-recorder: $(VENV)/.dev ## what recording costs, and how well it ranks: about four hours on one core
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/placement.py --work .bench/placement --out benchmarks/results
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/recorder_runs.py --work .bench/recorder --examples $(EXAMPLES)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/recorder.py --work .bench/recorder --examples $(EXAMPLES)

lint: $(VENV)/.dev ## ruff, mypy strict, the layers, no code twice
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pylint --score=n src/remanence

format: $(VENV)/.dev ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-norms: peers ## per-example gradient norms beside a plain pass and the peers; most of an hour on one core
	OMP_NUM_THREADS=1 $(BIN)/remanence doctor --measure
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/norms.py

peers: $(VENV)/.dev ## install BackPACK for comparison, without its pins on other packages
	$(PIP) install --quiet --no-deps backpack-for-pytorch==1.7.1 unfoldNd==0.2.3 einops==0.8.2

test-kills: $(VENV)/.core ## SIGKILL a training run twenty times, resume it, compare it with an undisturbed one
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/kills.py --work .bench/kills

bench-attacks: $(VENV)/.core ## the power of U-LiRA, BaVarIA and RMIA with 2 to 16 shadow models on a planted leak; two minutes on one core
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/attacks.py

bench-relearning: $(VENV)/.core ## an audit of every method on digits, with relearning; five minutes on one core; writes docs/results/relearning.md
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/relearning.py --work .bench/relearning

bench-fast-forgetting: $(VENV)/.core ## joint time of every method on hard, middle and mixed digits, beside oracles; an hour on one core; SETTING=digits-auto
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/fast_forgetting.py --setting $(or $(SETTING),digits-auto) --work .bench/fast-forgetting

bench-audit: $(VENV)/.core ## what all metrics at one evaluation cost beside a plain forward pass; three minutes on one core
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/audit.py --out benchmarks/results

bench-dashboard: $(VENV)/.dev ## the dashboard's answers with 50,000 examples beside one forward pass of ResNet-18; three minutes on two cores
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/dashboard.py

bench-dashboard-load: $(VENV)/.dev ## the answers of the dashboard to one user while 200 clients hammer it; four minutes on two cores
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/dashboard_load.py

bench-accounting: $(VENV)/.core ## time the accounting of 50,000 examples against one norm pass of ResNet-18
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/accounting.py

$(VENV)/.docs: $(VENV)/.dev
	@echo "Installing the tools for the documentation"
	$(INSTALL) '.[docs]'
	@touch $@

bench: bench-norms bench-accounting bench-recorder bench-audit bench-study bench-requests bench-forecasts bench-streams bench-verdicts bench-dashboard bench-dashboard-load ## all benchmarks

docs: $(VENV)/.docs ## build the documentation into site/
	$(BIN)/zensical build --strict --clean

reference: $(VENV)/.dev ## write the reference pages anew from the code
	$(BIN)/python tools/reference.py

clean: ## remove what make made
	rm -rf $(VENV) demo dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
