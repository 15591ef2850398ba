"""Writes small GGUF files: the header, metadata as llama.cpp's converter has them, and no tensors."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.test_tokenizer.conftest import TRAINING_TEXTS, like_bert, trained_by_sentencepiece
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.text import to_text
from tokmill.tokenizer.formats.model_file import read_model

_TYPES = {"u1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "f4": 6, "u8": 10, "i8": 11, "f8": 12}


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


def of_byte_bpe(tok: Tokenizer, pre: str, **more: Any) -> dict[str, Any]:
    """The metadata of a byte-level tokenizer, as llama.cpp's converter writes it."""
    specials = {i: name for name, i in tok.special_tokens.items()}
    texts = [
        specials.get(i) or (to_text(token) if token else f"[PAD{i}]")
        for i, token in enumerate(tok.definition.tokens)
    ]
    kinds = [3 if i in specials else 1 if token else 5 for i, token in enumerate(tok.definition.tokens)]
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": np.array(kinds, "i4"),
        "tokenizer.ggml.merges": [f"{to_text(left)} {to_text(right)}" for left, right in tok.merges],
        "tokenizer.ggml.bos_token_id": next(iter(specials)),
        "tokenizer.ggml.eos_token_id": next(iter(specials)),
        **more,
    }


def of_pieces(model: bytes, name: str, **more: Any) -> dict[str, Any]:
    file = read_model(model, "model")
    charsmap = np.frombuffer(file.normalizer["precompiled_charsmap"], "i1")
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": name,
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [piece.text for piece in file.pieces],
        "tokenizer.ggml.scores": np.array([piece.score for piece in file.pieces], "f4"),
        "tokenizer.ggml.token_type": np.array([int(piece.kind) for piece in file.pieces], "i4"),
        "tokenizer.ggml.add_space_prefix": file.normalizer["add_dummy_prefix"],
        "tokenizer.ggml.remove_extra_whitespaces": file.normalizer["remove_extra_whitespaces"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **({"tokenizer.ggml.precompiled_charsmap": charsmap} if charsmap.size else {}),
        **more,
    }


def of_bert(tokens: list[str], **more: Any) -> dict[str, Any]:
    """The metadata of BERT's vocabulary: `▁` before what begins words, nothing before what continues them."""
    named = {name: tokens.index(name) for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")}
    texts = [text if text in named else text[2:] if text.startswith("##") else f"▁{text}" for text in tokens]
    return {
        "general.architecture": "bert",
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.pre": "jina-v2-en",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": np.array([3 if text in named else 1 for text in tokens], "i4"),
        "tokenizer.ggml.padding_token_id": named["[PAD]"],
        "tokenizer.ggml.unknown_token_id": named["[UNK]"],
        "tokenizer.ggml.bos_token_id": named["[CLS]"],
        "tokenizer.ggml.seperator_token_id": named["[SEP]"],
        "tokenizer.ggml.mask_token_id": named["[MASK]"],
        **more,
    }


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


MODELS = ["gpt2", "llama", "t5", "bert"]
