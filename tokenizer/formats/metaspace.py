"""Hugging Face's `Metaspace`: `▁` for spaces, a cut before each, and how it is undone.

What it does to the text is our normalizer's last step (`components.steps.Marks`), and where it cuts is a
split pattern. Read: `Metaspace` alone or after `WhitespaceSplit`, also in older files' form; no
pre-tokenizer; a split at spaces where the normalizer leaves none, as in Gemma's files. Its decoder drops
every `▁` of the first token; the chain of Llama's files makes spaces and bytes of tokens, and drops the
text's first space.
"""

from collections.abc import Mapping
from typing import Any, cast

from tokmill.tokenizer.components.normalizers import Normalizer
from tokmill.tokenizer.components.normalizers import steps_of as named_steps
from tokmill.tokenizer.components.steps import MARK, Marks, Prepend, StepNormalizer, TextStep
from tokmill.tokenizer.core.errors import cannot_express
from tokmill.tokenizer.formats.split_steps import in_sequence, refusal, steps_of
from tokmill.tokenizer.pipeline.model import Model, TextNormalizer
from tokmill.tokenizer.sentences.options import WHOLE_TEXT

Json = dict[str, Any]

_SPACES: Json = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
_BYTES: Json = {"type": "ByteFallback"}
_FUSE: Json = {"type": "Fuse"}
_FIRST: Json = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def read_joining(value: Json | None, model: Model, where: str) -> str:
    """Return the name of the decoder of a model whose tokens hold `▁`."""
    steps, by_bytes = (value or {}).get("decoders", [value]), bool(model.vocabulary.byte_ids)
    if steps == [_FUSE] and not by_bytes:
        return "fuse"
    if value is not None and value.get("type") == "Metaspace" and not by_bytes:
        never = value.get("prepend_scheme") == "never" or value.get("add_prefix_space") is False
        if value["replacement"] == MARK:
            return "metaspace_never" if never else "metaspace_first"
    if steps[:1] == [_SPACES] and (_BYTES in steps) == by_bytes:
        rest = [step for step in steps[1:] if step not in (_BYTES, _FUSE)]
        if not rest:
            return "metaspace_never"
        if rest == [_FIRST] and steps[-2:] == [_FUSE, _FIRST]:
            return "metaspace_fused"
    wanted = "ByteFallback" if by_bytes else "no ByteFallback"
    rule = f"only Metaspace, and Replace {MARK} with {wanted}, Fuse and Strip can be done for this model"
    raise refusal(where, "decoder", value, rule)


def write_joining(name: str, model: Model) -> Json:
    """Write the decoder of a model whose tokens hold `▁`."""
    by_bytes = bool(model.vocabulary.byte_ids)
    bytes_step = [_BYTES] if by_bytes else []
    known: Mapping[str, list[Json]] = {
        "fuse": [_FUSE],
        "metaspace_never": [_SPACES, *bytes_step, _FUSE],
        "metaspace_fused": [_SPACES, *bytes_step, _FUSE, _FIRST],
    }
    if name == "metaspace_first" and not by_bytes:
        return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}
    if name not in known:
        raise cannot_express("huggingface", f"decoder={name!r} for tokens that hold {MARK}")
    return {"type": "Sequence", "decoders": known[name]}


_NUM_BYTES, _ASCII = 256, 128


def byte_name(byte: int) -> str:
    """Return the text of the token of a byte."""
    return f"<0x{byte:02X}>"


def read_byte_ids(ids: Mapping[str, int], model: Mapping[str, Any], where: str) -> dict[int, bytes]:
    """Return the bytes that stand in for unknown characters, by id; none without `byte_fallback`.

    One whose character is a piece may be missing, as that of the tab is in Gemma's files: it is never needed.
    """
    if not model.get("byte_fallback"):
        return {}
    found = {ids[byte_name(byte)]: bytes([byte]) for byte in range(_NUM_BYTES) if byte_name(byte) in ids}
    lacking = [byte for byte in range(_NUM_BYTES) if byte_name(byte) not in ids]
    if found and not all(byte < _ASCII and chr(byte) in ids for byte in lacking):
        rule = f"{len(found)} of the tokens <0x00> to <0xFF> are there; there must be all, or none"
        raise refusal(where, "model.byte_fallback", True, rule)
    return found


WORDS = f"{MARK}[^{MARK}]*|[^{MARK}]+"
"""The pattern of its cuts: before each `▁`."""

_SPACE = {"type": "Split", "pattern": {"String": " "}, "invert": False}


def has(value: dict[str, Any] | None) -> bool:
    """Whether a pre-tokenizer is one of those that can be read here: none, or with a `Metaspace`."""
    steps = steps_of(value)
    return all(_is_space(step) for step in steps) or any(step.get("type") == "Metaspace" for step in steps)


def read(value: dict[str, Any] | None, before: list[TextStep], where: str) -> tuple[Marks | None, str]:
    """Read a pre-tokenizer; return what it does to the text, if anything, and the pattern of its cuts."""
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


def _leaves_no_space(steps: list[TextStep]) -> bool:
    """Whether the last step has replaced all spaces."""
    last = named_steps(steps[-1].name)[-1] if steps and isinstance(steps[-1], Normalizer) else None
    return (
        last is not None
        and last.name == "replace"
        and last.arguments[0] == " "
        and " " not in last.arguments[1]
    )


def write(normalizer: TextNormalizer, pattern: str) -> dict[str, Any] | None:
    """Return the pre-tokenizer of a normalizer whose last step is `Marks`; None for another one."""
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
