"""Normalizers in a `tokenizer.json`: each step of ours is a step there, or a flag of BERT's.

Steps with a name are those of `components.normalizers`; tables of rules are `Precompiled`.
"""

import base64
import binascii
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from tokmill.tokenizer.components.normalizer_steps import Step, spelled, steps_of
from tokmill.tokenizer.components.normalizers import Normalizer
from tokmill.tokenizer.components.sentences import SentenceNormalizer, split_charsmap
from tokmill.tokenizer.components.steps import MARK, Charsmap, Marks, StepNormalizer, TextStep
from tokmill.tokenizer.core.errors import FormatError, cannot_express
from tokmill.tokenizer.formats.split_steps import read_otherwise, refusal
from tokmill.tokenizer.pipeline.model import TextNormalizer

_NAMED = {
    "nfc": "NFC",
    "nfd": "NFD",
    "nfkc": "NFKC",
    "nfkd": "NFKD",
    "lowercase": "Lowercase",
    "strip_accents": "StripAccents",
    "nmt": "Nmt",
}
_STEPS = {theirs: ours for ours, theirs in _NAMED.items()}
_STRIPS = {"strip": (True, True), "strip_left": (True, False), "strip_right": (False, True)}
_SIDES = {sides: name for name, sides in _STRIPS.items()}
_BERT_STEPS = ("bert_clean", "cjk_spaces", "strip_nonspacing", "lowercase")
_OF_BERT_ALONE = frozenset(_BERT_STEPS[:-1])
_ONE_SPACE = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}


def _runs(steps: Sequence[Step]) -> list[list[Step]]:
    """Return the steps one by one, those together that BERT's normalizer does in its order."""
    runs = list[list[Step]]()
    for step in steps:
        before = runs[-1][-1].name if runs else ""
        if before in _BERT_STEPS and step.name in _BERT_STEPS[_BERT_STEPS.index(before) + 1 :]:
            runs[-1].append(step)
        else:
            runs.append([step])
    return runs


def _write_run(run: list[Step]) -> dict[str, Any]:
    step, names = run[0], [step.name for step in run]
    if _OF_BERT_ALONE.intersection(names):
        clean, cjk, strip, lower = (name in names for name in _BERT_STEPS)
        flags = {"clean_text": clean, "handle_chinese_chars": cjk, "strip_accents": strip, "lowercase": lower}
        return {"type": "BertNormalizer", **flags}
    if step.name in _STRIPS:
        left, right = _STRIPS[step.name]
        return {"type": "Strip", "strip_left": left, "strip_right": right}
    if step.name == "prepend":
        return {"type": "Prepend", "prepend": step.arguments[0]}
    if step.name in {"replace", "replace_pattern"}:
        return _write_replace(step)
    return {"type": _NAMED[step.name]}


def _write_replace(step: Step) -> dict[str, Any]:
    old, new = step.arguments
    otherwise = read_otherwise(old) if step.name == "replace_pattern" else []
    if otherwise:
        raise FormatError(
            f"format='huggingface' cannot express normalizer={str(step)!r}: the tokenizers library reads "
            f"{otherwise[0]!r} in another way; write it otherwise, or use format='tokmill'"
        )
    kind = "String" if step.name == "replace" else "Regex"
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


