"""Removes artifacts for good, with a tombstone, and collects garbage.

What was made from others goes before these, so that a killed collector leaves no loose ends; leases are read
again just before each removal. Damaged artifacts and texts that no artifact points at go as well.
"""

import shutil
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.disk import ProcessLock, reported_as
from tokmill.tasks.store.layout import PREFIX_CHARS, Layout, tidy, workspace
from tokmill.tasks.store.leases import Needs, live_leases
from tokmill.tasks.store.record import Record, check_reason, read_record, write_tombstone
from tokmill.tasks.store.remote import remove_pushed
from tokmill.tasks.store.retention import (
    DAY_NS,
    MADE_FROM,
    Item,
    Plan,
    Policy,
    Reason,
    days,
    make_plan,
    needed_by,
    reasons,
    take_inventory,
    users_first,
)

if TYPE_CHECKING:
    from tokmill.tasks.store.catalog import Catalog

Stays: TypeAlias = Callable[[dict[str, Needs], str], object]
"""Whether an artifact is needed by one of these leases, or otherwise, at this moment."""

_GARBAGE = "gc: nothing kept it"  # the reason in its tombstone
_USERS = f"""
    WITH RECURSIVE edges AS (
        SELECT i.input_fingerprint, a.fingerprint, a.kind FROM inputs i JOIN artifacts a USING (fingerprint)
        WHERE i.input_fingerprint IS NOT NULL AND {MADE_FROM}
    ),
    used(fingerprint) AS (
        SELECT $root
        UNION
        SELECT e.fingerprint FROM used u JOIN edges e ON e.input_fingerprint = u.fingerprint
    )
    SELECT e.* FROM edges e JOIN used u ON u.fingerprint = e.input_fingerprint ORDER BY ALL
"""  # noqa: S608 - a constant


def remove(
    layout: Layout, catalog: "Catalog", ref: ArtifactRef, *, with_dependents: bool, reason: str = ""
) -> list[Record]:
    """Remove an artifact, maybe with all that was made from it; return what was removed, in order."""
    check_reason(reason)
    order = find_removal(layout, catalog, ref)
    if len(order) > 1 and not with_dependents:
        made = ", ".join(each.reference for each in order[:-1][:3])
        more = f" and {len(order) - 4} more" if len(order) > 4 else ""
        were = "was" if len(order) == 2 else "were"
        raise StoreError(
            f"{order[-1].reference} is not removed: {made}{more} {were} made from it; remove them first, or "
            "all of them with --with-dependents"
        )
    why = {} if reason else catalog.asked(reasons)
    for each in order:
        if not remove_one(layout, each, _holder, reason or why.get(each.fingerprint, "")):
            _check_unheld(layout, [each])
    tidy(layout)
    return order


def find_removal(layout: Layout, catalog: "Catalog", ref: ArtifactRef) -> list[Record]:
    """Return an artifact and all that was made from it, none of which is needed: dependents first."""
    read_record(layout.artifact(ref.kind, ref.fingerprint))
    inputs, kinds = defaultdict[str, list[str]](list), {ref.fingerprint: ref.kind}
    for row in catalog.query(_USERS, {"root": ref.fingerprint}):
        inputs[row["fingerprint"]].append(row["input_fingerprint"])
        kinds[row["fingerprint"]] = row["kind"]
    users = [each for each in users_first(inputs, kinds) if each != ref.fingerprint]
    order = [read_record(layout.artifact(kinds[each], each)) for each in (*users, ref.fingerprint)]
    _check_unheld(layout, order)
    return order


def _check_unheld(layout: Layout, records: Sequence[Record]) -> None:
    leases = live_leases(layout)
    for each in records:
        if holder := _holder(leases, each.fingerprint):
            raise StoreError(f"{each.reference} is not removed: {holder} needs it; wait until that has ended")


def _holder(leases: Mapping[str, Needs], fingerprint: str) -> str | None:
    start = fingerprint[:PREFIX_CHARS]
    return next((key for key, needs in leases.items() if needs.holds is None or start in needs.holds), None)


def remove_one(layout: Layout, record: Record, stays: Stays, reason: str = "") -> bool:
    """Remove an artifact, whatever was made from it, unless it `stays`; return whether it was removed.

    The tombstone is written first: after a crash in between, the artifact can be removed again.
    """
    place = layout.artifact(record.kind, record.fingerprint)
    lock = layout.lock_of(record.kind, record.fingerprint)
    if not lock.try_acquire():
        raise StoreError(f"{record.reference} is in use by {lock.owner()}; remove it when that has ended")
    try:
        if stays(live_leases(layout), record.fingerprint):
            return False
        with workspace(layout) as folder, reported_as(f"{record.reference} cannot be removed"):
            write_tombstone(layout, record, reason)
            remove_pushed(place)
            place.rename(folder / place.name)  # and leaving the folder removes its content
        return True
    finally:
        lock.release()


class Leftover(NamedTuple):
    """A file or folder that is of no use any more: what it is, where, its bytes, and why."""

    what: str
    path: Path
    num_bytes: int
    why: str


