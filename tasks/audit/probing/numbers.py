"""Numbers: how those of equal length are cut, and whether digits line up for arithmetic.

Numbers from 0 to 9999 are encoded one by one, and give one row for each length.
"""

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np

from tokmill.tasks.audit.probing.judging import Encoded, Judge, Probe, Verdict, cut_of
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.buffers import pack

_LONGEST = 4
_CASES = ("1234567", "12345678", "123456789")


def number_probes() -> Iterator[Probe]:
    """Yield a probe for each length of numbers, and for sums."""
    for length in range(1, _LONGEST + 1):
        first = 0 if length == 1 else 10 ** (length - 1)
        yield Probe(
            f"numbers of {length} digits" if length > 1 else "numbers of 1 digit",
            "numbers",
            str(first),
            "all are cut at the same digits",
            _cut_alike(range(first, 10**length)),
        )
    for text in _CASES:
        yield Probe(f"{len(text)} digits", "arithmetic", text, "groups line up from the right", _lines_up)
    yield Probe(
        "columns of a sum",
        "arithmetic",
        "12345 + 6789 = 19134",
        "groups line up from the right",
        _sum_lines_up,
    )


def cuts_of(tok: Tokenizer, numbers: range) -> "Counter[tuple[int, ...]]":
    """Return how many of the numbers have each cut, as the digits in each token."""
    found = tok.locate_buffers(*pack([str(number) for number in numbers]), as_text=True)
    digits = np.concatenate([np.zeros(1, np.int64), np.cumsum((found.data >= 48) & (found.data <= 57))])
    lengths = (digits[found.ends] - digits[found.starts]).tolist()
    ends = found.offsets.tolist()
    parts = (lengths[begin:end] for begin, end in itertools.pairwise(ends))
    return Counter(tuple(length for length in cut if length) for cut in parts)


def _cut_alike(numbers: range) -> Judge:
    def judge(tok: Tokenizer, found: Encoded) -> Verdict:
        cuts = cuts_of(tok, numbers)
        order = sorted(cuts.items(), key=lambda pair: (-pair[1], pair[0]))
        listed = ", ".join(f"{'+'.join(map(str, cut)) or 'unknown'}: {number}" for cut, number in order)
        return Verdict(len(cuts) == 1 and () not in cuts, f"digits in tokens of {len(numbers)}: {listed}")

    return judge


def _lines_up(tok: Tokenizer, found: Encoded) -> Verdict:
    groups = cut_of(tok, found.text)
    return Verdict(_from_right(groups, found.text), f"{found.figures}: {'|'.join(groups)}")


def _sum_lines_up(tok: Tokenizer, found: Encoded) -> Verdict:
    numbers = "".join(s if s.isdigit() else " " for s in found.text).split()
    left = [part for part in cut_of(tok, found.text) if part.isdigit()]
    groups = [_take(left, len(number)) for number in numbers]
    sizes = {len(part) for parts in groups for part in parts[1:]}
    met = len(sizes) <= 1 and all(map(_from_right, groups, numbers))
    return Verdict(met, f"{found.figures}: {' '.join('|'.join(parts) for parts in groups)}")


def _take(left: list[str], number: int) -> list[str]:
    """Take parts away from the front of a list until they have so many characters."""
    taken: list[str] = []
    while left and sum(map(len, taken)) < number:
        taken.append(left.pop(0))
    return taken


def _from_right(groups: list[str], text: str) -> bool:
    """Whether all groups but the first have one size, and the first is no longer."""
    if "".join(groups) != text:
        return False
    sizes = [len(group) for group in groups]
    return len(set(sizes[1:])) <= 1 and sizes[0] <= max(sizes[1:], default=sizes[0])
