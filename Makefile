# Each target but those for developers calls the command of its name: `.venv/bin/onionlab --help`.
#
# Variables, on the command line (make experiment NAME=quick NETWORKS=3) or in the environment:
#   NAME        an experiment (`make list`); for imports, the name of the result
#   SCALE       multiply hosts and load: 0.1 for a tenth
#   NETWORKS    a number n (networks 1 to n), a list (1,4,7), or auto: as many as the answer needs
#   SEEDS       another name of NETWORKS
#   REPEATS     runs of each variant on each network
#   MAX_NETWORKS  the most networks that NETWORKS=auto may use
#   VARIANTS    variants to run instead of the experiment's: rr,ewma
#   ENGINE      shadow or uml; default: Shadow if it is installed, else the embedded engine (uml)
#   SHADOW      path of Shadow, if it is not on the PATH; also TGEN, ONIONTRACE, TORNETTOOLS
#   JOBS        the most simulations, or compilers, that run at a time
#   EXECUTOR    slurm or generic: run on a cluster; options: PARTITION, ACCOUNT, QOS, MAX_JOBS, PROFILE
#   TOR_SOURCE  source of Tor, an archive or a tree; also LINUX_SOURCE, LIBTORRENT_SOURCE
#   VARIANTS_FILE  a file with variants of Tor of your own, in addition to tor-patches/variants.yaml
#   PYTHON      the Python that .venv is created with
# Other variables are shown with their targets and count on the command line only.

# Treat the values of variables as text. make does not expand them, and commands read them from their
# environment (onionlab/make.py), so that neither make nor a shell executes a part of a value.
MAKE_VARIABLES := $(filter-out MAKE% SHELL,$(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name))))
define as_text
override $(1) := $$(value $(1))
export $(1)
endef
$(foreach name,$(MAKE_VARIABLES),$(eval $(call as_text,$(name))))
export MAKE_VARIABLES

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:

# Many containers set this. Without .pyc files every process would compile all of its imports.
unexport PYTHONDONTWRITEBYTECODE

READY := .venv/ready
DEV_READY := .venv/ready-dev
PYTHON_M := .venv/bin/python -m

COMMANDS := list doctor estimate build generate run experiment compare-engines compare compare-tor bisect nightly analyse \
	figures pack unpack import-network import-consensus generate-network export-tornettools report check-variants
.PHONY: help setup setup-dev $(COMMANDS) celltrace-live test test-all test-rest lint docs lock clean-build clean-results clean-setup clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 22
	@sed -n '/^# Variables, /,/^# Other/{s/^# \?//; s/^V/\nV/; p}' Makefile

setup: ## install missing Debian packages and the Python environment .venv
	@onionlab/setup.sh
	@$(PYTHON_M) onionlab schema --write

setup-dev: ## also install what tests, checks and documentation need
	@onionlab/setup.sh --dev

# The scripts of an environment contain its path. One that is a link belongs to its owner.
ifneq ($(shell test -L .venv || sed 1q .venv/place 2>/dev/null),$(shell test -L .venv || pwd -P))
.PHONY: $(READY)
endif
$(READY): requirements-build.lock requirements.lock pyproject.toml configs/apt-packages.txt onionlab/setup.sh
	@onionlab/setup.sh
	@$(PYTHON_M) onionlab schema --write

$(DEV_READY): $(READY) requirements-dev.lock
	@onionlab/setup.sh --dev

$(COMMANDS): $(READY)
	@$(PYTHON_M) onionlab.make $@

