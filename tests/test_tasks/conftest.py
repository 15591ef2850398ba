"""A small corpus made of literal documents, ingested for real into a plain directory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from tokmill.tasks.core.stage import External
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.text.source_files import resolve_files
from tokmill.tasks.formats.text.sources import SourceSpec
from tokmill.tasks.ingest.stage import IngestParams
from tokmill.tasks.ingest.stage import run as ingest
from tokmill.tasks.store.digest import digest_file


class _Digests:
    def digest(self, path: Path) -> str:
        return digest_file(path)


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
def text_corpus(tmp_path: Path) -> Callable[..., TextCorpus]:
    """Make a corpus of {source: [document]}; shards are 64 KiB, the smallest that there are."""

    def make(documents: Mapping[str, Sequence[str]], name: str = "corpus") -> TextCorpus:
        folder = tmp_path / name
        files, roots = [], {}
        for source, texts in documents.items():
            (folder / "text" / source).mkdir(parents=True)
            lines = b"".join(orjson.dumps({"text": text}) + b"\n" for text in texts)
            (folder / "text" / source / "all.jsonl").write_bytes(lines)
            spec = SourceSpec(files=[f"text/{source}/*.jsonl"])
            found, roots[source] = resolve_files(spec, folder, _Digests(), source=source)
            files += found
        out = folder / "corpus"
        out.mkdir()
        options = {source: SourceSpec(files=["*"]).read_options() for source in documents}
        ingest(
            IngestParams(shard_bytes=64 << 10, sources=options), out=out, files=[file.value for file in files]
        )
        corpus = Corpus.open(out)
        shards = [
            External(digest=shard.digest, value={"shard": shard.model_dump(mode="json"), "roots": roots})
            for source in corpus.sources
            for shard in corpus.shards(source)
        ]
        return TextCorpus(out, documents, shards)

    return make


@pytest.fixture
def by_hand(request: pytest.FixtureRequest) -> None:
    """Skip what changes files by hand in a bucket, whose mirror does not notice that."""
    if request.node.callspec.params.get("store") == "bucket":
        pytest.skip("changes files by hand; test_store_objects.py and test_store_stateful.py harm objects")
