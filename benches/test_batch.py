"""Decoding vectors of many rounds in one call, against a call for each."""

import numpy as np
import pytest
from measure import seconds

import fastgc

CODES = {
    "Reed-Solomon 80/12": fastgc.ReedSolomon(80, stragglers=12),
    "Reed-Solomon 80/12 in clusters": fastgc.ReedSolomon(80, stragglers=12, clusters="auto"),
    "Reed-Solomon 1000/100 in clusters": fastgc.ReedSolomon(1000, stragglers=100, clusters="auto"),
    "Reed-Solomon 1024/128": fastgc.ReedSolomon(1024, stragglers=128),
    "binary 80/12": fastgc.BinaryCode(80, stragglers=12),
}


@pytest.mark.parametrize("name", CODES)
def test_batch(benchmark, note, name):
    code, rng = CODES[name], np.random.default_rng(0)
    rounds = 5000 if code.n < 500 else 300
    masks = np.ones((rounds, code.n), dtype=bool)
    for mask in masks:
        mask[rng.permutation(code.n)[: code.stragglers]] = False
    sets = list(map(np.flatnonzero, masks))
    code.scheme.cache = None  # otherwise repeated sets would be looked up
    decode = code.decoder()

    def one_by_one():
        for survivors in sets:
            decode(survivors)

    benchmark.group = "batch"
    benchmark.pedantic(code.decoding_vectors, (masks,), rounds=9, warmup_rounds=1)
    note(batch=name, rounds=rounds, loop_seconds=seconds(one_by_one, 5))
