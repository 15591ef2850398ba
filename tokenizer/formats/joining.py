"""Hugging Face's decoders and ours: how tokens become text, read and written by name.

`Metaspace` drops every `▁` of the first token; the chain of Llama's files makes spaces and bytes of tokens,
and drops the first space of the text. A family refuses decoders that are not its own.
"""

from collections.abc import Mapping
from typing import Any

from tokmill.tokenizer.components.steps import MARK
from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.formats.split_steps import refusal
from tokmill.tokenizer.pipeline.model import Model

Json = dict[str, Any]

_SPACES: Json = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
_BYTES: Json = {"type": "ByteFallback"}
_FUSE: Json = {"type": "Fuse"}
_FIRST: Json = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def read_joining(value: Json | None, model: Model, where: str) -> str:
    """Return the name of the decoder of a model whose tokens hold `▁`.

    Args:
        value: the value of `decoder`.
        model: the model; unknown characters may become bytes there.
        where: the file, for messages.

    Raises:
        FormatError: it is another one, or does nothing about bytes where there are some, or the other way.
    """
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
    """Write the decoder of a model whose tokens hold `▁`.

    Raises:
        FormatError: a file cannot hold it.
    """
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
        raise FormatError(
            f"format='huggingface' cannot express decoder={name!r} for tokens that hold {MARK}; use "
            "format='tokmill'"
        )
    return {"type": "Sequence", "decoders": known[name]}