class Garbage(NamedTuple):
    """What a collection found, and what became of it.

    Attributes:
        plan: on which it was decided.
        spared: artifacts of the plan that stay, and why: something came to need them, or uses them just now.
    """

    plan: Plan
    items: Sequence[Item]  # the artifacts that were removed, or would be; in order
    leftovers: Sequence[Leftover]  # files and folders of other kinds, likewise
    spared: Sequence[tuple[Item, str]] = ()

    @property
    def num_bytes(self) -> int:
        """Bytes of all that was removed, or would be."""
        return sum(item.num_bytes for item in self.items) + sum(each.num_bytes for each in self.leftovers)


def _planned(layout: Layout, catalog: "Catalog", policy: Policy) -> Plan:
    now_ns = shared.now_ns(layout.root)
    inventory = catalog.asked(lambda ask: take_inventory(layout, ask, policy, now_ns))
    return make_plan(inventory, live_leases(layout), policy)


def find_garbage(layout: Layout, catalog: "Catalog", policy: Policy) -> Garbage:
    """Return what `collect` would remove; nothing is changed."""
    plan = _planned(layout, catalog, policy)
    return Garbage(plan, plan.garbage, leftovers(layout, plan.gone, policy.older_than_days))


def collect(
    layout: Layout, catalog: "Catalog", policy: Policy, report: Callable[[str], None] | None = None
) -> Garbage:
    """Remove what nothing keeps."""
    say = report or (lambda line: None)
    removed, spared = list[Item](), list[tuple[Item, str]]()
    lock = ProcessLock(layout.locks / "collector.lock")
    if not lock.try_acquire():
        raise StoreError(f"{lock.owner()} removes artifacts of {layout.root}; wait until that has ended")
    try:
        plan = _planned(layout, catalog, policy)
        needed = plan._replace(kept=dict(plan.kept))  # and what comes to be needed until the collection ends
        why, seen = catalog.asked(reasons), dict[str, Needs]()

        def is_kept(leases: dict[str, Needs], fingerprint: str) -> bool:
            nonlocal seen
            if leases != seen:
                needed.keep(needed_by(needed.inventory, leases))
                seen = leases
            return fingerprint in needed.kept

        for item in plan.garbage:
            if stays := _collect_one(layout, item, needed, is_kept, why.get(item.fingerprint, _GARBAGE)):
                spared.append((item, stays))
                say(f"{item.reference} stays: {stays}")
            else:
                removed.append(item)
                say(f"{item.reference} removed")
        remains = leftovers(layout, (), policy.older_than_days)
        for each in remains:
            if each.path.is_dir():
                shutil.rmtree(each.path, ignore_errors=True)
            else:
                each.path.unlink(missing_ok=True)
    finally:
        lock.release()
        tidy(layout)
    return Garbage(plan, removed, remains, spared)


def _collect_one(layout: Layout, item: Item, needed: Plan, is_kept: Stays, reason: str) -> str | None:
    """Remove an artifact; return why it stays, if it does."""
    try:
        record = read_record(layout.artifact(item.kind, item.fingerprint))
        if remove_one(layout, record, is_kept, reason):
            return None
    except StoreError as error:  # it is being made again, or was removed or damaged meanwhile
        needed.keep([(item.fingerprint, Reason("running", str(error)))])
    return needed.kept[item.fingerprint].text


def leftovers(layout: Layout, garbage: Container[str], older_than_days: float) -> list[Leftover]:
    """Return what is of no use any more, beside the artifacts of these fingerprints."""
    now_ns = shared.local_now_ns(layout.root)
    before_ns = now_ns - round(older_than_days * DAY_NS)
    return [
        *_damaged(layout, before_ns, older_than_days),
        *_texts(layout, garbage, min(before_ns, now_ns - DAY_NS)),  # who wrote them may be about to use them
    ]


def tree_bytes(folder: Path) -> int:
    """Return the bytes of a file, or of all below a folder; what vanishes meanwhile does not count."""
    return sum(state.num_bytes for state in _states(folder) if state.kind == "file")


def _states(folder: Path) -> Iterator[disk.FileState]:
    for path in (folder, *folder.rglob("*")):
        with suppress(OSError):
            yield disk.state(path)


def _damaged(layout: Layout, before_ns: int, older_than_days: float) -> Iterator[Leftover]:
    why = f"set aside {days(older_than_days)} ago or earlier" if older_than_days else "set aside"
    for kind in disk.entries(layout.damaged):
        for entry in disk.entries(kind.path):
            path = layout.damaged / kind.name / entry.name
            if max((state.mtime_ns for state in _states(path)), default=0) <= before_ns:
                yield Leftover("damaged artifact", path, tree_bytes(path), why)


def _texts(layout: Layout, garbage: Container[str], before_ns: int) -> Iterator[Leftover]:
    """Yield old columns that no artifact is made from; in a bucket they stay."""
    files = [] if "://" in layout.location else disk.entries(layout.texts)
    old = [file.name for file in files if file.stat(follow_symlinks=False).st_mtime_ns <= before_ns]
    used = set[str]()
    for place in layout.artifacts() if old else ():
        if place.parent.name in ("corpus", "tokenizer"):
            record = read_record(place)
            if record.fingerprint not in garbage:
                used |= {entry.origin.rpartition("/")[2] for entry in record.inputs if entry.origin}
    for name in old:
        if name not in used:
            path = layout.texts / name
            yield Leftover("text given in memory", path, tree_bytes(path), "nothing is made from it")