list: ## show the experiments and the variants of Tor
doctor: ## check what this machine has and lacks [NAME: for this experiment; EXECUTOR: and a cluster]
estimate: ## predict time, memory and disk of the runs of NAME, without running [NETWORKS=auto]
build: ## build Tor for all variants
generate: ## write the files of the runs of NAME, without running
run: ## run the simulations of NAME that are missing
experiment: ## set up, build, run, analyse and report NAME [NETWORKS=auto]
compare-engines: ## run NAME on each engine and report what differs [ENGINE=a,b]
compare: ## test whether B is worse than A: A=quick:ewma B=quick:rr [ALLOW_DIFF=variant, UNPAIRED=1, OUT=folder]
compare-tor: ## build two commits of Tor and test whether B is worse than A: A=main B=my-branch TOR_GIT=path [NAME=today, NETWORKS=auto]
bisect: ## find the first commit of Tor at which an endpoint got worse: GOOD=a BAD=b TOR_GIT=path ENDPOINT=ttfb_p50_s [NAME=today, MAX_NETWORKS=40, SKIP=commits]
nightly: ## compare experiments/nightly.yaml with its baseline [UPDATE_BASELINE=1; CONFIG, STATE_DIR; TOR_GIT=path REF=main]
analyse: ## extract the records of NAME's finished runs from their logs again; `make report` shows them
figures: ## plot the paper's figures and test its claims, running what is missing [SCALE, NETWORKS, ENGINE, CLAIMS, NO_RUN=1, PACKS, COMPARE_WITH]
pack: ## write the runs of NAME into one file, to publish or move them [OUT, NETWORKS, LOGS=1, PUBLISHED=1]
unpack: ## add the runs of such files to the store: FROM="file ..."
import-network: ## import networks of `tornettools generate` as NAME, one for each seed: FROM="directory ..."
import-consensus: ## import the relay weights of a consensus as capacity distributions NAME: FROM=file
generate-network: ## generate networks NAME with tornettools: STAGED_DIR=dir TMODEL_DIR=dir [NETWORKS, OPTIONS="--network_scale ..."]
export-tornettools: ## export runs of NAME for tornettools' parse, plot and archive [OUT]
report: ## write the report of NAME
check-variants: ## run Tor's own unit tests on every build, plain and with AddressSanitizer [ONLY]

celltrace-live: $(READY) ## trace a real guard with LTTng on this machine [DURATION, SCHEDULER, OVERHEAD]
	@onionlab/setup.sh configs/apt-packages-lttng.txt
	@$(PYTHON_M) onionlab.make $@

# tests/suite_order.py starts long files first, so that all CPUs are busy until the end. The tests
# with a cluster mostly wait for Slurm, so test-all and test-rest use one more process.
PYTEST := $(PYTHON_M) pytest --dist loadfile --no-loadscope-reorder --durations 25 --numprocesses
ONE_MORE := $$(($$(nproc) + 1))
QUICK_TESTS := not slow or always
TEST_LISTS := $(patsubst %,configs/apt-packages-%.txt,lint test libtorrent)

test: $(DEV_READY) ## run the tests for every change, in minutes; builds Tor and the kernel
	@onionlab/setup.sh $(TEST_LISTS)
	@$(PYTEST) logical -m "$(QUICK_TESTS)"

test-all: $(DEV_READY) ## run every test; builds all variants of Tor, and libtorrent
	@onionlab/setup.sh $(TEST_LISTS) configs/apt-packages-slurm.txt
	@$(PYTEST) $(ONE_MORE)

test-rest: $(DEV_READY) ## run the tests of test-all that are not in test
	@onionlab/setup.sh $(TEST_LISTS) configs/apt-packages-slurm.txt
	@$(PYTEST) $(ONE_MORE) -m "not ($(QUICK_TESTS))"

lint: $(DEV_READY) ## check format, lint, imports between packages, and types
	@onionlab/setup.sh configs/apt-packages-lint.txt
	@$(PYTHON_M) ruff format --check .
	@$(PYTHON_M) ruff check .
	@.venv/bin/lint-imports --no-cache
	@$(PYTHON_M) mypy
	@shellcheck onionlab/setup.sh .ci/run

docs: $(DEV_READY) ## build the documentation as a site in build/docs, and check its links
	@$(PYTHON_M) sphinx --fail-on-warning --keep-going --quiet --jobs auto docs build/docs

# All Python versions use the packages that suit the oldest one.
LOCK := .venv/bin/uv pip compile --quiet --no-header --upgrade --generate-hashes --python-version 3.11 --python-platform linux
lock: $(READY) ## update requirements*.lock from requirements*.in
	$(LOCK) --output-file requirements-build.lock requirements-build.in
	$(LOCK) --output-file requirements.lock requirements.in
	$(LOCK) --constraint requirements.lock $$(sed -n 's/^\([^ #]*\)==.*/--no-emit-package \1/p' requirements.lock) \
		--output-file requirements-dev.lock requirements-dev.in

clean-build: ## remove Tor's source and builds
	rm -rf build

clean-results: ## remove all runs and results
	rm -rf runs results

clean-setup: ## remove the Python environment
	rm -rf .venv *.egg-info

clean: clean-build clean-setup ## remove everything that can be built again; keeps runs and results
