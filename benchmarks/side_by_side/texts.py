"""Texts to measure on: the shared corpora, NTREX, files, and input that is hard on tokenizers.

A text is a list of documents, in UTF-8. The first documents are taken until there are as many bytes as were
asked for; no document is cut. Nothing here is random.
"""

import base64
import hashlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import zstandard

from side_by_side.environment import CHECKOUT
from side_by_side.names import CORPORA

SHARED = Path(os.environ.get("TOKMILL_SHARED_DATA") or CHECKOUT.parent / "shared" / "data")
_NTREX_LINES = 100  # a document is so many sentences of one language; languages take turns
_HAN = re.compile("[\u4e00-\u9fff]+")


@dataclass(frozen=True)
class Text:
    """Documents in one buffer.

    Attributes:
        data: UTF-8.
        offsets: int64, shape (num_documents + 1,).
    """

    data: bytes
    offsets: np.ndarray

    @classmethod
    def of(cls, documents: list[bytes]) -> Self:
        """Lay documents into one buffer."""
        return cls(b"".join(documents), np.cumsum([0, *map(len, documents)], dtype=np.int64))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `write` wrote."""
        return cls(path.read_bytes(), np.load(path.with_suffix(".npy")))

    def write(self, path: Path) -> None:
        """Write the text to `path`, and its offsets beside it."""
        path.write_bytes(self.data)
        np.save(path.with_suffix(".npy"), self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def documents(self) -> Iterator[bytes]:
        """Yield the documents, one bytes object each."""
        for start, end in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            yield self.data[start:end]

    def strings(self) -> Iterator[str]:
        """Yield the documents, one str each."""
        return map(bytes.decode, self.documents())


def load(name: str, most_bytes: int) -> Text:
    """Load a text by its name, several names joined with `+`, or a file.

    Args:
        name: see `names`; else the path of a file: lines of JSON with a "text" (`.jsonl`, `.jsonl.zst`), or
            plain text, which is one document.
        most_bytes: of each part, at most, but for what it takes to complete a document.
    """
    if name in _HARD:
        return Text.of([_HARD[name]()])
    if name == "everything":
        name = "+".join([*CORPORA, "ntrex"])
    parts = [name] if Path(name).is_file() else name.split("+")
    return Text.of([document for part in parts for document in _first(_documents(part), most_bytes)])


def _first(documents: Iterable[bytes], most_bytes: int) -> Iterator[bytes]:
    num_bytes = 0
    for document in documents:
        if num_bytes >= most_bytes:
            return
        yield document
        num_bytes += len(document)


def _documents(name: str) -> Iterable[bytes]:
    if name == "ntrex":
        return _ntrex()
    path = SHARED / "corpora" / f"{CORPORA[name]}.jsonl.zst" if name in CORPORA else Path(name)
    if not path.is_file():
        sys.exit(
            f"benchmarks: no text {name!r}: there is no file {path}; name a file, or say with "
            "TOKMILL_SHARED_DATA where the shared corpora are"
        )
    return _lines_of_json(path) if ".jsonl" in path.name else [path.read_bytes()]


def _lines_of_json(path: Path) -> Iterator[bytes]:
    with zstandard.open(path, "rb") if path.suffix == ".zst" else path.open("rb") as lines:
        for line in io.BufferedReader(lines) if path.suffix == ".zst" else lines:
            yield json.loads(line)["text"].encode()


def _ntrex() -> Iterator[bytes]:
    files = sorted((SHARED / "ntrex").glob("*.txt"))
    if not files:
        sys.exit(f"benchmarks: no NTREX in {SHARED}; say with TOKMILL_SHARED_DATA where it is")
    languages = [path.read_bytes().splitlines(keepends=True) for path in files]
    for first in range(0, max(map(len, languages)), _NTREX_LINES):
        for lines in languages:
            yield b"".join(lines[first : first + _NTREX_LINES])


def _one_letter() -> bytes:
    return b"a" * 1_000_000


def _han_line() -> bytes:
    """A line of classical Chinese, punctuation taken out: nothing cuts it, and hardly a word occurs twice."""
    found: list[str] = []
    size = 0
    for document in _documents("chinese"):
        found += _HAN.findall(document.decode())
        size = sum(map(len, found))
        if size >= 100_000 // 3:
            break
    return "".join(found)[: 100_000 // 3].encode()


def _base64() -> bytes:
    return base64.b64encode(hashlib.shake_256(b"tokmill").digest(750_000))


_HARD: dict[str, Callable[[], bytes]] = {"one_letter": _one_letter, "han_line": _han_line, "base64": _base64}
