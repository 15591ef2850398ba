"""Exporting: every format from every other, the same bytes as packing would have written."""

import json

import pytest

from tests.test_tasks.fabricated import encoded_corpus, made, mix_corpus, numbered, pack_mixture
from tokmill.tasks.core.errors import PackingError, StoreError
from tokmill.tasks.export.stage import EXPORT, EXPORT_SHARD, ExportParams, ExportShardParams
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.formats.packed.reader import PackedReader

ALL_FORMATS = ("arrow", "jsonl", "mds", "megatron", "memmap", "npy", "parquet")
COMMON = {"sequence_length": 16, "strategy": "best_fit", "sequences_per_shard": 3}


def exported(packed, formats, folder):
    shards = []
    for entry in PackedManifest.open(packed).shards:
        shards.append(folder / f"part-{entry.index}")
        made(EXPORT_SHARD, ExportShardParams(index=entry.index, formats=formats), shards[-1], packed=packed)
    out = folder / "exported"
    return made(EXPORT, ExportParams(formats=formats), out, packed=packed, shards=shards), out


def files(path):
    return {
        file.relative_to(path).as_posix(): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    """Packs the same documents in the formats that it is given."""
    folder = tmp_path_factory.mktemp("packed")
    corpus = encoded_corpus(folder / "corpus", {"a": [numbered([5, 40, 2, 9, 17, 30, 3, 3])]}, end_id=7)
    mixture = mix_corpus(corpus, folder)

    def packed(formats):
        out = folder / str(len(list(folder.iterdir())))
        return pack_mixture(corpus, mixture, out, formats=formats, **COMMON)[1]

    return packed


@pytest.mark.parametrize("name", ALL_FORMATS)
def test_every_format_becomes_every_other(tmp_path, pack, name):
    outcome, out = exported(pack((name,)), ALL_FORMATS, tmp_path)
    assert outcome.metrics["formats"] == ", ".join(ALL_FORMATS)
    assert files(out) == files(pack(ALL_FORMATS))


def test_what_is_read_is_the_same(tmp_path, pack):
    packed = pack(("memmap",))
    before = PackedReader.open(packed)
    for name in ALL_FORMATS:
        _, out = exported(packed, (name,), tmp_path / name)
        after = PackedReader.open(out)
        assert len(after) == len(before) > 3
        for mine, its in zip(before, after, strict=True):
            assert its.input_ids.tolist() == mine.input_ids.tolist()
            assert its.cu_seqlens.tolist() == mine.cu_seqlens.tolist()
            assert its.loss_mask.tolist() == mine.loss_mask.tolist()
        assert [after.provenance(k) for k in range(len(after))] == [
            before.provenance(k) for k in range(len(before))
        ]


def test_the_manifest_lists_the_new_formats_alone(tmp_path, pack):
    packed = pack(("memmap",))
    _, out = exported(packed, ("npy", "mds"), tmp_path)
    mine, its = (json.loads((path / "packed.json").read_text()) for path in (packed, out))
    assert its == mine | {"formats": ["mds", "npy"]}


def test_a_shard_that_is_not_there_is_refused(tmp_path, pack):
    with pytest.raises(PackingError, match="index 99 must be below"):
        made(EXPORT_SHARD, ExportShardParams(index=99), tmp_path / "part", packed=pack(("memmap",)))


def test_a_missing_shard_is_refused(tmp_path, pack):
    with pytest.raises(PackingError, match="are not the plan's"):
        made(
            EXPORT, ExportParams(), tmp_path / "out", packed=pack(("memmap",)), shards=[pack(("memmap",))] * 2
        )


def test_a_shard_over_four_gigabytes_is_refused_as_mds(tmp_path, pack, monkeypatch):
    monkeypatch.setattr("tokmill.tasks.formats.packed.mds._MOST_BYTES", 300)
    with pytest.raises(PackingError, match=r"which must be at most 300 .* lower sequences_per_shard"):
        exported(pack(("memmap",)), ("mds",), tmp_path)


def test_a_table_of_pieces_that_is_gone_is_named(tmp_path, pack):
    packed = pack(("npy",))
    (packed / "__pieces__" / "pieces-00000.parquet").unlink()
    with pytest.raises(StoreError, match=r"pieces-00000\.parquet"):
        exported(packed, ("memmap",), tmp_path)
