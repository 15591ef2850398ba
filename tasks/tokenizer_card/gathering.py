"""Takes the facts of a tokenizer's card from the records and tables of the artifacts that it is about."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tokmill.tasks.audit.summary import read_summary
from tokmill.tasks.audit.tokens import read_table
from tokmill.tasks.formats.counts import Balance
from tokmill.tasks.formats.tokenizer import open_tokenizer, read_exports
from tokmill.tasks.store.record import Record, read_record
from tokmill.tasks.tokenizer_card.facts import Decision, Export, Suspect, TokenizerCard, TrainedSource
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.pipeline.families import find_family
from tokmill.tokenizer.pipeline.options import ModelOptions

if TYPE_CHECKING:
    from tokmill.tokenizer.pipeline.definition import Definition


SHOWN_SUSPECTS = 20
_ORIGINS: dict[str, Literal["trained", "adopted", "extended", "trimmed"]] = {
    "train": "trained",
    "adopt": "adopted",
    "extend": "extended",
    "trim": "trimmed",
}
_MAX_CHARS = 160
_LONG = ("chat_template",)
_OF_PRETOKENS = ("split_pattern", "digits")
_FIRST = ("family", "mode", "vocab_size", "split_pattern", "digits", "normalizer")


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


def decisions(
    params: Mapping[str, Any], definition: "Definition", balance: Balance | None, reasons: Mapping[str, str]
) -> list[Decision]:
    """Return every setting that has an effect, the most important first."""
    settings = {**_of_definition(definition), **params, **({} if balance is None else _of_balance(balance))}
    settings = {name: value for name, value in settings.items() if name not in _without_effect(params)}
    order = [
        *(name for name in _FIRST if name in settings),
        *(name for name in settings if name not in _FIRST),
    ]
    return [
        Decision(name=name, value=_said(name, settings[name]), reason=reasons.get(name, "")) for name in order
    ]


def _without_effect(params: Mapping[str, Any]) -> set[str]:
    """Return the settings that a trained tokenizer of this family and mode does not depend on."""
    if "family" not in params:
        return set()
    found = set() if _chooses_ties(params["family"]) else {"tie_break"}
    return found | (set(_OF_PRETOKENS) if params.get("mode") == "sentencepiece" else set())


def _chooses_ties(family: str) -> bool:
    """Whether a family takes another tie rule than the default; those with one of their own refuse it."""
    try:
        find_family(family).check_options(ModelOptions(tie_break="lowest_ids"))
    except TrainingError:
        return False
    return True


def _of_definition(definition: "Definition") -> dict[str, Any]:
    pattern = definition.pre_tokenizer.split_pattern
    return {
        "family": definition.family,
        "vocab_size": definition.vocab_size,
        "split_pattern": pattern if isinstance(pattern, str) else list(pattern),
        "digits": definition.pre_tokenizer.digits,
        "normalizer": definition.normalizer.name,
    }


def _of_balance(balance: Balance) -> dict[str, Any]:
    names = ("method", "temperature", "unit", "max_repetition")
    return {name: value for name in names if (value := getattr(balance, name)) is not None}


def _said(name: str, value: Any) -> str:
    """Return a value as a profile spells it; long ones are cut."""
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if name in _LONG:
        return f"{len(text):,} characters"
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}… ({len(text):,} characters)"
