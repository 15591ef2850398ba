"""The tables of rules inside SentencePiece's models: compiled, taken apart, and read from its TSV.

At each place of a text the longest rule applies. A compiled table is the size of a double array, the array,
and the texts in order of their code points, with a zero byte after each. The double array is what darts-clone
builds: equal branches are stored once, and a state is laid out at the first free offset. A unit has, from its
highest bit: for a value 1 and 31 bits of it; for a state its offset (21 bits, or 29 with the bit 9), whether
a string ends here (bit 8), and the byte that leads to it.

Law: compiled rules are, byte for byte, what sentencepiece's trainer makes. Source: Yata's darts-clone.
"""

import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import FormatError, TokenizerError
from tokmill.tokenizer.core.text import has_surrogates, split_lines

_BLOCK, _FREE = 256, 16 * 256
_UPPER, _LOWER = 0xFF << 21, 0xFF
_VALUE, _LEAF, _FAR = 1 << 31, 1 << 8, 1 << 9
_KEPT = _VALUE | _LEAF | 0xFF


@dataclass(eq=False)
class _State:
    """What strings may go on with: bytes in order, each with a state; 0 for their end, with a value.

    Attributes:
        branches: byte → the next state, or the value.
        shared: whether several strings lead here.
        offset: where it was laid out first; 0 for not yet.
    """

    branches: "dict[int, _State | int]"
    shared: bool = False
    offset: int = 0


def double_array(keys: Sequence[bytes], values: Sequence[int]) -> NDArray[np.uint32]:
    """Return the array of a trie of increasing keys, without zero bytes, and values below 2^31."""
    builder = _Builder()
    builder.lay_out(_minimal(keys, values), 0)
    builder.close()
    return np.array(builder.units, np.uint32)


def _minimal(keys: Sequence[bytes], values: Sequence[int]) -> _State:
    """Return the state of all strings, with equal states made one."""
    known = dict[tuple[tuple[int, int], ...], _State]()
    path: list[tuple[int, dict[int, _State | int]]] = [(0, {})]
    before = b""
    for key, value in zip(keys, values, strict=True):
        shared = next((i for i, (a, b) in enumerate(zip(key, before, strict=False)) if a != b), len(before))
        _join(path, shared, known)
        path += [(byte, {}) for byte in key[shared:]]
        path[-1][1][0] = value
        before = key
    _join(path, 0, known)
    return _State(path[0][1])


def _join(
    path: "list[tuple[int, dict[int, _State | int]]]",
    depth: int,
    known: dict[tuple[tuple[int, int], ...], _State],
) -> None:
    """Finish the states below a depth of the path: each becomes the equal one that is known, or is new."""
    while len(path) > depth + 1:
        byte, branches = path.pop()
        name = tuple((b, s if isinstance(s, int) else id(s)) for b, s in branches.items())
        state = known.get(name)
        if state is None:
            state = known[name] = _State(branches)
        else:
            state.shared = True
        path[-1][1][byte] = state


@dataclass
class _Builder:
    """The array while states are laid out.

    Attributes:
        units: the array.
        previous: for units that may be taken (by number modulo _FREE) the one before in the list of them.
        following: the one after.
        taken: whether a unit is taken.
        used: whether a state was laid out at an offset.
        head: the first of the list; the size of the array if it is empty.
    """

    units: list[int] = field(default_factory=list)
    previous: list[int] = field(default_factory=lambda: [0] * _FREE)
    following: list[int] = field(default_factory=lambda: [0] * _FREE)
    taken: list[bool] = field(default_factory=lambda: [False] * _FREE)
    used: list[bool] = field(default_factory=lambda: [False] * _FREE)
    head: int = 0

    def __post_init__(self) -> None:
        self._take(0)
        self.used[0] = True
        self.units[0] = 1 << 10

    def lay_out(self, state: _State, unit: int) -> None:
        """Lay a state out, and all that follow it, for the unit that leads to it."""
        if state.shared and state.offset:
            distance = state.offset ^ unit
            if not (distance & _UPPER and distance & _LOWER):
                self._lead(unit, distance)
                self.units[unit] |= _LEAF if 0 in state.branches else 0
                return
        offset = self._place(state, unit)
        state.offset = offset
        for byte, after in state.branches.items():
            if isinstance(after, _State):
                self.lay_out(after, offset ^ byte)

    def _place(self, state: _State, unit: int) -> int:
        """Take the units of a state's bytes; return its offset."""
        offset = self._find(list(state.branches), unit)
        self._lead(unit, unit ^ offset)
        for byte, after in state.branches.items():
            self._take(offset ^ byte)
            if isinstance(after, _State):
                self.units[offset ^ byte] = self.units[offset ^ byte] & ~0xFF | byte
            else:
                self.units[unit] |= _LEAF
                self.units[offset] = after | _VALUE
        self.used[offset % _FREE] = True
        return offset

    def _lead(self, unit: int, distance: int) -> None:
        """Write the distance to a state into the unit that leads to it."""
        shifted = distance << 10 if distance < 1 << 21 else distance << 2 | _FAR
        self.units[unit] = self.units[unit] & _KEPT | shifted

    def _find(self, labels: list[int], unit: int) -> int:
        """Return the first offset at which all bytes have free units; a new block's if there is none."""
        size, first, others = len(self.units), labels[0], labels[1:]
        free, begun = self.head, False
        while self.head < size and not (begun and free == self.head):
            begun, offset = True, free ^ first
            distance = unit ^ offset
            if (
                not self.used[offset % _FREE]
                and not (distance & _LOWER and distance & _UPPER)
                and not any(self.taken[(offset ^ byte) % _FREE] for byte in others)
            ):
                return offset
            free = self.following[free % _FREE]
        return size | unit & _LOWER

    def _take(self, unit: int) -> None:
        """Take a unit off the list of free ones."""
        if unit >= len(self.units):
            self._grow()
        before, after = self.previous[unit % _FREE], self.following[unit % _FREE]
        if unit == self.head:
            self.head = len(self.units) if after == unit else after
        self.following[before % _FREE], self.previous[after % _FREE] = after, before
        self.taken[unit % _FREE] = True

    def _grow(self) -> None:
        """Add a block of free units; the block that is now too far back is closed."""
        size = len(self.units)
        if size >= _FREE:
            self._close_block(size - _FREE)
        self.units += [0] * _BLOCK
        end = size + _BLOCK
        for unit in range(size, end):
            self.taken[unit % _FREE] = self.used[unit % _FREE] = False
            self.previous[unit % _FREE], self.following[unit % _FREE] = unit - 1, unit + 1
        self.previous[size % _FREE], self.following[(end - 1) % _FREE] = end - 1, size
        last = self.previous[self.head % _FREE]
        self.previous[size % _FREE], self.following[(end - 1) % _FREE] = last, self.head
        self.following[last % _FREE] = size
        self.previous[self.head % _FREE] = end - 1

    def close(self) -> None:
        """Close all blocks that are still open."""
        for first in range(max(len(self.units) - _FREE, 0), len(self.units), _BLOCK):
            self._close_block(first)

    def _close_block(self, first: int) -> None:
        """Give the free units of a block a label that no byte leads to, so that none is taken for a state."""
        block = range(first, first + _BLOCK)
        unused = next((offset for offset in block if not self.used[offset % _FREE]), 0)
        for unit in block:
            if not self.taken[unit % _FREE]:
                self._take(unit)
                self.units[unit] = self.units[unit] & ~0xFF | (unit ^ unused) & 0xFF


