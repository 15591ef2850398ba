"""The encoded format: what lies there is checked when it is used; the manifest pairs with its shards."""

import numpy as np
import pytest

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.encoded import (
    Encoded,
    EncodedManifest,
    EncodedShard,
    EncodedStatistics,
    ShardEntry,
    SourceEntry,
    token_dtype,
)


def write_shard(path, documents, vocab_size=8):
    path.mkdir()
    tokens = np.array([token for document in documents for token in document], dtype=np.uint16)
    np.save(path / "tokens.npy", tokens)
    np.save(path / "offsets.npy", np.cumsum([0, *map(len, documents)], dtype=np.int64))
    np.save(path / "ordinals.npy", np.arange(len(documents), dtype=np.int64))
    np.save(path / "token_counts.npy", np.bincount(tokens, minlength=vocab_size).astype(np.uint64))
    statistics = EncodedStatistics(num_documents=len(documents), num_tokens=len(tokens))
    (path / "statistics.json").write_text(statistics.model_dump_json())
    return path


def manifest(**shards):
    entries = [
        SourceEntry(
            source=name,
            statistics=EncodedStatistics(),
            shards=[ShardEntry(index=i, digest="", num_documents=0, num_tokens=0) for i in range(num_shards)],
        )
        for name, num_shards in shards.items()
    ]
    return EncodedManifest(
        tokenizer="", dtype="uint16", vocab_size=8, end_of_document_id=None, sources=entries
    )


def test_documents_are_slices_of_the_tokens(tmp_path):
    shard = EncodedShard.open(write_shard(tmp_path / "s", [[5, 1], [7], [2, 2, 2]]))
    assert [shard.document(k).tolist() for k in range(shard.num_documents)] == [[5, 1], [7], [2, 2, 2]]
    assert shard.token_counts.tolist() == [0, 1, 3, 0, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("ordinals", np.arange(3), "3 ordinals, but statistics.json says 2"),
        ("offsets", np.array([0, 3]), "1 offsets - 1, but statistics.json says 2"),
        ("tokens", np.zeros(4, np.uint16), "4 tokens, but statistics.json says 3"),
    ],
)
def test_a_file_that_disagrees_is_refused_when_it_is_used(tmp_path, name, values, message):
    path = write_shard(tmp_path / "s", [[5, 1], [7]])
    np.save(path / f"{name}.npy", values)
    shard = EncodedShard.open(path)
    with pytest.raises(StoreError, match=message):
        getattr(shard, name)


def test_who_needs_lengths_alone_does_not_need_the_tokens(tmp_path):
    path = write_shard(tmp_path / "s", [[5, 1], [7]])
    (path / "tokens.npy").unlink()
    shard = EncodedShard.open(path)
    assert (shard.num_tokens, shard.offsets.tolist(), shard.ordinals.tolist()) == (3, [0, 2, 3], [0, 1])
    with pytest.raises(StoreError, match=r"tokens\.npy"):
        shard.document(0)


def test_pairs_follow_the_manifest(tmp_path):
    (tmp_path / "encoded.json").write_text(manifest(b=2, a=1).model_dump_json())
    encoded = Encoded.open(tmp_path)
    paths = [tmp_path / name for name in ("x", "y", "z")]
    assert encoded.sources == ["b", "a"]
    assert [(source, entry.index, path.name) for source, entry, path in encoded.pair(paths)] == [
        ("b", 0, "x"),
        ("b", 1, "y"),
        ("a", 0, "z"),
    ]
    with pytest.raises(StoreError, match="2 shard directories were given and the manifest lists 3"):
        list(encoded.pair(paths[:2]))


@pytest.mark.parametrize(("vocab_size", "dtype"), [(1, "uint16"), (65_536, "uint16"), (65_537, "uint32")])
def test_the_width_follows_the_vocabulary(vocab_size, dtype):
    assert token_dtype(vocab_size) == dtype
