# One line each: the work is done by the console program, `.venv/bin/onionlab --help`.
#
# Variables, behind the target (make experiment NAME=quick NETWORKS=3) or in the environment:
#   NAME        an experiment (`make list`); of some targets, what they make or take
#   SCALE       multiplies hosts and load: 0.1 for a tenth
#   NETWORKS    a number n (networks 1 to n), a list (1,4,7), or auto: as many as it takes to know
#   SEEDS       another name of NETWORKS
#   REPEATS     runs of each variant on each network
#   MAX_NETWORKS  the most networks that NETWORKS=auto may take
#   VARIANTS    some of the experiment's variants, or others that there are: rr,ewma
#   ENGINE      shadow or uml; without it Shadow where it is installed, else the embedded one (uml)
#   SHADOW      path of Shadow, if it is not on the PATH; TGEN, ONIONTRACE, TORNETTOOLS likewise
#   JOBS        at most so many simulations, or compilers, side by side
#   EXECUTOR    slurm: a cluster makes the runs; PARTITION, ACCOUNT, QOS, MAX_JOBS, PROFILE are its own
#   TOR_SOURCE  Tor's source to build, an archive or a tree; LINUX_SOURCE, LIBTORRENT_SOURCE as well
#   PYTHON      the Python that .venv is made with
# Any other one stands in the line of its target.

# Of a cluster. ACCOUNT and the like may stand in the environment for something else: they count with
# EXECUTOR, or where they are on the command line.
NAMED_OF_CLUSTER := $(foreach one,PARTITION ACCOUNT QOS MAX_JOBS PROFILE,$(if $(filter command,$(firstword $(origin $(one)))),$(one)))

# What they hold is text that neither make nor a shell reads, whatever its letters: make does not
# expand them again, and a recipe says "$${NAME}", which its shell takes from the environment.
VARIABLES := NAME SCALE NETWORKS SEEDS REPEATS VARIANTS JOBS ENGINE SHADOW TGEN ONIONTRACE TORNETTOOLS TOR_SOURCE LINUX_SOURCE LIBTORRENT_SOURCE \
	PYTHON MAX_NETWORKS MAX_SEEDS CLAIMS NO_RUN ONLY A B ABOUT PAIRED OUT ACCEPT STATE DURATION SCHEDULER OVERHEAD LOGS PUBLISHED FROM BESIDE LIST \
	STAGED TMODEL OPTIONS \
	EXECUTOR PARTITION ACCOUNT QOS MAX_JOBS PROFILE
define as_text
override $(1) := $$(value $(1))
export $(1)
endef
given = $(filter command environment,$(firstword $(origin $(1))))
$(foreach one,$(VARIABLES),$(if $(call given,$(one)),$(eval $(call as_text,$(one)))))
# Any other one of the command line would go into the environment, make's own doing, and a slip such
# as SEED=3 would be passed over. ONIONLAB_... is for the tests, and what a make around this one was
# given is not meant for it.
OTHERS := $(foreach one,$(filter-out $(VARIABLES) MAKE% SHELL,$(.VARIABLES)),$(if \
	$(filter command,$(firstword $(origin $(one)))),$(one)))
meant = $(firstword $(filter $(1)%,$(VARIABLES)) \
	$(foreach known,$(filter-out A B,$(VARIABLES)),$(if $(filter $(known)%,$(1)),$(known))))
