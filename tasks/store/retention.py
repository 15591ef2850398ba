"""Which artifacts of a store are kept, and why.

Kept are the roots:

- what a person gave an alias;
- what running work needs (`tasks.store.leases`);
- what was published in the last days, and the artifacts of runs whose records were written in these days,
  however they ended; by the clock of the store's file system or remote (`tasks.store.shared.now_ns`), so that
  it does not matter whether the clocks of machines agree;
- the latest versions of each name, parts aside, and the artifacts of the last completed runs of each profile;

and everything that a kept artifact was made from. Superseded artifacts (`superseded`) are kept
for the first two reasons only, or if a kept one was made from them. The rest is garbage.

An inventory is read from the catalog, the artifacts first: what is published later is not in it, so that
nobody decides to remove it, and aliases, runs and labels that were added later can only keep more.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any, Final, NamedTuple

import orjson

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import disk
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.layout import PREFIX_CHARS, Layout
from tokmill.tasks.store.leases import Needs
from tokmill.tasks.store.lineage_views import ALL_ARTIFACTS, ALL_INPUTS
from tokmill.tasks.store.tombstones import MOST_REASON_CHARS

TAKING_THE_PLACE: Final = (
    "((a.stage = 'takedown' AND i.role = 'packed') OR (a.stage = 'exclude' AND i.role = 'mixture'))"
)
"""SQL: whether artifact `a` takes the place of its input `i`."""

MADE_FROM: Final = f"(NOT {TAKING_THE_PLACE} AND i.role NOT IN ('earlier_mixtures', 'earlier_packings'))"
"""SQL: whether artifact `a` was made from its input `i` otherwise; a card only lists earlier versions."""

_SUPERSEDED = f"""
    WITH RECURSIVE every AS NOT MATERIALIZED ({ALL_INPUTS}),
    made AS NOT MATERIALIZED ({ALL_ARTIFACTS}),
    replaced(fingerprint, maker) AS (
        SELECT DISTINCT i.input_fingerprint, a.fingerprint
        FROM every i JOIN made a USING (fingerprint) WHERE {TAKING_THE_PLACE}
    ),
    superseded(fingerprint, maker) AS (
        FROM replaced
        UNION
        SELECT a.fingerprint, s.maker
        FROM superseded s
        JOIN every i ON i.input_fingerprint = s.fingerprint
        JOIN made a ON a.fingerprint = i.fingerprint
        WHERE {MADE_FROM}
          AND a.stage IN ('pack_plan', 'pack_shard', 'pack', 'export_shard', 'export', 'card')
    ),
    standing(maker, there) AS (
        SELECT DISTINCT maker, maker FROM superseded
        UNION
        SELECT s.maker, r.maker
        FROM standing s JOIN replaced r ON r.fingerprint = s.there
        WHERE s.there IN (SELECT fingerprint FROM made WHERE status = 'removed')
    )
    SELECT s.fingerprint, list_sort(list(DISTINCT m.kind || '/' || m.name || '@' || m.label)) AS makers,
           list_sort(list(DISTINCT m.params)) AS params
    FROM superseded s
    JOIN standing t ON t.maker = s.maker
    JOIN artifacts f ON f.fingerprint = s.fingerprint
    JOIN artifacts m ON m.fingerprint = t.there
    GROUP BY s.fingerprint
