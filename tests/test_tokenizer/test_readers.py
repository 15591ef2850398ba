"""Other libraries read our `tokenizer.json` files and give our ids, for every named pattern.

They are asked in an environment of their own, because the newest tokenizers cannot stand beside the one that
other tests use: `TOKMILL_READERS` names its Python (CONTRIBUTING.md says how to make it), which is this one's
unless it says otherwise. What is not installed there skips, visibly."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from tests.effort import EVERYTHING
from tests.test_tokenizer.conftest import SPECIALS, TRAINING_TEXTS, corpus, in_tekken_order, ntrex
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.components.post_processors import Part, Template
from tokmill.tokenizer.splitting import SPLIT_CHAINS, SPLIT_PATTERNS

pytestmark = pytest.mark.readers
PYTHON = os.environ.get("TOKMILL_READERS", sys.executable)
WORKER = Path(__file__).with_name("read_with.py")
# These are those of words without their spaces, which no byte-level reader knows.
OF_WORDS = {"bert", "clip", "whitespace", "whitespace_split", "punctuation", "unicode_scripts"}
PATTERNS = [name for name in (*SPLIT_PATTERNS, *SPLIT_CHAINS) if name not in OF_WORDS]
BYTES_A_CORPUS = 1 << 40 if EVERYTHING else 50_000
FAMILIES = {
    "byte_bpe": {"vocab_size": 330},
    "word_level": {"vocab_size": 60},
    "character_level": {"vocab_size": 90},
    "unigram": {"vocab_size": 100},
    "word_bpe": {"vocab_size": 140, "split_pattern": "bert", "normalizer": "lowercase"},
    "wordpiece": {"vocab_size": 140, "split_pattern": "bert", "special_sets": ["bert"]},
}
"""Options of the families whose models a `tokenizer.json` can hold."""
NOT_READ = {
    "word_bpe": "tokenizers 1.0.0rc3 drops </w> from words of one letter",
    **dict.fromkeys(
        ["word_level", "character_level", "unigram"], "tokenizers 1.0.0rc3 has no regular expressions"
    ),
}
"""Families whose files the newest tokenizers do not read, or not alike."""
NOT_KNOWN = {("gigatoken", "starcoder"): "gigatoken has no code for digits one by one and then GPT-2's split"}
TEXTS = [
    *TRAINING_TEXTS[:3],
    "Hello,  world's 12345\n\n  x_y = 'TIS\t日本語ですCamelCase! \n  end",
    "I'LL we'Re it'd 's '’s a1b22 c333  4444 5\n6 12 ½ x² 漢字1かな 'll 'VE\r\n\r\n\t\tend",
    "a<|end|>b<|endoftext|><|more|> <|endoftext|>",
    "   leading, trailing   ",
    "\n\n \n",
    "",
]


def answer(*arguments: str, given: str = "") -> str:
    command = [PYTHON, str(WORKER), *arguments]
    done = subprocess.run(command, input=given.encode(), capture_output=True, check=True)
    return done.stdout.decode()  # what else it says need not be text


@lru_cache
def version(library: str) -> str | None:
    try:
        return answer(library).strip()
    except (subprocess.CalledProcessError, OSError):
        return None


@pytest.fixture(params=["tokenizers", "newest tokenizers", "gigatoken", "fastokens"])
def reader(request: pytest.FixtureRequest) -> str:
    """A library that reads `tokenizer.json`."""
    library = request.param.removeprefix("newest ")
    found = version(library)
    if found is None:
        pytest.skip(f"no {library} in {PYTHON}; CONTRIBUTING.md says how to install it")
    if library == "tokenizers" and (int(found.split(".")[0]) >= 1) != (request.param != library):
        pytest.skip(f"{PYTHON} has tokenizers {found}; TOKMILL_READERS may name another environment")
    return str(library)


def ids_of(library: str, file: Path, texts: list[str]) -> list[list[int]]:
    (ids,) = ids_of_each(library, [file], texts)
    return ids


def ids_of_each(library: str, files: Sequence[Path], texts: Sequence[str]) -> list[list[list[int]]]:
    """The ids that a library gives with each of some files, in one process."""
    ids: list[list[list[int]]] = json.loads(answer(library, *map(str, files), given=json.dumps(texts)))
    return ids


def exported(tok: Tokenizer, folder: Path) -> Path:
    return next(file for file in tok.save(folder, "huggingface") if file.name == "tokenizer.json")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_export_gives_our_ids(reader, pattern, tmp_path):
    if (reader, pattern) in NOT_KNOWN:
        pytest.skip(NOT_KNOWN[reader, pattern])
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=330, split_pattern=pattern, special_tokens=SPECIALS)
    expected = [tok.encode(text, allowed_special="all") for text in TEXTS]
    assert ids_of(reader, exported(tok, tmp_path), TEXTS) == expected


def published(folder: Path, pattern: str) -> Tokenizer:
    vocabs = folder / "vocabs"
    if pattern in {"gpt2", "cs336", "starcoder"}:
        return tokenizer.load(vocabs / "gpt2_vocab.json", split_pattern=pattern)
    name = "o200k_base" if pattern == "o200k" else "cl100k_base"
    return tokenizer.load(vocabs / f"{name}.tiktoken", split_pattern=pattern)


@pytest.mark.shared_data
@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
def test_published_vocabularies_give_our_ids_on_real_text(shared_data, reader, pattern, tmp_path):
    if (reader, pattern) in NOT_KNOWN:
        pytest.skip(NOT_KNOWN[reader, pattern])
    tok = published(shared_data, pattern)
    file = exported(tok, tmp_path)
    sources = sorted(path.name.split(".")[0] for path in (shared_data / "corpora").glob("*.jsonl.zst"))
    parts = ([*ntrex(shared_data).values()], *(corpus(shared_data, s, BYTES_A_CORPUS) for s in sources))
    # Each question starts a process that reads the vocabulary: with little text, one for all of it.
    for texts in parts if EVERYTHING else [[text[:10_000] for part in parts for text in part]]:
        # A document of the code corpus names <|endoftext|>, which every reader takes for the token.
        expected = tok.encode_batch(texts, allowed_special="all").to_lists()
        for text, theirs, ours in zip(texts, ids_of(reader, file, texts), expected, strict=True):
            assert theirs == ours, text[:200]


def test_mistral_reads_a_tekken_file_alike(small, tmp_path):
    if version("mistral_common") is None:
        pytest.skip(f"no mistral_common in {PYTHON}; CONTRIBUTING.md says how to install it")
    tok = in_tekken_order(small)
    (file,) = tok.save(tmp_path, "tekken")
    expected = [tok.encode(text, as_text=True) for text in TEXTS]
    assert ids_of("mistral_common", file, TEXTS) == expected


@pytest.fixture(scope="module")
def auto_tokenizer() -> type:
    return pytest.importorskip("transformers", reason="no transformers here").AutoTokenizer


def of_family(family: str) -> Tokenizer:
    """A tokenizer with roles, a chat template, and tokens around texts."""
    begin = Part("special", "<|begin|>")
    pair = begin, Part("sequence", "A"), begin, Part("sequence", "B", 1)
    tok = tokenizer.train(
        TRAINING_TEXTS,
        family=family,
        special_tokens=["<|begin|>", "<|end|>", "<|pad|>"],
        num_reserved=1,
        roles={"bos": "<|begin|>", "eos": "<|end|>", "pad": "<|pad|>"},
        chat_template="{{ messages[0].content }}<|end|>",
        allow_smaller=True,
        **FAMILIES[family],
    )
    return Tokenizer(replace(tok.definition, post_processor=Template((begin, Part("sequence", "A")), pair)))


FAMILY_TEXTS = [*TEXTS, "The<|begin|>fox<|end|> [UNK] y", "😀 unknown \u0301 é", "<|reserved_0|>"]


@pytest.mark.parametrize("family", FAMILIES)
def test_auto_tokenizer_gives_our_ids_roles_and_chat_template(auto_tokenizer, family, tmp_path):
    tok = of_family(family)
    tok.save(tmp_path, "huggingface")
    other = auto_tokenizer.from_pretrained(tmp_path)
    for text in FAMILY_TEXTS:
        ids = tok.encode(text, allowed_special="all")
        assert other(text, add_special_tokens=False)["input_ids"] == ids
        assert other.decode(ids) == tok.decode(ids)
        around = tok.encode(text, allowed_special="all", add_special_tokens=True)
        assert other(text)["input_ids"] == around
    assert other("the fox", "a dog")["input_ids"] == tok.encode("the fox", "a dog", add_special_tokens=True)
    for role in ("bos", "eos", "pad", "unk", "cls", "sep", "mask"):
        assert getattr(other, f"{role}_token") == tok.roles.get(role)
    assert other.chat_template == tok.definition.chat_templates["default"]
    shown = other.apply_chat_template([{"role": "user", "content": "the fox"}], tokenize=False)
    assert shown == "the fox<|end|>"
    assert set(other.all_special_tokens) == {*tok.special_tokens}
    assert (
        other.decode(tok.encode("fox<|end|>", allowed_special="all"), skip_special_tokens=True).strip()
        == "fox"
    )
    assert len(other) == tok.vocab_size


@pytest.mark.parametrize("family", FAMILIES)
def test_tokenizers_read_every_family(reader, family, tmp_path):
    if reader != "tokenizers":
        pytest.skip(f"{reader} is for byte-level BPE")
    if (version("tokenizers") or "").startswith("1.0.0rc") and family in NOT_READ:
        pytest.skip(NOT_READ[family])
    tok = of_family(family)
    expected = [tok.encode(text, allowed_special="all") for text in FAMILY_TEXTS]
    assert ids_of(reader, exported(tok, tmp_path), FAMILY_TEXTS) == expected
