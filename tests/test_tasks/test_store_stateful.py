"""The store against a model of it: any order of making, damaging, removing, naming, and rebuilding.

In a folder, and in a bucket: there, damage and deletion happen to the objects, and two machines with own
caches take turns.

The model knows what each recipe must hold, which labels were given out and never change, and where aliases
point. The store is opened anew for every step, as another process would.
"""

import os
import shutil
import tempfile
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.effort import EVERYTHING
from tests.object_server import Bucket
from tests.test_tasks.store_stages import ask, catalog_rows, left_over
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import Store

names = st.sampled_from(["a", "a/1", "b"])
texts = st.sampled_from(["x", "xx", "é"])
times = st.sampled_from([1, 2])


class StoreMachine(RuleBasedStateMachine):
    """Recipes are (text, times); the name bears no identity."""

    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tokmill-test-"))
        self.sound = {}  # recipe -> the name that it was first made under
        self.damaged = set()  # recipes whose artifact is damaged on disk
        self.labels = {}  # (name, recipe) -> number
        self.aliases = {}  # (name, alias) -> recipe

    @property
    def store(self):
        return Store.open(self.root)

    def fingerprint(self, recipe):
        return self.store.fingerprint(self.request("any", recipe))

    def request(self, name, recipe):
        text, number = recipe
        return ask(name, text=text, times=number)

    def place(self, recipe):
        return self.store.layout.artifact("text", self.fingerprint(recipe))

    def harm(self, recipe, harm):
        place = self.place(recipe)
        if harm == "truncate":
            (place / "text.txt").write_text("")
        elif harm == "remove":
            (place / "text.txt").unlink()
        else:
            (place / "record.json").write_text("{")

    def lose(self, recipe):
        shutil.rmtree(self.place(recipe))

    def leave_behind(self):
        left = self.root / ".tmp" / "1-dead"
        (left / "out").mkdir(parents=True, exist_ok=True)
        (left / "out" / "record.json").write_text("{}")
        (self.root / ".tmp" / "1-dead.lock").write_text("process 1\n")

    @rule(name=names, text=texts, number=times)
    def realize(self, name, text, number):
        recipe = (text, number)
        realized = self.store.realize(self.request(name, recipe), report=lambda line: None)
        assert realized.cached == (recipe in self.sound)
        assert (self.store.path(realized.ref) / "text.txt").read_text() == text * number
        self.damaged.discard(recipe)
        self.sound.setdefault(recipe, name)
        taken = [version for (owner, _), version in self.labels.items() if owner == name]
        self.labels.setdefault((name, recipe), max(taken, default=0) + 1)

    @rule(name=names, text=texts, number=times)
    def lookup(self, name, text, number):
        recipe = (text, number)
        found = self.store.lookup(self.request(name, recipe), report=lambda line: None)
        assert (found is not None) == (recipe in self.sound)
        self.damaged.discard(recipe)  # it is set aside

    @precondition(lambda self: self.sound)
    @rule(data=st.data(), harm=st.sampled_from(["truncate", "remove", "record"]))
    def damage(self, data, harm):
        recipe = data.draw(st.sampled_from(sorted(self.sound)))
        self.harm(recipe, harm)
        del self.sound[recipe]
        self.damaged.add(recipe)

    @precondition(lambda self: self.sound)
    @rule(data=st.data())
    def delete(self, data):
        recipe = data.draw(st.sampled_from(sorted(self.sound)))
        self.lose(recipe)
        del self.sound[recipe]

    @precondition(lambda self: self.sound)
    @rule(data=st.data(), alias=st.sampled_from(["prod", "best"]))
    def tag(self, data, alias):
        known = sorted(key for key in self.labels if key[1] in self.sound)
        name, recipe = data.draw(st.sampled_from(known))
        self.store.tag(self.store.resolve(f"text/{name}@v{self.labels[name, recipe]}"), alias)
        self.aliases[name, alias] = recipe

    @rule()
    def a_process_dies(self):
        """What `kill -9` leaves: a folder and a lock file that nobody holds."""
        self.leave_behind()

    @rule()
    def sweep(self):
        self.store.sweep()
        assert left_over(self.store.root) == []

    @rule()
    def rebuild(self):
        self.store.catalog.rebuild()  # finds labels, too, whose artifact was gone before anybody asked
        before = catalog_rows(self.store)
        self.store.catalog.rebuild()
        assert catalog_rows(self.store) == before

    @invariant()
    def labels_and_aliases_lead_where_they_led(self):
        store = self.store
        named = {f"text/{name}@v{number}": recipe for (name, recipe), number in self.labels.items()}
        assert len(named) == len(self.labels)
        named |= {f"text/{name}@{alias}": recipe for (name, alias), recipe in self.aliases.items()}
        for reference, recipe in named.items():
            if recipe in self.sound:
                assert store.resolve(reference).fingerprint == self.fingerprint(recipe)

    @invariant()
    def sound_artifacts_verify(self):
        places = [self.place(recipe) for recipe in sorted(self.sound)]
        listed = {path.name for path in self.store.layout.artifacts()}
        assert {place.name for place in places} <= listed
        assert listed <= {place.name for place in places} | {
            self.place(recipe).name for recipe in self.damaged
        }

    def teardown(self):
        found = {(row["name"], row["number"], row["fingerprint"]) for row in self.store.list()}
        expected = {
            (name, number, self.fingerprint(recipe))
            for (name, recipe), number in self.labels.items()
            if recipe in self.sound
        }
        assert expected <= found
        assert {owner for *_, owner in found - expected} <= {
            self.fingerprint(recipe) for recipe in self.damaged
        }
        shutil.rmtree(self.root)