"""  # noqa: S608 - constants


_ANY: Final = "SELECT 1 FROM artifacts WHERE stage IN ('takedown', 'exclude') LIMIT 1"


def superseded(catalog: Catalog) -> dict[str, list[str]]:
    """Return every superseded artifact by fingerprint, with its replacements (`kind/name@label`).

    Another version of it lacks documents that were taken down. This follows from the records alone: a
    takedown is made from the packed artifact that it replaces, and an exclusion (for packing again) from the
    mixture that it replaces. Artifacts made from a replaced one, such as an export or a card, are superseded
    as well. Instead of a replacement that was removed, the one that replaced it counts; a version whose
    replacements were all removed is superseded by nothing.
    """
    if not catalog.query(_ANY):  # most stores have none, and the walk below reads every input
        return {}
    return {row["fingerprint"]: row["makers"] for row in catalog.query(_SUPERSEDED)}


def reasons(catalog: Catalog) -> dict[str, str]:
    """Return why every superseded artifact may go: `superseded by packed/x@v2: asked for by …`."""
    return {row["fingerprint"]: _reason(row["makers"], row["params"]) for row in catalog.query(_SUPERSEDED)}


def _reason(makers: Sequence[str], params: Sequence[str]) -> str:
    given = dict.fromkeys(orjson.loads(each).get("reason", "") for each in params)
    told = "; ".join(reason for reason in given if reason)
    return f"superseded by {', '.join(makers)}{f': {told}' if told else ''}"[:MOST_REASON_CHARS]


_ARTIFACTS = """
    SELECT a.fingerprint, a.kind, a.name, a.label, a.num_bytes, f.mtime_ns, a.content_digest
    FROM artifacts a JOIN catalog_files f ON f.key = a.fingerprint
    ORDER BY ALL
"""
_INPUTS = f"""
    SELECT i.fingerprint, i.input_kind, i.input_fingerprint, i.digest
    FROM inputs i JOIN artifacts a USING (fingerprint)
    WHERE i.input_kind IS NOT NULL AND {MADE_FROM}
    ORDER BY ALL
"""  # noqa: S608 - a constant
_EQUAL_FILES = """
    SELECT a.kind, f.fingerprint, f.path, f.size_bytes FROM files f JOIN artifacts a USING (fingerprint)
    WHERE f.size_bytes > 0 AND f.digest IN (SELECT digest FROM files GROUP BY digest HAVING count(*) > 1)
    ORDER BY a.ended, f.fingerprint, f.path
"""
_LABELS = "SELECT kind, name, number, fingerprint FROM labels ORDER BY ALL"
_ALIASES = "SELECT kind, name, alias, fingerprint FROM aliases ORDER BY ALL"
_RUNS = """
    SELECT r.run_id, r.profile, r.state, r.started, f.mtime_ns,
           list(a.fingerprint ORDER BY a.position) FILTER (a.fingerprint IS NOT NULL)
    FROM runs r JOIN catalog_files f ON f.key = r.run_id AND starts_with(f.path, 'runs/')
    LEFT JOIN run_artifacts a USING (run_id, attempt)
    GROUP BY ALL ORDER BY r.started, r.run_id
