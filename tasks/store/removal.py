"""Removes artifacts for good, and collects garbage.

The files of a removed artifact are deleted, and a tombstone with its record stays (`tasks.store.tombstones`).
An artifact that others were made from is only removed together with them. A version that replaces it
(`tasks.store.retention.superseded`) does not count: it needs only the record, which the tombstone keeps. The
label is never assigned again. A request for a removed artifact makes it again, and reports that.

A collection removes the artifacts that nothing keeps (`tasks.store.retention`), what was made from others
before these, so that a collector that is killed leaves a store without loose ends: the next one goes on. Runs
may begin, look up and make artifacts meanwhile. Just before each removal the leases are read again; what one
needs, and all that it was made from, stays. It also removes what lies about beside artifacts:

- damaged artifacts that were set aside, once they are old enough;
- Prefect's result files of artifacts that are gone: `.prefect/<verb>-<fingerprint>`;
- columns of text that were given in memory and that no artifact points at (`.texts`), once they are old
  enough: whoever wrote them may be about to use them.

Records of runs, labels and tombstones stay: they are the history.
"""

import re
import shutil
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.disk import ProcessLock, reported_as
from tokmill.tasks.store.labels import named_files
from tokmill.tasks.store.layout import ALIASES, PREFIX_CHARS, RECORD_FILE, Layout
from tokmill.tasks.store.leases import Needs, live_leases
from tokmill.tasks.store.record import Record, read_record
from tokmill.tasks.store.remote import remote_of
from tokmill.tasks.store.retention import (
    MADE_FROM,
    Inventory,
    Item,
    Plan,
    Policy,
    Reason,
    add_inputs,
    days,
    make_plan,
    needed_by,
    reasons,
    take_inventory,
    users_first,
)
from tokmill.tasks.store.tombstones import check_reason, write_tombstone
from tokmill.tasks.store.workspace import tidy, workspace

_AT_A_TIME = 50
_GARBAGE = "gc: nothing kept it"  # the reason in its tombstone
_LOCK = "collector.lock"
_RESULT = re.compile(r"[a-z_]+-(?P<fingerprint>[0-9a-f]{64})")
_DAY_NS = 86_400_000_000_000
_MADE_FROM_TEXTS = ("corpus", "tokenizer")
_USERS = f"""
    SELECT i.input_fingerprint, a.kind, a.fingerprint FROM inputs i JOIN artifacts a USING (fingerprint)
    WHERE i.input_fingerprint IS NOT NULL AND {MADE_FROM}
    ORDER BY ALL
"""  # noqa: S608 - a constant


def remove(
    layout: Layout, catalog: Catalog, ref: ArtifactRef, *, with_dependents: bool, reason: str = ""
) -> list[Record]:
    """Remove an artifact."""
    check_reason(reason)
    order = _with_users(layout, catalog, ref)
    record = order[-1]
    if len(order) > 1 and not with_dependents:
        made = ", ".join(each.reference for each in order[:-1][:3])
        more = f" and {len(order) - 4} more" if len(order) > 4 else ""
        were = "was" if len(order) == 2 else "were"
        raise StoreError(
            f"{record.reference} is not removed: {made}{more} {were} made from it; remove them first, or all "
            "of them with --with-dependents"
        )
    why = {} if reason else reasons(catalog)
    _check_unheld(layout, order)
    for each in order:
        if not remove_one(layout, each, _is_held, reason or why.get(each.fingerprint, "")):
            _check_unheld(layout, [each])
    tidy(layout)
    catalog.register(*(layout.artifact(each.kind, each.fingerprint) / RECORD_FILE for each in order))
    return order


def find_removal(layout: Layout, catalog: Catalog, ref: ArtifactRef) -> list[Record]:
    """Return what `remove` with dependents would remove, in its order; nothing is changed."""
    order = _with_users(layout, catalog, ref)
    _check_unheld(layout, order)
    return order


