"""Which artifacts of a store are kept, and why.

Kept is what an alias names, what running work needs, what is younger than some days (or of a run that is), by
the clock of the store, the latest versions of each name, the artifacts of the last completed runs of each
profile; and all that a kept one was made from. Superseded artifacts (`tasks.store.inventory`) are kept for
the first two reasons only, or as inputs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import NamedTuple

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store.layout import PREFIX_CHARS
from tokmill.tasks.store.leases import Needs

MAX_DAYS = 36_500
"""A hundred years, for which a calendar suffices."""
_SUSPENDED_DAYS = 7
_DAY_NS = 86_400_000_000_000
GROUPS = ("alias", "running", "recent", "latest", "input")
"""The reasons to keep an artifact, in the order in which the first that applies is given."""


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
        inputs: by fingerprint, those that it was made from and that are still there. Where one is not, every
            artifact with the same content takes its place.
    """

    items: Mapping[str, Item]  # the artifacts by fingerprint
    inputs: Mapping[str, Sequence[str]]
    labels: Sequence[Label]  # of artifacts that are there
    aliases: Sequence[tuple[str, str]]  # (name for people, fingerprint) of each
    runs: Sequence[PastRun]  # every attempt, the oldest first
    superseded: Mapping[str, Sequence[str]]  # by fingerprint, what replaces it; see `superseded`


class Policy(NamedTuple):
    """What is kept beside aliases and running work."""

    older_than_days: float = 14.0  # artifacts and runs that are younger are kept
    keep: int = 1  # how many versions of each name, and completed runs of each profile


class Reason(NamedTuple):
    """Why an artifact is kept, or not.

    Attributes:
        user: the fingerprint of the kept artifact that was made from it, if that is the reason.
    """

    group: str  # one of `GROUPS`; of garbage, `superseded` (a takedown replaced it), or `unused`
    text: str  # e.g. `alias packed/quickstart@prod`
    user: str | None = None


class Plan(NamedTuple):
    """What is kept and what is not."""

    kept: Mapping[str, Reason]  # why, by fingerprint
    garbage: Sequence[Item]  # the rest, what was made from others before these
    gone: Mapping[str, Reason]  # why, by fingerprint, of the garbage
    now_ns: int  # the moment for which this was decided, by the clock of the store

    def age(self, item: Item) -> timedelta:
        """Return how long ago an artifact was published."""
        return _age(self.now_ns, item.published_ns)

    def why(self, inventory: Inventory, fingerprint: str) -> list[str]:
        """Return why an artifact is kept, from itself to a root; nothing for garbage."""
        lines: dict[str, str] = {}
        while (reason := self.kept.get(fingerprint)) is not None and fingerprint not in lines:
            lines[fingerprint] = f"{inventory.items[fingerprint].reference}: {reason.text}"
            fingerprint = reason.user or ""
        return [*lines.values()]


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
    gone = {
        fingerprint: Reason("superseded", f"superseded by {', '.join(inventory.superseded[fingerprint])}")
        if fingerprint in inventory.superseded
        else Reason("unused", unused_for(policy))
        for fingerprint in inventory.items.keys() - kept
    }
    order = users_first(inventory.inputs, [each for each in inventory.items if each in gone])
    return Plan(kept, [inventory.items[each] for each in order], gone, now_ns)


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


def _roots(
    inventory: Inventory, leases: Mapping[str, Needs], policy: Policy, now_ns: int
) -> Iterator[tuple[str, Reason]]:
    """Yield every root with its reason, in the order of `GROUPS`."""
    for name, fingerprint in inventory.aliases:
        yield fingerprint, Reason("alias", f"alias {name}")
    yield from needed_by(inventory, leases)
    others = [*_recent(inventory, policy, now_ns), *_latest(inventory, policy)]
    yield from (root for root in others if root[0] not in inventory.superseded)


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
            if _is_of(label, needs.names):
                yield label.fingerprint, reason


def _is_of(label: Label, names: str) -> bool:
    return label.name == names or label.name.startswith(f"{names}.")


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
            reason = Reason("recent", f"of run {run.run_id} of {run.profile}, {ago} ago, {in_days}")
            yield from ((fingerprint, reason) for fingerprint in run.artifacts)
    week_ns = now_ns - _SUSPENDED_DAYS * _DAY_NS
    suspended = {
        run.profile for run in inventory.runs if run.state == "suspended" and run.written_ns > week_ns
    }
    for label in inventory.labels:
        for profile in suspended:
            if _is_of(label, profile):
                yield label.fingerprint, Reason("running", f"needed by a suspended run of {profile}")


def _latest(inventory: Inventory, policy: Policy) -> Iterator[tuple[str, Reason]]:
    def among(what: str) -> str:
        return f"the last {what}" if policy.keep == 1 else f"among the last {policy.keep} {what}s"

    # of shards, whose names have a slash, the last version is of no use once there are fewer
    wholes = (label for label in inventory.labels if "/" not in label.name)
    for _, versions in groupby(wholes, key=lambda label: label[:2]):
        for label in list(versions)[-policy.keep or len(inventory.labels) :]:
            yield label.fingerprint, Reason("latest", f"{among('version')} of {label.kind}/{label.name}")
    completed = [run for run in inventory.runs if run.state == "completed"]
    for profile in sorted({run.profile for run in completed}):
        of_profile = [run for run in completed if run.profile == profile]
        for run in of_profile[-policy.keep or len(of_profile) :]:
            reason = Reason("latest", f"of run {run.run_id}, {among('completed run')} of {profile}")
            yield from ((fingerprint, reason) for fingerprint in run.artifacts)


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
