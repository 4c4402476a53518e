# make demo    the README's example, in the environment .venv
# make test    the tests, against the installed wheel, in .venv-test

.PHONY: demo test

# What a wheel is built of. Folders, too: the time of one changes when a file in it goes.
SOURCES := pyproject.toml LICENSE $(shell find fastgc csrc -name __pycache__ -prune -o -print)

demo: .venv/installed
	.venv/bin/fastgc train rs uncoded --engine simulated --by-label --cost 0.002 \
	    --delays "16 of exponential:mean=0.01; 4 of exponential:mean=0.2" --plot comparison.png

test: .venv-test/installed
	FASTGC_TEST_INSTALLED=1 .venv-test/bin/pytest

.venv/installed: EXTRAS = train,plot
.venv-test/installed: EXTRAS = test

# Made or, if a source is newer, installed into again.
.venv/installed .venv-test/installed: $(SOURCES)
	python3 -m venv $(@D)
	$(@D)/bin/pip install --quiet ".[$(EXTRAS)]"
	touch $@
