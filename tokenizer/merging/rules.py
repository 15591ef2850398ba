"""What decides which pairs are joined; see `trainer`."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from tokmill.tokenizer.kernels.pair_order import FREQUENCY, GREATEST_PAIR, LIKELIHOOD, LOWEST_SYMBOLS
from tokmill.tokenizer.pipeline.options import TieBreak

_TIES = {"lexicographic_max": GREATEST_PAIR, "lowest_ids": LOWEST_SYMBOLS, "first_seen": LOWEST_SYMBOLS}


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


@dataclass(frozen=True, kw_only=True)
class JoinRules:
    """Rules of a training by joining pairs.

    Attributes:
        score: `likelihood` or `frequency`; see `trainer`.
        marks: how the place of a character in its word is marked.
        tie_break: by frequency: which of equally frequent pairs comes first, by ADR 5; None for the ties of
            `trainer`.
        min_frequency: pairs that occur less often are not joined.
        max_token_bytes: longer pieces are not made, marks not counted.
        forbidden: bytes that no piece may have.
        allows: whether a joined piece may be made; None if all may be.
        shorter_first: of equally frequent pairs that whose piece has fewer characters comes first.
        join_again: whether a pair is joined if another one has made the same piece.
    """

    score: str = "likelihood"
    marks: Marks = _UNMARKED
    tie_break: TieBreak | None = None
    min_frequency: int = 1
    max_token_bytes: int | None = None
    forbidden: Collection[bytes] = ()
    allows: Callable[[bytes], bool] | None = None
    shorter_first: bool = False
    join_again: bool = True

    @property
    def order(self) -> int:
        """The rule of `kernels.pair_order` for which pair comes first."""
        if self.tie_break is not None:
            return _TIES[self.tie_break]
        return LIKELIHOOD if self.score == "likelihood" else FREQUENCY

    @property
    def by_place(self) -> bool:
        """Whether the pair that occurs first is the first of equally frequent ones."""
        return self.tie_break == "first_seen"

    def takes(self, joined: bytes) -> bool:
        """Whether a piece may be made, as far as its bytes decide that."""
        length = len(joined.removeprefix(self.marks.continues).removesuffix(self.marks.ends))
        if joined in self.forbidden or (self.max_token_bytes is not None and length > self.max_token_bytes):
            return False
        return self.allows is None or self.allows(joined)
