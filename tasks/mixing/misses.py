"""Compare a mixture with its request, and find the requests that it misses.

The model. A request sets the tokens of each source, the tokens in all, and for some sources the fewest
epochs. A source gives whole documents, so it may stop below or above its quota. A request is missed if the
difference exceeds `tolerance` times the requested tokens, and more than one token per source concerned.
Sources whose last document is split (`long_documents = "split"`) miss nothing. Tokens are those of the whole
run, so that a continued mixture misses the same requests as the whole.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from functools import cached_property
from typing import NamedTuple

from tokmill.tasks.mixing.quotas import Quota
from tokmill.tasks.sampling import EXACT, decimal


class _Miss(NamedTuple):
    part: Decimal  # difference from the request, as a fraction of it
    words: str


@dataclass(frozen=True)
class Misses:
    """Finds the requests that a mixture misses by more than the tolerance."""

    tolerance: float  # allowed difference from the request, as a fraction of it
    quotas: Mapping[str, Quota]  # the request, by source
    given: Mapping[str, int]  # tokens that each source gives in the whole run

    @property
    def found(self) -> list[str]:
        """One sentence for each missed request, those of sources first."""
        return [miss.words for miss in self._all]

    @property
    def refusal(self) -> str:
        """Why the mixture is refused, and the nearest settings that are accepted."""
        with localcontext(EXACT):
            needed = max(miss.part for miss in self._all).quantize(Decimal("0.0001"), ROUND_CEILING)
        return (
            f"mix: {'; '.join(self.found)}: documents are whole, and tolerance={self.tolerance:g}. Feasible: "
            "long_documents='split', which ends each source's last document at its quota; or tolerance of at "
            f"least {needed:f}; or on_miss='warn'"
        )

    @cached_property
    def _all(self) -> list[_Miss]:
        with localcontext(EXACT):
            return [*self._of_sources(), *self._of_floors(), *self._of_total()]

    def _of_sources(self) -> Iterator[_Miss]:
        asked, given = self._asked_in_all, self._given_in_all
        for source, quota in self.quotas.items():
            part = self._missed(quota.run_tokens, self.given[source], 1)
            if part is not None:
                share = Decimal(self.given[source]) / max(1, given)
                wanted = Decimal(quota.run_tokens) / max(1, asked)
                yield _Miss(
                    part,
                    f"'{source}' gives {self.given[source]} tokens ({share:.2%}), and {quota.run_tokens} "
                    f"({wanted:.2%}) were asked for",
                )

    def _of_floors(self) -> Iterator[_Miss]:
        for source, quota in self.quotas.items():
            given = self.given[source]
            part = self._missed(quota.least_tokens, given, 1) if given < quota.least_tokens else None
            if part is not None:
                yield _Miss(
                    part,
                    f"min_epochs={quota.min_epochs:g} of '{source}' asks for {quota.least_tokens} tokens of "
                    f"it, and {given} come",
                )

    def _of_total(self) -> Iterator[_Miss]:
        part = self._missed(self._asked_in_all, self._given_in_all, len(self.quotas))
        if part is not None:
            yield _Miss(part, f"{self._given_in_all} tokens come, and {self._asked_in_all} were asked for")

    @property
    def _asked_in_all(self) -> int:
        return sum(quota.run_tokens for quota in self.quotas.values())

    @property
    def _given_in_all(self) -> int:
        return sum(self.given.values())

    def _missed(self, asked: int, given: int, always: int) -> Decimal | None:
        """The difference from the request as a fraction of it; None if it is within the tolerance."""
        off = abs(given - asked)
        if off <= max(Decimal(always), decimal(self.tolerance) * asked):
            return None
        return Decimal(off) / max(1, asked)
