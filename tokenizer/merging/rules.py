"""What a training by merges may join, and which pair comes first."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.merging.kernels.state import (
    FIRST_SEEN,
    LEXICOGRAPHIC_MAX,
    LIKELIHOOD,
    LOWEST_IDS,
    SHORTEST_PIECE,
    SMALLEST_PIECE,
    Rules,
)
from tokmill.tokenizer.pipeline.options import ModelOptions, TieBreak

_TIES = {"lexicographic_max": LEXICOGRAPHIC_MAX, "lowest_ids": LOWEST_IDS, "first_seen": FIRST_SEEN}
_NO_LIMIT = 1 << 40


class Marks(NamedTuple):
    """What tells a character's place in its word.

    Attributes:
        continues: stands before the piece of a character that does not begin a word.
        ends: stands after the piece of a character that ends a word.
        apart: whether `ends` is a piece of its own, after the last character.
        by_bytes: whether each byte is taken for a character.
    """

    continues: bytes = b""
    ends: bytes = b""
    apart: bool = False
    by_bytes: bool = False


_UNMARKED = Marks()


@dataclass(frozen=True)
class MergeRules:
    """What may be merged, and which pair comes first; `trainer` explains scores and ties.

    Attributes:
        tie_break: which of equally frequent pairs comes first, by ADR 5; None for that of the smaller piece.
        min_frequency: pairs that occur less often are not merged.
        max_token_bytes: longer pieces are not made, marks not counted.
        forbidden: bytes that no piece may have.
        marks: how the place of a character in its word is marked.
        allows: whether a piece may be made; None if all may be.
        shorter_first: without `tie_break`, the piece of fewer characters comes before the smaller one.
        by_likelihood: whether the pair of the greatest likelihood comes first, not the most frequent one.
    """

    tie_break: TieBreak | None = "lexicographic_max"
    min_frequency: int = 1
    max_token_bytes: int | None = None
    forbidden: Collection[bytes] = ()
    marks: Marks = _UNMARKED
    allows: Callable[[bytes], bool] | None = None
    shorter_first: bool = False
    by_likelihood: bool = False

    @classmethod
    def of(cls, options: ModelOptions, names: Iterable[str], **chosen: Any) -> "MergeRules":
        """Return the rules of a training's options; no piece has the bytes of one of the names."""
        forbidden = {name.encode() for name in names}
        limits = {"min_frequency": options.min_frequency, "max_token_bytes": options.max_token_bytes}
        return cls(**{"tie_break": options.tie_break, "forbidden": forbidden, **limits, **chosen})

    @property
    def judged(self) -> bool:
        """Whether Python decides about each pair, since kernels know neither marks nor `allows`."""
        return self.by_likelihood or self.allows is not None or bool(self.marks.continues or self.marks.ends)

    def for_kernels(self) -> Rules:
        """Return the rules in the kernels' form; those for judged pairs are `takes`."""
        data, offsets = pack_bytes([] if self.judged else list(self.forbidden))
        longest = _NO_LIMIT if self.max_token_bytes is None or self.judged else self.max_token_bytes
        mark = len(self.marks.continues)
        return Rules(max(self.min_frequency, 1), longest, self._ties(), mark, data.copy(), offsets)

    def _ties(self) -> int:
        if self.by_likelihood:
            return LIKELIHOOD
        if self.tie_break is not None:
            return _TIES[self.tie_break]
        return SHORTEST_PIECE if self.shorter_first else SMALLEST_PIECE

    def takes(self, joined: bytes, right: bytes) -> bool:
        """Whether a piece may be made of one that ends with `right`."""
        length = len(joined.removeprefix(self.marks.continues).removesuffix(self.marks.ends))
        if joined in self.forbidden or (self.max_token_bytes is not None and length > self.max_token_bytes):
            return False
        ends = self.marks.ends  # only what ends a word ends with the text of the mark
        if ends and joined.endswith(ends) != right.endswith(ends):
            return False
        return self.allows is None or self.allows(joined)
