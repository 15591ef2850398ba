r"""What the page needs to encode text as a tokenizer does: its spec, in a form that JavaScript runs exactly.

Law: the page's ids are those of `Tokenizer.encode`, or it gives none and says why. `static/encoder.js` is the
other half; the tests run both on the same texts.

Split expressions in JavaScript, with the cuts that they make in Python.

Each character class is spelled out as the code points that the `regex` package finds in it, so the cuts do
not depend on the browser's edition of Unicode. Structure comes from our own parser, which has expanded
possessive repetitions; what it does not read is refused.

Normalizers as steps for the page: tables of single characters, Unicode's forms, and steps on whole texts.

Tables are filled by asking the step itself about each code point, so they do not depend on the browser. The
forms are the browser's own: they are stable for all characters that both editions of Unicode have, and the
page refuses text with others (`unassigned`).
"""

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np
import unicodedata2 as unicodedata

from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.components.normalizer_steps import WHITE_SPACE, Step, steps_of
from tokmill.tokenizer.core.errors import PatternError, TokenizerError
from tokmill.tokenizer.splitting.fallback import dialect_flags
from tokmill.tokenizer.splitting.parsing import parse
from tokmill.tokenizer.splitting.patterns import groups_of
from tokmill.tokenizer.splitting.syntax import (
    Choice,
    End,
    Look,
    Node,
    OneOf,
    Sequence,
    Star,
    UnsupportedError,
    code_points,
)

FAMILIES = frozenset(
    {
        *("byte_bpe", "char_bpe", "word_bpe", "wordpiece", "unigram", "longest_match"),
        *("word_level", "character_level"),
    }
)
_NOT_NEEDED = ("chat_templates", "roles", "template", "unicode", "decoder", "normalizer", "split_chain")
_END = r"(?![\s\S])"
Classes = list[list[list[int]]]
"""Character classes; each is a list of ranges of code points, both ends included."""
JsStep = dict[str, Any]
_BLOCK = 256
_TABLES = frozenset({"lowercase", "strip_accents", "bert_clean", "nmt"})
_FORMS = frozenset({"nfc", "nfd", "nfkc", "nfkd"})
_SIDES = {"strip": (True, True), "strip_left": (True, False), "strip_right": (False, True)}


def encoder_of(tok: Tokenizer) -> dict[str, Any]:
    """Return a tokenizer as data for the page's encoder, or why the page cannot encode with it."""
    spec = tok.definition.to_spec()
    if tok.family not in FAMILIES:
        return {"refused": f"the page does not know the family {tok.family}"}
    try:
        steps = steps_for(spec["normalizer"])
        split = [
            dict(zip(("source", "classes"), to_javascript(one), strict=True)) for one in spec["split_chain"]
        ]
    except (NotInPageError, PatternError) as error:
        return {"refused": str(error)}
    kept = {name: value for name, value in spec.items() if name not in _NOT_NEEDED}
    unknown = getattr(tok.definition.model, "unknown_score", None)
    return {**kept, "steps": steps, "split": split, "unknown_score": unknown}


def to_javascript(expression: str) -> tuple[str, Classes]:
    """Return an expression for JavaScript's flag `u`, and its classes."""
    try:
        return _translated(expression)
    except UnsupportedError as error:
        raise PatternError(
            f"split_pattern={expression!r:.300} has no form for JavaScript: {error}"
        ) from error


@lru_cache(maxsize=64)
def _translated(expression: str) -> tuple[str, Classes]:
    flags = dialect_flags(expression)
    if flags and expression.startswith("(?i"):
        raise UnsupportedError("flags at its beginning")
    classes: Classes = []
    groups = groups_of(expression)
    tree = parse(expression if groups is None else groups.runs)
    source = _source(tree, classes, flags)
    if groups is not None:
        one = "<0>"  # the runs are of one class
        source = f"{one}{{1,{groups.size}}}(?=(?:{one}{{{groups.size}}})*(?!{one}))"
    return source, classes


def _source(node: Node, classes: Classes, flags: int) -> str:
    match node:
        case OneOf(atoms):
            return _class(atoms, classes, flags)
        case Sequence(items):
            return "".join(_source(item, classes, flags) for item in items)
        case Choice(options):
            return f"(?:{'|'.join(_source(option, classes, flags) for option in options)})"
        case Star(item, mode):
            return f"(?:{_source(item, classes, flags)})*{'?' * (mode == 'lazy')}"
        case Look(at, negated):
            return f"(?{'!' if negated else '='}{_source(at, classes, flags)})"
        case End(or_newline):
            return f"(?=\\n?{_END})" if or_newline else _END


def _class(atoms: tuple[str, ...], classes: Classes, flags: int) -> str:
    inside = np.zeros(0x110000, np.bool_)
    for atom in atoms:
        for first, end in code_points(atom, flags).tolist():
            inside[first:end] = True
    edges = np.flatnonzero(np.diff(np.concatenate([[False], inside, [False]]).astype(np.int8)))
    ranges = [[first, end - 1] for first, end in edges.reshape(-1, 2).tolist()]
    if ranges not in classes:
        classes.append(ranges)
    return f"<{classes.index(ranges)}>"


class NotInPageError(TokenizerError):
    """The page has no exact form of a part of a tokenizer."""


def steps_for(spec: object) -> list[JsStep]:
    """Return a normalizer's steps."""
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
