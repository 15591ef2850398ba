"""Remove an artifact for good: its files are deleted, and a tombstone with its record stays.

See `tasks.store.tombstones`. An artifact that others were made from is only removed together with them. A
version that replaces it (see `tasks.store.superseding`) does not count: it needs only the record, which the
tombstone keeps. The label is never assigned again. A request for a removed artifact makes it again, and
reports that.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.durable import reported_as
from tokmill.tasks.store.layout import PREFIX_CHARS, RECORD_FILE, Layout
from tokmill.tasks.store.leases import Needs, live_leases
from tokmill.tasks.store.publish import workspace
from tokmill.tasks.store.record import Record, read_record
from tokmill.tasks.store.storage import STORAGE
from tokmill.tasks.store.superseding import MADE_FROM, reasons
from tokmill.tasks.store.tombstones import check_reason, write_tombstone
from tokmill.tasks.store.watching import watching

_DEPENDENTS = f"""
    SELECT DISTINCT a.kind, a.name, a.label, a.fingerprint
    FROM inputs i JOIN artifacts a USING (fingerprint)
    WHERE i.input_fingerprint = $fingerprint AND {MADE_FROM}
    ORDER BY ALL
"""  # noqa: S608 - a constant


def remove(
    layout: Layout, catalog: Catalog, ref: ArtifactRef, *, with_dependents: bool, reason: str = ""
) -> list[Record]:
    """Remove an artifact; see the module's docstring.

    Args:
        layout: the store.
        catalog: its catalog.
        ref: the artifact to remove.
        with_dependents: also remove the artifacts that were made from it.
        reason: why, for the tombstones; of what a takedown superseded, that of the takedown by default.

    Returns:
        The records of the removed artifacts, in the order of removal: dependents first.

    Raises:
        StoreError: it is not in the store; others were made from it; it is being made; its files cannot be
            removed; or the reason is too long.
    """
    check_reason(reason)
    order = _in_order(layout, catalog, ref)
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
    with watching(layout) as watch:
        _check_unheld(watch.holder, order)
        for each in order:
            unless = partial(watch.unless_held, each.fingerprint)
            because = reason or why.get(each.fingerprint, "")
            if not remove_one(layout, each, unless=unless, reason=because):
                _check_unheld(watch.holder, [each])
    catalog.register(*(layout.artifact(each.kind, each.fingerprint) / RECORD_FILE for each in order))
    return order


def find_removal(layout: Layout, catalog: Catalog, ref: ArtifactRef) -> list[Record]:
    """Return what `remove` with dependents would remove, in its order; nothing is changed.

    Raises:
        StoreError: it is not in the store, or a run needs some of it.
    """
    order = _in_order(layout, catalog, ref)
    _check_unheld(partial(_holder, live_leases(layout)), order)
    return order


def _check_unheld(holder: Callable[[str], str | None], records: list[Record]) -> None:
    for each in records:
        if (user := holder(each.fingerprint)) is not None:
            raise StoreError(f"{each.reference} is not removed: {user} needs it; wait until that has ended")


def _holder(leases: Mapping[str, Needs], fingerprint: str) -> str | None:
    """Return a lease that holds an artifact by its fingerprint, if any."""
    start = fingerprint[:PREFIX_CHARS]
    return next((key for key, needs in leases.items() if needs.holds is None or start in needs.holds), None)


def _in_order(layout: Layout, catalog: Catalog, ref: ArtifactRef) -> list[Record]:
    """Return the records of an artifact and of all that was made from it: dependents first, itself last."""
    record = read_record(layout.artifact(ref.kind, ref.fingerprint))
    return list(_with_dependents(layout, catalog, record, set()))


def _with_dependents(layout: Layout, catalog: Catalog, record: Record, seen: set[str]) -> Iterator[Record]:
    seen.add(record.fingerprint)
    for row in catalog.query(_DEPENDENTS, {"fingerprint": record.fingerprint}):
        if row["fingerprint"] not in seen:
            made = read_record(layout.artifact(row["kind"], row["fingerprint"]))
            yield from _with_dependents(layout, catalog, made, seen)
    yield record


def remove_one(
    layout: Layout,
    record: Record,
    *,
    unless: Callable[[], AbstractContextManager[bool]],
    reason: str = "",
) -> bool:
    """Remove an artifact, whatever was made from it; return whether it was removed.

    The tombstone is written first: after a crash in between, the artifact can be removed again.

    Args:
        layout: the store.
        record: the artifact's.
        unless: a block in which the removal takes place; it yields whether the artifact is to stay.
        reason: why it is removed.

    Raises:
        StoreError: it is being made or removed, or its files cannot be removed.
    """
    place = layout.artifact(record.kind, record.fingerprint)
    lock = STORAGE.lock(layout.locks / f"{record.kind}-{record.fingerprint}.lock")
    if not lock.try_acquire():
        raise StoreError(f"{record.reference} is in use by {lock.owner()}; remove it when that has ended")
    try:
        with workspace(layout) as folder:  # leaving it removes its content
            with unless() as stays, reported_as(f"{record.reference} cannot be removed"):
                if not stays:
                    write_tombstone(layout, record, reason)
                    STORAGE.move(place, folder / place.name)
            return not stays
    finally:
        lock.release()
