r"""Whether a split pattern cuts combining marks (`\p{M}`) from the letters that they belong to.

In Tamil, Hindi, Bengali, Thai and their relatives, vowels are such marks. A pattern whose words are `\p{L}+`,
as GPT-2's, cuts words at each of them. It is measured by the characters that pre-tokens begin with after a
blank.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import unicodedata2 as unicodedata
from numpy.typing import NDArray

LEAST_SHARE = 0.05
LEAST_COUNT = 20
"""Marks that begin pre-tokens now and then are typing errors, or examples in a text about writing."""

_NO_SCRIPT = "Combining"
_NO_WRITING = frozenset({"Variation", "Unnamed"})  # selectors follow emoji
_BLANK = 0x20
_FIRST_OF = np.array([0x80, 0xE0, 0xF0], np.uint8)  # the first bytes of characters of 2, 3 and 4 bytes
_LEADS = np.array([0x7F, 0x1F, 0x0F, 0x07], np.uint32)  # the bits of the first byte that count


def cut_marks(firsts: Mapping[str, int]) -> dict[str, float]:
    """Return the scripts whose marks are cut from their letters."""
    marks, letters = Counter[str](), Counter[str]()
    for character, count in firsts.items():
        kind, script = unicodedata.category(character)[0], _script(character)
        if kind == "M" and script not in _NO_WRITING:
            marks[script] += count
        elif kind == "L":
            letters[script] += count
            letters[_NO_SCRIPT] += count
    shares = {script: number / (number + letters[script]) for script, number in sorted(marks.items())}
    return {s: share for s, share in shares.items() if share >= LEAST_SHARE and marks[s] >= LEAST_COUNT}


@lru_cache(1 << 16)
def _script(character: str) -> str:
    """Return the script of a letter or mark: the first word of its Unicode name, such as `Tamil`."""
    name: str = unicodedata.name(character, "Unnamed")
    return name.partition(" ")[0].capitalize()


def firsts_of_counts(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], counts: NDArray[np.uint64]
) -> Counter[str]:
    """Count the characters that pre-tokens begin with, after a blank; see `PretokenCounts`."""
    starts, ends = offsets[:-1].copy(), offsets[1:]
    inside = starts < ends
    starts[inside] += data[starts[inside]] == _BLANK
    padded = np.append(data, np.zeros(4, np.uint8))
    lead = padded[starts]
    chosen = (starts < ends) & ((lead < 0x80) | (lead >= 0xC2) & (lead < 0xF5))
    starts, ends, lead, counts = starts[chosen], ends[chosen], lead[chosen], counts[chosen]
    following = np.searchsorted(_FIRST_OF, lead, side="right")
    points = lead & _LEADS[following]
    for place in range(1, 4):
        byte = padded[starts + place] & np.uint32(0x3F)
        points = np.where(following >= place, points << np.uint32(6) | byte, points)
    whole = starts + following < ends
    sums = np.bincount(points[whole], weights=counts[whole])
    found = np.flatnonzero(sums)
    pairs = zip(found.tolist(), sums[found].tolist(), strict=True)
    return Counter({chr(point): int(number) for point, number in pairs if point <= sys.maxunicode})


def marks_apart(tokens: Iterable[tuple[str, int]]) -> dict[str, float]:
    """Return the scripts in which tokens hold several letters, but none a letter and its mark."""
    firsts = Counter[str]()
    words = [(text.removeprefix(" "), count) for text, count in tokens if not text.isascii()]  # without marks
    for word, count in words:
        firsts[word[:1]] += count
    del firsts[""]
    inner = set("".join(word[1:] for word, _ in words))
    joined = {_script(mark) for mark in inner if unicodedata.category(mark)[0] == "M"}
    several = {_script(letter) for letter in inner if unicodedata.category(letter)[0] == "L"}
    shares = cut_marks(firsts)
    return {script: share for script, share in shares.items() if script in several - joined}


def marks_apart_in_use(tokens: Sequence[bytes], counts: NDArray[np.uint64]) -> dict[str, float]:
    """Return the same of the tokens of a vocabulary that occur, shares with six digits."""
    pairs = zip(tokens, counts.tolist(), strict=True)
    used = ((token.decode("utf-8", "replace"), n) for token, n in pairs if n and not token.isascii())
    return {script: round(share, 6) for script, share in marks_apart(used).items()}


def describe(split_pattern: str, firsts: Mapping[str, int]) -> str | None:
    """Describe in one sentence which marks a split pattern cuts off; None if it cuts off none."""
    shares = cut_marks(firsts)
    if not shares:
        return None
    scripts = ", ".join(f"{script} ({share:.0%} of pre-tokens)" for script, share in shares.items())
    return (
        f"split_pattern={split_pattern!r:.80} cuts vowel signs and other marks from their letters in "
        f"{scripts}, so that no token can hold a whole word there; use one that keeps them together, such as "
        "'o200k'"
    )
