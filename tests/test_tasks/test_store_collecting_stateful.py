"""Any store, any order: a collection removes everything that nothing keeps, and nothing else."""

import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.test_tasks.store_stages import ask, ask_joined
from tokmill.tasks.store import RunArtifact, Store
from tokmill.tasks.store.leases import leased
from tokmill.tasks.store.retention import Policy

_NAMES = st.sampled_from(["p", "p.part/1", "q", "pq"])
_NUMBERS = st.integers(0, 7)


class Collecting(RuleBasedStateMachine):
    """A store, and a slow and simple idea of what must be in it: artifacts by number, in order of making."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.store = Store.open(self.folder / "store")
        self.made: dict[str, SimpleNamespace] = {}
        self.versions: dict[tuple[str, str], list[str]] = {}
        self.aliases: dict[tuple[str, str, str], str] = {}
        self.last_runs: dict[str, set[str]] = {}
        self.num_runs = 0

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def _realize(self, request, inputs) -> None:
        ref = self.store.realize(request).ref
        versions = self.versions.setdefault((ref.kind, ref.name), [])
        if ref.fingerprint not in versions:
            versions.append(ref.fingerprint)
        if ref.fingerprint not in self.made:
            self.made[ref.fingerprint] = SimpleNamespace(ref=ref, inputs=[one.fingerprint for one in inputs])

    def _some(self, numbers) -> list:
        refs = [made.ref for made in self.made.values()]
        return [refs[number % len(refs)] for number in numbers] if refs else []

    @rule(name=_NAMES, text=st.sampled_from("abcd"))
    def make(self, name, text) -> None:
        self._realize(ask(name, text=text), [])

    @rule(name=_NAMES, by=st.sampled_from(",;"), numbers=st.lists(_NUMBERS, min_size=1, max_size=3))
    def make_from_others(self, name, by, numbers) -> None:
        inputs = self._some(numbers)
        if inputs:
            self._realize(ask_joined(name, *inputs, text=by), inputs)

    @rule(number=_NUMBERS, alias=st.sampled_from(["prod", "test"]))
    def tag(self, number, alias) -> None:
        for ref in self._some([number]):
            self.store.tag(ref, alias)
            self.aliases[ref.kind, ref.name, alias] = ref.fingerprint

    @rule(profile=st.sampled_from("pq"), numbers=st.lists(_NUMBERS, max_size=3), completed=st.booleans())
    def record_run(self, profile, numbers, completed) -> None:
        refs = self._some(numbers)
        self.num_runs += 1
        self.store.catalog.add_run(f"r{self.num_runs}", profile=profile)
        artifacts = [RunArtifact(task="t", ref=ref, how="made") for ref in refs]
        state = "completed" if completed else "failed"
        self.store.catalog.finish_run(f"r{self.num_runs}", state=state, artifacts=artifacts)
        if completed:
            self.last_runs[profile] = {ref.fingerprint for ref in refs}

    @rule(keep=st.integers(0, 1), numbers=st.lists(_NUMBERS, max_size=2), names=st.sampled_from(["", "p"]))
    def collect(self, keep, numbers, names) -> None:
        held = {ref.fingerprint for ref in self._some(numbers)}
        kept = self._kept(keep, held, names)
        with leased(self.store.layout, "working", names=names) as lease:
            lease.hold(held)
            expected = set(self.made) - kept
            foreseen = {item.fingerprint for item in self.store.find_garbage(Policy(0, keep)).items}
            removed = {item.fingerprint for item in self.store.collect(Policy(0, keep)).items}
        assert removed == foreseen == expected
        assert self.store.verify(full=False) == []
        self.made = {one: made for one, made in self.made.items() if one in kept}

    def _kept(self, keep, held, names) -> set[str]:
        kept = set(held) | set(self.aliases.values())
        for (_, name), versions in self.versions.items():
            present = [one for one in versions if one in self.made]
            kept |= set(present[-1:]) if keep and "/" not in name else set()
            kept |= set(present) if names and (name == names or name.startswith(names + ".")) else set()
        kept |= set().union(*self.last_runs.values()) if keep and self.last_runs else set()
        size = -1
        while size != len(kept):
            size = len(kept)
            kept |= {below for one in kept & set(self.made) for below in self.made[one].inputs}
        return kept & set(self.made)

    @invariant()
    def the_store_has_what_it_should(self) -> None:
        if hasattr(self, "store"):
            assert {path.name for path in self.store.layout.artifacts()} == {one[:16] for one in self.made}


TestCollecting = pytest.mark.slow(Collecting.TestCase)
TestCollecting.settings = settings(max_examples=8, stateful_step_count=16)
