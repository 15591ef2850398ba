"""The settings that a tokenizer was made with, with the reasons that its profile gives."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tokmill.tasks.formats.balance import Balance
from tokmill.tasks.tokenizer_card.facts import Decision
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.pipeline.families import find_family
from tokmill.tokenizer.pipeline.options import ModelOptions

if TYPE_CHECKING:
    from tokmill.tokenizer.pipeline.definition import Definition

_MAX_CHARS = 160
_LONG = ("chat_template",)
_OF_PRETOKENS = ("split_pattern", "digits")
_FIRST = ("family", "mode", "vocab_size", "split_pattern", "digits", "normalizer")


def decisions(
    params: Mapping[str, Any], definition: "Definition", balance: Balance | None, reasons: Mapping[str, str]
) -> list[Decision]:
    """Return every setting that has an effect, the most important first.

    Args:
        params: the parameters that entered the tokenizer's fingerprint.
        definition: the tokenizer's.
        balance: how its training text was weighted; None if it was not trained.
        reasons: by setting.
    """
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
