"""Every family in every format that can hold it: what is saved and loaded again gives the same ids.

`TOKMILL_EVERYTHING=1` takes all of NTREX and 5 MB of each shared corpus, a few minutes for each family.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.test_tokenizer.conftest import corpus, ntrex
from tests.test_tokenizer.test_readers import EVERYTHING
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.formats import WRITERS

pytestmark = [pytest.mark.shared_data, pytest.mark.slow]

NASTY = [
    *(
        "",
        " ",
        " a  b\n\n\tc ",
        "0123456789 1,234.5",
        "e\u0301ﬁ½①",
        "🙂👨‍👩‍👧",
        "<s>hi</s>",
        "\u200b\ufeff",
        "\x00\x85",
    ),
    *("def f(x):\n    return x\r\n", "I'LL we'Re 's '’s", "\u3000全角　ＡＢＣ", "a" * 400),
]
LINES = 1 << 20 if EVERYTHING else 30  # of each of NTREX's languages
BYTES_A_CORPUS = 5_000_000
BERT = "bert_clean+cjk_spaces+strip_nonspacing+lowercase"
OPTIONS: dict[str, dict[str, Any]] = {
    "byte_bpe": {"split_pattern": "o200k"},
    "char_bpe": {"byte_fallback": True},
    "char_bpe of sentences": {"family": "char_bpe", "mode": "sentencepiece", "byte_fallback": True},
    "longest_match": {},
    "unigram": {"vocab_size": 3000},
    "unigram and bytes": {"family": "unigram", "vocab_size": 3000, "byte_fallback": True},
    "unigram of sentences": {"family": "unigram", "mode": "sentencepiece", "normalizer": "nmt_nfkc"},
    "word_bpe": {"split_pattern": "bert", "normalizer": "lowercase"},
    "word_bpe of bytes": {"family": "word_bpe", "letters": "bytes", "split_pattern": "clip"},
    "wordpiece": {"split_pattern": "bert", "normalizer": BERT, "special_sets": ["bert"]},
    "word_level": {},
    "character_level": {},
}
FORMATS = {
    "byte_bpe": {"huggingface", "huggingface_exact", "gpt2", "tiktoken"},
    "char_bpe": set[str](),
    "char_bpe of sentences": {"sentencepiece"},
    "longest_match": {"rwkv"},
    "unigram": {"huggingface", "huggingface_exact"},
    "unigram and bytes": {"huggingface", "huggingface_exact"},
    "unigram of sentences": {"sentencepiece"},
    "word_bpe": {"huggingface", "huggingface_exact", "gpt2"},
    "word_bpe of bytes": {"huggingface", "huggingface_exact", "gpt2"},
    "wordpiece": {"huggingface", "huggingface_exact", "bert"},
    "word_level": {"huggingface", "huggingface_exact"},
    "character_level": {"huggingface", "huggingface_exact"},
}


def real_texts(folder: Path, lines: int) -> list[str]:
    """Lines of every language of NTREX, and of each corpus where everything is wanted."""
    texts = [line for text in ntrex(folder).values() for line in text.split("\n")[:lines]]
    if EVERYTHING:
        for path in sorted((folder / "corpora").glob("*.jsonl.zst")):
            texts += corpus(folder, path.name.removesuffix(".jsonl.zst"), BYTES_A_CORPUS)
    return texts


def round_trips(tok: Tokenizer, texts: Sequence[str], ids: list[list[int]], folder: Path) -> set[str]:
    """Save in every format that can hold a tokenizer, load again and compare ids; return the formats."""
    held = set()
    for name in WRITERS:
        try:
            tok.save(folder / name, name)
        except FormatError:
            continue
        held.add(name)
        again = tokenizer.load(folder / name).encode_batch(texts, as_text=True).to_lists()
        assert again == ids, name
    return held


@pytest.mark.parametrize("name", FORMATS)
def test_a_family_comes_back_from_every_format(name: str, shared_data: Path, tmp_path: Path) -> None:
    training = [line for text in ntrex(shared_data).values() for line in text.split("\n")[100:160]]
    options = {"family": name, "vocab_size": 4000, "allow_smaller": True, **OPTIONS[name]}
    tok = tokenizer.train(training, **options)
    texts = [*NASTY, *real_texts(shared_data, LINES)]
    ids = tok.encode_batch(texts, as_text=True).to_lists()

    assert round_trips(tok, texts, ids, tmp_path) >= {"tokmill", *FORMATS[name]}