MAX_SOURCE_CHARS = 64
_MAX_NESTED = 32  # rules that begin with one another, as sentencepiece has it


def compile_rules(rules: Mapping[str, str]) -> bytes:
    """Return the compiled table of rules; empty for none.

    Args:
        rules: a text for each string.

    Raises:
        TokenizerError: a string is empty, too long, becomes itself, or begins with 31 others that have rules;
            or a rule has a zero character or is not a text.
    """
    _check(rules)
    if not rules:
        return b""
    places, texts = dict[str, int](), bytearray()
    for text in sorted(set(rules.values())):
        places[text] = len(texts)
        texts += text.encode() + b"\0"
    pairs = sorted((source.encode(), places[text]) for source, text in rules.items())
    units = double_array([key for key, _ in pairs], [place for _, place in pairs]).astype("<u4").tobytes()
    return len(units).to_bytes(4, "little") + units + bytes(texts)


def _check(rules: Mapping[str, str]) -> None:
    for source, text in rules.items():
        if (
            not isinstance(source, str)
            or not isinstance(text, str)
            or "\0" in source + text
            or has_surrogates(source + text)
        ):
            raise TokenizerError(f"normalization_rules: {source!r:.200} → {text!r:.200} must be two texts")
        if source == text:
            raise TokenizerError(f"normalization_rules: {source!r:.200} becomes itself; leave it out")
        if not 0 < len(source) <= MAX_SOURCE_CHARS:
            raise TokenizerError(
                f"normalization_rules: {source!r:.200} has {len(source)} characters; a rule is for 1 to "
                f"{MAX_SOURCE_CHARS}"
            )
        if sum(source[:length] in rules for length in range(1, len(source) + 1)) >= _MAX_NESTED:
            raise TokenizerError(
                f"normalization_rules: {source!r:.200} begins with {_MAX_NESTED} or more strings that have "
                "rules, too, which is too many for sentencepiece"
            )


def read_rules(path: Path) -> dict[str, str]:
    """Read SentencePiece's TSV: on each line the code points of a string, a tab, and those of its text.

    Code points are hexadecimal with spaces between them; without a text the string is removed; what follows
    another tab is a comment.

    Raises:
        FormatError: the file cannot be read, or a line is not of this form.
    """
    rules = dict[str, str]()
    try:
        lines = split_lines(path.read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: no readable table of rules: {error}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            source, text = [*line.split("\t"), ""][:2]
            rules[_characters(source, path, number)] = _characters(text, path, number)
    return rules


def _characters(codes: str, path: Path, number: int) -> str:
    try:
        return "".join(chr(int(code.removeprefix("U+"), 16)) for code in codes.split())
    except (ValueError, OverflowError):
        raise FormatError(
            f"{path}, line {number}: {codes!r:.80} must be hexadecimal code points, such as 'FB01' or '66 69'"
        ) from None


# Tables of Unicode 16 in files of their own, since NFKC of `unicodedata` is that of its version.
IDENTITY = "identity"
RULE_NAMES = (IDENTITY, "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf")


@lru_cache(maxsize=len(RULE_NAMES))
def named_charsmap(name: str) -> bytes:
    """Return compiled rules by their name; none for `identity`.

    Raises:
        TokenizerError: the name is not one of `RULE_NAMES`.
    """
    if name not in RULE_NAMES:
        raise TokenizerError(
            f"normalizer={name!r:.200} is not known with mode='sentencepiece'; use one of "
            f"{', '.join(RULE_NAMES)}"
        )
    if name == IDENTITY:
        return b""
    return lzma.decompress((Path(__file__).parent / "charsmaps" / f"{name}.xz").read_bytes())
