"""Which artifacts of a store are kept, and why.

Kept are the roots:

- what a person gave an alias;
- what running work needs (`tasks.store.leases`);
- what was made in the last days, and the artifacts of the runs that began in these days, however they ended;
- the latest versions of each name, parts aside, and the artifacts of the last completed runs of each profile;

and everything that a kept artifact was made from. Superseded artifacts (`tasks.store.superseding`) are kept
for the first two reasons only, or if a kept one was made from them. The rest is garbage.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store.inventory import Inventory, Item, Label, PastRun
from tokmill.tasks.store.layout import PREFIX_CHARS
from tokmill.tasks.store.leases import Needs

_SUSPENDED_DAYS = 7.0
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
        now: the moment for which this was decided.
    """

    kept: Mapping[str, Reason]
    garbage: Sequence[Item]
    gone: Mapping[str, Reason]
    now: datetime

    def age(self, item: Item) -> timedelta:
        """Return how long ago an artifact was made; 0 if the clock was set back since."""
        return max(self.now - item.ended, timedelta())

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


def make_plan(
    inventory: Inventory, leases: Mapping[str, Needs], policy: Policy, now: datetime | None = None
) -> Plan:
    """Decide what is kept.

    Args:
        inventory: of the store.
        leases: of running work.
        policy: what else is kept.
        now: with the time zone.

    Raises:
        StoreError: a number of the policy is out of its bounds.
    """
    if not 0 <= policy.older_than_days <= MAX_DAYS:
        raise StoreError(
            f"gc: older_than_days={policy.older_than_days:g} must be at least 0 and at most {MAX_DAYS:,}; "
            "use e.g. 14"
        )
    if policy.keep < 0:
        raise StoreError(f"gc: keep={policy.keep} must be at least 0; use e.g. 1")
    moment = now or datetime.now(UTC)
    kept: dict[str, Reason] = {}
    for fingerprint, reason in _roots(inventory, leases, policy, moment):
        if fingerprint in inventory.items:
            kept.setdefault(fingerprint, reason)
    add_inputs(inventory, kept, list(kept))
    garbage = [item for item in inventory.items.values() if item.fingerprint not in kept]
    gone = {item.fingerprint: _why_gone(inventory, policy, item.fingerprint) for item in garbage}
    return Plan(kept, _users_first(inventory, garbage), gone, moment)


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
    inventory: Inventory, leases: Mapping[str, Needs], policy: Policy, now: datetime
) -> Iterator[tuple[str, Reason]]:
    """Yield every root with its reason, in the order of `GROUPS`."""
    for name, fingerprint in inventory.aliases:
        yield fingerprint, Reason("alias", f"alias {name}")
    yield from needed_by(inventory, leases)
    others = [*_recent(inventory, policy, now), *_latest(inventory, policy)]
    yield from (root for root in others if root[0] not in inventory.superseded)


def _recent(inventory: Inventory, policy: Policy, now: datetime) -> Iterator[tuple[str, Reason]]:
    since = now - timedelta(days=policy.older_than_days)
    in_days = f"in the last {days(policy.older_than_days)}"
    for item in inventory.items.values():
        if item.ended > since:
            yield item.fingerprint, Reason("recent", f"made {_ago(now, item.ended)}, {in_days}")
    for run in inventory.runs:
        if run.started > since:
            begun = f"begun {_ago(now, run.started)}, {in_days}"
            yield from _of_run(run, "recent", f"of run {run.run_id} of {run.profile}, {begun}")
    week = now - timedelta(days=_SUSPENDED_DAYS)
    suspended = {run.profile for run in inventory.runs if run.state == "suspended" and run.started > week}
    for label in inventory.labels:
        for profile in suspended:
            if _is_of(label, profile):
                yield label.fingerprint, Reason("running", f"needed by a suspended run of {profile}")


def _ago(now: datetime, moment: datetime) -> str:
    return f"{shown_age(max(now - moment, timedelta()))} ago"


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


def _users_first(inventory: Inventory, items: Sequence[Item]) -> list[Item]:
    """Sort artifacts so that each comes after those that were made from it.

    A store in which something was removed and made again from equal content may have circles; the order
    within one does not matter.
    """
    among = {item.fingerprint: item for item in items}
    inputs_first: list[Item] = []
    entered = set[str]()
    for root in among:
        path = [] if root in entered else [(root, iter(inventory.inputs.get(root, ())))]
        entered.add(root)
        while path:
            fingerprint, rest = path[-1]
            below = next((each for each in rest if each in among and each not in entered), None)
            if below is None:
                inputs_first.append(among[fingerprint])
                path.pop()
            else:
                entered.add(below)
                path.append((below, iter(inventory.inputs.get(below, ()))))
    return inputs_first[::-1]
