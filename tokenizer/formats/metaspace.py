"""Hugging Face's `Metaspace`: `▁` for spaces, one before the text, and a cut before each.

What it does to the text is the last step of our normalizer (`components.steps.Marks`), and where it cuts is a
split pattern. Read: `Metaspace` alone or after `WhitespaceSplit`, in today's form and in that of older files
(`add_prefix_space`); no pre-tokenizer; and a split at spaces where the normalizer has left none, as Gemma's
files have it.
"""

from typing import Any, cast

from tokmill.tokenizer.components.normalizers import steps_of as named_steps
from tokmill.tokenizer.components.step_normalizer import StepNormalizer
from tokmill.tokenizer.components.steps import MARK, Marks, Plain, Prepend, Step
from tokmill.tokenizer.formats.split_steps import in_sequence, refusal, steps_of
from tokmill.tokenizer.pipeline.model import TextNormalizer
from tokmill.tokenizer.sentences.options import WHOLE_TEXT

WORDS = f"{MARK}[^{MARK}]*|[^{MARK}]+"
"""The pattern of its cuts: before each `▁`."""

_SPACE = {"type": "Split", "pattern": {"String": " "}, "invert": False}


def has(value: dict[str, Any] | None) -> bool:
    """Whether a pre-tokenizer is one of those that can be read here: none, or with a `Metaspace`."""
    steps = steps_of(value)
    return all(_is_space(step) for step in steps) or any(step.get("type") == "Metaspace" for step in steps)


def read(value: dict[str, Any] | None, before: list[Step], where: str) -> tuple[Marks | None, str]:
    """Read a pre-tokenizer.

    Args:
        value: the value of `pre_tokenizer`.
        before: the steps of the normalizer.
        where: the file, for messages.

    Returns:
        What it does to the text, if anything, and the pattern of its cuts.

    Raises:
        FormatError: it cannot be done here; the message names it.
    """
    steps = steps_of(value)
    if not any(step.get("type") == "Metaspace" for step in steps):
        if steps and not (len(steps) == 1 and _leaves_no_space(before)):
            rule = "a split at spaces can only be done where the normalizer leaves none"
            raise refusal(where, "pre_tokenizer", value, rule)
        return None, WHOLE_TEXT
    kinds = [step["type"] for step in steps]
    if kinds not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        rule = "only Metaspace can be done, alone or after WhitespaceSplit"
        raise refusal(where, "pre_tokenizer", ", ".join(kinds), rule)
    return _read_step(steps[-1], len(kinds) > 1, where)


def _read_step(step: dict[str, Any], words: bool, where: str) -> tuple[Marks, str]:
    if step["replacement"] != MARK:
        raise refusal(where, "pre_tokenizer.replacement", step["replacement"], f"it must be {MARK!r}")
    scheme, split = step.get("prepend_scheme"), step.get("split", True)
    if step.get("add_prefix_space") is False:
        if scheme not in (None, "never"):
            raise refusal(where, "pre_tokenizer.prepend_scheme", scheme, "add_prefix_space is false")
        scheme = "never"
    scheme = "always" if scheme is None else scheme
    if words and (scheme != "always" or not split):
        rule = "after WhitespaceSplit only 'always' can be done, with split"
        raise refusal(where, "pre_tokenizer.prepend_scheme", scheme, rule)
    return Marks(cast(Prepend, scheme), words), WORDS if split else WHOLE_TEXT


def _is_space(step: dict[str, Any]) -> bool:
    """Whether a step cuts at spaces, and at nothing else."""
    return all(step.get(key, False) == value for key, value in _SPACE.items())


def _leaves_no_space(steps: list[Step]) -> bool:
    """Whether the last step has replaced all spaces."""
    last = named_steps(steps[-1].name)[-1] if steps and isinstance(steps[-1], Plain) else None
    return (
        last is not None
        and last.name == "replace"
        and last.arguments[0] == " "
        and " " not in last.arguments[1]
    )


def write(normalizer: TextNormalizer, pattern: str) -> dict[str, Any] | None:
    """Return the pre-tokenizer of a normalizer whose last step is `Marks`; None for another one.

    Args:
        normalizer: the tokenizer's.
        pattern: where it cuts; anything but `WORDS` is not written.
    """
    marks = marks_of(normalizer)
    if marks is None:
        return None
    step = {
        "type": "Metaspace",
        "replacement": MARK,
        "prepend_scheme": marks.prepend,
        "split": pattern == WORDS,
    }
    return in_sequence([{"type": "WhitespaceSplit"}, step] if marks.words else [step])


def marks_of(normalizer: TextNormalizer) -> Marks | None:
    """Return the last step of a normalizer if it is what a `Metaspace` does."""
    last = normalizer.steps[-1] if isinstance(normalizer, StepNormalizer) else None
    return last if isinstance(last, Marks) else None
