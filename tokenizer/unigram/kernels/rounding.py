"""Rounding of what a platform's logarithms and exponentials have a part in, before anything is decided by it.

C libraries, and the vector units of processors, give results that differ in the last place. A decision by
such a number (which piece is dropped, which of two is better) would differ with it from machine to machine.
So numbers are rounded to far fewer places than they are exact to, and only then compared, stored or used
again: unless a number lies within some units in its last place of the middle between two steps, which is so
for about one in a billion, all platforms round it alike.

    scores, losses     to steps of 1e-5 nats; sentencepiece's vocabularies show as many digits
    expected counts    to 32 binary digits, where they are compared with a bound
"""

import math

from tokmill.tokenizer.jit import kernel

STEPS = 1e5
"""Steps per nat; decimal, so that few digits say a score exactly."""

_HIGH = 2097153.0  # 2**21 + 1: leaves 32 of 53 binary digits


@kernel(inline=True)
def to_step(nats: float) -> float:
    """Round to steps of 1e-5, halves up; infinities stay."""
    if nats == -math.inf or nats == math.inf:
        return nats
    return math.floor(nats * STEPS + 0.5) / STEPS


@kernel(inline=True)
def to_high_digits(value: float) -> float:
    """Round to 32 binary digits (Veltkamp's splitting); for values far below the greatest float64."""
    scaled = value * _HIGH
    return scaled - (scaled - value)
