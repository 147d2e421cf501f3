# Everything a person needs to remember: setup, demo, check, test, bench, soak.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
TENSORFLOW := .venv-tensorflow
DEEPSPEED := .codes/deepspeed
N ?= 50
SEED ?= 1
EXAMPLES ?= 20000
TESTS ?= tests
FAULTS ?= 500
MINUTES ?= 60
WALKS ?= 10

.PHONY: help setup deepspeed demo docs check check-model test test-all tensorflow pythons bench bench-all bench-scale bench-nodes soak soak-containers soak-gasps soak-day soak-everything soak-hostile soak-layouts soak-loops soak-nodes soak-pauses soak-places soak-properties soak-slurm soak-stay matrix codes format clean

help:
	@echo "make demo    install into .venv, train on 4 workers, kill two, watch a warm restart and a cold one"
	@echo "make test    what must hold before a push: real MindSpore and torch, real kills (twelve minutes on two quiet cores)"
	@echo "make test-all  every test, TensorFlow's too: before a release, and nightly"
	@echo "make test STANDBY=2  the same with standbys in every run that can have them; STANDBY=none without"
	@echo "make pythons what needs no framework, with each of Python 3.10 to 3.13 that this machine has"
	@echo "make setup   only the installation (.venv, editable, with test tools)"
	@echo "make deepspeed  what examples/13_deepspeed needs beside it, in a folder of its own; part of make test-all"
	@echo "make tensorflow  a virtual environment for TensorFlow, which will not share one; part of make test-all"
	@echo "make docs    the documentation as a site, in build/site"
	@echo "make check   format, lint, types, layers, one definition a noun, fast tests (under 30 s)"
	@echo "make check-model WALKS=10 SEED=1: what several nodes agree on, explored exhaustively, each guard removed; then minutes of walks"
	@echo "make bench   MINUTES=60: restarts next to every rival, the README's table and plot; goes on where it was cut off"
	@echo "make bench-all  every promise about performance"
	@echo "make bench-scale  1,000 and 4,000 simulated supervisors at one etcd: two minutes"
	@echo "make bench-nodes  2 and 3 nodes in network namespaces: a rank, a host, etcd's leader dies; next to torchrun: 20 minutes"
	@echo "make soak    N=50 SEED=1: that many jobs with a rank killed at random"
	@echo "make soak-day FAULTS=500: a day of random faults, compressed; make matrix: every fault in every phase, and a second one in every phase of a repair"
	@echo "make codes   the codes that people train with, each with each fault, beside torchrun; goes on where it was cut off"
	@echo "make soak-hostile N=500 SEED=1: histories of kills, stops told twice, requeues, files renamed, cut and gone"
	@echo "make soak-layouts N=300 SEED=1: how training codes lay their saves out, each killed as it saves; goes on where it was cut off"
	@echo "make soak-loops N=300 SEED=1: training loops as people write them, a rank killed in each, compared bit for bit; goes on where it was cut off"
	@echo "make soak-nodes N=300 SEED=1: faults over three nodes and a spare with a real etcd; goes on where it was cut off"
	@echo "make soak-stay N=500 SEED=1: ranks killed in trainings whose survivors stay, compared bit for bit; goes on where it was cut off"
	@echo "make soak-everything N=1000 SEED=1: every fault over every training, one node and three; goes on where it was cut off (MINUTES=60 at a time)"
	@echo "make soak-pauses N=200 SEED=1: healthy pauses of 1 to 120 s, of which none may be killed, and hangs with a limit"
	@echo "make soak-properties EXAMPLES=20000 SEED=1 TESTS=tests/core: the property tests, with that many examples each"
	@echo "make soak-slurm  a rendered job in a real SLURM (apt-get install slurm-wlm munge; root): killed, requeued, preempted, cancelled, a node lost"
	@echo "make soak-containers  faultrun as PID 1 of containers (apt-get install podman runc; root)"
	@echo "make soak-gasps  the same with the SDK, half as many stopped: at most one step lost, bit for bit"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[mindspore,torch,codes,view,etcd,docs,dev]'
	@touch $(STAMP)

deepspeed: $(DEEPSPEED)/.ready

# In a folder of its own: transformers and accelerate import a DeepSpeed that they find.
$(DEEPSPEED)/.installed: examples/13_deepspeed/requirements.txt $(STAMP)
	rm -rf $(DEEPSPEED)
	DS_BUILD_OPS=0 $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--target $(DEEPSPEED) --requirement $<
	@touch $@

# Its one kernel needs a C++ compiler for a minute: its own tests wait for it, and no others.
$(DEEPSPEED)/.ready: $(DEEPSPEED)/.installed
	DS_ACCELERATOR=cpu PYTHONPATH=$(DEEPSPEED) PATH=$(CURDIR)/$(DEEPSPEED)/bin:$$PATH TORCH_EXTENSIONS_DIR=$(CURDIR)/.codes/extensions \
		$(BIN)/python -c "from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder as Builder; Builder().load(verbose=False)"
	@touch $@

demo: $(STAMP)
	@$(BIN)/python examples/demo.py

docs: $(STAMP)
	@$(BIN)/python docs/build_site.py

check: $(STAMP)
	@$(BIN)/python tests/check.py

test: $(STAMP)
	$(if $(STANDBY),FAULTRUN_STANDBY=$(STANDBY)) EXAMPLES_ONE_IN=4 $(BIN)/pytest -n 3 -m "not exhaustive" --durations=20

