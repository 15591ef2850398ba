"""What a collection keeps, and why; and that it removes the rest and nothing else."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.test_tasks.store_stages import WriteParams, ask, ask_joined, stage_of
from tokmill.flows.upkeep.checking import usage_of
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef, Outcome, Request
from tokmill.tasks.store import RunArtifact, Store
from tokmill.tasks.store.leases import leased
from tokmill.tasks.store.retention import (
    DAY_NS,
    Inventory,
    Plan,
    Policy,
    Reason,
    make_plan,
    take_inventory,
)
from tokmill.tasks.store.runs import Found
from tokmill.tasks.store.shared import now_ns

NOTHING = Policy(older_than_days=0, keep=0)


def text(store: Store, name: str, text: str = "abc") -> ArtifactRef:
    return store.realize(ask(name, text=text)).ref


def joined(store: Store, name: str, *inputs: ArtifactRef) -> ArtifactRef:
    return store.realize(ask_joined(name, *inputs)).ref


def ran(store: Store, run_id: str, profile: str, *refs: ArtifactRef, state: str = "completed") -> None:
    """Record a run that has these artifacts."""
    store.catalog.add_run(run_id, profile=profile)
    artifacts = [RunArtifact(task="t", ref=ref, how="made") for ref in refs]
    store.catalog.finish_run(run_id, state=state, found=Found(artifacts))


def removed(store: Store, policy: Policy) -> list[str]:
    return [item.reference for item in store.collect(policy).items]


def test_the_latest_versions_of_each_name_stay_and_parts_with_what_was_made_from_them(store):
    for each in "abcd":
        text(store, "one", each)
    text(store, "two", "a")  # a second name of the first version
    joined(store, "p", text(store, "p.part/0"), text(store, "p.part/1", "x"))
    joined(store, "p", text(store, "p.part/0", "new"))

    assert removed(store, Policy(older_than_days=0, keep=2)) == ["text/one@v2"]
    gone = ["joined/p@v1", "text/one@v3", "text/p.part/0@v1", "text/p.part/1@v1"]
    assert sorted(removed(store, Policy(older_than_days=0, keep=1))) == gone
    assert len(removed(store, NOTHING)) == 4


def inventory_of(store: Store, policy: Policy, moment: int | None = None) -> Inventory:
    moment = moment or now_ns(store.root)
    return store.catalog.asked(lambda ask: take_inventory(store.layout, ask, policy, moment))


def planned(store: Store, policy: Policy, moment: int | None = None) -> Plan:
    return make_plan(inventory_of(store, policy, moment), {}, policy)


def test_what_is_young_stays_and_so_does_what_a_recent_run_used(store):
    """By the clock of the store: whatever a record says of when it was made."""
    old, used = text(store, "p", "a"), text(store, "p", "b")
    now = now_ns(store.root)
    assert len(planned(store, Policy(14, 0), now + 15 * DAY_NS).garbage) == 2
    assert planned(store, Policy(16, 0), now + 15 * DAY_NS).garbage == []

    for ref in (old, used):
        os.utime(store.path(ref) / "record.json", ns=(now - 15 * DAY_NS, now - 15 * DAY_NS))
    ran(store, "r1", "p", used, state="failed")
    store.catalog.rebuild()
    garbage = store.find_garbage(Policy(14, 0))
    plan = garbage.plan
    assert [item.fingerprint for item in plan.garbage] == [old.fingerprint]
    assert plan.gone[old.fingerprint] == Reason("unused", "unused for 14 days")
    assert plan.kept[used.fingerprint].text == "of run r1 of p, 0 min ago, in the last 14 days"
    assert plan.age(garbage.plan.inventory.items[old.fingerprint]).days == 15


def test_what_a_suspended_run_needs_stays_for_a_week(store):
    one, other = text(store, "p.a"), text(store, "pq", "b")
    ran(store, "r", "p", state="suspended")
    now = now_ns(store.root)
    for days, gone in ((6, {other.fingerprint}), (8, {one.fingerprint, other.fingerprint})):
        assert {each.fingerprint for each in planned(store, NOTHING, now + days * DAY_NS).garbage} == gone


def test_a_superseded_artifact_goes_even_if_it_is_young_unless_it_has_an_alias(store):
    first, second = text(store, "p", "a"), text(store, "p", "b")
    marked = inventory_of(store, Policy(1.5))._replace(superseded={first.fingerprint: ["text/new@v1"]})

    plan = make_plan(marked, {}, Policy(1.5))
    assert [item.fingerprint for item in plan.garbage] == [first.fingerprint]
    assert plan.gone == {first.fingerprint: Reason("superseded", "superseded by text/new@v1")}
    assert plan.kept[second.fingerprint].text == "made 0 min ago, in the last 1.5 days"
    store.tag(first, "prod")
    named = inventory_of(store, Policy())._replace(superseded=marked.superseded)
    assert make_plan(named, {}, Policy()).garbage == []


def test_a_chain_of_two_thousand_artifacts_is_collected_and_removed_without_recursion(store):
    """Each made from the one before, as takedowns and extensions are."""
    text(store, "link")
    inventory = inventory_of(store, NOTHING)
    (item,) = inventory.items.values()
    names = [f"{number:064x}" for number in range(2000)]
    items = {name: item._replace(fingerprint=name) for name in names}
    inputs = {name: [before] for before, name in pairwise(names)}
    long = inventory._replace(items=items, inputs=inputs, labels=[], roots=[])

    assert [each.fingerprint for each in make_plan(long, {}, NOTHING).garbage] == names[::-1]
    kept = make_plan(long._replace(roots=[(names[-1], Reason("alias", "a"))]), {}, NOTHING).kept
    assert len(kept) == len(names)


def test_why_leads_from_an_artifact_to_the_reason(store):
    one = text(store, "one")
    middle = joined(store, "middle", one)
    store.tag(joined(store, "top", middle), "prod")

    garbage = store.find_garbage(NOTHING)

    assert garbage.plan.why(one.fingerprint) == [
        "text/one@v1: an input of joined/middle@v1",
        "joined/middle@v1: an input of joined/top@v1",
        "joined/top@v1: alias joined/top@prod",
    ]
    assert garbage.plan.why("f" * 64) == []


def test_an_input_that_was_made_again_elsewhere_is_kept_by_its_content(store):
    given = text(store, "given", "aa")
    store.tag(joined(store, "top", given), "prod")
    shutil.rmtree(store.path(given))
    equal = store.realize(ask("equal", text="a", times=2)).ref
    text(store, "other", "x")

    assert equal.content_digest == given.content_digest
    assert removed(store, NOTHING) == ["text/other@v1"]


def test_what_comes_to_be_needed_during_a_collection_stays(store):
    base = text(store, "z", "base")
    top = joined(store, "a", base)
    others = [text(store, f"n{number}", str(number)) for number in range(3)]
    began: list[Iterator[None]] = []

    def on_line(line: str) -> None:
        """Begin a run that finds an artifact, once the first of the garbage is gone."""
        if not began:
            began.append(leased(store.layout, "r"))
            began[0].__enter__().hold([top.fingerprint])
            with pytest.raises(StoreError, match="wait until that has ended"):
                store.collect(NOTHING)

    done = store.collect(NOTHING, on_line)
    began[0].__exit__(None, None, None)

    gone = {item.fingerprint for item in done.items}
    first = done.plan.garbage[0]
    assert first.fingerprint in gone
    assert gone.isdisjoint({top.fingerprint, base.fingerprint} - {first.fingerprint})
    assert len(gone) >= len(others)


@pytest.mark.parametrize("damaged", ["text/{}/record.json", "runs/r.json", "aliases/text/one/@prod"])
def test_nothing_is_removed_if_it_is_not_known_what_is_needed(store, damaged):
    ref = text(store, "one")
    text(store, "two", "x")
    store.tag(ref, "prod")
    ran(store, "r", "p", ref)
    (store.root / damaged.format(ref.fingerprint[:16])).write_text("{")

    with pytest.raises(StoreError, match="cannot be read, so it is not known what is needed"):
        store.collect(NOTHING)
    assert len(list(store.layout.artifacts())) == 2


def test_a_file_with_two_names_takes_its_space_once(store):
    one = text(store, "one", "a long text")

    def link(params, *, out, first):
        (out / "linked.txt").hardlink_to(first / "text.txt")
        (out / "own.txt").write_text("own")
        return Outcome(metrics={})

    two = store.realize(Request(stage_of(link, "linked"), "two", WriteParams(), {"first": one})).ref
    text(store, "copy", "a long text" * 2)
    items = inventory_of(store, NOTHING).items
    assert items[one.fingerprint].num_bytes == len("a long text" + "a")
    assert items[two.fingerprint].num_bytes == len("own")
    assert usage_of(store).total.num_bytes == sum(item.num_bytes for item in items.values())


def test_leftovers_go_and_what_is_of_use_stays(store):
    ref = text(store, "one")
    store.tag(ref, "prod")
    damaged = store.root / "damaged" / "text" / f"{'d' * 16}-1" / "text.txt"
    stale, foreign = (store.root / ".tmp" / name for name in ("1-2/out", "of-somebody-else"))
    foreign.mkdir(parents=True)
    damaged.parent.mkdir(parents=True)
    damaged.write_text("1234567")

    young = [each.path for each in store.find_garbage(Policy()).leftovers]
    with leased(store.layout, "r"):
        stale.mkdir(parents=True)
        found = store.collect(NOTHING)

    assert young == []
    assert {each.path: each.num_bytes for each in found.leftovers} == {damaged.parent: 7}
    there = [path.exists() for path in (store.layout.artifact("text", ref.fingerprint), foreign)]
    gone = [path.exists() for path in (damaged.parent, stale.parent)]
    assert (there, gone) == ([True, True], [False, False])


@pytest.mark.parametrize("folder", ["runs", "leases", ".cache", "removed/text", "aliases/text/one"])
def test_what_a_killed_process_was_writing_goes_when_another_one_writes(store, folder):
    store.tag(text(store, "one"), "prod")
    half_written = store.root / folder / ".half.tmp"
    half_written.parent.mkdir(parents=True, exist_ok=True)
    half_written.touch()
    with store.at_work("something else"):
        assert not half_written.exists()


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
        if inputs := self._some(numbers):
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
        ran(self.store, f"r{self.num_runs}", profile, *refs, state="completed" if completed else "failed")
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
            gone = {item.fingerprint for item in self.store.collect(Policy(0, keep)).items}
        assert gone == foreseen == expected
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
