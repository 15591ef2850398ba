"""Small encoded corpora made of literal tokens, and the stages run over them in plain directories."""

import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokmill.tasks.core.stage import Outcome, Params, Request, Stage
from tokmill.tasks.encode.encoding import write_shard
from tokmill.tasks.formats.encoded import (
    EncodedManifest,
    EncodedStatistics,
    ShardEntry,
    SourceEntry,
    token_dtype,
)
from tokmill.tasks.loading.rows import THREAD_NAME
from tokmill.tasks.mixing.stage import MIX, MixParams
from tokmill.tasks.packing.stage import PACK, PACK_PLAN, PACK_SHARD, PackParams
from tokmill.tasks.packing.strategies import Packer, Pieces
from tokmill.tasks.store import Store
from tokmill.tasks.store.digest import digest_folder


@dataclass(frozen=True)
class EncodedCorpus:
    """The manifest's directory, the shards' directories, and the documents: {source: [shard [document]]}."""

    path: Path
    shards: list[Path]
    documents: dict[str, list[list[list[int]]]]

    @property
    def inputs(self):
        return {"encoded": self.path, "shards": self.shards}

    def tokens(self, source, shard, document):
        return self.documents[source][shard][document]


def encoded_corpus(folder, documents, vocab_size=256, end_id=None):
    """Write `documents`, {source: [shard [document [token]]]}, as an encoded corpus.

    Ordinals leave a gap after every document, so that they differ from positions. With an `end_id`, this is
    put in the place of each document's last token.
    """
    if end_id is not None:
        documents = {source: [ended(part, end_id) for part in parts] for source, parts in documents.items()}
    shards, sources = [], []
    for source, parts in documents.items():
        entries = []
        for index, part in enumerate(parts):
            path = folder / f"{source}-{index}"
            path.mkdir(parents=True)
            write_documents(path, part, vocab_size)
            num_tokens = sum(map(len, part))
            entries.append(
                ShardEntry(
                    index=index, digest=digest_folder(path), num_documents=len(part), num_tokens=num_tokens
                )
            )
            shards.append(path)
        statistics = EncodedStatistics(
            num_documents=sum(map(len, parts)), num_tokens=sum(entry.num_tokens for entry in entries)
        )
        sources.append(SourceEntry(source=source, statistics=statistics, shards=entries))
    manifest = EncodedManifest(
        tokenizer="t" * 64,
        dtype=token_dtype(vocab_size),
        vocab_size=vocab_size,
        end_of_document_id=end_id,
        sources=sources,
    )
    path = folder / "encoded"
    path.mkdir(parents=True)
    (path / "encoded.json").write_text(manifest.model_dump_json())
    return EncodedCorpus(path, shards, documents)


def ended(documents, end_id):
    return [[*document[:-1], end_id] if document else [] for document in documents]


def write_documents(path, documents, vocab_size):
    tokens = np.array([token for document in documents for token in document], dtype=token_dtype(vocab_size))
    offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)
    ordinals = 2 * np.arange(len(documents), dtype=np.int64)
    statistics = EncodedStatistics(num_documents=len(documents), num_tokens=len(tokens))
    with write_shard(path, vocab_size) as writer:
        writer.append(tokens, offsets, ordinals, statistics)


def numbered(lengths, first=0, vocab_size=256):
    """Documents of these lengths whose tokens count up, so that every token tells its place."""
    documents, at = [], first
    for length in lengths:
        documents.append([(at + k) % vocab_size for k in range(length)])
        at += length
    return documents


def made(stage, params, out, **inputs):
    """Run a stage into the new directory `out`; returns its outcome."""
    out.mkdir(parents=True)
    outcome = stage.run(params, out=out, **inputs)
    for account in outcome.accounts:
        assert account.balanced, account
    return outcome


def mix_corpus(corpus, folder, **params):
    """Mix a fabricated corpus; returns the mixture's directory."""
    out = folder / "mixture"
    made(MIX, MixParams(**params), out, **corpus.inputs)
    return out


def pack_mixture(corpus, mixture, folder, **params):
    """Plan, write every shard and put them together; returns the outcome and the directory."""
    asked = PackParams(**params)
    plan = folder / "plan"
    planned = made(PACK_PLAN, asked.plan_params(), plan, mixture=mixture, **corpus.inputs)
    paths = [folder / f"part-{index}" for index in range(planned.metrics["num_shards"])]
    for index, path in enumerate(paths):
        made(PACK_SHARD, asked.shard_params(index), path, plan=plan, **corpus.inputs)
    out = folder / "packed"
    return made(PACK, asked, out, plan=plan, shards=paths), out


def packed_corpus(folder, documents, mix=None, vocab_size=256, end_id=None, **pack):
    """Encode, mix and pack documents; returns the corpus, the outcome of packing and its directory."""
    corpus = encoded_corpus(folder / "corpus", documents, vocab_size, end_id)
    return corpus, *pack_mixture(corpus, mix_corpus(corpus, folder, **mix or {}), folder, **pack)


FIELDS = ("input_ids", "position_ids", "segment_ids", "loss_mask", "labels", "cu_seqlens")
LENGTHS = [5, 30, 2, 9, 9, 17, 3, 1, 1, 1, 25, 8, 16, 7, 12, 40, 6, 6, 4, 21] * 2


def packed_folder(folder, lengths=LENGTHS, vocab_size=256, **params):
    documents = {"a": [numbered(lengths, vocab_size=vocab_size)]}
    options = {"sequence_length": 16, "strategy": "greedy", "sequences_per_shard": 7} | params
    return packed_corpus(folder, documents, vocab_size=vocab_size, **options)[2]


def sequences(batches):
    return [number for batch in batches for number in batch["sequence"].tolist()]


def loading_ends():
    """Whether the loader's threads end."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]
    for thread in threads:
        thread.join(60)
    return not any(thread.is_alive() for thread in threads)


def published(packed, root, kind="packed"):
    """Publish a directory in the store `root`, as it is; gives its place there."""

    def run(params, *, out):
        shutil.copytree(packed, out, dirs_exist_ok=True)
        return Outcome(metrics={})

    stage = Stage(verb="copy", task="copy", kind=kind, version=1, params=Params, run=run)
    store = Store.open(root)
    return store.path(store.realize(Request(stage, "copied", Params(), {})).ref)


def packed_by(strategy, lengths, capacity, long_documents="split", sizes=None, sources=None):
    """The pieces of all documents, packed in blocks of these sizes (in one, if not given)."""
    of = np.array(np.zeros(len(lengths)) if sources is None else sources, dtype=np.uint16)
    packing, start, parts = Packer(strategy, capacity, long_documents), 0, []
    for size in sizes or [len(lengths)]:
        block = np.array(lengths[start : start + size], dtype=np.int64)
        part = packing.pack(block, np.zeros(len(block), dtype=np.uint8), of[start : start + size])
        part.document[:] += start
        parts.append(part)
        start += size
    names = Pieces.__dataclass_fields__
    return Pieces(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
