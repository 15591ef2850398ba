"""A small corpus made of literal documents, ingested for real into a plain directory."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.test_tasks.reading import ingested
from tests.test_tasks.traced_line import TracedLine, traced_line
from tokmill.tasks.core.stage import External
from tokmill.tasks.store import Store
from tokmill.tasks.tracing import Origins


@dataclass(frozen=True)
class TextCorpus:
    """An ingested corpus: its directory, its documents, and its shards as mapped stages get them."""

    path: Path
    documents: Mapping[str, Sequence[str]]
    shards: list[External] = field(default_factory=list)

    @property
    def shard_values(self) -> list[dict[str, Any]]:
        return [shard.value for shard in self.shards]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store in a folder."""
    return Store.open(tmp_path / "store")


@pytest.fixture
def text_corpus(tmp_path: Path) -> Callable[..., TextCorpus]:
    """Make a corpus of {source: [document]}; shards are 64 KiB, the smallest that there are."""

    def make(documents: Mapping[str, Sequence[str]], name: str = "corpus") -> TextCorpus:
        for source, texts in documents.items():
            (tmp_path / name / source).mkdir(parents=True)
            lines = b"".join(orjson.dumps({"text": text}) + b"\n" for text in texts)
            (tmp_path / name / source / "all.jsonl").write_bytes(lines)
        made = ingested(tmp_path / name, {source: {"files": [f"{source}/*.jsonl"]} for source in documents})
        shards = [
            External(digest=shard.digest, value={"shard": shard.model_dump(mode="json"), "roots": made.roots})
            for source in made.corpus.sources
            for shard in made.corpus.shards(source)
        ]
        return TextCorpus(tmp_path / name / "out", documents, shards)

    return make


@pytest.fixture(scope="session")
def traced(tmp_path_factory: pytest.TempPathFactory) -> TracedLine:
    """A small packed artifact, made from known texts; not to be changed."""
    return traced_line(tmp_path_factory.mktemp("traced"))


@pytest.fixture
def copied(traced: TracedLine, tmp_path: Path) -> Origins:
    """Its origins in a store that a test may add to."""
    return Origins.of(Store.open(shutil.copytree(traced.store.root, tmp_path / "store")), traced.packed)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a property."""
    return tmp_path_factory.mktemp("scratch")
