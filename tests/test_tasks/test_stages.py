"""A stage's output changes with its version only; bounded memory, quick start, shards without a source."""

import math
import pkgutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from importlib import import_module
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from tests.test_tasks.golden import all_stages, current_digests, golden_digests
from tokmill import tasks, tokenizer
from tokmill.tasks.core.stage import NO_SOURCE
from tokmill.tasks.count.counter import DocumentCounter
from tokmill.tasks.count.stage import COUNT_SHARD, CountParams
from tokmill.tasks.encode.encoding import encode_batches
from tokmill.tasks.encode.stage import ENCODE_SHARD, EncodeParams
from tokmill.tasks.formats.text.documents import DocumentBatch, offsets_of
from tokmill.tasks.formats.tokenizer import publish_tokenizer
from tokmill.tasks.store import Store


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


_INEXACT = ("log", "log2", "log10", "log1p", "exp", "exp2", "expm1", "sin", "cos", "pow", "power")
REFRESH = "then `python -m tests.test_tasks.golden`"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("golden")


@pytest.fixture(scope="module")
def current(folder):
    return current_digests(folder)


def test_every_stage_has_golden_digests():
    assert sorted(golden_digests()) == sorted(all_stages())


@pytest.mark.parametrize("verb", sorted(all_stages()))
def test_output_changes_only_with_a_version(current, verb):
    golden, found = golden_digests()[verb], current[verb]
    kept, now = golden["artifacts"], found["artifacts"]
    changed = sorted(
        {
            name
            for before, after in zip(kept, now, strict=False)
            for name in before | after
            if before.get(name) != after.get(name)
        }
    )
    if len(kept) != len(now):
        changed.append(f"{len(now)} artifacts instead of {len(kept)}")
    if found["version"] != golden["version"]:
        pytest.fail(f"{verb}: version {found['version']} has no golden digests yet; review, {REFRESH}")
    if changed:
        pytest.fail(
            f"{verb} gives another {', '.join(changed)} than before under the same version; if that is "
            f"meant, raise it, unless another stage's version made its input another one; {REFRESH}"
        )


@pytest.mark.usefixtures("current")
def test_every_end_of_an_account_is_documented(folder, checkout):
    page = (checkout / "docs" / "formats.md").read_text(encoding="utf-8")
    listed = page.partition("## What can become of a document")[2]
    query = "SELECT DISTINCT split_part(name, ':', 1) AS first, name FROM accounts WHERE side = 'became'"
    rows = Store.open(folder / "store").catalog.query(query)
    ends = {"quarantined:REASON" if row["first"] == "quarantined" else row["name"] for row in rows}
    assert len(ends) > 10
    assert sorted(end for end in ends if f"`{end}`" not in listed) == []


@pytest.mark.slow
def test_results_that_differ_in_the_last_places_change_nothing(tmp_path, monkeypatch, current):
    generator, calls = np.random.default_rng(7), []

    def moved(function: Callable) -> Callable:
        def call(*given, **more):
            found = function(*given, **more)
            calls.append(function.__name__)
            steps = generator.integers(-4, 5, np.shape(found))
            return np.where(np.isfinite(found), found + steps * np.spacing(np.abs(found)), found)[()]

        return call

    for where, name, module in our_modules():
        inexact = {each: moved(getattr(module, each)) for each in _INEXACT if hasattr(module, each)}
        monkeypatch.setattr(where, name, SimpleNamespace(**{**vars(module), **inexact}))

    assert current_digests(tmp_path) == current
    assert {"log", "log2"} <= set(calls)


def our_modules() -> list[tuple[ModuleType, str, ModuleType]]:
    """Return our modules, other than kernels, that name `math` or numpy, with these."""
    packages = [pkgutil.walk_packages(each.__path__, f"{each.__name__}.") for each in (tasks, tokenizer)]
    names = [module.name for package in packages for module in package]
    left_out = (".kernels", ".jit", ".torch_dataset")
    plain = [name for name in names if not any(part in name for part in left_out)]
    return [
        (module, each, value)
        for module in map(import_module, plain)
        for each, value in vars(module).items()
        if value is math or value is np
    ]
