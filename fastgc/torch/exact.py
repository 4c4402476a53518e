"""Sums of tensors that are the same in every order: exact, of rounded terms.

Terms are multiplied by one power of two and rounded to integers of 64 bits, whose sums are exact.
The power follows from the largest modulus of all terms and from how many there are, such that no
sum overflows. It is a multiple of 8, so that it is most often that of the step before, in whose
unit terms may be added before all are there: `exponent_of` has 55 - ceil(log2 terms) bits at least
stand for the largest modulus. So each term is off by at most 2^-(55 - ceil(log2 terms)) times the
largest modulus: 2^-51 of it for 12 terms.
"""

from __future__ import annotations

import math

import torch

from ..kernels import unchecked

_FLOATS = (torch.float32, torch.float64)
_BITS = 62  # of a sum's modulus
_STEP = 8  # binary digits by which units are apart


def largest(tensor: torch.Tensor) -> float:
    """Return the largest modulus, 0 if there is no element; Inf if an element is not finite."""
    if not tensor.numel():
        return 0.0
    least, most = torch.aminmax(tensor.detach())
    found = max(abs(float(most)), abs(float(least)))
    return math.inf if math.isnan(found) else found  # what is compared must not be NaN


def exponent_of(modulus: float, terms: int) -> int:
    """Return e such that `terms` terms of this modulus at most, times 2^e, have a sum below 2^62.

    It is the largest such multiple of 8.

    Raises
    ------
    ValueError
        If the modulus is not finite, or not a modulus.
    """
    if not 0 <= modulus < math.inf:
        raise ValueError(f"modulus must be finite and not negative, not {modulus!r}")
    if terms < 1:
        raise ValueError(f"terms must be at least 1, not {terms!r}")
    most = _BITS - (terms - 1).bit_length() - math.frexp(modulus)[1]
    return most // _STEP * _STEP


def top_of(exponent: int, terms: int) -> float:
    """Return the smallest modulus of which `exponent_of` is this exponent."""
    return math.ldexp(1.0, _BITS - _STEP - (terms - 1).bit_length() - exponent)


def add(
    total: torch.Tensor, term: torch.Tensor, exponent: int, terms: int = 1, keep: bool = True
) -> float:
    """Add a term, times 2^exponent and rounded to nearest, ties to even, to integers of its shape.

    If `keep` is False, the integers count as 0. Return how many elements, as the largest of so many
    `terms`, have this `exponent_of`; Inf if some are not finite, or too large: they are left out.
    """
    whole = term.detach().cpu().reshape(-1)
    if whole.dtype not in _FLOATS:
        whole = whole.float()
    most = 2.0 ** (_BITS - (terms - 1).bit_length())
    numbers = float(exponent), most / 2**_STEP, most, float(keep)
    return float(unchecked.add_fixed(whole.numpy(), _flat(total), *numbers))


def put_back(total: torch.Tensor, exponent: int, out: torch.Tensor) -> None:
    """Write the integers, times 2^-exponent, to floats of their shape: each is rounded once.

    Elements of other dtypes than float64 are rounded to float32, and then to theirs.
    """
    dtype = torch.float64 if out.dtype == torch.float64 else torch.float32
    direct = out.dtype == dtype and out.device.type == "cpu" and out.is_contiguous()
    found = out if direct else torch.empty(out.shape, dtype=dtype)
    unchecked.from_fixed(_flat(found), _flat(total), float(exponent))
    if not direct:
        out.copy_(found)


def _flat(tensor: torch.Tensor) -> object:
    return tensor.detach().view(-1).numpy()
