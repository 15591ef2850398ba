"""Collects garbage in a store, or says what would be collected, for people, pages and scripts."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from tokmill.flows.figures import counted, size
from tokmill.tasks.core.markdown import table
from tokmill.tasks.store import Store
from tokmill.tasks.store.removal import Garbage, Leftover
from tokmill.tasks.store.retention import GROUPS, Item, Policy, days, shown_age, unused_for

COLUMNS = ("number", "size", "age", "why")
"""Of the tables of what goes and what stays, after the first."""


def unused_means(policy: Policy) -> str:
    """Return in one line what `unused` stands for."""
    latest = f"not {_among(policy.keep)}, and " if policy.keep else ""
    used = f"not made or used by a run in {days(policy.older_than_days)}, " if policy.older_than_days else ""
    return f"unused: no alias, no running work, {used}{latest}nothing that stays was made from it"


def _among(keep: int) -> str:
    return f"of the last {'' if keep == 1 else f'{keep} '}versions and runs"


class Share(NamedTuple):
    """A part of what goes, or of what stays, and why it does."""

    what: str  # a kind of artifacts or of leftovers; of what stays, one of `GROUPS`
    number: int
    num_bytes: int
    age: str  # of the youngest and the oldest artifact; empty for leftovers
    why: str

    @property
    def cells(self) -> list[str]:
        """The row of a table."""
        return [self.what, f"{self.number:,}", size(self.num_bytes), self.age, self.why]


@dataclass(frozen=True)
class Collected:
    """The result of a collection."""

    location: str  # of the store
    policy: Policy  # what was kept beside aliases and running work
    applied: bool  # whether anything was removed, or only would be
    garbage: Garbage

    @property
    def removed(self) -> Sequence[Item]:
        """The artifacts that were removed, or would be."""
        return self.garbage.items

    @property
    def leftovers(self) -> Sequence[Leftover]:
        """The files and folders of other kinds, likewise."""
        return self.garbage.leftovers

    @property
    def head(self) -> str:
        """The heading of what goes."""
        return "removed" if self.applied else "would be removed"

    @property
    def num_bytes(self) -> int:
        """The bytes that were freed, or would be."""
        return self.garbage.num_bytes

    @property
    def goes(self) -> Sequence[Share]:
        """What was removed, or would be: by kind and reason, artifacts before leftovers."""
        artifacts, others = defaultdict[tuple[str, str], list[Item]](list), defaultdict[Any, list[int]](list)
        for item in self.garbage.items:
            group = self.garbage.plan.gone[item.fingerprint].group
            artifacts[item.kind, unused_for(self.policy) if group == "unused" else group].append(item)
        for each in self.garbage.leftovers:
            others[each.what, each.why].append(each.num_bytes)
        return [
            *(self._share(what, why, items) for (what, why), items in sorted(artifacts.items())),
            *(Share(what, len(its), sum(its), "", why) for (what, why), its in sorted(others.items())),
        ]

    @property
    def stays(self) -> Sequence[Share]:
        """What is kept, by the first reason for it; see `tasks.store.retention.GROUPS`."""
        groups = defaultdict[str, list[Item]](list)
        for fingerprint, reason in self.garbage.plan.kept.items():
            groups[reason.group].append(self.garbage.plan.inventory.items[fingerprint])
        meanings = {
            "alias": "has an alias",
            "running": "needed by running work",
            "recent": f"made, or used by a run, in the last {days(self.policy.older_than_days)}",
            "latest": _among(self.policy.keep),
            "input": "what stays was made from it",
        }
        return [self._share(group, meanings[group], groups[group]) for group in GROUPS if group in groups]

    def _share(self, what: str, why: str, items: Sequence[Item]) -> Share:
        ages = sorted(map(self.garbage.plan.age, items))
        shown = dict.fromkeys(map(shown_age, (ages[0], ages[-1])))
        return Share(what, len(items), sum(each.num_bytes for each in items), "–".join(shown), why)

    def each(self) -> Iterator[tuple[Item, str, str]]:
        """Yield every artifact, what becomes of it (`removed`, or why it is kept: `GROUPS`), and why."""
        plan, items = self.garbage.plan, self.garbage.plan.inventory.items
        yield from ((item, "removed", plan.gone[item.fingerprint].text) for item in self.removed)
        yield from ((item, "running", why) for item, why in self.garbage.spared)
        kept = [(items[fingerprint], reason) for fingerprint, reason in plan.kept.items()]
        for item, reason in sorted(kept, key=lambda one: (GROUPS.index(one[1].group), one[0].reference)):
            yield item, reason.group, reason.text

    @property
    def summary(self) -> str:
        """The result in one line."""
        leftovers = [counted(len(self.leftovers), "leftover")] if self.leftovers else []
        what = " and ".join([counted(len(self.removed), "artifact"), *leftovers])
        return summary_of(self.location, what, self.num_bytes, applied=self.applied)

    def to_json(self, *, each: bool = False) -> dict[str, object]:
        """Return the result as plain data; with every artifact that is kept, if wanted (`each`)."""
        return {
            "store": self.location,
            "applied": self.applied,
            "older_than_days": self.policy.older_than_days,
            "keep": self.policy.keep,
            "num_bytes": self.num_bytes,
            "removed": self._listed(kept=False),
            "leftovers": [each._asdict() | {"path": str(each.path)} for each in self.leftovers],
            "spared": [{"artifact": item.reference, "reason": why} for item, why in self.garbage.spared],
            "kept": {
                share.what: {key: value for key, value in share._asdict().items() if key != "what"}
                for share in self.stays
            },
            **({"kept_artifacts": self._listed(kept=True)} if each else {}),
        }

    def _listed(self, *, kept: bool) -> list[dict[str, object]]:
        return [
            {
                "artifact": item.reference,
                "fingerprint": item.fingerprint,
                "num_bytes": item.num_bytes,
                "age_days": round(self.garbage.plan.age(item) / timedelta(days=1), 3),
                **({"reason": group} if kept else {}),
                "why": why,
            }
            for item, group, why in self.each()
            if (group != "removed") == kept
        ]

    def to_markdown(self) -> str:
        """Return the result for a page: the summary, and tables of what goes, by kind, and what stays."""
        tables = [
            "\n".join(table((first, *COLUMNS), [share.cells for share in shares], left=[0, 3, 4]))
            for first, shares in ((self.head, self.goes), ("kept", self.stays))
            if shares
        ]
        spared = (f"{item.reference} stays: {why}" for item, why in self.garbage.spared)
        return "\n\n".join(["# Collection of garbage", self.summary, *tables, *spared])


def summary_of(location: str, what: str, num_bytes: int, *, applied: bool) -> str:
    """Return in one line what was removed from a store, or would be, and what that frees."""
    would = "" if applied else "would be "
    return f"{location}: {what} {would}removed, {size(num_bytes)} {would}freed"


def collect_garbage(
    store: Store,
    *,
    older_than_days: float = 14.0,
    keep: int = 1,
    apply: bool = False,
    report: Callable[[str], None] | None = None,
) -> Collected:
    """Remove what nothing keeps (`tasks.store.retention`) if `apply`, or only say what that is.

    Runs may begin and go on meanwhile; what they need stays. `report` is called for each that goes.
    """
    policy = Policy(older_than_days, keep)
    garbage = store.collect(policy, report) if apply else store.find_garbage(policy)
    return Collected(store.location, policy, apply, garbage)
