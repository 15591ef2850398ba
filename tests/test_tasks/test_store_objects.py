"""A store on object storage: real S3 requests, faults on request, and machines with caches of their own."""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.effort import EVERYTHING
from tests.hostile_names import HOSTILE
from tests.object_server import Bucket
from tests.small_disk import on_small_disk
from tests.test_tasks.store_stages import WriteParams, ask, ask_joined, catalog_rows, stage_of
from tokmill.flows.reproduce.subject import cargo_of
from tokmill.tasks.core.errors import MachineError, StoreError
from tokmill.tasks.core.stage import Outcome, Request
from tokmill.tasks.store import Store
from tokmill.tasks.store.push import move
from tokmill.tasks.store.record import sealed
from tokmill.tasks.store.retention import Policy

pytestmark = pytest.mark.objects

CHECKOUT = Path(__file__).parents[2]


class Machine:
    """A machine with a cache of its own, in this process."""

    def __init__(self, bucket: Bucket, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TOKMILL_CACHE", str(cache))
        self.bucket = bucket
        self.cache = cache
        self.store = Store.open(f"{bucket.url}/store")

    @property
    def local(self) -> list[str]:
        """The local files of artifacts, without records."""
        files = (path for path in self.store.root.rglob("*") if path.is_file())
        names = (path.relative_to(self.store.root).as_posix() for path in files)
        return sorted(
            name for name in names if name.startswith(("text/", "joined/")) and "record" not in name
        )


@pytest.fixture
def machine(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Make a machine; each has seen nothing of the store yet."""
    made = iter(range(100))
    return lambda: Machine(bucket, tmp_path / f"cache{next(made)}", monkeypatch)


def objects(bucket: Bucket, part: str = "") -> list[str]:
    found = bucket.keys()
    return [key for key in found if part in key]


def payload_keys(bucket: Bucket) -> list[str]:
    return objects(bucket, "/files/")


def test_what_one_machine_publishes_the_others_find_by_records_alone(bucket, machine):
    here, there = machine(), machine()
    made = here.store.realize(ask(text="ab", times=2))
    found = there.store.realize(ask("other", text="ab", times=2))

    assert (made.how, found.how) == ("made", "cached")
    assert bucket.requests("GET", "store/files/*") == []
    assert there.local == []
    assert (there.store.path(made.ref) / "text.txt").read_text() == "abab"
    files = ("parts/first.txt", "text.txt")
    assert there.local == [f"text/{made.ref.fingerprint[:16]}/{name}" for name in files]
    assert there.store.resolve("text/one@v1").fingerprint == made.ref.fingerprint


def test_the_catalog_is_equal_on_all_machines_and_costs_no_record_twice(bucket, machine):
    here = machine()
    for text in "abc":
        here.store.realize(ask(text=text))
    here.store.catalog.rebuild()
    num_before = len(bucket.requests("GET", "store/index/*record.json"))
    there = machine()
    rows = catalog_rows(there.store)

    assert rows == catalog_rows(here.store)
    catalog_rows(there.store)
    assert len(bucket.requests("GET", "store/index/*record.json")) == num_before + 3
    here.store.realize(ask(text="d"))
    assert len(catalog_rows(there.store)["artifacts"]) == 4
    there.store.catalog.rebuild()
    assert catalog_rows(there.store) == catalog_rows(here.store)


def test_what_another_process_has_just_published_is_read_by_who_is_told_of_it(machine):
    here, there = machine(), machine()
    assert there.store.lookup(ask(text="ab")) is None  # so its listing is of this moment
    ref = here.store.realize(ask(text="ab")).ref

    assert there.store.record(ref).ref == ref
    assert there.store.realize(ask_joined("both", ref, ref)).how == "made"


def test_a_listing_answers_for_all_artifacts(bucket, machine):
    here = machine()
    requests = [ask(text=text) for text in "abcdefgh"]
    for request in requests:
        here.store.realize(request)
    there = machine()
    num_before = len(bucket.requests())
    for request in requests:
        assert there.store.lookup(request) is not None
    asked = bucket.requests()[num_before:]

    assert sum(not request.key for request in asked) == 1
    assert sum(request.key.endswith("record.json") for request in asked) == len(requests)
    assert len(asked) == 1 + len(requests)


def test_a_changed_byte_is_noticed_when_it_arrives(bucket, machine):
    ref = machine().store.realize(ask(text="ab")).ref
    (key,) = (key for key in payload_keys(bucket) if key.endswith("text.txt"))
    bucket.put(key, b"xx")
    there = machine()
    assert [str(problem) for problem in there.store.verify()] != []
    with pytest.raises(StoreError, match=r"text\.txt: has digest .* set aside .* run again"):
        there.store.path(ref)

    assert there.local == []
    assert there.store.realize(ask(text="ab")).how == "made"
    assert (machine().store.path(ref) / "text.txt").read_text() == "ab"


def test_a_copy_that_is_damaged_here_is_pulled_again(bucket, machine):
    ref = machine().store.realize(ask(text="ab")).ref
    here = machine().store
    for harm in ("text.txt", "record.json"):
        here.path(ref)
        (here.layout.artifact(ref.kind, ref.fingerprint) / harm).write_text("")
        assert here.realize(ask(text="ab")).how == "cached"
        assert (here.path(ref) / "text.txt").read_text() == "ab"
    assert here.verify() == []
    assert len(payload_keys(bucket)) == 2


def test_an_artifact_is_removed_for_all(bucket, machine):
    here, there = machine(), machine()
    ref = here.store.realize(ask(text="ab")).ref
    there.store.path(ref)
    here.store.remove(ref)
    there.store.refresh()

    assert payload_keys(bucket) == []
    assert there.store.lookup(ask(text="ab")) is None
    with pytest.raises(StoreError, match="removed on"):
        there.store.resolve("text/one@v1")
    assert there.store.past("text", ref.fingerprint).ref == ref


def write_by_hand(text):
    """A stage whose content is not determined by its request: `text` is called when it is made."""

    def by_hand(params, *, out, seed=""):
        (out / "text.txt").write_text(text())
        return Outcome(metrics={})

    return Request(stage_of(by_hand), "one", WriteParams(), {})


@pytest.mark.parametrize("texts", [("same", "same"), ("mine", "theirs")])
def test_of_two_machines_at_once_both_make_it_and_one_wins(bucket, machine, texts):
    here, there = machine(), machine()
    begun, finished = threading.Event(), threading.Event()
    realized, said = [], []

    def slowly() -> str:
        begun.set()
        finished.wait()
        return texts[0]

    def first() -> None:
        realized.append(here.store.realize(write_by_hand(slowly), report=said.append))

    thread = threading.Thread(target=first)
    thread.start()
    begun.wait()
    winner = there.store.realize(write_by_hand(lambda: texts[1]))
    finished.set()
    thread.join()

    differ = texts[0] != texts[1]
    assert (winner.how, realized[0].how) == ("made", "waited" if differ else "made")
    assert realized[0].ref == winner.ref
    assert any("by another machine first" in line for line in said) == differ
    for each in (here, there, machine()):
        assert (each.store.path(winner.ref) / "text.txt").read_text() == texts[1]
        assert each.store.verify() == []
        assert [row["label"] for row in each.store.list()] == ["v1"]
    assert len(payload_keys(bucket)) == 1


CHILD = """
import sys
from tests.test_tasks.store_stages import ask
from tokmill.tasks.store import Store
print(Store.open(sys.argv[1]).realize(ask(text="abc", times=3)).how, flush=True)
"""


@pytest.mark.slow
def test_a_process_may_be_killed_at_any_write(bucket, tmp_path, monkeypatch):
    """Before its first write to the bucket, before the next, and so on; by default before every third."""
    step = 1 if EVERYTHING else 3
    refs, number, killed = set(), 0, True
    while killed:
        url = f"{bucket.url}/killed{number}"
        held = bucket.fault("hold", method="PUT", key=f"killed{number}/*", skip=number)
        environment = os.environ | {"TOKMILL_CACHE": str(tmp_path / f"killed{number}")}
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, url], cwd=CHECKOUT, env=environment, stdout=subprocess.DEVNULL
        ) as child:
            while not held.arrived.wait(0.1) and child.poll() is None:
                pass
            child.kill()
        killed = child.returncode == -signal.SIGKILL
        bucket.server.proxy.faults.clear()

        monkeypatch.setenv("TOKMILL_CACHE", str(tmp_path / f"after{number}"))
        store = Store.open(url)
        assert store.verify() == [], number
        refs.add(store.realize(ask(text="abc", times=3)).ref)
        assert store.verify() == [], number
        assert [row["label"] for row in store.list()] == ["v1"], number
        number += step

    assert len(refs) == 1
    assert number > 2 * step


def test_a_store_that_cannot_be_reached_is_no_empty_one(bucket, machine, monkeypatch):
    monkeypatch.setenv("TOKMILL_RETRY_SECONDS", "0.2")
    here = machine()
    here.store.realize(ask(text="ab"))
    there = machine()
    bucket.fault("answer", times=None)
    with pytest.raises(MachineError, match="cannot be reached"):
        there.store.lookup(ask(text="ab"))
    with pytest.raises(MachineError, match="cannot be reached"):
        there.store.list()


def test_a_credential_that_may_only_read_reads(bucket, machine):
    ref = machine().store.realize(ask(text="ab")).ref
    for method in ("PUT", "POST", "DELETE"):
        bucket.fault("answer", method=method, status=403, times=None)
    there = machine().store

    assert there.resolve("text/one") == ref
    assert (there.path(ref) / "text.txt").read_text() == "ab"
    assert [row["name"] for row in there.list()] == ["one"]
    assert there.verify() == []
    with pytest.raises(StoreError, match="credentials"):
        there.realize(ask(text="new"))


def test_the_cache_is_bounded_and_what_went_comes_again_when_it_is_opened(bucket, machine, monkeypatch):
    refs = [machine().store.realize(ask(text=letter, times=1000)).ref for letter in "abcd"]
    there = machine()
    monkeypatch.setenv("TOKMILL_CACHE_BYTES", "2500")
    monkeypatch.setattr("tokmill.tasks.store.remote._LOOK_SECONDS", 0.0)
    places = [there.store.path(ref) for ref in refs[:3]]

    assert {name.split("/")[1] for name in there.local} == {ref.fingerprint[:16] for ref in refs[1:3]}
    assert [(place / "text.txt").read_text()[0] for place in places] == ["a", "b", "c"]
    monkeypatch.setenv("TOKMILL_CACHE_BYTES", "500")
    there.store.path(refs[3])  # rather too much than a run that fails
    assert {name.split("/")[1] for name in there.local} == {refs[3].fingerprint[:16]}
    there.store.realize(ask(text="e", times=1000))
    assert len(there.local) == 2
    assert there.store.verify() == []


FETCH = """
import sys
from tests.test_tasks.store_stages import ask, ask_joined
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.store import Store
store = Store.open(sys.argv[1])
ref = store.resolve("text/large")
for work in (lambda: store.path(ref), lambda: store.realize(ask_joined("both", ref))):
    try:
        work()
    except TaskError as error:
        print(error)
print("still there" if store.holds(ref) else "set aside")
"""


@pytest.mark.slow
def test_a_cache_without_room_is_no_verdict_about_an_artifact(bucket, machine, tmp_path):
    machine().store.realize(ask("large", text="x" * 1024, times=4096))
    code = shlex.join([sys.executable, "-c", FETCH, f"{bucket.url}/store"])
    done = subprocess.run(
        on_small_disk(tmp_path / "disk", "2m", f"TOKMILL_CACHE={tmp_path}/disk exec {code}"),
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    *said, end = done.stdout.splitlines()

    assert end == "still there"
    assert len(said) == 2
    for line in said:
        assert "No space left on device" in line
        assert "damaged" not in line


def test_no_credential_is_written_anywhere(bucket, machine, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2-of-the-environment")
    here = machine()
    here.store.catalog.add_run("r", profile="p")
    here.store.realize(ask(text="ab"))
    here.store.catalog.finish_run("r", state="completed")
    with pytest.raises(StoreError) as refused:
        Store.open("s3://key:hunter2-of-the-url@bucket/store")
    with pytest.raises(StoreError) as asked:
        Store.open("s3://bucket/store?token=hunter2")

    assert "hunter2" not in f"{refused.value} {asked.value}"
    assert all(b"hunter2" not in bucket.get(key) for key in objects(bucket))
    written = (path.read_bytes() for path in here.cache.rglob("*") if path.is_file())
    assert all(b"hunter2" not in data for data in written)


_KEYS = [name for name in HOSTILE.values() if len(name.encode()) < 900]  # S3 takes 1,024 bytes


def test_keys_that_lead_out_of_a_store_write_nothing_elsewhere(bucket, machine, tmp_path):
    first = machine()
    ref = first.store.realize(ask("n", text="a")).ref
    place = f"text/{ref.fingerprint[:16]}"
    record, label = (
        bucket.get(f"store/index/{key}") for key in (f"{place}/record.json", "labels/text/n/@v1")
    )
    for name in _KEYS:
        for key in (
            f"labels/text/{name}/@v1",
            f"labels/{name}/n/@v1",
            f"labels/text/n/@{name}",
            f"aliases/text/{name}/@prod",
        ):
            bucket.put(f"store/index/{key}", label)
        for key in (f"text/{name}/record.json", f"{name}/{ref.fingerprint[:16]}/record.json"):
            bucket.put(f"store/index/{key}", record)
        for key in (f"runs/{name}.json", f"annotations/{name}.x.json", f"leases/{name}.json"):
            bucket.put(f"store/index/{key}", b"{}")
        bucket.put(f"store/index/removed/{name}/{ref.fingerprint[:16]}.json", record)
        bucket.put(f"store/files/text/{name}/x", b"x")
    second = machine()
    before = {path for path in tmp_path.rglob("*") if not path.is_relative_to(second.cache)}
    second.store.catalog.rebuild()
    assert [row["name"] for row in second.store.list()] == ["n"]
    assert (second.store.path(second.store.resolve("text/n")) / "text.txt").read_text() == "a"
    second.store.verify()
    second.store.find_garbage(Policy())
    second.store.catalog.settle()
    moved = move(second.store, Store.open(tmp_path / "pulled"), cargo_of(second.store, []), print)
    assert [each.reference for each in moved.of("copy")] == ["text/n@v1"]
    after = {path for path in tmp_path.rglob("*") if not path.is_relative_to(second.cache)}
    assert {path.relative_to(tmp_path).parts[0] for path in after - before} == {"pulled"}


def test_a_record_in_a_bucket_names_no_file_elsewhere(bucket, machine, tmp_path):
    ref = machine().store.realize(ask("n", text="a")).ref
    key = f"store/index/text/{ref.fingerprint[:16]}/record.json"
    record = json.loads(bucket.get(key))
    del record["record_digest"]
    for name in HOSTILE.values():
        record["files"][0]["path"] = name
        bucket.put(key, sealed("record_digest", json.dumps(record, indent=1).encode() + b"\n"))
        second = machine()
        before = {path for path in tmp_path.rglob("*") if not path.is_relative_to(second.cache)}
        for follow in (second.store.path, second.store.place):
            with pytest.raises(StoreError, match=r"files\.0\.path cannot be read"):
                follow(ref)
        assert {path for path in tmp_path.rglob("*") if not path.is_relative_to(second.cache)} == before
