"""Read and make messages of float16 and bfloat16, by the format of `fastgc.coding.format`."""

import numpy as np

from fastgc import Uncoded


def exponent_of(message):
    """Return the exponent of the power of two that scales a message."""
    if message.dtype != np.float16:
        return 0
    bits = int(message.view(np.uint16)[-1])
    assert bits >> 9 == 0x7E00 >> 9
    assert bits & 0x1FF
    return (bits & 0x1FF) - 256


def mantissas(message):
    """Return a message's elements, not scaled."""
    return message[:-1] if message.dtype == np.float16 else message


def values(message):
    """Return the numbers that a message stands for, as float64."""
    return np.ldexp(mantissas(message).astype(np.float64), exponent_of(message))


def made_of(numbers, half):
    """Return a message of these numbers, of dtype `half`."""
    return Uncoded(1).encode(0, [np.array(numbers, np.float32)], message_dtype=half)
