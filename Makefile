# make demo    the README's example, in the environment .venv
# make test    the tests, against the installed wheel, in .venv-test

.PHONY: demo test
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

# What the wheel is built of. Folders, too: the time of one changes when a file in it goes.
SOURCES := pyproject.toml LICENSE $(shell find fastgc csrc -name __pycache__ -prune -o -print)

demo: .venv/installed
	.venv/bin/fastgc train rs uncoded --engine simulated --by-label --cost 0.002 \
	    --delays "16 of exponential:mean=0.01; 4 of exponential:mean=0.2" --plot comparison.png

test: .venv-test/installed
	FASTGC_TEST_INSTALLED=1 .venv-test/bin/pytest

.venv/installed: EXTRAS = train,plot
.venv-test/installed: EXTRAS = test

# Both environments get one wheel. Its version stays the same while sources change, so that pip has
# to be told to install it again.
.venv/installed .venv-test/installed: build/wheel/built
	python3 -m venv $(@D)
	$(@D)/bin/pip install "$$(echo build/wheel/*.whl)[$(EXTRAS)]"
	$(@D)/bin/pip install --quiet --force-reinstall --no-deps build/wheel/*.whl
	touch $@

build/wheel/built: $(SOURCES)
	rm -rf $(@D)
	python3 -m venv build/venv
	build/venv/bin/pip wheel --verbose --no-deps --wheel-dir $(@D) . 2>&1 | \
	    tee build/wheel.log | grep --line-buffered -o '\[[0-9]*/[0-9]*\] .*'
	touch $@
