# One command for each thing a developer does. Without make: docs/install.md.
.PHONY: help setup demo test lint bench vis-assets broken

help:
	@echo "make setup   install everything into .venv; PYTHON=python3.12 chooses the interpreter,"
	@echo "             LOCKED=1 takes the very files of requirements.lock"
	@echo "make demo    draw faces, then watch a generator learn for three minutes"
	@echo "make test    run the tests; ARGS='-k resume' passes words on to pytest"
	@echo "make lint    check style and types"
	@echo "make bench   measure images/s on this machine"
	@echo "make vis-assets   fetch the files of the visdom page, which the browser tests need"

# The interpreter .venv was made from; empty when .venv is missing or broken.
BASE := $(shell .venv/bin/python -c 'import pip, sys; print(sys._base_executable)' 2>/dev/null)
ifeq ($(origin PYTHON),undefined)
PYTHON := $(or $(BASE),python3)
endif
VERSION := $(shell "$(PYTHON)" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
# With LOCKED=1 the files of requirements.lock are installed, and no others; a .venv that was made so stays so.
LOCK := $(if $(LOCKED)$(wildcard .venv/.installed-$(VERSION)-locked),requirements.lock)
STAMP := .venv/.installed-$(VERSION)$(if $(LOCK),-locked)
# The demo needs less than developing does.
LIGHT := .venv/.light-$(VERSION)
ENOUGH := $(if $(LOCK)$(wildcard $(STAMP)),$(STAMP),$(LIGHT))
UV := $(if $(PIP_INDEX_URL),,$(shell command -v uv))
PIP := $(if $(UV),"$(UV)" pip install --quiet --python .venv/bin/python,.venv/bin/python -m pip install --quiet --disable-pip-version-check)
# The build of torch, a folder of download.pytorch.org; empty for the usual one. The tests need that.
ifeq ($(origin TORCH)$(filter demo,$(MAKECMDGOALS))$(LOCK),undefineddemo)
TORCH := $(shell test "$$(uname)" = Linux && ! command -v nvidia-smi >/dev/null && ! test -e /proc/driver/nvidia && echo cpu)
NOTE := $(if $(TORCH),There is no NVIDIA driver: torch for CPUs is taken; for another one: make demo TORCH=)
endif

setup: $(STAMP)

$(STAMP): NEEDED := requirements-dev.txt
$(STAMP): requirements-extra.txt requirements-dev.txt $(LOCK)
$(LIGHT): NEEDED := requirements.txt
# A stamp of this Python's version stands for a finished set-up, which is brought up to date in place.
# Without one .venv is made anew: it is new, of another Python, or was interrupted.
$(STAMP) $(LIGHT): requirements.txt $(if $(BASE),,broken)
	@test -n "$(VERSION)" || { echo "$(PYTHON) does not start; install Python 3.10 or newer, or name one: make setup PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "$(PYTHON) is Python $(VERSION); 3.10 or newer is needed, name one: make setup PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make a virtual environment; install its venv package (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@echo "Installing into .venv for Python $(VERSION): on Linux a download of $(if $(filter cpu,$(TORCH)),0.4 GB,3 GB, most of it CUDA libraries)."
	@$(if $(NOTE),echo "$(NOTE)")
	@test -n "$(BASE)" -a \( -e $@ -o -z "$(LOCK)" -a -e $(LIGHT) \) || "$(PYTHON)" -m venv --clear .venv
	@rm -f .venv/.installed-* .venv/.light-*
ifeq ($(LOCK),)
	@$(PIP) "setuptools>=77.0.3,<81" wheel
	@$(if $(TORCH),grep ^torch requirements.txt | $(PIP) -r /dev/stdin --index-url https://download.pytorch.org/whl/$(TORCH) 2>/dev/null || echo "That build could not be had; the usual one follows.")
	@$(PIP) --no-build-isolation -r $(NEEDED)
else
	@awk '/^[^ ]/ { tool = /^(packaging|setuptools|wheel)==/ } tool' $(LOCK) | $(PIP) --no-deps --require-hashes -r /dev/stdin
	@$(PIP) --no-build-isolation --require-hashes -r $(LOCK)
endif
	@touch $@

RUN := demo-$(shell date +%Y%m%d-%H%M%S)

demo: $(ENOUGH)
	@echo
	@echo "1/3  Sixty-four faces from the released generator, the best of 512, into result.png:"
	.venv/bin/python generate.py --nogen 64 --gen_search_num=512 --enlarge=4
	@echo
	@echo "2/3  A new generator learns for three minutes from synthetic faces. Watch it in your browser"
	@echo "     at the address below; its samples are also in checkpoints/$(RUN)/samples."
	.venv/bin/python train.py --run=$(RUN) --data_path=synthetic --vis --budget=3 $(DEMO)
	@echo
	@echo "3/3  What it has learned: a grid of its faces."
	.venv/bin/python generate.py --checkpoint=checkpoints/$(RUN) --gen_img=checkpoints/$(RUN)/result.png
	@echo
	@echo "The released generator's faces: result.png. Those of the last three minutes:"
	@echo "checkpoints/$(RUN)/result.png, a film of how they came about: timelapse.webp beside it, and"
	@echo "what happened, with curves: checkpoints/$(RUN)/report.html"
	@echo "All of this in the browser:  .venv/bin/python -m pip install -r requirements-extra.txt && .venv/bin/python app.py"
	@echo "With drawn faces of your own, for ten minutes:  .venv/bin/python train.py --data_path=FOLDER --init=released --budget=10 --vis"

# Small and narrow, so that three minutes on two cores show something; chosen by eye, docs/experiments.md.
DEMO := --image_size=48 --ngf=48 --lr1=2e-3 --lr2=2e-3 --plot_every=60

vis-assets: setup
	.venv/bin/python -c 'from gan import npm; from gan.watching.visdom_assets import ASSETS, folder; npm.fetch(ASSETS, folder())'

test: setup
	.venv/bin/python -m pytest $(ARGS)

# Without the variable pyright looks for a newer version of itself on the network.
lint: setup
	.venv/bin/python -m ruff check .
	.venv/bin/python -m ruff format --check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 .venv/bin/python -m pyright

bench: setup
	.venv/bin/python -m benchmarks.throughput $(ARGS)
