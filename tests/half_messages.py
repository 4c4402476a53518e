"""Messages of two bytes: read as `fastgc.coding.format.Format` says, and made of numbers."""

import numpy as np

from fastgc import Uncoded


def exponent_of(message):
    """Of the power of two that a message is to be multiplied by."""
    if message.dtype != np.float16:
        return 0
    bits = int(message.view(np.uint16)[-1])
    assert bits >> 9 == 0x7E00 >> 9
    assert bits & 0x1FF
    return (bits & 0x1FF) - 256


def mantissas(message):
    """Its elements, over that."""
    return message[:-1] if message.dtype == np.float16 else message


def values(message):
    """The numbers that a message stands for, as float64."""
    return np.ldexp(mantissas(message).astype(np.float64), exponent_of(message))


def made_of(numbers, half):
    """A message of these numbers."""
    return Uncoded(1).encode(0, [np.array(numbers, np.float32)], message_dtype=half)
