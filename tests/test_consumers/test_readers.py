"""Every format, read by the reader that it was made for: the same ids, the same boundaries."""

import json
import re
from importlib.util import find_spec
from typing import get_args

import numpy as np
import pytest

from tests.test_flows.corpora import InProcess
from tests.test_tasks.fabricated import encoded_corpus, made, mix_corpus, numbered, pack_mixture
from tokmill.tasks.formats.packed.manifest import PackedFormat
from tokmill.tasks.formats.packed.masks import varlen
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.packing.export import EXPORT, EXPORT_SHARD, ExportParams, ExportShardParams

# Their warnings are about their own dependencies.
pytestmark = [pytest.mark.consumers, pytest.mark.filterwarnings("ignore")]

LIBRARIES = ("datasets", "megatron", "olmo_core", "streaming", "torch", "trl")
ALL_FORMATS = get_args(PackedFormat)
LENGTHS = [5, 40, 2, 9, 17, 30, 3, 3, 21, 8, 1, 1, 64, 11]


PROFILE = """
name = "held"

[sources.lines]
files = ["lines.jsonl"]

[holdout]
share = 0.3

[train]
vocab_size = 300
special_tokens = ["<|endoftext|>"]

[pack]
sequence_length = 16
strategy = "best_fit"
sequences_per_shard = 7
labels = true
formats = %s
"""


@pytest.fixture(scope="module", params=[256, 70_000, "validation"], ids=["uint16", "uint32", "validation"])
def packed(request, tmp_path_factory):
    """A packed artifact in every format: some shards, pieces that go on, padding."""
    if not any(map(find_spec, LIBRARIES)):
        pytest.skip(f"none of {', '.join(LIBRARIES)} is installed")
    folder = tmp_path_factory.mktemp("packed")
    path = held_out(folder) if request.param == "validation" else fabricated(folder, request.param)
    reader = PackedReader.open(path)
    assert reader.manifest.num_padding_tokens > 0
    assert len(reader.manifest.shards) > 2
    return path, reader


def fabricated(folder, vocab_size):
    """Pack documents that consist of literal tokens."""
    first = 0 if vocab_size == 256 else 65_400
    documents = {
        "a": [numbered(LENGTHS, first, vocab_size)],
        "b": [numbered(LENGTHS, first + 50, vocab_size)],
    }
    corpus = encoded_corpus(folder / "corpus", documents, vocab_size=vocab_size, end_id=7)
    params = {"sequence_length": 16, "strategy": "best_fit", "sequences_per_shard": 7}
    params["labels"] = True
    _, path = pack_mixture(corpus, mix_corpus(corpus, folder), folder, formats=ALL_FORMATS, **params)
    return path


