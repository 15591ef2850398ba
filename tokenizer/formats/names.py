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
GPT2_VOCAB, GPT2_MERGES = "vocab.json", "merges.txt"

_RANK = re.compile(rb"[A-Za-z0-9+/]+={0,2} [0-9]+\r?\n")


def begins_with_rank(head: bytes) -> bool:
    """Whether the first line of a file is one of tiktoken's: a token in base64 and its rank."""
    return _RANK.match(head) is not None


def begins_with_piece(head: bytes) -> bool:
    """Whether a file begins as SentencePiece's models do: with a field that holds a field of bytes."""
    return len(head) > 3 and head[0] == head[2] == 0x0A and head[3] < head[1] < 0x80


def is_tekken(content: Mapping[str, Any]) -> bool:
    """Whether the JSON of a file is Mistral's tekken, and no vocabulary with tokens of these names."""
    return isinstance(content.get("config"), dict) and isinstance(content.get("vocab"), list)
