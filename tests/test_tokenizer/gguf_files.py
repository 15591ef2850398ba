"""Writes small GGUF files: the header, metadata as llama.cpp's converter has them, and no tensors."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.test_tokenizer.conftest import TRAINING_TEXTS, like_bert, trained_by_sentencepiece
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.text import to_text
from tokmill.tokenizer.formats.model_file import read_model

_TYPES = {"u1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "f4": 6, "u8": 10, "i8": 11, "f8": 12}
MODELS = ["gpt2", "llama", "t5", "bert"]


def write_gguf(path: Path, metadata: Mapping[str, Any], *, order: str = "<", version: int = 3) -> Path:
    """Write a file; numbers are u4, and numpy arrays keep their type."""
    keys = b"".join(_text(key, order) + _value(value, order) for key, value in metadata.items())
    path.write_bytes(b"GGUF" + struct.pack(f"{order}IQQ", version, 0, len(metadata)) + keys)
    return path


def _text(text: str, order: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack(f"{order}Q", len(data)) + data


def _value(value: Any, order: str) -> bytes:
    if isinstance(value, bool):
        return struct.pack(f"{order}IB", 7, value)
    if isinstance(value, int):
        return struct.pack(f"{order}II", 4, value)
    if isinstance(value, str):
        return struct.pack(f"{order}I", 8) + _text(value, order)
    if isinstance(value, np.ndarray):
        head = struct.pack(f"{order}IIQ", 9, _TYPES[value.dtype.str[1:]], len(value))
        return head + value.astype(value.dtype.newbyteorder(order)).tobytes()  # type: ignore[arg-type]
    elements = [_value(element, order) for element in value]
    kind, content = elements[0][:4], b"".join(element[4:] for element in elements)
    return struct.pack(f"{order}I", 9) + kind + struct.pack(f"{order}Q", len(value)) + content


def section(model: str, pre: str, tokens: list[str], kinds: Sequence[int], **more: Any) -> dict[str, Any]:
    """The metadata of a model with a vocabulary; `bos=1` is short for the key of that id."""
    ids = {"bos", "eos", "unknown", "padding", "seperator", "mask"}
    named = {f"{key}_token_id" if key in ids else key: value for key, value in more.items()}
    named |= {"model": model, "pre": pre, "tokens": tokens, "token_type": np.array(kinds, "i4")}
    return {"general.architecture": "llama"} | {f"tokenizer.ggml.{key}": named[key] for key in named}


def of_byte_bpe(tok: Tokenizer, pre: str) -> dict[str, Any]:
    specials, tokens = {i: name for name, i in tok.special_tokens.items()}, tok.definition.tokens
    texts = [specials.get(i) or (to_text(token) if token else f"[PAD{i}]") for i, token in enumerate(tokens)]
    kinds = [3 if i in specials else 1 if token else 5 for i, token in enumerate(tokens)]
    merges = [f"{to_text(left)} {to_text(right)}" for left, right in tok.merges]
    first = next(iter(specials))
    return section("gpt2", pre, texts, kinds, merges=merges, bos=first, eos=first)


def of_pieces(model: bytes, name: str) -> dict[str, Any]:
    file = read_model(model, "model")
    texts, kinds, scores = zip(*((p.text, int(p.kind), p.score) for p in file.pieces), strict=True)
    more: dict[str, Any] = {"scores": np.array(scores, "f4"), "bos": 1, "eos": 2, "unknown": 0}
    if rules := file.normalizer["precompiled_charsmap"]:
        more["precompiled_charsmap"] = np.frombuffer(rules, "i1")
    more["add_space_prefix"] = file.normalizer["add_dummy_prefix"]
    more["remove_extra_whitespaces"] = file.normalizer["remove_extra_whitespaces"]
    return section(name, "default", [*texts], kinds, **more)


def of_bert(tokens: list[str]) -> dict[str, Any]:
    """BERT's vocabulary: `▁` before what begins words, nothing before what continues them."""
    roles = {"padding": "[PAD]", "unknown": "[UNK]", "bos": "[CLS]", "seperator": "[SEP]", "mask": "[MASK]"}
    ids = {role: tokens.index(name) for role, name in roles.items()}
    named = {*roles.values()}
    texts = [text if text in named else text[2:] if text.startswith("##") else f"▁{text}" for text in tokens]
    return section("bert", "jina-v2-en", texts, [3 if text in named else 1 for text in tokens], **ids)


def byte_bpe(pattern: str = "gpt2") -> Tokenizer:
    return tokenizer.train(
        TRAINING_TEXTS, vocab_size=330, split_pattern=pattern, special_tokens=["<|end|>", "<|user|>"]
    )


def small_model(name: str) -> bytes:
    if name == "t5":
        return trained_by_sentencepiece(vocab_size=200, user_defined_symbols=["<tool>"])
    options = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    return trained_by_sentencepiece(model_type="bpe", vocab_size=400, byte_fallback=True, **options)


def small_file(name: str) -> dict[str, Any]:
    if name == "gpt2":
        return of_byte_bpe(byte_bpe("llama3"), "llama-bpe")
    if name == "bert":
        return of_bert([token.decode() for token in like_bert().definition.tokens])
    return of_pieces(small_model(name), name)