def held_out(folder):
    """Run a profile that holds documents out; returns where those are packed."""
    texts = (f"{number} " + "ein Wort und noch eins " * (number % 9) for number in range(80))
    lines = (json.dumps({"text": text}) for text in texts)
    (folder / "lines.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "held.toml").write_text(PROFILE % json.dumps(ALL_FORMATS), encoding="utf-8")
    runs = InProcess.at(folder / "store")
    return runs.store.path(runs.run(folder / "held.toml")["validation"])


def test_megatron(packed):
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    path, reader = packed
    for shard in reader.manifest.shards:
        dataset = indexed.IndexedDataset(str(path / f"megatron-{shard.index:05d}"))
        assert len(dataset.document_indices) - 1 == shard.num_sequences
        assert dataset.document_indices[-1] == len(dataset)
        for row in range(shard.num_sequences):
            sequence = reader[shard.first_sequence + row]
            pieces = range(dataset.document_indices[row], dataset.document_indices[row + 1])
            lengths = [int(dataset.sequence_lengths[piece]) for piece in pieces]
            assert lengths == np.diff(sequence.cu_seqlens).tolist()
            tokens = [token for piece in pieces for token in dataset[piece].tolist()]
            assert tokens == sequence.input_ids[: sequence.num_tokens].tolist()


def row_of(sequence):
    return {
        "input_ids": sequence.input_ids.tolist(),
        "position_ids": sequence.position_ids.tolist(),
        "segment_ids": sequence.segment_ids.tolist(),
        "loss_mask": sequence.loss_mask.tolist(),
        "seq_lengths": lengths_with_padding(sequence),
        "document_starts": sequence.document_starts.tolist(),
        "labels": labels_of(sequence),
        "attention_mask": (sequence.segment_ids > 0).tolist(),
    }


def lengths_with_padding(sequence):
    padding = len(sequence.input_ids) - sequence.num_tokens
    return [*np.diff(sequence.cu_seqlens).tolist(), *([padding] if padding else [])]


def labels_of(sequence):
    """What counts for the loss, token by token: not padding, and not the first token of a piece."""
    both = zip(sequence.input_ids.tolist(), sequence.position_ids.tolist(), strict=True)
    return [token if position else -100 for token, position in both]


@pytest.mark.parametrize("pattern", ["*.parquet", "*.arrow", "*.jsonl.zst", None])
def test_hugging_face_datasets(packed, tmp_path, pattern):
    datasets = pytest.importorskip("datasets")
    path, reader = packed
    if pattern is None:
        loaded = datasets.load_from_disk(str(path))
    else:
        files = [str(file) for file in sorted(path.glob(f"shard-{pattern}"))]
        builder = {"*.jsonl.zst": "json"}.get(pattern, pattern[2:])
        loaded = datasets.load_dataset(builder, data_files=files, split="train", cache_dir=str(tmp_path))
    assert list(loaded) == [row_of(sequence) for sequence in reader]


@pytest.mark.parametrize("name", ["parquet", "jsonl"])
def test_hugging_face_datasets_of_the_plain_folder(packed, tmp_path, name):
    datasets = pytest.importorskip("datasets")
    path, reader = packed
    folder = exported(path, (name,), tmp_path)
    loaded = datasets.load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache"))
    assert [row["input_ids"] for row in loaded] == [sequence.input_ids.tolist() for sequence in reader]
    assert loaded[0].keys() == row_of(reader[0]).keys()


@pytest.mark.parametrize("name", ["arrow", "memmap", "npy", "megatron", "mds"])
def test_hugging_face_datasets_load_nothing_else_for_data(packed, tmp_path, name):
    datasets = pytest.importorskip("datasets")
    folder = exported(packed[0], (name,), tmp_path)
    with pytest.raises(Exception, match=r"(?i)data ?files|extension|format|module|load_from_disk"):
        datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))


def exported(path, formats, folder):
    """An export into `folder / formats`; what was exported may lie beside a record, as here."""
    shards = []
    for entry in PackedReader.open(path).manifest.shards:
        shards.append(folder / f"part-{entry.index}")
        params = ExportShardParams(index=entry.index, formats=formats, labels=True)
        made(EXPORT_SHARD, params, shards[-1], packed=path)
    out = folder / "exported"
    made(EXPORT, ExportParams(formats=formats, labels=True), out, packed=path, shards=shards)
    (out / "record.json").write_text("{}")
    return out


def test_trl_without_padding(packed):
    trainer = pytest.importorskip("trl.trainer.sft_trainer")
    path, reader = packed
    rows = pytest.importorskip("datasets").load_from_disk(str(path))
    collator = trainer.DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    examples = [rows[index] for index in range(len(rows))]
    batch = collator(examples)
    assert batch["input_ids"].tolist() == [[token for row in examples for token in row["input_ids"]]]
    bounds = varlen([sequence.cu_seqlens for sequence in reader], 16)
    assert batch["cu_seq_lens_q"].tolist() == bounds.cu_seqlens.tolist()
    assert batch["labels"].tolist() == [[label for sequence in reader for label in labels_of(sequence)]]