"""


class Item(NamedTuple):
    """An artifact: `published_ns` is when, by the clock of the store, in nanoseconds since 1970.

    `num_bytes` is what it takes in the store. A file that has names in several artifacts, by hard links,
    counts for the first that was made; the others were made from it, so it goes last.
    """

    fingerprint: str
    kind: str
    name: str
    label: str
    num_bytes: int
    published_ns: int

    @property
    def reference(self) -> str:
        """Its name for people: `kind/name@label`."""
        return f"{self.kind}/{self.name}@{self.label}"


class PastRun(NamedTuple):
    """An execution of a run, when its record was last written, and the fingerprints of its artifacts."""

    run_id: str
    profile: str
    state: str
    written_ns: int
    artifacts: Sequence[str]


class Label(NamedTuple):
    """A version label: the version `number` of (kind, name)."""

    kind: str
    name: str
    number: int
    fingerprint: str


class Inventory(NamedTuple):
    """What is in a store.

    Attributes:
        items: the artifacts by fingerprint.
        inputs: by fingerprint, those that it was made from and that are still there. Where one is not, every
            artifact with the same content takes its place.
        labels: of artifacts that are there.
        aliases: (name for people, fingerprint) of each.
        runs: every attempt, the oldest first.
        superseded: by fingerprint, what replaces it; see `superseded`.
    """

    items: Mapping[str, Item]
    inputs: Mapping[str, Sequence[str]]
    labels: Sequence[Label]
    aliases: Sequence[tuple[str, str]]
    runs: Sequence[PastRun]
    superseded: Mapping[str, Sequence[str]]


def take_inventory(layout: Layout, catalog: Catalog) -> Inventory:
    """Read what is in a store, from its catalog."""
    rows = catalog.ask(_ARTIFACTS).rows
    linked = _linked_bytes(layout, catalog)
    items = {row[0]: _item(row, linked[row[0]]) for row in rows}
    equal = defaultdict(list)
    for fingerprint, kind, *_, digest in rows:
        equal[kind, digest].append(fingerprint)
    inputs = defaultdict[str, list[str]](list)
    for made, kind, fingerprint, digest in catalog.ask(_INPUTS).rows:
        inputs[made] += [fingerprint] if fingerprint in items else equal[kind, digest]
    labels = [Label(*row) for row in catalog.ask(_LABELS).rows if row[3] in items]
    aliases = [(f"{kind}/{name}@{alias}", owner) for kind, name, alias, owner in catalog.ask(_ALIASES).rows]
    runs = [_past_run(row) for row in catalog.ask(_RUNS).rows]
    return Inventory(items, inputs, labels, aliases, runs, superseded(catalog))


def _linked_bytes(layout: Layout, catalog: Catalog) -> Counter[str]:
    """Return by fingerprint the bytes of files that an artifact made before holds by another name."""
    linked, known = Counter[str](), set[tuple[int, int]]()
    for kind, fingerprint, path, num_bytes in catalog.ask(_EQUAL_FILES).rows:
        try:
            identity = disk.state(layout.artifact(kind, fingerprint) / path).identity
        except FileNotFoundError:
            continue
        if identity in known:
            linked[fingerprint] += num_bytes
        elif identity is not None:
            known.add(identity)
    return linked


def _item(row: Sequence[Any], linked_bytes: int) -> Item:
    fingerprint, kind, name, label, num_bytes, published_ns, _ = row
    return Item(fingerprint, kind, name, label, num_bytes - linked_bytes, published_ns)


def _past_run(row: Sequence[Any]) -> PastRun:
    run_id, profile, state, _, written_ns, artifacts = row
    return PastRun(run_id, profile, state, written_ns, artifacts or [])


_SUSPENDED_DAYS = 7
_DAY_NS = 86_400_000_000_000
_PART = (
    "/"  # in the name of a shard; once there are fewer, the last version of one of the others is of no use
)


MAX_DAYS = 36_500
"""A hundred years, for which a calendar suffices."""


class Policy(NamedTuple):
    """What is kept beside aliases and running work.

    Attributes:
        older_than_days: artifacts and runs that are younger are kept.
        keep: how many versions of each name, and completed runs of each profile.
    """

    older_than_days: float = 14.0
    keep: int = 1


class Reason(NamedTuple):
    """Why an artifact is kept, or not.

    Attributes:
        group: one of `GROUPS`, or of `GONE`.
        text: e.g. `alias packed/quickstart@prod`.
        user: the fingerprint of the kept artifact that was made from it, if that is the reason.
    """

    group: str
    text: str
    user: str | None = None


GROUPS = ("alias", "running", "recent", "latest", "input")
"""The reasons, in the order in which the first that applies is given."""


GONE = ("superseded", "unused")
"""Why an artifact is garbage: a takedown replaced it, or none of the reasons to keep one applies."""


class Plan(NamedTuple):
    """What is kept and what is not.

    Attributes:
        kept: why, by fingerprint.
        garbage: the rest, what was made from others before these.
        gone: why, by fingerprint, of the garbage.
        now_ns: the moment for which this was decided, by the clock of the store.
    """

    kept: Mapping[str, Reason]
    garbage: Sequence[Item]
    gone: Mapping[str, Reason]
    now_ns: int

    def age(self, item: Item) -> timedelta:
        """Return how long ago an artifact was published."""
        return _age(self.now_ns, item.published_ns)

    def why(self, inventory: Inventory, fingerprint: str) -> list[str]:
        """Return why an artifact is kept, from itself to a root; nothing for garbage."""
        lines, seen = [], set[str]()
        found = self.kept.get(fingerprint)
        while found is not None and fingerprint not in seen:
            lines.append(f"{inventory.items[fingerprint].reference}: {found.text}")
            seen.add(fingerprint)
            fingerprint = found.user or ""
            found = self.kept.get(fingerprint)
        return lines


def make_plan(inventory: Inventory, leases: Mapping[str, Needs], policy: Policy, now_ns: int) -> Plan:
    """Decide what is kept."""
    if not 0 <= policy.older_than_days <= MAX_DAYS:
        raise StoreError(
            f"gc: older_than_days={policy.older_than_days:g} must be at least 0 and at most {MAX_DAYS:,}; "
            "use e.g. 14"
        )
    if policy.keep < 0:
        raise StoreError(f"gc: keep={policy.keep} must be at least 0; use e.g. 1")
    kept: dict[str, Reason] = {}
    for fingerprint, reason in _roots(inventory, leases, policy, now_ns):
        if fingerprint in inventory.items:
            kept.setdefault(fingerprint, reason)
    add_inputs(inventory, kept, list(kept))
    garbage = [item for item in inventory.items.values() if item.fingerprint not in kept]
    gone = {item.fingerprint: _why_gone(inventory, policy, item.fingerprint) for item in garbage}
    order = users_first(inventory.inputs, [item.fingerprint for item in garbage])
    return Plan(kept, [inventory.items[each] for each in order], gone, now_ns)


def _why_gone(inventory: Inventory, policy: Policy, fingerprint: str) -> Reason:
    if makers := inventory.superseded.get(fingerprint):
        return Reason("superseded", f"superseded by {', '.join(makers)}")
    return Reason("unused", unused_for(policy))


def unused_for(policy: Policy) -> str:
    """Return `unused for 14 days`: neither made nor used by a run since, and without any reason to stay."""
    return f"unused for {days(policy.older_than_days)}" if policy.older_than_days else "unused"


def days(number: float) -> str:
    """Return a number of days: `1 day`, `14 days`."""
    return f"{number:g} day{'' if number == 1 else 's'}"


def shown_age(age: timedelta) -> str:
    """Return an age in its largest unit: `0 min`, `47 min`, `3.2 h`, `14 d`."""
    for unit, seconds in (("d", 86400.0), ("h", 3600.0)):
        if (number := age.total_seconds() / seconds) >= 1:
            return f"{number:.{1 if number < 10 else 0}f} {unit}"
    return f"{age.total_seconds() // 60:.0f} min"


def add_inputs(inventory: Inventory, kept: dict[str, Reason], new: Iterable[str]) -> None:
    """Add what `new` ones of the kept artifacts were made from, however long the way."""
    waiting = list(new)
    while waiting:
        user = waiting.pop()
        for needed in inventory.inputs.get(user, ()):
            if needed not in kept:
                text = f"an input of {inventory.items[user].reference}"
                kept[needed] = Reason("input", text, user)
                waiting.append(needed)


def needed_by(inventory: Inventory, leases: Mapping[str, Needs]) -> Iterator[tuple[str, Reason]]:
    """Yield the artifacts that running work needs, and for which."""
    for key, needs in leases.items():
        reason = Reason(
            "running", f"needed by {key}{f' of {needs.names}' if needs.names else ''}, which runs"
        )
        if needs.holds is None:
            yield from ((fingerprint, reason) for fingerprint in inventory.items)
            continue
        held = set(needs.holds)
        for fingerprint in inventory.items:
            if fingerprint[:PREFIX_CHARS] in held:
                yield fingerprint, reason
        if needs.names:
            yield from ((one.fingerprint, reason) for one in inventory.labels if _is_of(one, needs.names))


def _is_of(label: Label, names: str) -> bool:
    return label.name == names or label.name.startswith(f"{names}.")


def _roots(
    inventory: Inventory, leases: Mapping[str, Needs], policy: Policy, now_ns: int
) -> Iterator[tuple[str, Reason]]:
    """Yield every root with its reason, in the order of `GROUPS`."""
    for name, fingerprint in inventory.aliases:
        yield fingerprint, Reason("alias", f"alias {name}")
    yield from needed_by(inventory, leases)
    others = [*_recent(inventory, policy, now_ns), *_latest(inventory, policy)]
    yield from (root for root in others if root[0] not in inventory.superseded)


def _recent(inventory: Inventory, policy: Policy, now_ns: int) -> Iterator[tuple[str, Reason]]:
    age_ns = round(policy.older_than_days * _DAY_NS)
    since_ns = now_ns - age_ns if age_ns else now_ns + _DAY_NS  # nothing is recent, not even of this moment
    in_days = f"in the last {days(policy.older_than_days)}"
    for item in inventory.items.values():
        if item.published_ns > since_ns:
            ago = shown_age(_age(now_ns, item.published_ns))
            yield item.fingerprint, Reason("recent", f"made {ago} ago, {in_days}")
    for run in inventory.runs:
        if run.written_ns > since_ns:
            ago = shown_age(_age(now_ns, run.written_ns))
            yield from _of_run(run, "recent", f"of run {run.run_id} of {run.profile}, {ago} ago, {in_days}")
    week_ns = now_ns - _SUSPENDED_DAYS * _DAY_NS
    suspended = {
        run.profile for run in inventory.runs if run.state == "suspended" and run.written_ns > week_ns
    }
    for label in inventory.labels:
        for profile in suspended:
            if _is_of(label, profile):
                yield label.fingerprint, Reason("running", f"needed by a suspended run of {profile}")


def _age(now_ns: int, then_ns: int) -> timedelta:
    return timedelta(microseconds=max(now_ns - then_ns, 0) // 1000)


def _latest(inventory: Inventory, policy: Policy) -> Iterator[tuple[str, Reason]]:
    wholes = (label for label in inventory.labels if _PART not in label.name)
    for _, versions in groupby(wholes, key=lambda label: label[:2]):
        for label in list(versions)[-policy.keep or len(inventory.labels) :]:
            text = f"{_among('version', policy.keep)} of {label.kind}/{label.name}"
            yield label.fingerprint, Reason("latest", text)
    completed = [run for run in inventory.runs if run.state == "completed"]
    for profile in sorted({run.profile for run in completed}):
        of_profile = [run for run in completed if run.profile == profile]
        for run in of_profile[-policy.keep or len(of_profile) :]:
            text = f"of run {run.run_id}, {_among('completed run', policy.keep)} of {profile}"
            yield from _of_run(run, "latest", text)


def _among(what: str, keep: int) -> str:
    return f"the last {what}" if keep == 1 else f"among the last {keep} {what}s"


def _of_run(run: PastRun, group: str, text: str) -> Iterator[tuple[str, Reason]]:
    return ((fingerprint, Reason(group, text)) for fingerprint in run.artifacts)


def users_first(inputs: Mapping[str, Sequence[str]], among: Iterable[str]) -> list[str]:
    """Sort artifacts so that each comes after those that were made from it.

    A store in which something was removed and made again from equal content may have circles; the order
    within one does not matter.
    """
    known = dict.fromkeys(among)
    inputs_first: list[str] = []
    entered = set[str]()
    for root in known:
        path = [] if root in entered else [(root, iter(inputs.get(root, ())))]
        entered.add(root)
        while path:
            fingerprint, rest = path[-1]
            below = next((each for each in rest if each in known and each not in entered), None)
            if below is None:
                inputs_first.append(fingerprint)
                path.pop()
            else:
                entered.add(below)
                path.append((below, iter(inputs.get(below, ()))))
    return inputs_first[::-1]
