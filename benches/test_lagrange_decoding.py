"""Decoding Lagrange codes, stage by stage, against the number of polynomials a message sums.

Ozfatura et al. say that more polynomials make decoding cheaper (Remark 1): with 40 workers and ten
computations each, the master needs 79 messages of one polynomial, 39 of two, ..., 7 of ten.
"""

import warnings

import numpy as np
import pytest
from measure import seconds

from fastgc import LagrangeCode, kernels, vandermonde
from fastgc.errors import InstabilityWarning

N, LOAD = 40, 10
POLYNOMIALS = {1: "LCC-MMC", 2: "LCC-MMC-2", 5: "LCC-MMC-5", 10: "LCC"}
ELEMENTS = (1000, 100_000)  # sizes of a gradient


@pytest.mark.parametrize("polynomials", POLYNOMIALS)
def test_stages(benchmark, note, polynomials):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InstabilityWarning)  # only times matter here
        code = LagrangeCode(N, load=LOAD, messages=LOAD // polynomials, limit=None)
    rng = np.random.default_rng(0)
    came = rng.permutation(code.scheme.messages.count)
    survivors = came[: code.threshold]
    nodes = code.beta[survivors]
    product, out = np.empty_like(nodes), np.empty_like(nodes)
    exponent, hit = np.empty((2, nodes.size), dtype=np.int64)

    def products():
        kernels.lagrange_products(nodes, nodes, product, exponent, hit)

    products()
    weights, weight_exponent = 1 / product, -exponent

    def functional():
        kernels.lagrange_basis(nodes, weights, weight_exponent, code.alpha, out)

    stages = {
        "weights": seconds(lambda: [products() for _ in range(20)], 51) / 20,
        "basis": seconds(lambda: [functional() for _ in range(20)], 51) / 20,
        # If all messages came: choosing among them.
        "choice": seconds(lambda: vandermonde.leja_order(code.beta[came]), 51),
    }
    decoder = code.decoder()
    np.testing.assert_array_equal(decoder(survivors), out)
    for p in ELEMENTS:
        decode = code.bind(rng.standard_normal((code.scheme.messages.count, p)))
        stages[f"p={p}"] = seconds(lambda decode=decode: decode(survivors), 51)
    benchmark.group = "lagrange decoding"
    benchmark(decoder, survivors)
    note(
        polynomials=f"{POLYNOMIALS[polynomials]}: {polynomials}",
        messages=code.threshold,
        times=stages,
    )