def test_mosaicml_streaming(packed):
    streaming = pytest.importorskip("streaming")
    path, reader = packed
    streaming.base.util.clean_stale_shared_memory()
    dataset = streaming.StreamingDataset(local=str(path), batch_size=1, shuffle=False)
    assert len(dataset) == len(reader)
    for index, sequence in enumerate(reader):
        sample = dataset[index]
        assert sample["tokens"].dtype == sequence.input_ids.dtype
        assert sample["tokens"].tolist() == sequence.input_ids.tolist()
        assert sample["seq_lengths"].tolist() == lengths_with_padding(sequence)
        assert sample["document_starts"].tolist() == sequence.document_starts.tolist()


def test_what_mosaicml_writes_itself_is_the_same(packed, tmp_path):
    streaming = pytest.importorskip("streaming")
    path, reader = packed
    dtype = reader.manifest.dtype
    columns = {
        "tokens": f"ndarray:{dtype}:16",
        "seq_lengths": "ndarray:uint32",
        "document_starts": "ndarray:uint32",
    }
    with streaming.MDSWriter(out=str(tmp_path / "theirs"), columns=columns, size_limit=None) as writer:
        for sequence in list(reader)[:7]:
            lengths = np.array(lengths_with_padding(sequence), dtype=np.uint32)
            starts = sequence.document_starts.astype(np.uint32)
            tokens = sequence.input_ids.astype(dtype)
            writer.write({"tokens": tokens, "seq_lengths": lengths, "document_starts": starts})
    ours, theirs = (folder / "shard.00000.mds" for folder in (path, tmp_path / "theirs"))
    assert ours.read_bytes() == theirs.read_bytes()
    mine, its = (json.loads((folder / "index.json").read_text()) for folder in (path, tmp_path / "theirs"))
    assert mine["shards"][0] == its["shards"][0]


def test_olmo_core(packed):
    data = pytest.importorskip("olmo_core.data")
    path, reader = packed
    files = [str(file) for file in sorted(path.glob("shard-*.bin"))]
    dtype = getattr(data.NumpyDatasetDType, reader.manifest.dtype)
    dataset = data.NumpyFSLDataset(
        *files,
        sequence_length=16,
        pad_token_id=7,
        eos_token_id=7,
        vocab_size=70_000,
        dtype=dtype.as_np_dtype(),
        label_mask_paths=[str(file) for file in sorted(path.glob("label_mask-*.bin"))],
    )
    assert len(dataset) == len(reader)
    for index, sequence in enumerate(reader):
        assert dataset[index]["input_ids"].tolist() == sequence.input_ids.tolist()
        counts = [label != -100 for label in labels_of(sequence)]
        assert dataset[index]["label_mask"].tolist() == counts


def test_a_plain_memory_map(packed):
    path, reader = packed
    dtype = {"uint16": "<u2", "uint32": "<u4"}[reader.manifest.dtype]
    for pattern in ("shard-*.bin", "tokens-*.npy"):
        rows = []
        for file in sorted(path.glob(pattern)):
            mapped = np.memmap(file, dtype, "r") if file.suffix == ".bin" else np.load(file, mmap_mode="r")
            rows += mapped.reshape(-1, 16).tolist()
        assert rows == [sequence.input_ids.tolist() for sequence in reader]


def test_megatron_batches_as_the_guide_makes_them(packed, checkout):
    torch = pytest.importorskip("torch")
    path, reader = packed
    page = (checkout / "docs" / "packing.md").read_text(encoding="utf-8")
    (code,) = [
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "megatron_batches" in block
    ]
    names = {}
    exec(code, names)
    batches = names["megatron_batches"](path, rank=0, world_size=1, micro_batch_size=2)
    for first in range(0, len(reader) - len(reader) % 2, 2):
        batch, pair = next(batches), [reader[first], reader[first + 1]]
        ids = torch.tensor(np.stack([sequence.input_ids for sequence in pair]).astype(np.int64))
        labels = torch.tensor([labels_of(sequence) for sequence in pair])
        assert torch.equal(batch["tokens"], ids[:, :-1])
        assert torch.equal(batch["labels"], ids[:, 1:])
        assert torch.equal(batch["loss_mask"] > 0, labels[:, 1:] != -100)
