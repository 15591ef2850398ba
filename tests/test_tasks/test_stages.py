"""Guarantees of the stages from `count` to `audit`: bounded memory, quick start, shards without a source."""

import subprocess
import sys
import tracemalloc

import numpy as np

from tokmill import tokenizer
from tokmill.tasks.core.stage import NO_SOURCE
from tokmill.tasks.count.counter import DocumentCounter
from tokmill.tasks.count.stage import COUNT_SHARD, CountParams
from tokmill.tasks.encode.encoding import encode_batches
from tokmill.tasks.encode.stage import ENCODE_SHARD, EncodeParams
from tokmill.tasks.formats.text.documents import DocumentBatch, offsets_of
from tokmill.tasks.formats.tokenizer import publish_tokenizer


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


def test_counting_more_text_of_the_same_words_takes_no_more_memory(tmp_path):
    def count(number):
        return lambda: DocumentCounter(CountParams().cut, 1 << 30).count(
            batches(number), tmp_path / "counts.parquet"
        )

    count(1)()
    assert peak_bytes(count(24)) < 1.2 * peak_bytes(count(3))


def test_encoding_more_text_takes_no_more_memory(tmp_path):
    tok = tokenizer.train(["words and numbers"], vocab_size=258)

    def encode(number):
        out = tmp_path / str(number)
        out.mkdir()
        return lambda: encode_batches(tok, batches(number), out, end_id=None, min_tokens=1)

    encode(1)()
    # A few batches wait while the disk is slow; all of them would take ten times as much memory.
    assert peak_bytes(encode(48)) < 2 * peak_bytes(encode(2))


def test_listing_the_stages_compiles_nothing_and_starts_no_prefect():
    code = (
        "import sys\n"
        "from tokmill.tasks.audit import stage\nfrom tokmill.tasks.count import stage\n"
        "from tokmill.tasks.encode import stage\nfrom tokmill.tasks.train import adopt, stage\n"
        "print(sorted({'numba', 'prefect', 'duckdb'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_shards_artifact_does_not_depend_on_the_source_that_made_it(tmp_path, text_corpus):
    corpus = text_corpus({"one": ["the same text"], "other": ["the same text"]})
    assert corpus.shards[0].digest == corpus.shards[1].digest
    tok = tmp_path / "tokenizer"
    tok.mkdir()
    publish_tokenizer(
        tokenizer.train(["text"], vocab_size=258, special_tokens=["<|endoftext|>"]), tok, exports=False
    )
    for stage, params, inputs in (
        (COUNT_SHARD, CountParams(), {}),
        (ENCODE_SHARD, EncodeParams(), {"tokenizer": tok}),
    ):
        said = []
        for number, shard in enumerate(corpus.shard_values):
            out = tmp_path / f"{stage.verb}-{number}"
            out.mkdir()
            said.append(stage.run(params, out=out, shard=shard, **inputs))
        assert said[0] == said[1]
        assert {account.source for account in said[0].accounts} == {NO_SOURCE}
