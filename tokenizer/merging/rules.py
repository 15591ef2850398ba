"""What decides which pairs are joined; see `trainer`."""

from collections.abc import Callable, Collection
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class JoinRules:
    """Rules of a training by joining pairs.

    Attributes:
        score: `likelihood` or `frequency`; see `trainer`.
        continues: what stands before a piece that does not begin a word.
        min_frequency: pairs that occur less often are not joined.
        max_token_bytes: longer pieces are not made, `continues` not counted.
        forbidden: bytes that no piece may have.
        allows: whether a joined piece may be made; None if all may be.
        shorter_first: of equally frequent pairs that whose piece has fewer characters comes first.
        join_again: whether a pair is joined if another one has made the same piece.
    """

    score: str = "likelihood"
    continues: bytes = b""
    min_frequency: int = 1
    max_token_bytes: int | None = None
    forbidden: Collection[bytes] = ()
    allows: Callable[[bytes], bool] | None = None
    shorter_first: bool = False
    join_again: bool = True

    @property
    def by_likelihood(self) -> bool:
        """Whether scores depend on the frequencies of the parts."""
        return self.score == "likelihood"

    def takes(self, joined: bytes) -> bool:
        """Whether a piece may be made, as far as its bytes decide that."""
        length = len(joined.removeprefix(self.continues))
        if joined in self.forbidden or (self.max_token_bytes is not None and length > self.max_token_bytes):
            return False
        return self.allows is None or self.allows(joined)
