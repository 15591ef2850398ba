"""Which artifacts of a store are kept, and why.

What an alias or running work needs; what is young, by the clock of the store; the latest versions and runs;
and all that these were made from. Superseded ones only for the first two reasons, or as inputs.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from typing import Final, NamedTuple

import orjson

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import disk
from tokmill.tasks.store.layout import PREFIX_CHARS, Layout
from tokmill.tasks.store.leases import Needs
from tokmill.tasks.store.record import MOST_REASON_CHARS
from tokmill.tasks.store.snapshot import Ask
from tokmill.tasks.store.tables import ALL_ARTIFACTS, ALL_INPUTS

MAX_DAYS = 36_500
"""A hundred years, for which a calendar suffices."""
DAY_NS = 86_400_000_000_000
_SUSPENDED_DAYS = 7
GROUPS = ("alias", "running", "recent", "latest", "input")
"""The reasons to keep an artifact, in the order in which the first that applies is given."""

_TAKING_THE_PLACE: Final = (
    "((a.stage = 'takedown' AND i.role = 'packed') OR (a.stage = 'exclude' AND i.role = 'mixture'))"
)
"""SQL: whether artifact `a` takes the place of its input `i`."""

MADE_FROM: Final = f"(NOT {_TAKING_THE_PLACE} AND i.role NOT IN ('earlier_mixtures', 'earlier_packings'))"
"""SQL: whether artifact `a` was made from its input `i` otherwise; a card only lists earlier versions."""

_SUPERSEDED: Final = f"""
    WITH RECURSIVE every AS NOT MATERIALIZED ({ALL_INPUTS}),
    made AS NOT MATERIALIZED ({ALL_ARTIFACTS}),
    replaced(fingerprint, maker) AS (
        SELECT DISTINCT i.input_fingerprint, a.fingerprint
        FROM every i JOIN made a USING (fingerprint) WHERE {_TAKING_THE_PLACE}
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
_ANY_SUPERSEDED: Final = "SELECT 1 FROM artifacts WHERE stage IN ('takedown', 'exclude') LIMIT 1"
_UNREADABLE: Final = """
    SELECT path FROM catalog_files
    WHERE problem IS NOT NULL AND split_part(path, '/', 1) NOT IN ('labels', 'removed', 'annotations')
    ORDER BY path
"""
_ARTIFACTS: Final = """
    SELECT a.fingerprint, a.kind, a.name, a.label, a.num_bytes, f.mtime_ns AS published_ns,
           a.content_digest
    FROM artifacts a JOIN catalog_files f ON f.key = a.fingerprint ORDER BY ALL
"""
_INPUTS: Final = f"""
    SELECT i.fingerprint, i.input_kind, i.input_fingerprint, i.digest
    FROM inputs i JOIN artifacts a USING (fingerprint)
    WHERE i.input_kind IS NOT NULL AND {MADE_FROM} ORDER BY ALL
"""  # noqa: S608 - a constant
_EQUAL_FILES: Final = """
    SELECT a.kind, f.fingerprint, f.path, f.size_bytes FROM files f JOIN artifacts a USING (fingerprint)
    WHERE f.size_bytes > 0 AND f.digest IN (SELECT digest FROM files GROUP BY digest HAVING count(*) > 1)
    ORDER BY a.ended, f.fingerprint, f.path
"""
_LABELS: Final = """
    SELECT l.kind, l.name, l.number, l.fingerprint FROM labels l SEMI JOIN artifacts USING (fingerprint)
    ORDER BY ALL
"""
# Of shards, whose names have a slash, the last version is of no use once there are fewer.
_ROOTS: Final = """
    WITH past AS (
        SELECT r.run_id, r.attempt, r.profile, r.state, r.started, f.mtime_ns
        FROM runs r JOIN catalog_files f ON f.key = r.run_id AND f.part = 'runs'
    ),
    completed AS (
        SELECT * FROM past WHERE state = 'completed'
        QUALIFY row_number() OVER (PARTITION BY profile ORDER BY started DESC, run_id DESC) <= $keep
    )
    SELECT 0 AS rank, 'alias' AS reason, fingerprint, NULL AS mtime_ns,
           'alias ' || kind || '/' || name || '@' || alias AS text
    FROM aliases
    UNION ALL
    SELECT 1, 'recent', fingerprint, mtime_ns, 'made {} ago'
    FROM artifacts JOIN catalog_files ON key = fingerprint WHERE mtime_ns > $since
    UNION ALL
    SELECT 2, 'recent', a.fingerprint, mtime_ns, 'of run ' || run_id || ' of ' || profile || ', {} ago'
    FROM past JOIN run_artifacts a USING (run_id, attempt) WHERE mtime_ns > $since
    UNION ALL
    SELECT 3, 'running', l.fingerprint, NULL, 'needed by a suspended run of ' || profile
    FROM past JOIN labels l ON l.name = profile OR starts_with(l.name, profile || '.')
    WHERE state = 'suspended' AND mtime_ns > $suspended
    UNION ALL
    SELECT 4, 'latest', l.fingerprint, NULL, $among || 'version{s} of ' || l.kind || '/' || l.name
    FROM labels l JOIN artifacts USING (fingerprint) WHERE NOT contains(l.name, '/')
    QUALIFY row_number() OVER (PARTITION BY l.kind, l.name ORDER BY l.number DESC) <= $keep
    UNION ALL
    SELECT 5, 'latest', a.fingerprint, NULL,
           'of run ' || run_id || ', ' || $among || 'completed run{s} of ' || profile
    FROM completed JOIN run_artifacts a USING (run_id, attempt)
    ORDER BY rank, mtime_ns, text
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


class Label(NamedTuple):
    """A version label: the version `number` of (kind, name)."""

    kind: str
    name: str
    number: int
    fingerprint: str


class Reason(NamedTuple):
    """Why an artifact is kept, or not.

    Attributes:
        user: the fingerprint of the kept artifact that was made from it, if that is the reason.
    """

    group: str  # one of `GROUPS`; of garbage, `superseded` (a takedown replaced it), or `unused`
    text: str  # e.g. `alias packed/quickstart@prod`
    user: str | None = None


class Policy(NamedTuple):
    """What is kept beside aliases and running work."""

    older_than_days: float = 14.0  # artifacts and runs that are younger are kept
    keep: int = 1  # how many versions of each name, and completed runs of each profile


class Inventory(NamedTuple):
    """What is in a store.

    Attributes:
        inputs: by fingerprint, those that it was made from and that are still there. Where one is not, every
            artifact with the same content takes its place.
    """

    items: Mapping[str, Item]  # the artifacts by fingerprint
    inputs: Mapping[str, Sequence[str]]
    labels: Sequence[Label]  # of artifacts that are there
    roots: Sequence[tuple[str, Reason]]  # what is kept of itself (fingerprint), and why
    superseded: Mapping[str, Sequence[str]]  # by fingerprint, what replaces it; see `superseded`
    now_ns: int  # the moment that ages refer to, by the clock of the store


class Plan(NamedTuple):
    """What is kept and what is not."""

    inventory: Inventory
    kept: dict[str, Reason]  # why, by fingerprint
    garbage: Sequence[Item]  # the rest, what was made from others before these
    gone: Mapping[str, Reason]  # why, by fingerprint, of the garbage

    def age(self, item: Item) -> timedelta:
        """Return how long ago an artifact was published."""
        return _age(self.inventory.now_ns, item.published_ns)

    def keep(self, reasons: Iterable[tuple[str, Reason]]) -> None:
        """Keep more artifacts, and what they were made from, however long the way."""
        items, waiting = self.inventory.items, []
        for fingerprint, reason in reasons:
            if fingerprint in items and fingerprint not in self.kept:
                self.kept[fingerprint] = reason
                waiting.append(fingerprint)
        while waiting:
            user = waiting.pop()
            for needed in self.inventory.inputs.get(user, ()):
                if needed not in self.kept:
                    self.kept[needed] = Reason("input", f"an input of {items[user].reference}", user)
                    waiting.append(needed)

    def why(self, fingerprint: str) -> list[str]:
        """Return why an artifact is kept, from itself to a root; nothing for garbage."""
        lines: dict[str, str] = {}
        while (reason := self.kept.get(fingerprint)) is not None and fingerprint not in lines:
            lines[fingerprint] = f"{self.inventory.items[fingerprint].reference}: {reason.text}"
            fingerprint = reason.user or ""
        return [*lines.values()]


def superseded(ask: Ask) -> dict[str, list[str]]:
    """Return every superseded artifact by fingerprint, with its replacements (`kind/name@label`).

    Another version of it lacks documents that were taken down. This follows from the records alone: a
    takedown is made from the packed artifact that it replaces, and an exclusion (for packing again) from the
    mixture that it replaces. Artifacts made from a replaced one, such as an export or a card, are superseded
    as well. Instead of a replacement that was removed, the one that replaced it counts; a version whose
    replacements were all removed is superseded by nothing.
    """
    if not ask(_ANY_SUPERSEDED):  # most stores have none, and the walk below reads every input
        return {}
    return {row["fingerprint"]: row["makers"] for row in ask(_SUPERSEDED)}


def reasons(ask: Ask) -> dict[str, str]:
    """Return why every superseded artifact may go: `superseded by packed/x@v2: asked for by …`."""
    texts = {}
    for row in ask(_SUPERSEDED):
        told = dict.fromkeys(orjson.loads(params).get("reason", "") for params in row["params"])
        said = "; ".join(filter(None, told))
        text = f"superseded by {', '.join(row['makers'])}{f': {said}' if said else ''}"
        texts[row["fingerprint"]] = text[:MOST_REASON_CHARS]
    return texts


def take_inventory(layout: Layout, ask: Ask, policy: Policy, now_ns: int) -> Inventory:
    """Read what is in a store, and what a policy keeps of it, from its catalog.

    Raises:
        StoreError: a setting is out of its bounds; or a record, run or alias cannot be read, and a need may
            be among what it says.
    """
    if not 0 <= policy.older_than_days <= MAX_DAYS or policy.keep < 0:
        raise StoreError(
            f"gc: older_than_days={policy.older_than_days:g} must be at least 0 and at most {MAX_DAYS:,}, "
            f"and keep={policy.keep} at least 0; use e.g. 14 and 1"
        )
    if unreadable := [row["path"] for row in ask(_UNREADABLE)]:
        more = f" and {len(unreadable) - 1} more files" if len(unreadable) > 1 else ""
        raise StoreError(
            f"gc: {unreadable[0]}{more} cannot be read, so it is not known what is needed; `tokmill store "
            "verify` has the reason"
        )
    linked = _linked_bytes(layout, ask)
    items, equal = dict[str, Item](), defaultdict[tuple[str, str], list[str]](list)
    for row in ask(_ARTIFACTS):
        equal[row["kind"], row.pop("content_digest")].append(row["fingerprint"])
        row["num_bytes"] -= linked[row["fingerprint"]]
        items[row["fingerprint"]] = Item(**row)
    inputs = defaultdict[str, list[str]](list)
    for row in ask(_INPUTS):
        used = row["input_fingerprint"]
        inputs[row["fingerprint"]] += [used] if used in items else equal[row["input_kind"], row["digest"]]
    labels = [Label(**row) for row in ask(_LABELS)]
    roots = list(_roots(ask, policy, now_ns))
    return Inventory(items, inputs, labels, roots, superseded(ask), now_ns)


def _roots(ask: Ask, policy: Policy, now_ns: int) -> Iterator[tuple[str, Reason]]:
    age_ns = round(policy.older_than_days * DAY_NS)
    parameters = {
        "since": now_ns - age_ns if age_ns else now_ns + DAY_NS,  # nothing is recent, not even of this moment
        "suspended": now_ns - _SUSPENDED_DAYS * DAY_NS,
        "keep": policy.keep,
        "among": "the last " if policy.keep == 1 else f"among the last {policy.keep} ",
    }
    several = "" if policy.keep == 1 else "s"
    for row in ask(_ROOTS.replace("{s}", several), parameters):
        text = row["text"]
        if row["reason"] == "recent":
            ago = shown_age(_age(now_ns, row["mtime_ns"]))
            text = f"{text.replace('{}', ago, 1)}, in the last {days(policy.older_than_days)}"
        yield row["fingerprint"], Reason(row["reason"], text)


def _linked_bytes(layout: Layout, ask: Ask) -> Counter[str]:
    """Return by fingerprint the bytes of files that an artifact made before holds by another name."""
    linked, known = Counter[str](), set[tuple[int, int]]()
    for row in ask(_EQUAL_FILES):
        try:
            identity = disk.state(layout.artifact(row["kind"], row["fingerprint"]) / row["path"]).identity
        except FileNotFoundError:
            continue
        if identity in known:
            linked[row["fingerprint"]] += row["size_bytes"]
        elif identity is not None:
            known.add(identity)
    return linked


def make_plan(inventory: Inventory, leases: Mapping[str, Needs], policy: Policy) -> Plan:
    """Decide what is kept."""
    gone = dict[str, Reason]()
    plan = Plan(inventory, {}, [], gone)
    aliases = [root for root in inventory.roots if root[1].group == "alias"]
    others = [root for root in inventory.roots if root[0] not in inventory.superseded]
    plan.keep([*aliases, *needed_by(inventory, leases), *others])
    for fingerprint in [each for each in inventory.items if each not in plan.kept]:
        makers = ", ".join(inventory.superseded.get(fingerprint, ()))
        unused = Reason("unused", unused_for(policy))
        gone[fingerprint] = Reason("superseded", f"superseded by {makers}") if makers else unused
    order = users_first(inventory.inputs, [each for each in inventory.items if each in gone])
    return plan._replace(garbage=[inventory.items[each] for each in order])


def needed_by(inventory: Inventory, leases: Mapping[str, Needs]) -> Iterator[tuple[str, Reason]]:
    """Yield the artifacts that running work needs, and for which."""
    for key, needs in leases.items():
        of_profile = f" of {needs.names}" if needs.names else ""
        reason = Reason("running", f"needed by {key}{of_profile}, which runs")
        held = set(needs.holds or ())
        for fingerprint in inventory.items:
            if needs.holds is None or fingerprint[:PREFIX_CHARS] in held:
                yield fingerprint, reason
        for label in inventory.labels if needs.names else ():
            if label.name == needs.names or label.name.startswith(f"{needs.names}."):
                yield label.fingerprint, reason


def users_first(inputs: Mapping[str, Sequence[str]], among: Iterable[str]) -> list[str]:
    """Sort artifacts so that each comes after those that were made from it.

    A store in which something was removed and made again from equal content may have circles; what hangs
    together with one goes first.
    """
    known = dict.fromkeys(among)
    sorter = TopologicalSorter({
        user: [each for each in inputs.get(user, ()) if each in known] for user in known
    })  # fmt: skip
    with suppress(CycleError):
        sorter.prepare()
    inputs_first = dict[str, None]()
    while ready := sorter.get_ready():
        inputs_first |= dict.fromkeys(ready)
        sorter.done(*ready)
    return [*(each for each in known if each not in inputs_first), *reversed(inputs_first)]


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


def _age(now_ns: int, then_ns: int) -> timedelta:
    return timedelta(microseconds=max(now_ns - then_ns, 0) // 1000)
