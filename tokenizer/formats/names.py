"""How the format of a tokenizer file is recognized: by its name, its first line, or the keys of its JSON."""

import re
from collections.abc import Mapping
from typing import Any

TOKMILL = "tokmill.json"
HUGGINGFACE = "tokenizer.json"
TIKTOKEN_SUFFIX, TIKTOKEN = ".tiktoken", "tokenizer.tiktoken"
TEKKEN = "tekken.json"
BERT = "vocab.txt"
SENTENCEPIECE, SENTENCEPIECE_VOCAB = "tokenizer.model", "tokenizer.vocab"
RWKV = "rwkv_vocab.txt"
GGUF_SUFFIX = ".gguf"
GPT2_VOCAB, GPT2_MERGES = "vocab.json", "merges.txt"

_PIECE_TAG, _ONE_BYTE, _LEAST_PIECE = 0x0A, 0x80, 6
_AFTER_TEXT = (b"\x15", b"\x18")  # the tags of a score and a type
_LITERAL = re.compile(rb"[0-9]{1,7} b?(['\"])[^\n]*\1 [0-9]{1,7}\r?\n")
_RANK = re.compile(rb"[A-Za-z0-9+/]+={0,2} [0-9]+\r?\n")


def begins_with_rank(head: bytes) -> bool:
    """Whether the first line of a file is one of tiktoken's: a token in base64 and its rank."""
    return _RANK.match(head) is not None


def begins_with_literal(head: bytes) -> bool:
    """Whether the first line of a file is one of RWKV's: an id, a literal in quotes, and its length."""
    return _LITERAL.match(head) is not None


def begins_with_piece(head: bytes) -> bool:
    """Whether a file begins as SentencePiece's models do: with a piece, which is a text, a score and a type.

    Text that begins with two line breaks (the tags of piece and text) has no control character after them.
    """
    if len(head) < _LEAST_PIECE or not head[0] == head[2] == _PIECE_TAG or not head[3] < head[1] < _ONE_BYTE:
        return False
    return head[4 + head[3] : 5 + head[3]] in _AFTER_TEXT


def is_codes(name: str, head: bytes) -> bool:
    """Whether a file is subword-nmt's codes: by its first line, and by `</w>`, which GPT-2's merges lack.

    A `merges.txt` is a part of another format.
    """
    return head.startswith(b"#version: ") and b"</w>" in head and not name.endswith(GPT2_MERGES)


def is_tekken(content: Mapping[str, Any]) -> bool:
    """Whether the JSON of a file is Mistral's tekken, and no vocabulary with tokens of these names."""
    return isinstance(content.get("config"), dict) and isinstance(content.get("vocab"), list)