def _check_unheld(layout: Layout, records: Sequence[Record]) -> None:
    leases = live_leases(layout)
    for each in records:
        if (user := _holder(leases, each.fingerprint)) is not None:
            raise StoreError(f"{each.reference} is not removed: {user} needs it; wait until that has ended")


def _holder(leases: Mapping[str, Needs], fingerprint: str) -> str | None:
    """Return a lease that holds an artifact by its fingerprint, if any."""
    start = fingerprint[:PREFIX_CHARS]
    return next((key for key, needs in leases.items() if needs.holds is None or start in needs.holds), None)


def _is_held(leases: Mapping[str, Needs], fingerprint: str) -> bool:
    return _holder(leases, fingerprint) is not None


def _with_users(layout: Layout, catalog: Catalog, ref: ArtifactRef) -> list[Record]:
    """Return the records of an artifact and of all that was made from it: dependents first, itself last."""
    record = read_record(layout.artifact(ref.kind, ref.fingerprint))
    users: dict[str, list[str]] = {}
    inputs: dict[str, list[str]] = {}
    kinds = {ref.fingerprint: ref.kind}
    for row in catalog.query(_USERS):
        users.setdefault(row["input_fingerprint"], []).append(row["fingerprint"])
        inputs.setdefault(row["fingerprint"], []).append(row["input_fingerprint"])
        kinds[row["fingerprint"]] = row["kind"]
    reached = {ref.fingerprint: None}
    waiting = [ref.fingerprint]
    while waiting:
        new = [user for user in users.get(waiting.pop(), ()) if user not in reached]
        reached |= dict.fromkeys(new)
        waiting += new
    order = [each for each in users_first(inputs, reached) if each != ref.fingerprint]
    return [*(read_record(layout.artifact(kinds[each], each)) for each in order), record]


def remove_one(
    layout: Layout, record: Record, stays: Callable[[Mapping[str, Needs], str], bool], reason: str = ""
) -> bool:
    """Remove an artifact, whatever was made from it; return whether it was removed.

    The tombstone is written first: after a crash in between, the artifact can be removed again.
    """
    place = layout.artifact(record.kind, record.fingerprint)
    lock = ProcessLock(layout.locks / f"{record.kind}-{record.fingerprint}.lock")
    if not lock.try_acquire():
        raise StoreError(f"{record.reference} is in use by {lock.owner()}; remove it when that has ended")
    try:
        if stays(live_leases(layout), record.fingerprint):
            return False
        with workspace(layout) as folder, reported_as(f"{record.reference} cannot be removed"):
            write_tombstone(layout, record, reason)
            if remote := remote_of(place):
                remote.remove_artifact(remote.name_of(place))
            place.rename(folder / place.name)  # and leaving the folder removes its content
        return True
    finally:
        lock.release()


class Garbage(NamedTuple):
    """What a collection found, and what became of it.

    Attributes:
        inventory, plan: on which it was decided.
        items: the artifacts that were removed, or would be; in order.
        leftovers: files and folders of other kinds, likewise.
        spared: artifacts of the plan that stay, and why: something came to need them, or uses them just now.
    """

    inventory: Inventory
    plan: Plan
    items: Sequence[Item]
    leftovers: "Sequence[Leftover]"
    spared: Sequence[tuple[Item, str]] = ()

    @property
    def num_bytes(self) -> int:
        """Bytes of all that was removed, or would be."""
        return sum(item.num_bytes for item in self.items) + sum(each.num_bytes for each in self.leftovers)


def _complete_inventory(layout: Layout, catalog: Catalog) -> Inventory:
    """Return what is in a store; refuse one that lacks what cannot be read: a need may be among it."""
    inventory = take_inventory(layout, catalog)
    known = {layout.artifact(item.kind, item.fingerprint) for item in inventory.items.values()}
    for place in layout.artifacts():
        if (
            place not in known
            and not catalog.ask(_one(place.name)).rows
            and disk.is_taken(place / RECORD_FILE)
        ):
            raise _incomplete(f"{place / RECORD_FILE} cannot be read")
    aliases = sum(1 for _ in named_files(layout.root / ALIASES))
    if aliases > len(inventory.aliases):
        raise _incomplete(f"{aliases - len(inventory.aliases)} of {aliases} aliases cannot be read")
    names = [entry.name for entry in disk.entries(layout.runs) if entry.name.endswith(".json")]
    num_files = sum(not name.startswith(".") for name in names)
    ((num_runs,),) = catalog.ask("SELECT count(DISTINCT run_id) FROM runs").rows  # of this moment
    if num_files > num_runs:
        raise _incomplete(f"{num_files - num_runs} of {num_files} runs cannot be read")
    return inventory


