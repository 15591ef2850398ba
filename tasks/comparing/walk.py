"""Walks the lineage of two artifacts side by side, from them to their inputs, as far as contents differ.

What differs in two recipes is a cause of its own (a parameter, the stage, its version), and each pair of
inputs that differ is walked in turn. If the recipes are equal, the processes that made the artifacts differ.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tokmill.tasks.comparing.causes import (
    WEAK,
    Cause,
    causes_of_environment,
    once_each,
    record_of,
    value_text,
)
from tokmill.tasks.comparing.sources import causes_of_sources
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Difference, InputEntry, Record, Store, payload_differences
from tokmill.tasks.store.references import run_of

_CORPUS: Final = """
    SELECT kind, name, fingerprint, content_digest FROM run_artifacts
    WHERE run_id = $run_id AND kind = 'corpus' AND content_digest IS NOT NULL
    ORDER BY attempt DESC, position LIMIT 1
"""
Had: TypeAlias = Mapping[tuple[str, str], ArtifactRef]
_SHARD: Final = "_shard"
_MOST_PARTS: Final = 4  # of one source: the shards of a source differ for the same reasons
_MOST_GIVEN: Final = 4


@dataclass
class Walk:
    """Finds causes in one store; what was walked once is remembered.

    An artifact that a run found cached has the record of whoever made it, and that one's inputs may be others
    that gave the same, such as a corpus of equal text in another form. Where two runs are compared, the walk
    keeps to what these runs had.
    """

    store: Store
    had: tuple[Had, Had] = ({}, {})
    """The artifacts of either run by kind and name; nothing where artifacts alone are compared."""
    _known: dict[tuple[str, ...], list[Cause]] = field(default_factory=dict)

    def causes(self, a: Record, b: Record) -> list[Cause]:
        """Return the first causes by which two artifacts of one kind differ, upstream ones first."""
        found = self._causes(a, b)
        if any(cause.field == WEAK for cause in found):
            found = once_each([*self._of_corpora(a, b), *found])
        return found

    def _causes(self, a: Record, b: Record) -> list[Cause]:
        if a.content_digest == b.content_digest:
            return []
        key = (a.fingerprint, a.content_digest, b.fingerprint, b.content_digest)
        if key not in self._known:
            self._known[key] = []  # a lineage has no cycles, but a damaged record must not hang us
            self._known[key] = self._found(a, b)
        return self._known[key]

    def _found(self, a: Record, b: Record) -> list[Cause]:
        if a.fingerprint == b.fingerprint:
            return causes_of_environment(a, b)
        own = own_causes(a, b)
        if any(cause.field == "stage" for cause in own):
            return once_each([*self._of_reworked(a, b), *own])
        left, right = (record.payload.get("inputs") or {} for record in (a, b))
        roles = [role for role in {**right, **left} if left.get(role) != right.get(role)]
        below = [cause for role in roles for cause in self._of_role(role, a, b)]
        here = "" if b.kind.endswith(_SHARD) else f"{b.kind}/{b.name}"
        reaching = [cause.reaching(here) if here else cause for cause in below]
        return once_each([*reaching, *own])

    def _of_reworked(self, a: Record, b: Record) -> list[Cause]:
        """Return why what two stages started from differs, if one reworked an artifact of the same kind.

        A holdout takes a part of what was ingested, a takedown leaves documents out of what was packed.
        """
        before, after = _reworked(a), _reworked(b)
        if (before is None) == (after is None):
            return []
        one, other = self._input(before, 0) if before else a, self._input(after, 1) if after else b
        return [] if one is None or other is None else self._causes(one, other)

    def _of_role(self, role: str, a: Record, b: Record) -> Iterator[Cause]:
        left, right = _entries(a, role), _entries(b, role)
        if not left or not right:
            yield _only_one(role, a, b, left, right)
            return
        if role == "files" and left[0].kind is None and b.kind == "corpus":
            yield from causes_of_sources(self.store, a, b)
            return
        for one, other in _pairs(a, b, left, right):
            yield from self._of_pair(role, a, b, one, other)

    def _of_pair(
        self, role: str, a: Record, b: Record, one: InputEntry, other: InputEntry
    ) -> Iterator[Cause]:
        if one.kind is None or other.kind is None:
            yield _outside(role, b, one, other)
            return
        before, after = self._input(one, 0), self._input(other, 1)
        if before is None or after is None:
            gone = one if before is None else other
            called = f"{gone.kind}/{gone.name}"
            text = f"{called} differs, and why is not known: the store has the record of one only"
            yield Cause("unknown", called, role, one.digest[:12], other.digest[:12], text)
        elif before.kind != after.kind:
            yield _outside(role, b, one, other)
        else:
            yield from self._causes(before, after)

    def _input(self, entry: InputEntry, side: int) -> Record | None:
        """Return what an artifact of one side was made from, as that side's run had it if it is known."""
        had = self.had[side].get((entry.kind or "", entry.name or ""))
        found = (record_of(self.store, ref) for ref in (had, entry.ref) if ref is not None)
        return next(filter(None, found), None)

    def _of_corpora(self, a: Record, b: Record) -> list[Cause]:
        """Return why the corpora differ of the runs that made two artifacts; nothing if it is not known."""
        before, after = self._corpus(a, 0), self._corpus(b, 1)
        return [] if before is None or after is None else self._causes(before, after)

    def _corpus(self, record: Record, side: int) -> Record | None:
        ref = self.had[side].get(("corpus", record.name.partition(".")[0]))
        run_id = record.provenance.run_id or run_of(self.store, record.ref)
        if ref is None and run_id is not None:
            rows = self.store.catalog.query(_CORPUS, {"run_id": run_id})
            ref = next((ArtifactRef(**row) for row in rows), None)
        return None if ref is None else record_of(self.store, ref)


