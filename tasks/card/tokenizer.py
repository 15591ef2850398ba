"""The facts of a tokenizer's card, from the records and tables of the artifacts that it is about.

`card.json` is what `facts_of` returns; each fact is named where it is read.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.tasks.audit.summary import read_summary
from tokmill.tasks.audit.tokens import read_table
from tokmill.tasks.card.words import Facts, weighting
from tokmill.tasks.formats.counts import Balance
from tokmill.tasks.formats.tokenizer import open_tokenizer, read_exports
from tokmill.tasks.store.record import Record, read_record
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.pipeline.families import find_family
from tokmill.tokenizer.pipeline.options import ModelOptions

if TYPE_CHECKING:
    from tokmill.tokenizer.pipeline.definition import Definition


SHOWN_SUSPECTS = 20
_ORIGINS = {"train": "trained", "adopt": "adopted", "extend": "extended", "trim": "trimmed"}
_SUSPECT = ("text", "reason", "expected", "num_occurrences", "source", "example", "context")
_MAX_CHARS = 160
_LONG = ("chat_template",)
_OF_PRETOKENS = ("split_pattern", "digits")
_FIRST = ("family", "mode", "vocab_size", "split_pattern", "digits", "normalizer")


def facts_of(
    given: Mapping[str, Any], tokenizer: Path, audit: Path, usage: Path, balance: Path | None
) -> Facts:
    """Read all facts of the card; `given` are the fields of `TokenizerCardParams`."""
    record, definition = read_record(tokenizer), open_tokenizer(tokenizer).definition
    weights = None if balance is None else Balance.open(balance)
    found, vocabulary = read_summary(audit), read_summary(audit).vocabulary
    suspects = read_table(usage, "vocab_suspects", definition.vocab_size)
    reserved = set(definition.vocabulary.reserved)
    specials = {name: id_ for name, id_ in definition.special_tokens.items() if name not in reserved}
    nothing = {"files": [], "not_possible": "", "differs": ""}
    return {
        **{name: given[name] for name in ("title", "description", "license", "languages", "tags")},
        "digest": record.content_digest,
        "family": definition.family,
        "origin": _ORIGINS[record.payload["stage"]],
        "vocab_size": definition.vocab_size,
        "figures": definition.model.figures(),
        "special_tokens": specials,
        "num_reserved": definition.num_reserved,
        "roles": definition.all_roles,
        "unknown_token": definition.model.unknown_token,
        "decisions": _decisions(record.payload["params"], definition, weights, given["reasons"]),
        "balance": None if weights is None else weighting(weights.model_dump()),
        "trained_on": [] if weights is None else _trained_on(weights, record),
        "text": found.text,
        "sources": found.sources,
        "parity": found.parity,
        "marks_apart": found.marks_apart,
        "num_unused": vocabulary.num_unused,
        "unused_in": vocabulary.unused_in,
        "num_unreachable": vocabulary.num_unreachable,
        "num_duplicates": vocabulary.num_duplicates,
        "gate": found.gate,
        "probes": found.probes,
        "num_probes": found.num_probes,
        "suspects": suspects.select(_SUSPECT).slice(0, SHOWN_SUSPECTS).to_pylist(),
        "num_suspects": len(suspects),
        "exports": [{"format": name, **nothing, **its} for name, its in read_exports(tokenizer).items()],
    }


def _trained_on(balance: Balance, tokenizer: Record) -> list[Facts]:
    names = ("source", "num_documents", "num_bytes", "share", "factor")
    return [
        {
            **{name: getattr(entry, name) for name in names},
            "measured_share": float(tokenizer.metrics.get(f"share.{entry.source}", 0.0)),  # of weighted bytes
        }
        for entry in balance.sources
    ]


def _decisions(
    params: Mapping[str, Any], definition: "Definition", balance: Balance | None, reasons: Mapping[str, str]
) -> list[Facts]:
    """Return every setting that has an effect with its value and reason, the most important first."""
    pattern = definition.pre_tokenizer.split_pattern
    settings = {
        "family": definition.family,
        "vocab_size": definition.vocab_size,
        "split_pattern": pattern if isinstance(pattern, str) else list(pattern),
        "digits": definition.pre_tokenizer.digits,
        "normalizer": definition.normalizer.name,
        **params,
    }
    for name in ("method", "temperature", "unit", "max_repetition") if balance else ():
        if (value := getattr(balance, name)) is not None:
            settings[name] = value
    for name in _without_effect(params):
        settings.pop(name, None)
    order = sorted(settings, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    return [
        {"name": name, "value": _said(name, settings[name]), "reason": reasons.get(name, "")}
        for name in order
    ]


def _without_effect(params: Mapping[str, Any]) -> set[str]:
    """Return the settings that a trained tokenizer of this family and mode does not depend on."""
    if "family" not in params:
        return set()
    found = set(_OF_PRETOKENS) if params.get("mode") == "sentencepiece" else set()
    try:  # families with a tie rule of their own refuse another one
        find_family(params["family"]).check_options(ModelOptions(tie_break="lowest_ids"))
    except TrainingError:
        found.add("tie_break")
    return found


def _said(name: str, value: Any) -> str:
    """Return a value as a profile spells it; long ones are cut."""
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if name in _LONG:
        return f"{len(text):,} characters"
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}… ({len(text):,} characters)"
