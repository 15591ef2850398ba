"""The balance on disk: `balance.json`, the weight of each source's text.

Shares have 12 decimals and add up to 1; factors have 12 significant digits. Both are written as JSON numbers
that read back as the same decimal number.
"""

from decimal import Decimal
from typing import ClassVar, Literal

from pydantic import Field

from tokmill.tasks.formats.files.manifests import Entry, Manifest


class BalancedSource(Entry):
    """One source."""

    source: str
    num_documents: int
    num_bytes: int
    natural_share: float  # its share of the corpus, in the balance's unit
    asked_share: float | None = None  # its share by the rule alone, without `max_repetition`
    share: float  # its share after balancing
    factor: float  # how often its text counts: balanced amount / natural amount; 0 leaves it out
    capped: bool  # whether `max_repetition` limited its share


class Balance(Manifest):
    """The content of `balance.json`.

    Attributes:
        method: the rule.
        temperature: T if the rule is "temperature", else None.
        unit: unit of sizes, shares and `total`.
        max_repetition: the cap on every factor, or None.
        total: size of the balanced corpus in `unit`.
        resolution: training counts every pre-token `factor` × this many times, so that rounding to whole
            counts changes no share.
        sources: in the corpus's order.
    """

    FILE: ClassVar[str] = "balance.json"
    TITLE: ClassVar[str] = "balance"

    method: str
    temperature: float | None
    unit: Literal["bytes", "documents"]
    max_repetition: float | None
    total: int
    resolution: int = 1
    warnings: list[str] = Field(default=[])
    sources: list[BalancedSource]

    @property
    def factors(self) -> dict[str, Decimal]:
        """The exact decimal factor of each source."""
        return {entry.source: Decimal(repr(entry.factor)) for entry in self.sources}
