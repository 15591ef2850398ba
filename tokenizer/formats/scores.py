"""Scores in a `tokenizer.json`, as Hugging Face's tokenizers read them.

Their JSON reader (serde_json) takes the digits of a number for an integer and divides it by a power of ten.
Both steps round, so a number of 16 or 17 digits may come out as a neighbour of what it says. A difference in
the last place decides between equal sums of scores, as `fffff` has them; so we read a number as they do, and
write one that they read as the number we mean.
"""

import math
from collections.abc import Iterator

_MOST = 308  # the greatest power of ten
_FAR = 4  # neighbours that are tried; reading moves a number by one at most


def as_read(score: float) -> float:
    """Return what tokenizers read where a file has this score in its shortest form; NaN and ∞ stay."""
    if not math.isfinite(score):
        return score
    digits, _, exponent = repr(float(score)).lower().partition("e")
    whole, _, fraction = digits.lstrip("-").partition(".")
    power, significand = int(exponent or 0) - len(fraction), float(int(whole + fraction))
    while power < -_MOST:
        significand, power = significand / float(f"1e{_MOST}"), power + _MOST
    found = significand / float(f"1e{-power}") if power < 0 else significand * float(f"1e{power}")
    return math.copysign(found, score)


def as_written(score: float) -> float | None:
    """Return the score to write so that tokenizers read this one; None if there is none."""
    return next((found for found in _neighbours(score) if as_read(found) == score), None)


def _neighbours(score: float) -> Iterator[float]:
    """Yield a number and those around it, the nearest first."""
    below = above = score
    yield score
    for _ in range(_FAR):
        below, above = math.nextafter(below, -math.inf), math.nextafter(above, math.inf)
        yield from (below, above)
