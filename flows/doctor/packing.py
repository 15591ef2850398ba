"""The stages `mix` and `pack` over documents that are encoded already, without a store."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokmill.tasks.encode.encoding import write_shard
from tokmill.tasks.formats.encoded import (
    MANIFEST_FILE,
    EncodedManifest,
    EncodedStatistics,
    ShardEntry,
    SourceEntry,
    token_dtype,
)
from tokmill.tasks.formats.files.manifests import write_model
from tokmill.tasks.mixing import stage as mixing
from tokmill.tasks.packing import stage as packing
from tokmill.tasks.packing.params import PackParams
from tokmill.tasks.store.digest import digest_folder

if TYPE_CHECKING:
    from tokmill.tokenizer import EncodedBatch, Tokenizer

_SOURCE = "text"


def packing_of(
    tok: "Tokenizer", encoded: "EncodedBatch", folder: Path, sequence_length: int
) -> Callable[[], None]:
    """Write an encoding and its mixture into a folder; return what packs it, each time into a new folder."""
    shard, manifest, mixture = (_made(folder / name) for name in ("shard", "encoded", "mixture"))
    _write_shard(tok, encoded, shard)
    _write_manifest(tok, encoded, shard, manifest)
    mixing.run(mixing.MixParams(), out=mixture, encoded=manifest, shards=[shard])
    params, numbers = PackParams(sequence_length=sequence_length, strategy="best_fit"), count()

    def pack() -> None:
        number = next(numbers)
        plan, out = _made(folder / f"plan-{number}"), _made(folder / f"packed-{number}")
        wanted, shards = params.plan_params(), [shard]
        packing.run_plan(wanted, out=plan, mixture=mixture, encoded=manifest, shards=shards)
        packing.run_shard(params.shard_params(0), out=out, plan=plan, encoded=manifest, shards=shards)

    return pack


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _write_shard(tok: "Tokenizer", encoded: "EncodedBatch", shard: Path) -> None:
    num_documents = len(encoded)
    figures = EncodedStatistics(num_documents=num_documents, num_tokens=len(encoded.ids))
    with write_shard(shard, tok.vocab_size) as writer:
        writer.append(encoded.ids, encoded.offsets, np.arange(num_documents, dtype=np.int64), figures)


def _write_manifest(tok: "Tokenizer", encoded: "EncodedBatch", shard: Path, manifest: Path) -> None:
    figures = EncodedStatistics(num_documents=len(encoded), num_tokens=len(encoded.ids))
    entry = ShardEntry(
        index=0, digest=digest_folder(shard), num_documents=len(encoded), num_tokens=len(encoded.ids)
    )
    content = EncodedManifest(
        tokenizer="0" * 64,
        dtype=token_dtype(tok.vocab_size),
        vocab_size=tok.vocab_size,
        end_of_document_id=None,
        sources=[SourceEntry(source=_SOURCE, statistics=figures, shards=[entry])],
    )
    write_model(manifest / MANIFEST_FILE, content)
