"""The store against a model of it: any order of making, damaging, removing, naming, and rebuilding.

The model knows what each recipe must hold, which labels were given out and never change, and where aliases
point. The store is opened anew for every step, as another process would.
"""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.effort import examples
from tests.test_tasks.store_stages import ask, catalog_rows, left_over
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
        place = self.place(recipe)
        if harm == "truncate":
            (place / "text.txt").write_text("")
        elif harm == "remove":
            (place / "text.txt").unlink()
        else:
            (place / "record.json").write_text("{")
        del self.sound[recipe]
        self.damaged.add(recipe)

    @precondition(lambda self: self.sound)
    @rule(data=st.data())
    def delete(self, data):
        recipe = data.draw(st.sampled_from(sorted(self.sound)))
        shutil.rmtree(self.place(recipe))
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
        left = self.root / ".tmp" / "1-dead"
        (left / "out").mkdir(parents=True, exist_ok=True)
        (left / "out" / "record.json").write_text("{}")
        (self.root / ".tmp" / "1-dead.lock").write_text("process 1\n")

    @rule()
    def sweep(self):
        self.store.sweep()
        assert left_over(self.root) == []

    @rule()
    def rebuild(self):
        self.store.catalog.sync()  # finds labels, too, whose artifact was gone before anybody asked
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
TestStore.settings = settings(max_examples=examples(8), stateful_step_count=16)