test-all: $(STAMP)
	-@$(MAKE) --no-print-directory $(DEEPSPEED)/.installed $(TENSORFLOW)/.ready
	$(if $(STANDBY),FAULTRUN_STANDBY=$(STANDBY)) $(BIN)/pytest -n 3 --durations=20
	$(TENSORFLOW)/bin/pytest tests/examples/test_tensorflow.py tests/checkpoints/formats/test_tensorflow.py

tensorflow: $(TENSORFLOW)/.ready

# It wants other versions than MindSpore and torch do.
$(TENSORFLOW)/.ready: pyproject.toml constraints.txt
	@test -x $(TENSORFLOW)/bin/python || $(PYTHON) -m venv $(TENSORFLOW)
	$(TENSORFLOW)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[tensorflow]' pytest pytest-timeout pytest-xdist hypothesis scikit-learn
	@touch $@

pythons: $(STAMP)
	@$(BIN)/python tests/pythons.py

check-model: $(STAMP)
	@PYTHONPATH=launcher:tests $(BIN)/python -m model.check $(WALKS) $(SEED)

bench: $(STAMP)
	test -x benchmarks/.rivals/nvrx/bin/ft_launcher || $(BIN)/python -m benchmarks.harness.rivals || true
	$(BIN)/python -m benchmarks.headline --minutes $(MINUTES)

bench-all: bench
	$(BIN)/python -m benchmarks

bench-scale: $(STAMP)
	$(BIN)/python -m benchmarks scale

bench-nodes: $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m benchmarks several_nodes

soak: $(STAMP)
	PYTHONPATH=launcher:tests:. $(BIN)/python -m benchmarks.campaigns.everything --preset kills --faults $(N) --seed $(SEED)

soak-gasps: $(STAMP)
	PYTHONPATH=launcher:tests/support/light:. $(BIN)/python -m benchmarks.campaigns.gasps --runs $(N) --stops $$(($(N) / 2)) --deadlines 20 --seed $(SEED)

soak-day: $(STAMP)
	PYTHONPATH=launcher:tests:. $(BIN)/python -m benchmarks.campaigns.everything --preset day --faults $(FAULTS) --seed $(SEED)

soak-hostile: $(STAMP)
	$(BIN)/python -m benchmarks.campaigns.hostile --histories $(N) --seed $(SEED)

soak-layouts: $(STAMP)
	$(BIN)/python -m benchmarks.campaigns.layouts --layouts $(N) --seed $(SEED) --keep benchmarks/results/attempts/soak-layouts-$(SEED).jsonl

soak-loops: $(STAMP)
	PYTHONPATH=launcher:tests/support/light:. $(BIN)/python -m benchmarks.campaigns.loops --loops $(N) --seed $(SEED) \
		--keep benchmarks/results/attempts/soak-loops-$(SEED).jsonl --page benchmarks/results/loops_zoo.md

soak-nodes: $(STAMP)
	PYTHONPATH=launcher:tests:. $(BIN)/python -m benchmarks.campaigns.everything --preset nodes --faults $(N) --seed $(SEED) \
		--keep benchmarks/results/attempts/soak-nodes-$(SEED).jsonl --page benchmarks/results/soak_nodes.md

soak-stay: $(STAMP)
	PYTHONPATH=launcher:tests:. $(BIN)/python -m benchmarks.campaigns.everything --preset stay --faults $(N) --seed $(SEED) \
		--keep benchmarks/results/attempts/soak-stay-$(SEED).jsonl --page benchmarks/results/soak_stay.md

soak-places: $(STAMP)
	PYTHONPATH=launcher:tests:. $(BIN)/python -m benchmarks.campaigns.everything --preset places --faults $(N) --seed $(SEED) --minutes $(MINUTES) \
		--keep benchmarks/results/attempts/soak-places-$(SEED).jsonl --page benchmarks/results/soak_places.md

soak-everything: $(STAMP)
	PYTHONPATH=launcher:tests:. $(BIN)/python -m benchmarks.campaigns.everything --faults $(N) --seed $(SEED) --minutes $(MINUTES) \
		--keep benchmarks/results/attempts/thousand-$(SEED).jsonl --page benchmarks/results/thousand.md

soak-containers: $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONPATH=launcher:tests:. unshare --mount $(BIN)/python -m benchmarks.campaigns.containers

soak-slurm: $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONPATH=launcher:tests:. unshare --mount $(BIN)/python -m benchmarks.campaigns.slurm

matrix: $(STAMP)
	$(BIN)/python -m benchmarks.campaigns.matrix
	PYTHONPATH=launcher:tests:. $(BIN)/python -m benchmarks.campaigns.everything --preset phases

codes: $(STAMP)
	$(BIN)/python -m benchmarks.codes --minutes $(MINUTES)

soak-pauses: $(STAMP)
	$(BIN)/python -m benchmarks.campaigns.pauses --pauses $(N) --hangs $$(($(N) * 3 / 10)) --seed $(SEED)

soak-properties: $(STAMP)
	EXAMPLES=$(EXAMPLES) $(BIN)/pytest -q -rA --timeout=0 --hypothesis-seed=$(SEED) $(TESTS)

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .codes $(VENV)-3.* $(TENSORFLOW) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