def flat(value: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the steps of sequences, which may hold sequences."""
    if value is None or value["type"] != "Sequence":
        return [] if value is None else [value]
    return [step for part in value["normalizers"] for step in flat(part)]


def _read_step(step: dict[str, Any], where: str) -> list[Step]:
    match step["type"]:
        case "BertNormalizer":
            return _read_bert(step)
        case "Strip":
            sides = bool(step["strip_left"]), bool(step["strip_right"])
            return [Step(_SIDES[sides])] if sides in _SIDES else []
        case "Prepend":
            return [Step("prepend", (str(step["prepend"]),))]
        case "Replace":
            return [_read_replace(step, where)]
    if step["type"] not in _STEPS:
        known = ", ".join((*_STEPS, "BertNormalizer", "Strip", "Prepend", "Replace"))
        raise refusal(where, "normalizer.type", step["type"], f"only {known} can be done")
    return [Step(_STEPS[step["type"]])]


def _read_replace(step: dict[str, Any], where: str) -> Step:
    (kind, old), new = next(iter(step["pattern"].items())), str(step["content"])
    if kind == "String":
        return Step("replace", (str(old), new))
    for part in read_otherwise(str(old)):
        rule = f"the tokenizers library reads {part!r} in another way than tokmill"
        raise refusal(where, "normalizer: Replace.pattern", old, rule)
    return Step("replace_pattern", (str(old), new))


def _read_bert(step: dict[str, Any]) -> list[Step]:
    """Return the steps of BERT's normalizer; accents are removed with the case unless the file says so."""
    strip = step.get("strip_accents")
    wanted = {
        "bert_clean": step["clean_text"],
        "cjk_spaces": step["handle_chinese_chars"],
        "strip_nonspacing": step["lowercase"] if strip is None else strip,
        "lowercase": step["lowercase"],
    }
    return [Step(name) for name in _BERT_STEPS if wanted[name]]


Json = dict[str, Any]

_RULES = "Precompiled"


def read(value: Json | None, where: str, *, loses_spaces: bool) -> list[TextStep]:
    """Read a normalizer.

    A step that makes a space of white space, as in CLIP's files, is left out where the model has no use for
    white space (`loses_spaces`).
    """
    steps = list[TextStep]()
    given = [step for step in flat(value) if not (loses_spaces and step == _ONE_SPACE)]
    for by_rules, run in groupby(given, key=lambda step: step["type"] == _RULES):
        if by_rules:
            steps += [_read_charsmap(step["precompiled_charsmap"], where) for step in run]
        elif name := spelled(tuple(read for step in run for read in _read_step(step, where))):
            steps.append(Normalizer(name))
    return steps


def _read_charsmap(encoded: str, where: str) -> Charsmap:
    try:
        charsmap = base64.b64decode(encoded, validate=True)
        split_charsmap(charsmap)[1].tobytes().decode()
    except (binascii.Error, UnicodeDecodeError, FormatError) as error:
        raise FormatError(f"{where}: normalizer: Precompiled.precompiled_charsmap: {error}") from error
    if not charsmap:
        raise refusal(where, "normalizer: Precompiled.precompiled_charsmap", encoded, "it must hold rules")
    return Charsmap(charsmap)


def normalizer_of(steps: Sequence[TextStep], marks: Marks | None = None) -> TextNormalizer:
    """Put steps together, with what a `Metaspace` does after them."""
    every = (*steps, *([marks] if marks else []))
    if not every:
        return Normalizer()
    return every[0] if len(every) == 1 and isinstance(every[0], Normalizer) else StepNormalizer(every)


def write(normalizer: TextNormalizer) -> Json | None:
    """Write a normalizer; `Marks` is left to `metaspace.write`."""
    if not isinstance(normalizer, Normalizer | StepNormalizer):
        what = f"normalizer={normalizer.name!r}, which treats white space in a way of its own"
        raise cannot_express("huggingface", what, "sentencepiece", "tokmill")
    given = normalizer.steps if isinstance(normalizer, StepNormalizer) else (normalizer,)
    steps = [written for step in given for written in _write(step)]
    return {"type": "Sequence", "normalizers": steps} if len(steps) > 1 else steps[0] if steps else None


def _write(step: TextStep) -> list[Json]:
    match step:
        case Normalizer(name):
            return [_write_run(run) for run in _runs(steps_of(name))]
        case Charsmap(charsmap):
            return [{"type": _RULES, "precompiled_charsmap": base64.b64encode(charsmap).decode()}]
    return []


_AT_THE_BEGINNING, _AT_THE_END = r"(?<![\s\S]) +", rf"[ {MARK}]+(?![\s\S])"


def sentence_steps(normalizer: SentenceNormalizer) -> str | None:
    """Return the name of a normalizer (`components.normalizers`) that does the same."""
    for reason in _reasons(normalizer):
        what = f"normalizer={normalizer.name!r}: {reason}"
        raise cannot_express("huggingface", what, "sentencepiece", "tokmill")
    extra = [
        Step("replace_pattern", (_AT_THE_BEGINNING, "")),
        Step("replace_pattern", (_AT_THE_END, "")),
        Step("replace_pattern", (" {2,}", " ")),
    ]
    prefix = [Step("prepend", (MARK,))] if normalizer.add_dummy_prefix else []
    spaces = [Step("replace", (" ", MARK))]
    return spelled((*(extra if normalizer.remove_extra_whitespaces else ()), *prefix, *spaces))


def _reasons(normalizer: SentenceNormalizer) -> list[str]:
    found = []
    if normalizer.charsmap:
        found.append("tokenizers applies rules by grapheme clusters, so that 'ﬁ' loses an accent after it")
    if normalizer.kept:
        found.append(
            f"tokenizers takes symbols such as {normalizer.kept[0]!r:.80} out before it normalizes: a text "
            "begins after each"
        )
    if normalizer.treat_whitespace_as_suffix:
        found.append(f"tokenizers puts {MARK} before a text, not after it")
    return found
