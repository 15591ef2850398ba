"""Checks a whole store, and reports it for people, pages and scripts."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from tokmill.flows.figures import counted, size, span
from tokmill.tasks.core.markdown import table
from tokmill.tasks.store import Problem, Store, disk
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.removal import tree_bytes
from tokmill.tasks.store.retention import Inventory, Item, Policy

_MOST_SHOWN = 200
By: TypeAlias = Literal["kind", "profile", "name"]


@dataclass(frozen=True)
class Checked:
    """The result of a check."""

    location: str  # of the store
    deep: bool  # whether every byte was read, and not only sizes compared
    problems: Sequence[Problem]
    num_artifacts: int
    num_bytes: int
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    @property
    def summary(self) -> str:
        """The result in one line."""
        found = counted(len(self.problems), "problem") if self.problems else "no problems"
        how = "every byte read" if self.deep else "sizes compared"
        amount = f"{counted(self.num_artifacts, 'artifact')} of {size(self.num_bytes)}"
        return f"{self.location}: {amount} checked in {span(self.seconds)} ({how}), {found}"

    def to_json(self) -> dict[str, object]:
        """Return the result as plain data."""
        problems = [vars(problem) for problem in self.problems]
        counts = {"num_artifacts": self.num_artifacts, "num_bytes": self.num_bytes, "seconds": self.seconds}
        return {"store": self.location, "deep": self.deep, **counts, "problems": problems}

    def to_markdown(self) -> str:
        """Return the result for a page: the summary, and a table of the problems."""
        parts = ["# Check of the store", self.summary]
        if self.problems:
            rows = [(p.artifact, p.path, p.message) for p in self.problems[:_MOST_SHOWN]]
            parts.append("\n".join(table(("artifact", "file", "problem"), rows, left=range(3))))
            parts.append(
                "To repair a damaged artifact, run its profile again: it is set aside, and made anew."
            )
        if len(self.problems) > _MOST_SHOWN:
            parts.append(
                f"{len(self.problems) - _MOST_SHOWN:,} more are not listed; `tokmill store verify` has all."
            )
        return "\n\n".join(parts) + "\n"


def check_store(store: Store, *, deep: bool = True) -> Checked:
    """Check every artifact, label, alias and run, and the catalog, by digests if `deep`; change nothing."""
    began = time.monotonic()
    problems = store.verify(full=deep)
    amount = "SELECT count(*) AS number, coalesce(sum(num_bytes), 0)::BIGINT AS bytes FROM artifacts"
    (row,) = store.catalog.query(amount)
    return Checked(
        store.location, deep, problems, row["number"], row["bytes"], round(time.monotonic() - began, 3)
    )


class Share(NamedTuple):
    """The artifacts of one kind, profile or name."""

    number: int
    num_bytes: int
    shared_bytes: int  # what several versions of kept artifacts were made from, or several names have
    free_bytes: int  # what `tokmill store gc` would remove


class Usage(NamedTuple):
    """The bytes in a store."""

    shares: Mapping[str, Share]  # the largest first; an artifact with several names counts for each
    total: Share  # of all artifacts, each counted once
    others: Mapping[str, int]  # bytes that are not artifacts, by what they are


def usage_of(store: Store, by: By = "kind", policy: Policy | None = None) -> Usage:
    """Measure a store from its records; other files are looked at. `policy` says what a collection frees."""
    garbage = store.find_garbage(policy or Policy())
    inventory, free = garbage.plan.inventory, {item.fingerprint for item in garbage.items}
    groups = _groups(inventory, by)
    shared = _shared(inventory)
    members = defaultdict[str, list[Item]](list)
    for item in inventory.items.values():
        for group in groups(item):
            members[group].append(item)
    shares = {group: _share(items, shared, free) for group, items in members.items()}
    by_size = sorted(shares.items(), key=lambda entry: (-entry[1].num_bytes, entry[0]))
    return Usage(dict(by_size), _share(inventory.items.values(), shared, free), _others(store.layout))


def _share(items: Iterable[Item], shared: set[str], free: set[str]) -> Share:
    items = list(items)
    return Share(
        len(items),
        sum(item.num_bytes for item in items),
        sum(item.num_bytes for item in items if item.fingerprint in shared),
        sum(item.num_bytes for item in items if item.fingerprint in free),
    )


def _groups(inventory: Inventory, by: By) -> Callable[[Item], Iterable[str]]:
    """Return what tells to which groups an artifact belongs."""
    if by == "kind":
        return lambda item: [item.kind]
    names = defaultdict[str, set[str]](set)
    for label in inventory.labels:
        full = f"{label.kind}/{label.name}"
        names[label.fingerprint].add(label.name.partition(".")[0] if by == "profile" else full)
    return lambda item: sorted(names.get(item.fingerprint, ()))


def _shared(inventory: Inventory) -> set[str]:
    """Return what several versions of one name were made from, or several names have."""
    named = Counter(owner for *_, owner in {(*label[:2], label.fingerprint) for label in inventory.labels})
    versions = Counter[tuple[str, str, str]]()
    for user, inputs in inventory.inputs.items():
        item = inventory.items[user]
        versions.update((needed, item.kind, item.name) for needed in set(inputs))
    several = {needed for (needed, *_), times in versions.items() if times > 1}
    return several | {fingerprint for fingerprint, times in named.items() if times > 1}


def _others(layout: Layout) -> dict[str, int]:
    folders = {
        "damaged artifacts": layout.damaged,
        "records of removed artifacts": layout.removed,
        "work in progress": layout.temporary,
        "caches": layout.cache,
        "runs": layout.runs,
    }
    sizes = {what: tree_bytes(folder) for what, folder in folders.items()}
    catalog = disk.state(layout.catalog).num_bytes if layout.catalog.is_file() else 0
    return {what: num_bytes for what, num_bytes in {**sizes, "catalog": catalog}.items() if num_bytes}
