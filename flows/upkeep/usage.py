"""How many bytes of a store each kind of artifact, or each profile, takes, and what could be freed."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from tokmill.tasks.store import Store, disk
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.removal import tree_bytes
from tokmill.tasks.store.retention import Inventory, Item, Policy

By: TypeAlias = Literal["kind", "profile", "name"]


class Share(NamedTuple):
    """The artifacts of one kind, profile or name.

    Attributes:
        number, num_bytes: of all of them.
        shared_bytes: of those that several versions of kept artifacts were made from, or several names have.
        free_bytes: of those that `tokmill gc` would remove.
    """

    number: int
    num_bytes: int
    shared_bytes: int
    free_bytes: int


class Usage(NamedTuple):
    """The bytes in a store.

    Attributes:
        shares: by kind, profile or name, the largest first. By profile or name, an artifact with several of
            them counts for each.
        total: of all artifacts, each counted once.
        others: bytes that are no artifacts, by what they are.
    """

    shares: Mapping[str, Share]
    total: Share
    others: Mapping[str, int]


def usage_of(store: Store, by: By = "kind", policy: Policy | None = None) -> Usage:
    """Measure a store from its records; other files are looked at.

    Args:
        store: the store.
        by: what to add up by.
        policy: of the collection that would free something.

    Raises:
        StoreError: a record, run or alias cannot be read.
    """
    garbage = store.find_garbage(policy or Policy())
    inventory, free = garbage.inventory, {item.fingerprint for item in garbage.items}
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
        names[label.fingerprint].add(_profile(label.name) if by == "profile" else full)
    return lambda item: sorted(names.get(item.fingerprint, ()))


def _profile(name: str) -> str:
    """The profile of a name: what stands before the first dot."""
    return name.partition(".")[0]


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
        "Prefect's results": layout.results,
        "runs": layout.runs,
    }
    sizes = {what: tree_bytes(folder) for what, folder in folders.items()}
    catalog = disk.state(layout.catalog).num_bytes if layout.catalog.is_file() else 0
    return {what: num_bytes for what, num_bytes in {**sizes, "catalog": catalog}.items() if num_bytes}
