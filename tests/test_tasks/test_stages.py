"""What the stages from `count` to `audit` promise: bounded memory, and output that only a version changes."""

import hashlib
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import tokenizer
from tasks.audit import AUDIT, AuditParams
from tasks.balance import BALANCE, BalanceParams
from tasks.count import COUNT, COUNT_SHARD, CountParams, Tally
from tasks.encode import ENCODE, ENCODE_SHARD, EncodeParams
from tasks.encoding import encode_batches
from tasks.formats.corpus import DocumentBatch
from tasks.formats.counts import Counts
from tasks.formats.documents import offsets_of
from tasks.formats.encoded import Encoded
from tasks.train import TRAIN, TrainParams

DOCUMENTS = {
    "en": ["The mill turns words into numbers.", "", "Numbers, 1234 of them!", "the mill, the mill"],
    "uk": ["Млин меле слова на числа.", "млин меле, млин меле"],
}
# Of what each stage writes, for the documents above. A change here without a new version is a mistake.
GOLDEN = {
    ("count", 1): "e46528f701a26823",
    ("train", 1): "f1e60db7998ec114",
    ("encode_shard", 1): "517f5b9c67d49cb2",
    ("encode", 1): "1794caf3730de3cf",
    ("audit", 1): "01ae908a753a6767",
}


def batches(number):
    """`number` batches of half a MiB each, all alike."""
    text = ("words and numbers " * 16).encode() * 2_000
    data = np.frombuffer(text[: 1 << 19], dtype=np.uint8)
    for index in range(number):
        lengths = np.full(512, len(data) // 512, dtype=np.int64)
        yield DocumentBatch(data, offsets_of(lengths), np.arange(512, dtype=np.int64) + 512 * index)


def peak_bytes(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_counting_more_text_of_the_same_words_takes_no_more_memory():
    def count(number):
        return lambda: Tally(CountParams().cut).count(batches(number))

    count(1)()
    assert peak_bytes(count(24)) < 1.2 * peak_bytes(count(3))


def test_encoding_more_text_takes_no_more_memory(tmp_path):
    tok = tokenizer.train(["words and numbers"], vocab_size=258)

    def encode(number):
        out = tmp_path / str(number)
        out.mkdir()
        return lambda: encode_batches(tok, batches(number), out, end_id=None, min_tokens=1)

    encode(1)()
    assert peak_bytes(encode(24)) < 1.2 * peak_bytes(encode(3))


def test_listing_the_stages_compiles_nothing_and_starts_no_prefect():
    code = (
        "import sys, tasks.count, tasks.train, tasks.adopt, tasks.encode, tasks.audit\n"
        "print(sorted({'numba', 'prefect', 'duckdb'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def made(tmp_path, text_corpus):
    """The directory of each artifact that the stages make of DOCUMENTS, under its kind or kind and number."""
    corpus, places = text_corpus(DOCUMENTS), {}

    def make(name, stage, params, **inputs):
        places[name] = tmp_path / name
        places[name].mkdir()
        stage.run(params, out=places[name], **inputs)
        return places[name]

    train, encode = TrainParams(vocab_size=300), EncodeParams()
    values = corpus.shard_values
    parts = [make(f"counts-{k}", COUNT_SHARD, train.count_params(), shard=v) for k, v in enumerate(values)]
    counts = make("counts", COUNT, train.count_params(), corpus=corpus.path, shards=parts)
    balance = make("balance", BALANCE, BalanceParams(), corpus=corpus.path)
    tok = make("tokenizer", TRAIN, train, counts=counts, balance=balance)
    shards = [
        make(f"encoded-{k}", ENCODE_SHARD, encode, tokenizer=tok, shard=v) for k, v in enumerate(values)
    ]
    every = {"corpus": corpus.path, "tokenizer": tok, "shards": shards}
    encoded = make("encoded", ENCODE, encode, **every)
    make("audit", AUDIT, AuditParams(), encoded=encoded, **every)
    return places


def test_output_changes_only_with_a_version(made):
    counts = Counts.open(made["counts"])
    shards = [sorted(made[f"encoded-{k}"].iterdir()) for k in range(2)]
    manifest = Encoded.open(made["encoded"]).manifest
    # What the versions of other libraries decide (Parquet's bytes, Unicode tables) is left out.
    found = {
        COUNT: b"\0".join(repr(counts.counts(source).to_dict()).encode() for source in counts.sources),
        TRAIN: (made["tokenizer"] / "tokmill.json").read_bytes(),
        ENCODE_SHARD: b"\0".join(file.read_bytes() for files in shards for file in files),
        ENCODE: manifest.model_copy(update={"tokenizer": ""}).model_dump_json().encode(),
        AUDIT: (made["audit"] / "summary.json").read_bytes(),
    }
    digests = {
        (stage.verb, stage.version): hashlib.blake2b(content, digest_size=8).hexdigest()
        for stage, content in found.items()
    }
    assert digests == GOLDEN