def _one(prefix: str) -> str:
    return f"SELECT 1 FROM artifacts WHERE starts_with(fingerprint, '{prefix}')"  # noqa: S608 - hexadecimal


def _incomplete(what: str) -> StoreError:
    return StoreError(f"gc: {what}, so it is not known what is needed; `tokmill store verify` has the reason")


def find_garbage(layout: Layout, catalog: Catalog, policy: Policy) -> Garbage:
    """Return what `collect` would remove; nothing is changed."""
    inventory = _complete_inventory(layout, catalog)
    plan = make_plan(inventory, live_leases(layout), policy, shared.now_ns(layout.root))
    doomed = {item.fingerprint for item in plan.garbage}
    return Garbage(inventory, plan, plan.garbage, leftovers(layout, doomed, policy.older_than_days))


def collect(
    layout: Layout, catalog: Catalog, policy: Policy, report: Callable[[str], None] | None = None
) -> Garbage:
    """Remove what nothing keeps."""
    say = report or (lambda line: None)
    lock = ProcessLock(layout.locks / _LOCK)
    if not lock.try_acquire():
        raise StoreError(f"{lock.owner()} removes artifacts of {layout.root}; wait until that has ended")
    try:
        inventory = _complete_inventory(layout, catalog)
        plan = make_plan(inventory, live_leases(layout), policy, shared.now_ns(layout.root))
        removal = _Removal(layout, catalog, inventory, plan)
        for item in plan.garbage:
            say(removal.take(item))
        removal.register()
        left = leftovers(layout, (), policy.older_than_days)
        for each in left:
            each.remove()
    finally:
        lock.release()
        tidy(layout)
    return Garbage(inventory, plan, removal.removed, left, removal.spared)


class _Removal:
    """Removes one artifact after the other, unless something has come to need it."""

    def __init__(self, layout: Layout, catalog: Catalog, inventory: Inventory, plan: Plan) -> None:
        self.kept: dict[str, Reason] = dict(plan.kept)
        self.removed: list[Item] = []
        self.spared: list[tuple[Item, str]] = []
        self._layout = layout
        self._catalog = catalog
        self._inventory = inventory
        self._num_registered = 0
        self._why = reasons(catalog)
        self._seen: Mapping[str, Needs] = {}

    def take(self, item: Item) -> str:
        """Remove an artifact, or spare it; return a line on that."""
        reason = self._why.get(item.fingerprint, _GARBAGE)
        try:
            record = read_record(self._layout.artifact(item.kind, item.fingerprint))
            if remove_one(self._layout, record, self._is_kept, reason):
                self.removed.append(item)
                if len(self.removed) - self._num_registered >= _AT_A_TIME:
                    self.register()
                return f"{item.reference} removed"
            why = self.kept[item.fingerprint].text
        except StoreError as error:  # it is being made again, or was removed or damaged meanwhile
            why = str(error)
            self._keep([(item.fingerprint, Reason("running", why))])
        self.spared.append((item, why))
        return f"{item.reference} stays: {why}"

    def _is_kept(self, leases: Mapping[str, Needs], fingerprint: str) -> bool:
        if leases != self._seen:  # what was needed once is needed until the collection ends
            self._keep(needed_by(self._inventory, leases))
            self._seen = leases
        return fingerprint in self.kept

    def _keep(self, needed: Iterable[tuple[str, Reason]]) -> None:
        new = {fingerprint: reason for fingerprint, reason in needed if fingerprint not in self.kept}
        known = {fingerprint: new[fingerprint] for fingerprint in new if fingerprint in self._inventory.items}
        self.kept |= known
        add_inputs(self._inventory, self.kept, known)

    def register(self) -> None:
        """Drop the rows of what was removed from the catalog."""
        gone = self.removed[self._num_registered :]
        places = (self._layout.artifact(item.kind, item.fingerprint) for item in gone)
        self._catalog.register(*(place / RECORD_FILE for place in places if not disk.is_taken(place)))
        self._num_registered = len(self.removed)