$(if $(filter 0,$(MAKELEVEL)),$(foreach one,$(filter-out ONIONLAB_%,$(OTHERS)),$(error $(one) is no variable of this project$(if \
	$(call meant,$(one)),; did you mean $(call meant,$(one))?): `make help` shows all. For the programs' \
	environment it goes before make: $(one)=... make)))
# Names and values of what is left are not looked at again.
$(foreach one,$(OTHERS),$(eval $(call as_text,$(one))))

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:

READY := .venv/ready
DEV_READY := .venv/ready-dev
ONIONLAB := .venv/bin/python -m onionlab
TOOL := .venv/bin/python -m

# Set in many a container: then every process of ours would compile all that it imports, again and
# again, which takes it longer than its work.
unexport PYTHONDONTWRITEBYTECODE

# Variables reach the program as options where they are set, and only then.
option = $(if $($(1)),--$(2)="$${$(1)}")
TOOLS = $(call option,SHADOW,shadow) $(call option,TGEN,tgen)
ON_NETWORKS = $(call option,NETWORKS,networks) $(call option,SEEDS,seeds)
# MAX_SEEDS is the former name.
AT_MOST = $(call option,MAX_NETWORKS,max-networks) $(call option,MAX_SEEDS,max-networks)
RUNS_OF_EACH = $(ON_NETWORKS) $(call option,REPEATS,repeats)
ASKED = $(call option,SCALE,scale) $(RUNS_OF_EACH) $(call option,VARIANTS,variants) \
	$(call option,ENGINE,engine) $(TOOLS)
of_cluster = $(if $(EXECUTOR)$(filter $(1),$(NAMED_OF_CLUSTER)),$(call option,$(1),$(2)))
CLUSTER = $(call option,EXECUTOR,executor) $(call of_cluster,PARTITION,partition) \
	$(call of_cluster,ACCOUNT,account) $(call of_cluster,QOS,qos) \
	$(call of_cluster,MAX_JOBS,max-jobs) $(call of_cluster,PROFILE,profile)
needed = $(if $($(1)),"$${$(1)}",$(error $(1) is missing: $(2)))
NAMED = -- $(call needed,NAME,`make $@ NAME=quick`; `make list` shows the names)
SIDES = `make compare A=quick:ewma B=quick:rr`

# TOR_SOURCE is for every verb: make puts it into their environment, whether it stands on the command
# line or comes from there.

.PHONY: help setup setup-dev list doctor estimate build generate run experiment analyse report pack unpack
.PHONY: celltrace-live compare-engines compare import-consensus import-network generate-network export-tornettools nightly figures test test-all test-rest lint docs check-variants lock clean-build clean-results clean-setup clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22
	@sed -n '/^# Variables, /,/^# Any/{s/^# \?//; s/^V/\nV/; p}' $(MAKEFILE_LIST)

setup: ## install the Debian packages that are missing and the Python environment .venv
	@onionlab/setup.sh

setup-dev: ## what tests, checks and documentation take besides; they ask for it themselves
	@onionlab/setup.sh --dev

# An environment knows the folder that it was made in: one that was moved or copied is made anew.
# One that is a link is its owner's matter.
ifneq ($(shell test -L .venv || cat .venv/place 2>/dev/null),$(shell test -L .venv || pwd -P))
moved:
$(READY): moved
endif

# Where runs are to be made next, builds begin while Python's packages are being installed.
experiment run figures nightly: AHEAD = --ahead
$(READY): requirements-build.lock requirements.lock pyproject.toml configs/apt-packages.txt onionlab/setup.sh
	@onionlab/setup.sh $(AHEAD)

$(DEV_READY): $(READY) requirements-dev.lock
	@onionlab/setup.sh --dev

list: $(READY) ## the experiments and the variants of Tor
	@$(ONIONLAB) list

doctor: $(READY) ## what this machine has and lacks [NAME: for this experiment; EXECUTOR: and a cluster]
	@$(ONIONLAB) doctor $(ASKED) $(CLUSTER) $(if $(NAME),-- "$${NAME}")

estimate: $(READY) ## what the runs of NAME take: time, memory, disk; makes nothing [NETWORKS=auto]
	@$(ONIONLAB) estimate $(ASKED) $(call option,JOBS,jobs) $(AT_MOST) $(NAMED)

build: $(READY) ## build Tor for all variants
	@$(ONIONLAB) build $(call option,JOBS,jobs)

generate: $(READY) ## write the files of the runs of NAME, without running
	@$(ONIONLAB) generate $(ASKED) $(NAMED)

run: $(READY) ## make the runs of NAME that are missing
	@$(ONIONLAB) run $(ASKED) $(call option,JOBS,jobs) $(CLUSTER) $(NAMED)

experiment: $(READY) ## everything for NAME: set up, build, run, analyse, report [NETWORKS=auto]
	@$(ONIONLAB) experiment $(ASKED) $(call option,JOBS,jobs) $(AT_MOST) \
		$(CLUSTER) $(NAMED)

compare-engines: $(READY) ## NAME on each engine: what moves with the engine [ENGINE=a,b]
	@$(ONIONLAB) compare-engines $(ASKED) $(call option,JOBS,jobs) $(CLUSTER) $(NAMED)

compare: $(READY) ## is B worse than A: A=quick:ewma B=quick:rr [ABOUT=variant] [PAIRED=no] [OUT=folder]
	@$(ONIONLAB) compare $(call option,ABOUT,about) $(call option,PAIRED,paired) $(call option,OUT,out) \
		-- $(call needed,A,$(SIDES)) $(call needed,B,$(SIDES))

nightly: $(READY) ## the list in experiments/nightly.yaml against its baseline [ACCEPT=1 makes one; LIST, STATE]
	@$(ONIONLAB) nightly $(if $(ACCEPT),--accept) $(call option,LIST,list) $(call option,STATE,state) \
		$(RUNS_OF_EACH) $(call option,ENGINE,engine) $(TOOLS) $(call option,JOBS,jobs) \
		$(CLUSTER)

celltrace-live: $(READY) ## trace a real guard with LTTng on this machine [DURATION, SCHEDULER, OVERHEAD]
	@onionlab/setup.sh configs/apt-packages-lttng.txt
	@$(ONIONLAB) celltrace-live $(call option,DURATION,seconds) $(call option,SCHEDULER,scheduler) \
		$(call option,OVERHEAD,overhead) $(call option,JOBS,jobs)

analyse: $(READY) ## read the logs of NAME's finished runs anew; `make report` shows them
	@$(ONIONLAB) analyse $(NAMED)

figures: $(READY) ## the paper's figures and claims, running what is missing [SCALE, NETWORKS, ENGINE; CLAIMS; NO_RUN; FROM; BESIDE]
	@$(ONIONLAB) figures $(ASKED) $(call option,JOBS,jobs) $(call option,CLAIMS,claims) $(if $(NO_RUN),--no-run) \
		$(call option,FROM,from) $(call option,BESIDE,beside) $(CLUSTER)

pack: $(READY) ## the runs of NAME in one file, to publish or to go on elsewhere [OUT, NETWORKS, LOGS=1, PUBLISHED=1]
	@$(ONIONLAB) pack $(call option,OUT,out) $(ON_NETWORKS) $(if $(LOGS),--logs) \
		$(if $(PUBLISHED),--published) $(NAMED)

unpack: $(READY) ## take the runs of such files, so that they are not made again: FROM="file ..."
	@$(ONIONLAB) unpack -- $(call needed,FROM,`make $@ FROM=runs.tar.xz`)

import-network: $(READY) ## keep networks of `tornettools generate` as NAME, one a seed: FROM="directory ..."
	@$(ONIONLAB) import-network --name=$(call needed,NAME,`make $@ FROM=tornet NAME=name`) \
		-- $(call needed,FROM,`make $@ FROM=tornet NAME=name`)

import-consensus: $(READY) ## relays' weights of a consensus as distributions of capacity NAME: FROM=file
	@$(ONIONLAB) import-consensus --name=$(call needed,NAME,`make $@ FROM=consensus NAME=name`) \
		-- $(call needed,FROM,`make $@ FROM=consensus NAME=name`)

generate-network: $(READY) ## tornettools makes networks NAME: STAGED=dir TMODEL=dir [NETWORKS, OPTIONS="--network_scale ..."]
	@$(ONIONLAB) generate-network --name=$(call needed,NAME,`make $@ NAME=name STAGED=dir TMODEL=dir`) \
		--staged=$(call needed,STAGED,what `tornettools stage` wrote) \
		--tmodel=$(call needed,TMODEL,a copy of tmodel-ccs2018.github.io) \
		$(ON_NETWORKS) $(call option,OPTIONS,options)

export-tornettools: $(READY) ## runs of NAME as directories for tornettools' parse, plot and archive [OUT]
	@$(ONIONLAB) export-tornettools $(call option,OUT,out) $(NAMED)

report: $(READY) ## the report of NAME
	@$(ONIONLAB) report $(NAMED)

# Files that take long start first (tests/suite_order.py), and all CPUs are at work until the end.
PYTEST = $(TOOL) pytest --dist loadfile --no-loadscope-reorder --durations 25 --numprocesses
QUICK_TESTS = not slow or always

TEST_LISTS = $(foreach one,lint test libtorrent,configs/apt-packages-$(one).txt)
# Tests with a cluster of their own are among the rest.
REST_LISTS = $(TEST_LISTS) configs/apt-packages-slurm.txt
# Those mostly wait for Slurm: the CPUs are at work with one process of tests more.
ONE_MORE = $$(($$(nproc) + 1))

test: $(DEV_READY) ## the tests for every change, in minutes: with a real run; builds Tor and the kernel
	@onionlab/setup.sh $(TEST_LISTS)
	@$(PYTEST) logical -m "$(QUICK_TESTS)"

test-all: $(DEV_READY) ## every test; builds all variants of Tor, and libtorrent
	@onionlab/setup.sh $(REST_LISTS)
	@$(PYTEST) $(ONE_MORE)

test-rest: $(DEV_READY) ## what test-all has more than test
	@onionlab/setup.sh $(REST_LISTS)
	@$(PYTEST) $(ONE_MORE) -m "not ($(QUICK_TESTS))"

lint: $(DEV_READY) ## formatting, lint, what may import what, and types
	@onionlab/setup.sh configs/apt-packages-lint.txt
	@$(TOOL) ruff format --check .
	@$(TOOL) ruff check .
	@.venv/bin/lint-imports --no-cache
	@$(TOOL) mypy
	@shellcheck onionlab/setup.sh .ci/run

docs: $(DEV_READY) ## the documentation as a site in build/docs, its links checked
	@$(TOOL) sphinx --fail-on-warning --keep-going --quiet --jobs auto docs build/docs

check-variants: $(READY) ## Tor's own unit tests on every build, plain and with AddressSanitizer
	@$(ONIONLAB) check-variants $(call option,ONLY,only) $(call option,JOBS,jobs)

# For whoever changes requirements*.in. The lowest supported Python decides the versions, so that
# every Python gets the same ones; uv is not among the dependencies: https://docs.astral.sh/uv/
UV_COMPILE = uv pip compile --quiet --no-header --upgrade --generate-hashes \
	--python-version 3.11 --python-platform linux
lock: ## make requirements*.lock anew from requirements*.in (needs uv)
	$(UV_COMPILE) --output-file requirements-build.lock requirements-build.in
	$(UV_COMPILE) --output-file requirements.lock requirements.in
	$(UV_COMPILE) --constraint requirements.lock $$(sed -n 's/^\([^ #]*\)==.*/--no-emit-package \1/p' requirements.lock) \
		--output-file requirements-dev.lock requirements-dev.in

clean-build: ## remove Tor's source and builds
	rm -rf build

clean-results: ## remove all runs and results
	rm -rf runs results

clean-setup: ## remove the Python environment
	rm -rf .venv *.egg-info

clean: clean-build clean-setup ## remove all that can be made again; keeps runs and results
