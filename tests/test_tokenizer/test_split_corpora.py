"""Every named pattern on real text: the automaton cuts as `regex` does, byte for byte."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import zstandard
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.splitting import SPLIT_CHAINS, SPLIT_PATTERNS, compile_pattern, fallback

CORPORA = ["chinese_poetry", "code", "english_docs", "japanese_literature", "multilingual_docs"]
BYTES_A_CORPUS = 200_000
BYTES_A_LANGUAGE = 20_000

pytestmark = [pytest.mark.shared_data, pytest.mark.slow]


def _corpus(path: Path) -> list[bytes]:
    documents: list[bytes] = []
    with zstandard.open(path, "rb") as lines:
        for line in io.BufferedReader(lines):
            documents.append(json.loads(line)["text"].encode()[:BYTES_A_CORPUS])
            if sum(map(len, documents)) >= BYTES_A_CORPUS:
                break
    return documents


@pytest.fixture(scope="module")
def documents(shared_data: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The beginning of every corpus and of every language; the last document of each is cut anywhere."""
    texts = [document for name in CORPORA for document in _corpus(shared_data / f"corpora/{name}.jsonl.zst")]
    for path in sorted((shared_data / "ntrex").glob("*.txt")):
        texts += path.read_bytes()[:BYTES_A_LANGUAGE].splitlines(keepends=True)
    return pack_bytes(texts)


@pytest.mark.parametrize("name", [*SPLIT_PATTERNS, *SPLIT_CHAINS])
def test_real_text_is_cut_as_regex_cuts_it(
    name: str, documents: tuple[NDArray[np.uint8], NDArray[np.int64]]
) -> None:
    data, offsets = documents
    splitter = compile_pattern(name)
    starts, ends = offsets[:-1], offsets[1:]
    cuts = np.arange(len(offsets))
    for expression in splitter.chain:
        starts, ends, within = fallback.split_segments(expression, data, starts, ends)
        cuts = within[cuts]
    found = splitter.split(data, offsets)
    assert np.array_equal(found.ends, ends)
    assert np.array_equal(found.starts, starts)
    assert np.array_equal(found.offsets, cuts)