class Leftover(NamedTuple):
    """A file or folder that is of no use any more: what it is, where, its bytes, and why."""

    what: str
    path: Path
    num_bytes: int
    why: str

    def remove(self) -> None:
        """Remove it."""
        if self.path.is_dir():
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            self.path.unlink(missing_ok=True)


def leftovers(layout: Layout, garbage: Container[str], older_than_days: float) -> list[Leftover]:
    """Return what is of no use any more."""
    now_ns = shared.local_now_ns(layout.root)
    before_ns = now_ns - round(older_than_days * _DAY_NS)
    return [
        *_damaged(layout, before_ns, older_than_days),
        *_results(layout, garbage),
        *_texts(layout, garbage, min(before_ns, now_ns - _DAY_NS)),
    ]


def tree_bytes(folder: Path) -> int:
    """Return the bytes of all regular files below a folder; what vanishes meanwhile does not count."""
    return sum(_num_bytes(path) for path in folder.rglob("*"))


def _num_bytes(path: Path) -> int:
    try:
        state = disk.state(path)
    except OSError:
        return 0
    return state.num_bytes if state.kind == "file" else 0


def _damaged(layout: Layout, before_ns: int, older_than_days: float) -> Iterator[Leftover]:
    why = f"set aside {days(older_than_days)} ago or earlier" if older_than_days else "set aside"
    for kind in disk.entries(layout.damaged):
        for entry in disk.entries(layout.damaged / kind.name):
            path = layout.damaged / kind.name / entry.name
            if _newest_ns(path) <= before_ns:
                yield Leftover("damaged artifact", path, tree_bytes(path), why)


def _newest_ns(folder: Path) -> int:
    """Return the time of the last change in a folder, or of the folder."""
    return max(disk.state(path).mtime_ns for path in (folder, *folder.rglob("*")))


def _results(layout: Layout, garbage: Container[str]) -> Iterator[Leftover]:
    found = [(entry.name, _RESULT.fullmatch(entry.name)) for entry in disk.entries(layout.results)]
    present = {place.name for place in layout.places()}  # after the list: what came between is no leftover
    for name, result in found:
        if result is not None:
            owner = result["fingerprint"]
            if owner in garbage or owner[:PREFIX_CHARS] not in present:
                path = layout.results / name
                yield Leftover("result file of Prefect", path, _num_bytes(path), "its artifact is gone")


def _texts(layout: Layout, garbage: Container[str], before_ns: int) -> Iterator[Leftover]:
    """Yield old columns that no artifact is made from; in a bucket they stay."""
    files = [] if "://" in layout.location else disk.entries(layout.texts)
    old = [file.name for file in files if disk.state(layout.texts / file.name).mtime_ns <= before_ns]
    pointed_at = _pointed_at(layout, garbage) if old else set()
    for name in old:
        if name not in pointed_at:
            path = layout.texts / name
            num_bytes = tree_bytes(path) or _num_bytes(path)
            yield Leftover("text given in memory", path, num_bytes, "nothing is made from it")


def _pointed_at(layout: Layout, garbage: Container[str]) -> set[str]:
    """Return the names of the files in `.texts` that artifacts were made from."""
    records = (read_record(place) for place in layout.artifacts() if place.parent.name in _MADE_FROM_TEXTS)
    kept = (record for record in records if record.fingerprint not in garbage)
    origins = (entry.origin for record in kept for entry in record.inputs if entry.origin)
    return {origin.rpartition("/")[2] for origin in origins}
