"""BPE over words in a `tokenizer.json`: a `BPE` model with `end_of_word_suffix`.

Where letters are characters, as in GPT-1: `formats.split_steps`, and a `BPEDecoder`. Where they are bytes, as
in CLIP: pieces are in GPT-2's byte alphabet, and the last step is `ByteLevel`; `</w>` becomes a space, as
what is written says. A step that makes a space of white space is left out, since the model has no use for it.
"""

from collections.abc import Mapping
from typing import Any

from tokmill.tokenizer.components.decoders import ENDS
from tokmill.tokenizer.core.errors import cannot_express
from tokmill.tokenizer.core.text import to_bytes, to_text
from tokmill.tokenizer.formats.models import (
    JsonFile,
    bpe_model,
    vocab_by_text,
)
from tokmill.tokenizer.formats.split_steps import (
    byte_level,
    in_sequence,
    named,
    read_steps,
    write_steps,
)
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.model import Model
from tokmill.tokenizer.splitting import SPLIT_PATTERNS
from tokmill.tokenizer.splitting.splitter import PreTokenizer
from tokmill.tokenizer.word_bpe.model import NAME, WordPairModel, model_of

_SUFFIX = ENDS.decode()
_CLIP = SPLIT_PATTERNS["clip"]
_PUBLISHED_CLIP = (
    _CLIP.removesuffix(r"|\s+"),
    r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
)
_BYTES_DECODER = {
    "type": "Sequence",
    "decoders": [
        {**byte_level(use_regex=True)},
        {"type": "Replace", "pattern": {"Regex": _SUFFIX + r"\z"}, "content": ""},
        {"type": "Replace", "pattern": {"String": _SUFFIX}, "content": " "},
    ],
}
_DECODER = {"type": "BPEDecoder", "suffix": _SUFFIX}


def reads(content: Mapping[str, Any]) -> bool:
    """Whether a file is of this family: BPE with a mark at the end of words."""
    model = content["model"]
    return bool(model.get("type", "BPE") == "BPE") and bool(model.get("end_of_word_suffix"))


def write(definition: Definition, *, exact: bool) -> dict[str, Any]:
    """Return the pre-tokenizer, the decoder and the model."""
    model = model_of(definition)
    for name, value in (("end_of_word", "attached"), ("segmentation", "merges")):
        if getattr(model, name) != value:
            what = f"{name}={getattr(model, name)!r}: the tokenizers library has {value!r} alone"
            raise cannot_express("huggingface", what)
    return {
        "pre_tokenizer": in_sequence(_write_steps(definition.pre_tokenizer.chain, model, exact=exact)),
        "decoder": _BYTES_DECODER if model.by_bytes else _DECODER,
        "model": bpe_model(
            spelled_vocab(definition, "huggingface"),
            [list(pair) for pair in spelled_pairs(model)],
            unk_token=model.unknown_token,
            end_of_word_suffix=_SUFFIX,
            fuse_unk=model.fuse_unknown,
        ),
    }


def _write_steps(chain: tuple[str, ...], model: WordPairModel, *, exact: bool) -> list[dict[str, Any]]:
    if not model.by_bytes:
        return write_steps(chain, exact=exact)
    if chain == (_CLIP,):
        split = {"pattern": {"Regex": _PUBLISHED_CLIP[1]}, "behavior": "Removed", "invert": True}
        return [{"type": "Split", **split}, byte_level(use_regex=True)]
    return [*write_steps(chain, exact=exact), byte_level(use_regex=False)]


def read(file: JsonFile) -> tuple[Model, PreTokenizer]:
    """Read the model and the pre-tokenizer."""
    file.check_bpe(NAME, end_of_word_suffix=(_SUFFIX,), byte_fallback=(False,))
    value = file.content.get("decoder") or {}
    if value.get("type") != "ByteLevel" and value != _BYTES_DECODER:
        rule = f"only BPEDecoder and ByteLevel can treat {_SUFFIX}"
        file.check_decoder("BPEDecoder", rule, suffix=_SUFFIX)
    by_bytes, pre_tokenizer = _read_pre_tokenizer(file)
    unknown = None if by_bytes else file.unknown()

    def piece(text: str) -> bytes:
        return read_piece(text, by_bytes, file.where)

    made = WordPairModel.build(
        file.vocabulary(piece),
        [(piece(left), piece(right)) for left, right in file.merges()],
        unknown_token=unknown,
        fuse_unknown=False if by_bytes else bool(file.model.get("fuse_unk", False)),
        letters="bytes" if by_bytes else "characters",
    )
    return made, pre_tokenizer


def _read_pre_tokenizer(file: JsonFile) -> tuple[bool, PreTokenizer]:
    """Return whether letters are bytes, and the pre-tokenizer."""
    steps = file.steps
    if not steps or steps[-1].get("type") != "ByteLevel":
        return False, PreTokenizer(named(read_steps(steps, NAME, file.where)))
    last, others = steps[-1], steps[:-1]
    if last.get("add_prefix_space"):
        raise file.refusal("pre_tokenizer.add_prefix_space", True, "only False can be done")
    if len(others) == 1 and _is_clip(others[0]):
        return True, PreTokenizer("clip")  # GPT-2's split cuts none of its parts
    chain = read_steps(others, NAME, file.where)
    return True, PreTokenizer(
        named((*chain, SPLIT_PATTERNS["gpt2"]) if last.get("use_regex", True) else chain)
    )


def _is_clip(step: Mapping[str, Any]) -> bool:
    """Whether a step is CLIP's split, in which white space is what no match has."""
    pattern = step.get("pattern") or {}
    how = step.get("type"), step.get("behavior"), step.get("invert")
    return how == ("Split", "Removed", True) and pattern.get("Regex") in _PUBLISHED_CLIP


def spell_piece(piece: bytes, by_bytes: bool) -> str:
    """Return a piece as text; letters that are bytes are written in the byte alphabet."""
    if not by_bytes:
        return piece.decode()
    return to_text(piece.removesuffix(ENDS)) + (_SUFFIX if piece.endswith(ENDS) else "")


def read_piece(text: str, by_bytes: bool, where: str) -> bytes:
    """Read a piece that `spell_piece` wrote."""
    if not by_bytes:
        return text.encode()
    return to_bytes(text.removesuffix(_SUFFIX), where) + (ENDS if text.endswith(_SUFFIX) else b"")


def spelled_pairs(model: WordPairModel) -> list[tuple[str, str]]:
    """Return the merges as text, in order of rank."""
    return [
        (spell_piece(left, model.by_bytes), spell_piece(right, model.by_bytes)) for left, right in model.pairs
    ]


def spelled_vocab(definition: Definition, format_name: str) -> dict[str, int]:
    """Return ids by token as text; special tokens as they are."""
    by_bytes = model_of(definition).by_bytes
    return vocab_by_text(
        definition, format_name, [spell_piece(token, by_bytes) for token in definition.tokens]
    )
