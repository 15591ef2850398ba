"""Real text and published vocabularies: ids are tiktoken's, merges are those of the tokenizers library."""

import base64
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import tiktoken
import tokenizers
from tiktoken_ext import openai_public

from tests.effort import EVERYTHING
from tests.test_tokenizer import incremental
from tests.test_tokenizer.conftest import corpus, ntrex
from tokmill import tokenizer
from tokmill.tokenizer import PretokenCounts, Tokenizer
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.text import to_bytes
from tokmill.tokenizer.counting import count_buffers
from tokmill.tokenizer.splitting import compile_pattern

pytestmark = pytest.mark.shared_data


SPECIALS = {
    "gpt2": {"<|endoftext|>": 50256},
    "cl100k": {"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|endofprompt|>": 100276},
    "o200k": {"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
}


def published(folder: Path, name: str) -> Tokenizer:
    """A published vocabulary, as we read it."""
    if name == "gpt2":
        return tokenizer.load(folder / "vocabs" / "gpt2_vocab.json")
    path = folder / "vocabs" / f"{name}_base.tiktoken"
    return tokenizer.load(path, split_pattern=name, special_tokens=SPECIALS[name])


def oracle(folder: Path, name: str, tok: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> tiktoken.Encoding:
    """The same vocabulary, as tiktoken reads it, with tiktoken's own pattern and without the network."""
    ranks = {token: i for token, i in tok.vocab.items() if i not in tok.special_tokens.values()}
    if name != "gpt2":
        lines = (folder / "vocabs" / f"{name}_base.tiktoken").read_bytes().splitlines()
        ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}
    for loader in ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks"):
        monkeypatch.setattr(openai_public, loader, lambda *_args, **_kwargs: ranks)
    constructor = openai_public.ENCODING_CONSTRUCTORS[name if name == "gpt2" else f"{name}_base"]
    arguments = constructor()
    arguments["special_tokens"] = SPECIALS[name]
    arguments.pop("explicit_n_vocab", None)
    return tiktoken.Encoding(**arguments)


@pytest.mark.skipif(not EVERYTHING, reason="takes minutes; set TOKMILL_EVERYTHING=1")
@pytest.mark.parametrize("name", SPECIALS)
def test_ids_on_everything_are_those_of_tiktoken(
    shared_data: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tok = published(shared_data, name)
    other = oracle(shared_data, name, tok, monkeypatch)
    sources = [path.name.split(".")[0] for path in sorted((shared_data / "corpora").glob("*.jsonl.zst"))]
    assert len(sources) == 5
    for texts in (list(ntrex(shared_data).values()), *(corpus(shared_data, s, 1 << 40) for s in sources)):
        corpus.cache_clear()
        for first in range(0, len(texts), 200):
            some = texts[first : first + 200]
            batch = tok.encode_batch(some, as_text=True)
            for ids, expected in zip(batch, other.encode_ordinary_batch(some, num_threads=2), strict=True):
                assert np.array_equal(ids, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECIALS)
def test_ids_are_those_of_tiktoken(shared_data: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tok = published(shared_data, name)
    other = oracle(shared_data, name, tok, monkeypatch)
    texts = list(ntrex(shared_data).values())
    for source in ("english_docs", "code"):
        texts += corpus(shared_data, source, 5_000_000)
    for source in ("japanese_literature", "chinese_poetry", "multilingual_docs"):
        texts += corpus(shared_data, source, 500_000)
    batch = tok.encode_batch(texts, as_text=True)
    expected = other.encode_ordinary_batch(texts, num_threads=2)
    for i in range(len(texts)):
        assert batch[i].tolist() == expected[i], f"document {i}: {texts[i][:80]!r}"
    assert tok.vocab_size == other.n_vocab
    every = [token for token in tok.vocab if token.decode("utf-8", "ignore").encode() == token][::11]
    text = "<|endoftext|>".join(token.decode() for token in every) + "<|endofprompt|>"
    assert tok.encode(text, allowed_special="all") == other.encode(text, allowed_special="all")
    for allowed in (set(), {"<|endoftext|>"}):
        as_text = tok.special_tokens.keys() - allowed
        mine = tok.encode(text, allowed_special=allowed, as_text=as_text)
        assert mine == other.encode(text, allowed_special=allowed, disallowed_special=())
    assert tok.decode(expected[0]) == other.decode(expected[0]) == texts[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECIALS)
def test_what_has_no_spaces_is_encoded_alike(
    shared_data: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tok = published(shared_data, name)
    other = oracle(shared_data, name, tok, monkeypatch)
    noise = base64.b64encode(hashlib.shake_256(b"noise").digest(3000)).decode()
    for text in (
        "a" * 5000,
        "ab" * 2000,
        "中" * 2000,
        "今天天气" * 500,
        " " * 3000,
        "\n" * 999,
        noise,
        "é\u0301" * 700,
    ):
        assert tok.encode(text) == other.encode(text)


@pytest.fixture(scope="module")
def counts(shared_data: Path) -> PretokenCounts:
    """The pre-tokens of NTREX, cut by GPT-2's pattern."""
    lines = [line for text in ntrex(shared_data).values() for line in text.splitlines()]
    return count_buffers(*buffers.pack(lines), compile_pattern("gpt2"))


@pytest.mark.slow
def test_merges_are_those_of_the_tokenizers_library(shared_data: Path) -> None:
    # the library takes a quarter of a minute for all languages, so that it is only asked on request
    step = 1 if EVERYTHING else 4
    lines = [line for text in list(ntrex(shared_data).values())[::step] for line in text.splitlines()]
    counts = count_buffers(*buffers.pack(lines), compile_pattern("gpt2"))
    other = tokenizers.Tokenizer(tokenizers.models.BPE())
    other.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=32_000,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    other.train_from_iterator(lines, trainer)
    vocab = {i: to_bytes(text) for text, i in other.get_vocab().items() if text != "<|endoftext|>"}
    for vocab_size in (8_000, 32_000):
        mine = tokenizer.train_from_counts(
            counts, vocab_size=vocab_size, special_tokens=["<|endoftext|>"], tie_break="lowest_ids"
        )
        made = [left + right for left, right in mine.merges]
        # the library gives special tokens the first ids
        assert made == [vocab[1 + i] for i in range(256, vocab_size - 1)]
    library_merges = [
        tuple(map(to_bytes, pair.split(" ") if isinstance(pair, str) else pair))
        for pair in json.loads(other.to_str())["model"]["merges"]
    ]
    assert mine.merges == library_merges


@pytest.mark.slow
def test_lexicographic_merges_are_golden(counts: PretokenCounts) -> None:
    tok = tokenizer.train_from_counts(counts, vocab_size=32_000)
    digest = hashlib.blake2b(digest_size=16)
    for part in (part for pair in tok.merges for part in pair):
        digest.update(len(part).to_bytes(4, "little") + part)
    assert digest.hexdigest() == "a0372c109a717654af4d5811f9c2e3aa"


@pytest.mark.skipif(not EVERYTHING, reason="takes minutes; set TOKMILL_EVERYTHING=1")
def test_lexicographic_merges_are_those_of_plain_python(counts: PretokenCounts) -> None:
    tok = tokenizer.train_from_counts(counts, vocab_size=32_000)
    assert tok.merges == incremental.train_merges(counts.to_dict(), len(tok.merges))
