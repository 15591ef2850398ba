"""Collects garbage in a store, or says what would be collected, for people, pages and scripts."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tokmill.flows.figures import counted, size
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.markdown import table
from tokmill.tasks.store import Store
from tokmill.tasks.store.collecting import Garbage
from tokmill.tasks.store.inventory import Item
from tokmill.tasks.store.keeping import GROUPS, Policy
from tokmill.tasks.store.leftovers import Leftover

MEANING = {
    "alias": "have an alias",
    "running": "needed by running work",
    "recent": "made or used in the last days",
    "latest": "latest versions and runs",
    "input": "inputs of these",
}
Amount = tuple[int, int]
"""A number of artifacts, and their bytes."""


@dataclass(frozen=True)
class Collected:
    """The result of a collection.

    Attributes:
        location: of the store.
        policy: what was kept beside aliases and running work.
        applied: whether anything was removed, or only would be.
        garbage: what was found.
    """

    location: str
    policy: Policy
    applied: bool
    garbage: Garbage

    @property
    def removed(self) -> Sequence[Item]:
        """The artifacts that were removed, or would be."""
        return self.garbage.items

    @property
    def num_bytes(self) -> int:
        """The bytes that were freed, or would be."""
        return self.garbage.num_bytes

    @property
    def by_kind(self) -> Mapping[str, Amount]:
        """What was removed, or would be, by kind of artifact or of leftover."""
        sizes = defaultdict[str, list[int]](list)
        for item in self.garbage.items:
            sizes[item.kind].append(item.num_bytes)
        amounts = {kind: _amount(sizes[kind]) for kind in sorted(sizes)}
        return {**amounts, **self.leftovers}

    @property
    def leftovers(self) -> Mapping[str, Amount]:
        """The part of `by_kind` that is no artifact, by what it is."""
        sizes = defaultdict[str, list[int]](list)
        for each in self.garbage.leftovers:
            sizes[each.what].append(each.num_bytes)
        return {what: _amount(sizes[what]) for what in sorted(sizes)}

    @property
    def kept(self) -> Mapping[str, Amount]:
        """What is kept, by the first reason for it; see `tasks.store.keeping.GROUPS`."""
        sizes = defaultdict[str, list[int]](list)
        for fingerprint, reason in self.garbage.plan.kept.items():
            sizes[reason.group].append(self.garbage.inventory.items[fingerprint].num_bytes)
        return {group: _amount(sizes[group]) for group in GROUPS if group in sizes}

    @property
    def summary(self) -> str:
        """The result in one line."""
        what = counted(len(self.removed), "artifact")
        if self.garbage.leftovers:
            what += f" and {counted(len(self.garbage.leftovers), 'leftover')}"
        return summary_of(self.location, what, self.num_bytes, applied=self.applied)

    def to_json(self) -> dict[str, object]:
        """Return the result as plain data."""
        return {
            "store": self.location,
            "applied": self.applied,
            "older_than_days": self.policy.older_than_days,
            "keep": self.policy.keep,
            "num_bytes": self.num_bytes,
            "removed": [_item_json(item) for item in self.removed],
            "leftovers": [_leftover_json(each) for each in self.garbage.leftovers],
            "spared": [{"artifact": item.reference, "reason": why} for item, why in self.garbage.spared],
            "kept": {group: {"number": n, "num_bytes": b} for group, (n, b) in self.kept.items()},
        }

    def to_markdown(self) -> str:
        """Return the result for a page: the summary, and tables of what goes, by kind, and what stays."""
        head = "removed" if self.applied else "would be removed"
        parts = ["# Collection of garbage", self.summary]
        if self.by_kind:
            rows = [(kind, f"{number:,}", size(total)) for kind, (number, total) in self.by_kind.items()]
            parts.append("\n".join(table((head, "number", "size"), rows, left=[0])))
        rows = [(MEANING[group], f"{number:,}", size(total)) for group, (number, total) in self.kept.items()]
        if rows:
            parts.append("\n".join(table(("kept", "number", "size"), rows, left=[0])))
        return "\n\n".join([*parts, *(f"{item.reference} stays: {why}" for item, why in self.garbage.spared)])


def summary_of(location: str, what: str, num_bytes: int, *, applied: bool) -> str:
    """Return in one line what was removed from a store, or would be, and what that frees."""
    if applied:
        return f"{location}: {what} removed, {size(num_bytes)} freed"
    return f"{location}: {what} would be removed, and {size(num_bytes)} freed"


def collect_garbage(
    store: Store,
    *,
    older_than_days: float = 14.0,
    keep: int = 1,
    apply: bool = False,
    report: Callable[[str], None] | None = None,
) -> Collected:
    """Remove what nothing keeps (`tasks.store.keeping`), or only say what that is.

    Runs may begin and go on meanwhile; what they need stays.

    Args:
        store: the store.
        older_than_days: artifacts and runs that are younger are kept; at least 0.
        keep: how many versions of each name, and completed runs of each profile, are kept; at least 0.
        apply: whether to remove it.
        report: called with a line for each artifact that is removed.

    Raises:
        StoreError: a setting is out of its bounds; another collector is at work on this store; or a record,
            run or alias cannot be read, so that it is not known what is needed.
    """
    if not older_than_days >= 0:
        raise StoreError(f"gc: older_than_days={older_than_days:g} must be at least 0; use e.g. 14")
    if keep < 0:
        raise StoreError(f"gc: keep={keep} must be at least 0; use e.g. 1")
    policy = Policy(older_than_days, keep)
    garbage = store.collect(policy, report) if apply else store.find_garbage(policy)
    return Collected(store.location, policy, apply, garbage)


def _amount(sizes: Sequence[int]) -> Amount:
    return len(sizes), sum(sizes)


def _item_json(item: Item) -> dict[str, object]:
    return {"artifact": item.reference, "fingerprint": item.fingerprint, "num_bytes": item.num_bytes}


def _leftover_json(each: Leftover) -> dict[str, object]:
    return {"what": each.what, "path": str(each.path), "num_bytes": each.num_bytes}
