"""The facts of a tokenizer's card: `card.json` is `TokenizerCard`.

As with the data card, the same tokenizer and audit give the same card: nothing in it depends on when, where
or by whom it was made. `tasks.tokenizer_card.gathering` shows where each fact comes from.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Decision(_Facts):
    """A setting that somebody chose, or left as it is.

    Attributes:
        name: the setting as profiles call it: `split_pattern`.
        value: its value as a profile would spell it.
        reason: why, in the profile's words; empty if it gives none.
    """

    name: str
    value: str
    reason: str


class TrainedSource(_Facts):
    """What a tokenizer was trained on of one source.

    Attributes:
        share: its share of the balanced corpus.
        factor: how often its text counted.
        measured_share: its part of the weighted bytes of the pre-tokens.
    """

    source: str
    num_documents: int
    num_bytes: int
    share: float
    factor: float
    measured_share: float


class Suspect(_Facts):
    """A row of `vocab_suspects`."""

    text: str
    reason: str
    expected: float
    num_occurrences: int
    source: str | None
    example: str | None
    context: str | None = None


class Export(_Facts):
    """A format that the tokenizer is written in.

    Attributes:
        files: relative to the artifact's folder; empty where the format cannot express the tokenizer.
        not_possible: then why.
        differs: how a reader differs from the tokenizer in what the attestation's probes do not show.
    """

    format: str
    files: list[str] = []
    not_possible: str = ""
    differs: str = ""


class TokenizerCard(_Facts):
    """The content of `card.json`.

    Attributes:
        languages: codes of ISO 639, as given.
        tags: for hubs, as given.
        digest: the content digest of the tokenizer artifact.
        origin: whether a stage trained it, and which: `trained`, `adopted`, `extended`, `trimmed`.
        figures: counts that describe the family's models: `num_merges`.
        special_tokens: names and ids without the reserved ones.
        balance: how sources were weighted; None unless it was trained.
        trained_on: by source; empty unless it was trained.
        text: what the audit read.
        unused_in: where `num_unused` tokens never occur: the training text, or what the audit read.
        sources: rows of `vocab_sources`.
        parity: rows of `vocab_parity`.
        probes: the probes whose expectation is not met.
        suspects: the first rows of `vocab_suspects`.
        num_suspects: how many rows it has.
    """

    title: str
    description: str
    license: str
    languages: list[str]
    tags: list[str]
    digest: str
    family: str
    origin: Literal["trained", "adopted", "extended", "trimmed"]
    vocab_size: int
    figures: dict[str, int]
    special_tokens: dict[str, int]
    num_reserved: int
    roles: dict[str, str]
    unknown_token: str | None
    decisions: list[Decision]
    balance: str | None
    trained_on: list[TrainedSource]
    text: Literal["held_out", "corpus"]
    sources: list[dict[str, Any]]
    parity: list[dict[str, Any]]
    marks_apart: dict[str, float]
    num_unused: int
    unused_in: Literal["training", "text"]
    num_unreachable: int
    num_duplicates: int
    gate: str
    probes: list[dict[str, str]]
    num_probes: int
    suspects: list[Suspect]
    num_suspects: int
    exports: list[Export]
