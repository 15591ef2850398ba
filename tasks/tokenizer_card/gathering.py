"""Takes the facts of a tokenizer's card from the records and tables of the artifacts that it is about."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tokmill.tasks.audit.reading import read_table
from tokmill.tasks.audit.summary import read_summary
from tokmill.tasks.formats.balance import Balance
from tokmill.tasks.formats.tokenizer import open_tokenizer, read_exports
from tokmill.tasks.store.record import Record, read_record
from tokmill.tasks.tokenizer_card.decisions import decisions
from tokmill.tasks.tokenizer_card.facts import Export, Suspect, TokenizerCard, TrainedSource

if TYPE_CHECKING:
    from tokmill.tokenizer.pipeline.definition import Definition

SHOWN_SUSPECTS = 20
_ORIGINS: dict[str, Literal["trained", "adopted", "extended", "trimmed"]] = {
    "train": "trained",
    "adopt": "adopted",
    "extend": "extended",
    "trim": "trimmed",
}


@dataclass(frozen=True)
class Upstream:
    """The directories of the artifacts that a card describes; see `stage.run`."""

    tokenizer: Path
    audit: Path
    usage: Path
    balance: Path | None = None


def gather(upstream: Upstream, given: Mapping[str, Any], reasons: Mapping[str, str]) -> TokenizerCard:
    """Read all facts of the card.

    Args:
        upstream: the artifacts.
        given: what only people know: title, description, license, languages, tags.
        reasons: for settings.

    Raises:
        StoreError: an artifact has no record or is broken.
    """
    record = read_record(upstream.tokenizer)
    definition = open_tokenizer(upstream.tokenizer).definition
    balance = None if upstream.balance is None else Balance.open(upstream.balance)
    return TokenizerCard(
        **given,
        digest=record.content_digest,
        origin=_ORIGINS[record.payload["stage"]],
        decisions=decisions(record.payload["params"], definition, balance, reasons),
        balance=None if balance is None else _weighting(balance),
        trained_on=[] if balance is None else _trained_on(balance, record),
        exports=[Export(format=name, **found) for name, found in read_exports(upstream.tokenizer).items()],
        **_model(definition),
        **_audited(upstream.audit),
        **_suspects(upstream.usage, definition.vocab_size),
    )


def _model(definition: "Definition") -> dict[str, Any]:
    reserved = set(definition.vocabulary.reserved)
    return {
        "family": definition.family,
        "vocab_size": definition.vocab_size,
        "figures": definition.model.figures(),
        "special_tokens": {
            name: token for name, token in definition.special_tokens.items() if name not in reserved
        },
        "num_reserved": definition.num_reserved,
        "roles": definition.all_roles,
        "unknown_token": definition.model.unknown_token,
    }


def _weighting(balance: Balance) -> str:
    """How sources were weighted, in a few words."""
    rule = balance.method if balance.temperature is None else f"{balance.method} {balance.temperature:g}"
    limit = "" if balance.max_repetition is None else f", at most {balance.max_repetition:g} times"
    return f"{rule} over {balance.unit}{limit}"


def _trained_on(balance: Balance, tokenizer: Record) -> list[TrainedSource]:
    return [
        TrainedSource(
            source=entry.source,
            num_documents=entry.num_documents,
            num_bytes=entry.num_bytes,
            share=entry.share,
            factor=entry.factor,
            measured_share=float(tokenizer.metrics.get(f"share.{entry.source}", 0.0)),
        )
        for entry in balance.sources
    ]


def _audited(audit: Path) -> dict[str, Any]:
    summary = read_summary(audit)
    return {
        "text": summary.text,
        "sources": summary.sources,
        "parity": summary.parity,
        "marks_apart": summary.marks_apart,
        "num_unused": summary.vocabulary.num_unused,
        "unused_in": summary.vocabulary.unused_in,
        "num_unreachable": summary.vocabulary.num_unreachable,
        "num_duplicates": summary.vocabulary.num_duplicates,
        "gate": summary.gate,
        "probes": summary.probes,
        "num_probes": summary.num_probes,
    }


def _suspects(usage: Path, vocab_size: int) -> dict[str, Any]:
    found = read_table(usage, "vocab_suspects", vocab_size)
    rows = found.select(list(Suspect.model_fields)).slice(0, SHOWN_SUSPECTS).to_pylist()
    return {"suspects": [Suspect(**row) for row in rows], "num_suspects": len(found)}
