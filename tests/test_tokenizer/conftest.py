"""Tokenizers that many tests use, and text strategies."""

import copy
import io
import json
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import zstandard
from hypothesis import strategies as st

from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.byte_bpe.model import define
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.formats import WRITERS
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.splitting import fallback
from tokmill.tokenizer.wordpiece.model import WordPieceModel

BERT = "bert_clean+cjk_spaces+strip_nonspacing+lowercase"
"""The normalizer of BERT's uncased vocabularies."""
TRAINING_TEXTS = [
    "the quick brown fox, the lazy dog and the other foxes; they're there, then.",
    "Größe und Straße, où êtes-vous? 今天天气很好，今天。 吾輩は猫である。",
    "def f(x):\n    return x + 1234  # the thing\n\n\n",
] * 3
SPECIALS = ["<|endoftext|>", "<|end|>", "<|endoftext|><|more|>"]
BYTE_FORMATS = [name for name in WRITERS if name not in {"tekken", "bert", "sentencepiece", "rwkv"}]
"""The formats of any byte-level tokenizer; `tekken` needs another order of ids, others another family."""


@pytest.fixture(scope="session")
def small() -> Tokenizer:
    """A tokenizer with a few merges, special tokens that begin alike, and reserved ones."""
    return tokenizer.train(
        TRAINING_TEXTS, vocab_size=256 + 90 + 3 + 2, special_tokens=SPECIALS, num_reserved=2
    )


def in_tekken_order(tok: Tokenizer) -> Tokenizer:
    """The same tokens and merges with the ids that Mistral's format needs: special tokens, bytes, merges."""
    specials = {name: token for token, name in enumerate(tok.special_tokens)}
    merged = [left + right for left, right in tok.merges]
    tokens = dict(enumerate([*(bytes([byte]) for byte in range(256)), *merged], len(specials)))
    pattern = tok.definition.pre_tokenizer.chain
    return Tokenizer(define(tokens, tok.merges, specials, ignore_merges=True, split_pattern=pattern))


def like_bert() -> Tokenizer:
    """A small tokenizer that a vocab.txt can hold."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "fox", "##es", "##e", ",", "12", "##34"]
    specials = {name: i for i, name in enumerate(tokens[:5])}
    vocabulary = Vocabulary.build({i: token.encode() for i, token in enumerate(tokens) if i > 4}, specials)
    parts = {"split_pattern": "bert", "normalizer": BERT, "decoder": "wordpiece_cleanup"}
    return Tokenizer(Definition.compose(WordPieceModel(vocabulary), **parts))


def like_rwkv() -> Tokenizer:
    """A small tokenizer that takes the longest match, with a special token."""
    how = {"vocab_size": 330, "special_tokens": ["<|end|>"], "split_pattern": r"[\s\S]+"}
    return tokenizer.train(TRAINING_TEXTS, family="longest_match", **how)


def trained_by_sentencepiece(texts: Iterable[str] = TRAINING_TEXTS, **options: Any) -> bytes:
    """The `.model` that sentencepiece trains from texts."""
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(  # type: ignore[attr-defined]  # it is there
        sentence_iterator=iter(texts), model_writer=made, minloglevel=2, hard_vocab_limit=False, **options
    )
    return made.getvalue()


@lru_cache(maxsize=1)
def like_sentencepiece() -> Tokenizer:
    """A small tokenizer that a `.model` can hold, with all that such a file may have."""
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.tsv"
        rules.write_text("41\t61\nFF21\t61\n20 20\t\n2460\t28 31 29\n")
        model = trained_by_sentencepiece(
            vocab_size=400,
            byte_fallback=True,
            user_defined_symbols=["fox", "<tool>"],
            normalization_rule_tsv=str(rules),
        )
        file = Path(folder) / "tokenizer.model"
        file.write_bytes(model)
        return tokenizer.load(file)


def fit_for(format_name: str, tok: Tokenizer) -> Tokenizer:
    """The tokenizer, or one like it that the format can hold."""
    if format_name == "tekken":
        return in_tekken_order(tok)
    others = {"bert": like_bert, "sentencepiece": like_sentencepiece, "rwkv": like_rwkv}
    return others[format_name]() if format_name in others else tok


def listed(text: str, mark: str | None = None) -> list[str]:
    """The parts of a text between marks, or between blanks."""
    return text.split(mark)


def edited(value: Any, changes: dict[str, Any]) -> Any:
    """A copy of a JSON value in which others stand at some dotted paths; `-` appends to a list."""
    value = copy.deepcopy(value)
    for path, new in changes.items():
        *outer, last = path.split(".")
        inner = value
        for part in outer:
            inner = inner[int(part) if isinstance(inner, list) else part]
        if last == "-":
            inner.append(new)
        else:
            inner[int(last) if isinstance(inner, list) else last] = new
    return value


def by_regex(chain: Iterable[str], document: bytes) -> list[bytes]:
    """The pre-tokens of a document, by the `regex` package."""
    pieces = [document.decode("utf-8", "surrogateescape")] if document else []
    for expression in chain:
        compiled = fallback.compile_regex(expression)
        pieces = [part for piece in pieces for part in fallback.isolate(compiled, piece)]
    return [piece.encode("utf-8", "surrogateescape") for piece in pieces]


def by_kernel(tok: Tokenizer, text: str, **how: object) -> list[int]:
    """Encode as a batch, which takes the kernels however short the text is."""
    return tok.encode_batch([text], **how)[0].tolist()


def any_text() -> st.SearchStrategy[str]:
    """Text of every plane, with much of what the small tokenizer has merges for, and special tokens."""
    pieces = st.one_of(
        st.text(max_size=8),
        st.sampled_from(
            [" the", "there", "fox", "Straße", "今天", "猫である", "    ", "\n\n", "1234", "'re"]
        ),
        st.sampled_from([*SPECIALS, "<|", "|>", "<|endof", "<|reserved_0|>"]),
        st.text(alphabet="aeht <|>", max_size=20),
    )
    return st.lists(pieces, max_size=12).map("".join)


@lru_cache(maxsize=8)
def corpus(folder: Path, name: str, num_bytes: int) -> list[str]:
    """The first documents of a shared corpus, `num_bytes` of text or a little more."""
    texts, size = [], 0
    with zstandard.open(folder / "corpora" / f"{name}.jsonl.zst", "rt", encoding="utf-8") as lines:
        for line in lines:
            texts.append(json.loads(line)["text"])
            size += len(texts[-1].encode())
            if size >= num_bytes:
                break
    return texts


def ntrex(folder: Path) -> dict[str, str]:
    """The parallel texts by language."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted((folder / "ntrex").glob("*.txt"))}