TestStore = pytest.mark.slow(StoreMachine.TestCase)
TestStore.settings = settings(max_examples=8, stateful_step_count=16)


class BucketMachine(StoreMachine):
    """The same in a bucket, whose objects are harmed behind the store's back; a subclass has the bucket."""

    bucket: Bucket
    _numbers = count()

    def __init__(self):
        super().__init__()
        self.prefix = f"store{next(self._numbers)}"
        os.environ["TOKMILL_CACHE"] = str(self.root)

    @property
    def store(self):
        store = Store.open(f"{self.bucket.url}/{self.prefix}")
        store.refresh()
        return store

    @rule(cache=st.sampled_from(["here", "there"]))
    def another_machine_goes_on(self, cache):
        os.environ["TOKMILL_CACHE"] = str(self.root / cache)

    def keys(self, part, recipe):
        start = f"{self.prefix}/{part}/text/{self.fingerprint(recipe)[:16]}/"
        return [key for key in self.bucket.keys() if key.startswith(start)]  # noqa: SIM118 - a method

    def harm(self, recipe, harm):
        """Harm the record, or a file, which another machine notices when it pulls it."""
        if harm == "record":
            self.bucket.put(self.keys("index", recipe)[0], b"{")
            return
        for key in [key for key in self.keys("files", recipe) if key.endswith("text.txt")]:
            self.bucket.put(key, b"") if harm == "truncate" else self.bucket.delete(key)
        here = os.environ["TOKMILL_CACHE"]
        os.environ["TOKMILL_CACHE"] = str(self.root / f"noticing{next(self._numbers)}")
        with pytest.raises(StoreError, match="set aside"):
            self.store.path(self.store.resolve(self.fingerprint(recipe)))
        os.environ["TOKMILL_CACHE"] = here

    def lose(self, recipe):
        for key in (*self.keys("index", recipe), *self.keys("files", recipe)):
            self.bucket.delete(key)

    def leave_behind(self):
        """What a machine leaves that dies in an upload: files without a record."""
        self.bucket.put(f"{self.prefix}/files/text/{'0' * 16}/{'1' * 16}/text.txt", b"half")


@pytest.mark.slow
@pytest.mark.objects
def test_a_store_in_a_bucket_keeps_the_laws_of_a_folder(bucket, monkeypatch):
    monkeypatch.setenv("TOKMILL_CACHE", "set by the machine, and restored afterwards")
    machine = type("InBucket", (BucketMachine,), {"bucket": bucket})
    many, steps = (30, 16) if EVERYTHING else (3, 8)
    few = settings(max_examples=many, stateful_step_count=steps, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(machine, settings=few)
