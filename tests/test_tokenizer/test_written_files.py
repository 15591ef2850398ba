"""Other libraries read the files that we write, of every family, and give our ids on real text.

`TOKMILL_EVERYTHING=1` takes all of NTREX and 5 MB of each shared corpus.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pytest

from tests.test_tokenizer.conftest import ntrex
from tests.test_tokenizer.test_published import Ids, by_merges, by_sentencepiece, by_tiktoken, by_tokenizers
from tests.test_tokenizer.test_round_trips import LINES, NASTY, OPTIONS, real_texts
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer

pytestmark = [pytest.mark.shared_data, pytest.mark.slow]


@lru_cache(maxsize=1)
def trained(name: str, folder: Path, pattern: str | None = None) -> Tokenizer:
    """A tokenizer of 60 lines of each language."""
    training = [line for text in ntrex(folder).values() for line in text.split("\n")[100:160]]
    options = {"family": name, "vocab_size": 4000, "allow_smaller": True, **OPTIONS[name]}
    return tokenizer.train(training, **options | ({"split_pattern": pattern} if pattern else {}))


def same(tok: Tokenizer, theirs: Ids, texts: Sequence[str]) -> None:
    """Compare ids, text by text."""
    ours = tok.encode_batch(texts, as_text=True).to_lists()
    for text, expected, found in zip(texts, theirs, ours, strict=True):
        assert found == expected, text[:200]


def written(tok: Tokenizer, folder: Path, file_format: str, suffix: str) -> Path:
    """The file with a suffix, among those of a format."""
    return next(file for file in tok.save(folder, file_format) if file.name.endswith(suffix))


OF_JSON = [
    "byte_bpe",
    "unigram",
    "unigram and bytes",
    "word_bpe",
    "word_bpe of bytes",
    "wordpiece",
    "word_level",
    "character_level",
]


@pytest.mark.parametrize("name", OF_JSON)
def test_tokenizers_reads_a_family(name: str, shared_data: Path, tmp_path: Path) -> None:
    tok, texts = trained(name, shared_data), [*NASTY, *real_texts(shared_data, LINES)]
    same(tok, by_tokenizers(written(tok, tmp_path, "huggingface", "tokenizer.json"), texts), texts)


@pytest.mark.parametrize("name", ["char_bpe of sentences", "unigram of sentences"])
def test_sentencepiece_reads_a_model(name: str, shared_data: Path, tmp_path: Path) -> None:
    tok, texts = trained(name, shared_data), [*NASTY, *real_texts(shared_data, LINES)]
    same(tok, by_sentencepiece(written(tok, tmp_path, "sentencepiece", ".model"), texts), texts)


def test_tiktoken_reads_ranks(shared_data: Path, tmp_path: Path) -> None:
    tok, texts = trained("byte_bpe", shared_data), [*NASTY, *real_texts(shared_data, LINES)]
    same(tok, by_tiktoken("o200k")(written(tok, tmp_path, "tiktoken", ".tiktoken"), texts), texts)


def test_tokenizers_reads_merges(shared_data: Path, tmp_path: Path) -> None:
    tok, texts = trained("byte_bpe", shared_data, "gpt2"), [*NASTY, *real_texts(shared_data, LINES)]
    same(tok, by_merges(written(tok, tmp_path, "gpt2", "vocab.json"), texts), texts)
