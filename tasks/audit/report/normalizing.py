"""Normalizers as steps for the page: tables of single characters, Unicode's forms, and steps on whole texts.

Tables are filled by asking the step itself about each code point, so they do not depend on the browser. The
forms are the browser's own: they are stable for all characters that both editions of Unicode have, and the
page refuses text with others (`unassigned`).
"""

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import unicodedata2 as unicodedata

from tokmill.tasks.audit.report.expressions import to_javascript
from tokmill.tokenizer.components.normalizer_steps import WHITE_SPACE, Step, steps_of
from tokmill.tokenizer.core.errors import TokenizerError

JsStep = dict[str, Any]
_BLOCK = 256
_TABLES = frozenset({"lowercase", "strip_accents", "bert_clean", "nmt"})
_FORMS = frozenset({"nfc", "nfd", "nfkc", "nfkd"})
_SIDES = {"strip": (True, True), "strip_left": (True, False), "strip_right": (False, True)}


class NotInPageError(TokenizerError):
    """The page has no exact form of a part of a tokenizer."""


def steps_for(spec: object) -> list[JsStep]:
    """Return a normalizer's steps.

    Args:
        spec: its form as JSON-able data; see `pipeline.model.TextNormalizer`.

    Raises:
        NotInPageError: a step has no form for the page.
        PatternError: an expression has none.
    """
    if spec is None or isinstance(spec, str):
        return [made for step in steps_of(spec) for made in _plain(step)]
    assert isinstance(spec, Mapping)
    if "steps" not in spec:
        return [{"kind": "sentences", **spec}]
    return [made for step in spec["steps"] for made in _of_kind(step)]


def _of_kind(step: Mapping[str, Any]) -> list[JsStep]:
    if step["kind"] == "plain":
        return steps_for(step["name"])
    if step["kind"] == "marks":
        return [{**step, "white_space": WHITE_SPACE}]
    raise NotInPageError(
        "its compiled rules are applied by grapheme clusters, which depend on Unicode's edition"
    )


def _plain(step: Step) -> list[JsStep]:
    simple = _without_arguments(step) if not step.arguments else _with_arguments(step)
    if simple is None:
        raise NotInPageError(f"the page does not know the step {step} of its normalizer")
    return simple


def _without_arguments(step: Step) -> list[JsStep] | None:
    match step.name:
        case name if name in _TABLES:
            return [{"kind": "table", "ranges": _table(step)}]
        case name if name in _FORMS:
            return [_form(name.upper())]
        case "strip_nonspacing":
            return [_form("NFD"), {"kind": "table", "ranges": _nonspacing()}]
        case "cjk_spaces":
            return [{"kind": "table", "ranges": [], "around": _ideographs(step)}]
        case name if name in _SIDES:
            left, right = _SIDES[name]
            return [{"kind": "strip", "left": left, "right": right, "white_space": WHITE_SPACE}]
    return None


def _with_arguments(step: Step) -> list[JsStep] | None:
    match step.name, step.arguments:
        case "replace", (old, new):
            return [{"kind": "replace", "old": old, "new": new}]
        case "replace_pattern", (old, new):
            source, classes = to_javascript(old)
            return [{"kind": "replace_pattern", "source": source, "classes": classes, "new": new}]
        case "prepend", (text,):
            return [{"kind": "prepend", "text": text}]
    return None


def _form(form: str) -> JsStep:
    return {"kind": "form", "form": form, "unassigned": _unassigned()}


@cache
def _table(step: Step) -> list[list[Any]]:
    return _ranges(step.change)


@cache
def _nonspacing() -> list[list[Any]]:
    return _ranges(functools.partial(_without, "Mn"))


@cache
def _unassigned() -> list[list[int]]:
    found = _ranges(functools.partial(_without, "Cn"))
    return [[first, last] for first, last, _ in found]


def _without(category: str, text: str) -> str:
    return "".join(character for character in text if unicodedata.category(character) != category)


@cache
def _ideographs(step: Step) -> list[list[int]]:
    ranges = list[list[int]]()
    for point in _changed_points(step.change):
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return ranges


def _ranges(change: Callable[[str], str]) -> list[list[Any]]:
    """Return first and last code point of each run of characters that become the same other text."""
    found: list[list[Any]] = []
    for point in _changed_points(change):
        changed = change(chr(point))
        if found and found[-1][1:] == [point - 1, changed]:
            found[-1][1] = point
        else:
            found.append([point, point, changed])
    return found


def _changed_points(change: Callable[[str], str]) -> Iterator[int]:
    """Return the code points that change, each by itself; most blocks are passed over as a whole."""
    for first in range(0, sys.maxunicode + 1, _BLOCK):
        block = [chr(point) for point in range(first, first + _BLOCK) if not 0xD800 <= point < 0xE000]
        if change("".join(block)) != "".join(block):
            yield from (ord(character) for character in block if change(character) != character)
