"""Inputs on object storage arrive when a stage opens them: what it does not open is not fetched."""

import pickle
from pathlib import Path

import orjson
import pytest

from tests.object_server import Bucket
from tests.test_tasks.store_stages import WriteParams, ask, stage_of
from tests.test_tasks.whole_line import Line, LineParams
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import Outcome, Request
from tokmill.tasks.ingest.stage import IngestParams
from tokmill.tasks.mixing.stage import MIX
from tokmill.tasks.packing.params import PackParams
from tokmill.tasks.packing.stage import PACK_PLAN, PACK_SHARD
from tokmill.tasks.store import Store
from tokmill.tasks.store.remote import PulledPath

pytestmark = pytest.mark.objects


@pytest.fixture
def machine(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Open the store on a machine that has seen nothing of it yet."""
    made = iter(range(100))

    def new() -> Store:
        monkeypatch.setenv("TOKMILL_CACHE", str(tmp_path / f"cache{next(made)}"))
        return Store.open(f"{bucket.url}/store")

    return new


def fetched(bucket: Bucket, before: int = 0) -> list[str]:
    """The names of artifacts' files that were fetched since so many requests."""
    requests = bucket.requests("GET", "store/files/*")[before:]
    return sorted({request.key.split("/", 5)[5] for request in requests})


def reading(read, given):
    """A stage that hands its input's folder to `read`, and writes what that returns."""

    def use(params, *, out, given):
        (out / "said.txt").write_text(str(read(given)))
        return Outcome(metrics={})

    return Request(stage_of(use, kind="said"), "reader", WriteParams(), {"given": given})


def said(store: Store, read, ref) -> str:
    made = store.realize(reading(read, ref)).ref
    return (store.path(made) / "said.txt").read_text()


def test_a_stage_fetches_the_files_that_it_opens(bucket, machine):
    ref = machine().realize(ask(text="ab", times=2)).ref
    there = machine()
    text = said(there, lambda folder: (folder / "parts" / "first.txt").read_text(), ref)

    assert text == "a"
    assert fetched(bucket) == ["parts/first.txt"]


def test_asking_whether_a_file_is_there_fetches_nothing(bucket, machine):
    ref = machine().realize(ask(text="ab")).ref

    def look(folder):
        names = ("text.txt", "parts/first.txt", "parts", "no.txt", "record.json")
        return [(p.exists(), p.is_file(), p.is_dir()) for p in (folder / name for name in names)]

    there = machine()
    file, nothing = (True, True, False), (False, False, False)
    assert said(there, look, ref) == str([file, file, nothing, nothing, file])
    assert fetched(bucket) == []


def test_a_path_is_the_same_in_another_process(machine):
    store = machine()
    path = machine().place(store.realize(ask(text="ab")).ref) / "text.txt"
    copy = pickle.loads(pickle.dumps(path))

    assert isinstance(copy, PulledPath)
    assert copy == path
    assert copy.read_text() == "ab"


def test_a_service_that_fails_says_nothing_of_the_artifact(bucket, machine, monkeypatch):
    ref = machine().realize(ask(text="ab")).ref
    there = machine()
    monkeypatch.setenv("TOKMILL_RETRY_SECONDS", "0.1")
    bucket.fault("answer", method="GET", key="*text.txt", times=None)
    with pytest.raises(StoreError, match="does not answer"):
        said(there, lambda folder: (folder / "text.txt").read_text(), ref)
    bucket.server.proxy.faults.clear()

    assert said(there, lambda folder: (folder / "text.txt").read_text(), ref) == "ab"


def test_planning_a_mixture_and_a_packing_fetches_no_tokens(bucket, machine, tmp_path):
    texts = tmp_path / "texts"
    for source in ("a", "b"):
        (texts / source).mkdir(parents=True)
        rows = [{"text": f"{source} {number} " * 300} for number in range(60)]
        (texts / source / "all.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    params = LineParams(pack=PackParams(sequence_length=128, sequences_per_shard=64))
    line = Line(machine(), texts, ingest=IngestParams(shard_bytes=64 << 10))
    made = line.run(params)
    store = line.store
    shards = store.record(made["mixture"]).refs("shards")
    tokens = {"encoded": made["encoded"], "shards": shards}
    (plan,) = store.record(made["packed"]).refs("plan")

    def opened(stage, params, **inputs):
        before = len(bucket.requests("GET", "store/files/*"))
        again = machine().realize(Request(stage, "line", params, inputs), refresh=True)
        assert again.ref.content_digest in {made["mixture"].content_digest, plan.content_digest, first}
        requests = bucket.requests("GET", "store/files/encoded_shard/*")
        return {request.key.rpartition("/")[2] for request in requests[_earlier(bucket, before) :]}

    first = store.record(made["packed"]).refs("shards")[0].content_digest
    assert len(shards) > 2
    assert opened(MIX, params.mix, **tokens) == {"statistics.json", "offsets.npy"}
    assert opened(PACK_PLAN, params.pack.plan_params(), mixture=made["mixture"], **tokens) == set()
    assert "token_counts.npy" not in opened(PACK_SHARD, params.pack.shard_params(0), plan=plan, **tokens)


def _earlier(bucket: Bucket, before: int) -> int:
    """How many of so many requests for files were for encoded shards."""
    requests = bucket.requests("GET", "store/files/*")[:before]
    return sum("/encoded_shard/" in request.key for request in requests)
