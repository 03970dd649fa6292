# Two commands set everything up on a fresh machine: `make run` and `make test`. They need Python 3.11 or newer.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: run lab quick test test-slow test-busy check format docs check-site dist test-wheels bench picture public-names clean

# The main job on real input: all six systems, a report each, one table of all claims, the gallery over them.
# Real sentences are read from DATA where it is there (text,label,split); without it, the built-in film verdicts serve.
# It is short: fewer seeds, texts and steps, the same claims. FULL=1 makes the full run.
DATA  ?= $(firstword $(wildcard data/rt_polarity.csv ../shared/data/rt_polarity.csv))
FULL  ?=
run: $(VENV)/all.done
	$(BIN)/attnlab run all $(if $(FULL),--full) $(if $(DATA),--set sentiment.data=$(DATA))

# The lab in the browser: a model that learns in the page, and the runs in runs/ with PyTorch behind them.
lab: $(VENV)/all.done
	$(BIN)/attnlab lab

# A minute of tests, for each save: names and floors, formulas, every site, one experiment from end to end.
QUICK_TESTS = $(addprefix tests/,test_architecture.py test_doctests.py) \
  $(addprefix packages/attnlab/tests/,test_configs.py test_display.py test_sites.py core tasks parts/test_attend.py \
  edits/test_edits_in_numpy.py look/recording/test_looking.py draw/test_document.py experiments/test_sorting.py)
quick: $(VENV)/test.done
	$(BIN)/pytest -n 2 --dist loadgroup -q $(QUICK_TESTS)

test: $(VENV)/test.done
	$(BIN)/pytest -n 2 --dist loadgroup

# The long campaigns, beside the short samples of them that `make test` runs.
test-slow: $(VENV)/slow.done
	$(BIN)/pytest -n 2 --dist loadgroup -m "slow or not slow"

# The suite three times beside two busy processes: no test may depend on the clock.
test-busy: $(VENV)/test.done
	(while :; do :; done) & one=$$!; (while :; do :; done) & two=$$!; trap "kill $$one $$two" EXIT; \
	for round in 1 2 3; do $(BIN)/pytest -n 2 --dist loadgroup -q $(ONLY) || exit 1; done

check: $(VENV)/test.done $(VENV)/check.done
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist loadgroup

format: $(VENV)/check.done
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The site, from disk and for any web host: docs/_build/html/index.html. A warning is an error.
docs: $(VENV)/docs.done
	$(BIN)/python -m sphinx --builder html --fresh-env --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo "docs/_build/html/index.html"

# The site that `make docs` built, in a browser: axe, links, width, requests.
check-site: $(VENV)/test.done
	$(BIN)/python docs/check_site.py docs/_build/html

# Wheels and sdists of all packages: the same bytes from a copy elsewhere, as an index would check them, with the bill of
# materials of what they bring. The environment of the wheels has nothing of this folder, and no pip.
WHEELS = $(VENV)/wheels
INTO_WHEELS = $(BIN)/python -m pip --disable-pip-version-check --python $(WHEELS)/bin/python install --quiet --constraint constraints.txt
BUILD = SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --no-isolation >/dev/null
dist: $(VENV)/release.done
	$(BIN)/python release/version.py
	rm -rf dist $(VENV)/again && mkdir -p $(VENV)/again && cp -r .gitignore packages $(VENV)/again
	for package in packages/*; do \
	  $(BUILD) --outdir dist $$package && $(BUILD) --outdir $(VENV)/again/dist $(VENV)/again/$$package || exit 1; done
	diff --recursive dist $(VENV)/again/dist
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv --clear --without-pip $(WHEELS)
	$(INTO_WHEELS) "$$(grep '^torch==' constraints.txt)"
	$(INTO_WHEELS) dist/*.whl
	$(BIN)/python release/sbom.py $(WHEELS)/bin/python dist/attnlab.cdx.json

# The journeys with the wheels.
test-wheels: dist
	$(INTO_WHEELS) "attnlab[test] @ file://$$(ls $(CURDIR)/dist/attnlab-*.whl)"
	$(WHEELS)/bin/pytest -n 2 --dist loadgroup tests/journeys

# Speed beside the peers, in an environment of their own; then benchmarks/README.md, the figures of README.md and
# docs/evidence.md. About 20 minutes on two quiet cores; FULL=1: everything, in hours. Nothing else should run meanwhile.
bench: $(VENV)/bench/done
	$(VENV)/bench/bin/python benchmarks/run.py $(if $(FULL),--full)

# The README's picture, made by the program.
picture: $(VENV)/test.done
	$(BIN)/python docs/picture.py

# The list of public names, which tests hold: after names were added.
public-names: $(VENV)/test.done
	$(BIN)/python docs/public_names.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

# torch comes first and alone, so that no other package resolves it to a build with gigabytes of CUDA.
$(VENV)/torch.done: constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "attnlab needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another with: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	touch $@

$(VENV)/bench/done: constraints.txt packages/attnlab/pyproject.toml
	$(PYTHON) -m venv --clear $(VENV)/bench
	$(VENV)/bench/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(VENV)/bench/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt \
	  --editable "packages/attnlab[hf,bench]" --editable packages/attnlab-course --editable packages/attnlab-lab
	touch $@

$(VENV)/%.done: $(VENV)/torch.done $(wildcard packages/*/pyproject.toml)
	$(PIP) --editable "packages/attnlab[$*]" --editable packages/attnlab-course --editable packages/attnlab-lab
	touch $@
