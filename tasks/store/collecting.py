"""Collects garbage: removes the artifacts that nothing keeps (`tasks.store.keeping`), and what lies about.

Artifacts are removed as `tokmill remove` does it, what was made from others before these, so that a collector
that is killed leaves a store without loose ends: the next one goes on. Runs may begin, look up and make
artifacts meanwhile (`tasks.store.leases`). Just before each removal the leases are read again; what a new one
needs, and all that it was made from, stays.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.inventory import Inventory, Item, take_inventory
from tokmill.tasks.store.keeping import Plan, Policy, Reason, add_inputs, make_plan, needed_by
from tokmill.tasks.store.layout import RECORD_FILE, Layout
from tokmill.tasks.store.leases import live_leases
from tokmill.tasks.store.leftovers import Leftover, leftovers
from tokmill.tasks.store.record import read_record
from tokmill.tasks.store.removing import remove_one
from tokmill.tasks.store.storage import STORAGE
from tokmill.tasks.store.superseding import reasons
from tokmill.tasks.store.watching import Watch, watching

_AT_A_TIME = 50
_GARBAGE = "gc: nothing kept it"  # the reason in its tombstone


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
    leftovers: Sequence[Leftover]
    spared: Sequence[tuple[Item, str]] = ()

    @property
    def num_bytes(self) -> int:
        """Bytes of all that was removed, or would be."""
        return sum(item.num_bytes for item in self.items) + sum(each.num_bytes for each in self.leftovers)


def find_garbage(layout: Layout, catalog: Catalog, policy: Policy) -> Garbage:
    """Return what `collect` would remove; nothing is changed.

    Raises:
        StoreError: a record, run or alias cannot be read.
    """
    inventory = take_inventory(layout, catalog)
    plan = make_plan(inventory, live_leases(layout), policy)
    doomed = {item.fingerprint for item in plan.garbage}
    return Garbage(inventory, plan, plan.garbage, leftovers(layout, doomed, policy.older_than_days))


def collect(
    layout: Layout, catalog: Catalog, policy: Policy, report: Callable[[str], None] | None = None
) -> Garbage:
    """Remove what nothing keeps.

    Args:
        layout: the store.
        catalog: its catalog.
        policy: what is kept.
        report: called with a line for each artifact.

    Raises:
        StoreError: another collector is at work; a record, run or alias cannot be read (nothing is removed
            then); or a file cannot be removed.
    """
    say = report or (lambda line: None)
    with watching(layout) as watch:
        inventory = take_inventory(layout, catalog)
        with watch.mutex:
            needs, num_changes = dict(watch.needs), watch.num_changes
        plan = make_plan(inventory, needs, policy)
        removal = _Removal(layout, catalog, watch, inventory, plan, num_changes)
        for item in plan.garbage:
            say(removal.take(item))
        removal.register()
        left = leftovers(layout, (), policy.older_than_days)
        for each in left:
            each.remove(layout)
    return Garbage(inventory, plan, removal.removed, left, removal.spared)


class _Removal:
    """Removes one artifact after the other, unless something has come to need it."""

    def __init__(
        self,
        layout: Layout,
        catalog: Catalog,
        watch: Watch,
        inventory: Inventory,
        plan: Plan,
        num_changes: int,
    ) -> None:
        self.kept: dict[str, Reason] = dict(plan.kept)
        self.removed: list[Item] = []
        self.spared: list[tuple[Item, str]] = []
        self._layout = layout
        self._catalog = catalog
        self._watch = watch
        self._inventory = inventory
        self._num_registered = 0
        self._why = reasons(catalog)
        self._num_changes = num_changes

    def take(self, item: Item) -> str:
        """Remove an artifact, or spare it; return a line on that."""
        try:
            record = read_record(self._layout.artifact(item.kind, item.fingerprint))
            unless = partial(self._unless_kept, item.fingerprint)
            if remove_one(
                self._layout, record, unless=unless, reason=self._why.get(item.fingerprint, _GARBAGE)
            ):
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

    @contextmanager
    def _unless_kept(self, fingerprint: str) -> Iterator[bool]:
        with self._watch.mutex:
            self._watch.look()
            if self._watch.num_changes != self._num_changes:
                self._keep(needed_by(self._inventory, self._watch.needs))
                self._num_changes = self._watch.num_changes
            yield fingerprint in self.kept

    def _keep(self, needed: Iterable[tuple[str, Reason]]) -> None:
        new = {fingerprint: reason for fingerprint, reason in needed if fingerprint not in self.kept}
        known = {fingerprint: new[fingerprint] for fingerprint in new if fingerprint in self._inventory.items}
        self.kept |= known
        add_inputs(self._inventory, self.kept, known)

    def register(self) -> None:
        """Drop the rows of what was removed from the catalog."""
        gone = self.removed[self._num_registered :]
        places = (self._layout.artifact(item.kind, item.fingerprint) for item in gone)
        self._catalog.register(*(place / RECORD_FILE for place in places if not STORAGE.is_taken(place)))
        self._num_registered = len(self.removed)