def own_causes(a: Record, b: Record) -> list[Cause]:
    """Return what differs in two recipes themselves, their inputs left aside."""
    every = payload_differences(*_comparable(a, b))
    differing = [each for each in every if re.split(r"[.[]", each.field)[0] != "inputs"]
    if any(each.field == "params.family" for each in differing):  # versions are counted within a family
        differing = [each for each in differing if each.field != "version"]
    where, verb = f"{b.kind}/{b.name}", str(b.payload["stage"]).removesuffix(_SHARD)
    stage = [each for each in differing if each.field == "stage"]
    if stage:
        text = f"made by {stage[0].b}, not by {stage[0].a}"
        details = list(_given_to(b)) if _reworked(a) is None else []
        return [Cause("stage", where, "stage", stage[0].a, stage[0].b, text, details)]
    return [_own(each, where, verb, a, b) for each in differing]


def _own(each: Difference, where: str, verb: str, a: Record, b: Record) -> Cause:
    if each.field == "version":
        versions = [record.provenance.packages.get("tokmill", "?") for record in (a, b)]
        text = f"the stage {verb} is of version {each.b}, and was of version {each.a}"
        details = [f"tokmill {versions[0]} → {versions[1]}"]
        return Cause("stage", where, f"{verb}.version", each.a, each.b, text, details)
    name = f"{verb}.{each.field.removeprefix('params.')}"
    text = f"{name} {value_text(each.a)} → {value_text(each.b)}"
    return Cause("parameter", where, name, each.a, each.b, text)


def _comparable(a: Record, b: Record) -> list[Mapping[str, Any]]:
    """Return two payloads, without the settings of sources that only one of them has: they came with it."""
    sources: list[Any] = [(record.payload.get("params") or {}).get("sources") for record in (a, b)]
    if not all(isinstance(each, Mapping) for each in sources):
        return [a.payload, b.payload]
    shared = sources[0].keys() & sources[1].keys()
    kept = [{name: settings for name, settings in own.items() if name in shared} for own in sources]
    return [
        {**record.payload, "params": {**record.payload["params"], "sources": its}}
        for record, its in zip((a, b), kept, strict=True)
    ]


def _given_to(record: Record) -> Iterator[str]:
    """Tell what a stage was given that the one of the other artifact was not: files and parameters."""
    for entry in [entry for entry in record.inputs if entry.kind is None and entry.origin][:_MOST_GIVEN]:
        yield f"{entry.role.replace('_', ' ')} {entry.origin}"
    for name, value in [*(record.payload.get("params") or {}).items()][:_MOST_GIVEN]:
        if name != "part" and not isinstance(value, dict | list) and value is not None:
            yield f"{name} {value_text(value)}"


def _reworked(record: Record) -> InputEntry | None:
    """Return the artifact of the same kind that one was made from; None if it was made from others."""
    return next((entry for entry in record.inputs if entry.kind == record.kind), None)


def _entries(record: Record, role: str) -> list[InputEntry]:
    return [entry for entry in record.inputs if entry.role == role]


def _pairs(
    a: Record, b: Record, left: Sequence[InputEntry], right: Sequence[InputEntry]
) -> Iterator[tuple[InputEntry, InputEntry]]:
    """Yield the inputs that belong together and differ: by name, without the profile's, or by place.

    Where each side has one, they belong together, such as the corpora of a part and of the whole.
    """
    if len(left) == len(right) == 1:
        if left[0].digest != right[0].digest:
            yield left[0], right[0]
        return
    known = {_called(entry, a): entry for entry in left}
    seen: dict[str, int] = defaultdict(int)
    for entry in right:
        name = _called(entry, b)
        other, group = known.get(name), name.rpartition("/")[0]
        if other is not None and other.digest != entry.digest and seen[group] < _MOST_PARTS:
            seen[group] += entry.position is not None
            yield other, entry


def _called(entry: InputEntry, record: Record) -> str:
    name = (entry.name or "").removeprefix(record.name.partition(".")[0])
    return name if entry.position is None or "/" in name else f"{name}#{entry.position}"


def _only_one(
    role: str, a: Record, b: Record, left: Sequence[InputEntry], right: Sequence[InputEntry]
) -> Cause:
    words = role.replace("_", " ")
    text = f"only the {'second' if right else 'first'} was made with {words}"
    values: list[Any] = [entries[0].digest[:12] if entries else None for entries in (left, right)]
    called, own = (left or right)[0].name or "", (b if right else a).name.partition(".")[0]
    follows = (left or right)[0].kind is not None and called.partition(".")[0] == own
    return Cause("input", f"{b.kind}/{b.name}", role, values[0], values[1], text, follows=follows)


def _outside(role: str, b: Record, one: InputEntry, other: InputEntry) -> Cause:
    """Return the cause that an input from outside of the store is: a shard's text, a file, a tokenizer."""
    where, words = f"{b.kind}/{b.name}", role.replace("_", " ")
    if role == "shard":
        text = f"the text of the shard {b.name.partition('.')[2] or b.name} differs"
        return Cause("source", where, WEAK, "", "", text)
    names = [entry.origin or (f"{entry.kind}/{entry.name}" if entry.kind else "") for entry in (one, other)]
    text = f"another {words}"
    if names[0] != names[1]:
        text += f": {names[0]} → {names[1]}"
    elif names[1]:
        text += f": {names[1]}, whose content differs"
    return Cause("input", where, role, one.digest[:12], other.digest[:12], text)
