"""A cause: the first thing in the lineage of two artifacts by which they come to differ.

What follows from a cause is none: if a parameter of the balance differs, the tokenizers that were trained
with the two balances differ because of it, and not for a reason of their own.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from dataclasses import field as field_of
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Absent, Provenance, Record, Store, disk, read_record
from tokmill.tasks.store.record import tombstone

Sort: TypeAlias = Literal["source", "input", "parameter", "stage", "package", "platform", "code", "unknown"]
"""What differs: a source's files, another input from outside, a parameter, the stage or its version, a
package or Python, the operating system, the code of a checkout; or it cannot be found out."""

WEAK: Final = "text"
"""The field of a cause that says only that a shard's text differs; a corpus, if one is found, says why."""
_SECTIONS: Final = {"count": "train", "pack_plan": "pack", "tokenizer_card": "card"}
"""Stages that take the parameters of another one's section of the profile."""
_OF_PACK: Final = {"mix.sequence_length"}
"""Parameters that a stage takes from the profile's `[pack]`."""
_LONGEST: Final = 60


@dataclass(frozen=True)
class Cause:
    """One cause."""

    sort: Sort  # what differs
    artifact: str  # where it enters, as `kind/name`
    field: str  # e.g. `balance.temperature`, `web` (a source), `pyarrow` (a package)
    a: Any  # the first value; None or `Absent.ABSENT` where there is none
    b: Any  # the second one
    text: str  # what differs, as a sentence without a full stop
    details: Sequence[str] = ()  # more of it, a line each: the files of a source
    data: Mapping[str, Any] = field_of(default_factory=dict)  # the same for programs
    through: Sequence[str] = ()
    """The artifacts by which it reaches the compared ones, the nearest to the cause first."""
    follows: bool = False
    """Whether it only follows where another stage takes part, such as a card that is also made from the
    documents held out: it is no cause beside that stage."""

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for causes that are one: a parameter that several stages take, a source of several shards."""
        if self.sort != "parameter":
            return (self.sort, self.field, repr(self.a), repr(self.b))
        stage, dot, name = self.field.partition(".")
        section = "pack" if self.field in _OF_PACK else _SECTIONS.get(stage, stage)
        return (self.sort, f"{section}{dot}{name}", repr(self.a), repr(self.b))

    def reaching(self, artifact: str) -> "Cause":
        """Return the same cause as it reaches an artifact that was made from the one where it enters."""
        if artifact in (self.artifact, *self.through):
            return self
        return replace(self, through=(*self.through, artifact))

    def to_json(self) -> dict[str, Any]:
        """Return the cause as JSON values."""
        return {
            "sort": self.sort,
            "artifact": self.artifact,
            "field": self.field,
            "a": plain(self.a),
            "b": plain(self.b),
            "text": self.text,
            "details": list(self.details),
            **self.data,
            "through": list(self.through),
        }


def once_each(causes: Iterable[Cause]) -> list[Cause]:
    """Return the causes, each once and in order; without what only follows from others of them."""
    found: dict[tuple[str, ...], Cause] = {}
    for cause in causes:
        found.setdefault(cause.key, cause)
    kept = list(found.values())
    if any(cause.artifact.startswith("corpus/") and cause.field != WEAK for cause in kept):
        kept = [cause for cause in kept if cause.field != WEAK]
    if any(cause.field == "stage" for cause in kept):
        kept = [cause for cause in kept if not cause.follows]
    return kept


def plain(value: Any) -> Any:
    """Return a value for JSON; null where there is none."""
    return None if isinstance(value, Absent) else value


def value_text(value: Any) -> str:
    """Return a value as people write it, on one line; long ones are cut."""
    if value is None or isinstance(value, Absent):
        return "unset"
    text = value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
    if not text.isprintable() or text != text.strip() or not text:
        text = json.dumps(text, ensure_ascii=not text.isprintable())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def record_of(store: Store, ref: ArtifactRef) -> Record | None:
    """Return the record of an artifact with this content, wherever it is; None if it is nowhere.

    An artifact that was made again with other content is set aside, and its record with it.
    """
    for record in _records(store, ref):
        if record.content_digest == ref.content_digest:
            return record
    return None


def is_whole(store: Store, record: Record) -> bool:
    """Whether an artifact of this content is in the store, with its files."""
    try:
        return store.read(record.kind, record.fingerprint).content_digest == record.content_digest
    except StoreError:
        return False


def _records(store: Store, ref: ArtifactRef) -> Iterator[Record]:
    with suppress(StoreError):
        yield store.read(ref.kind, ref.fingerprint)
    with suppress(StoreError):
        left = tombstone(store.layout, ref.kind, ref.fingerprint)
        if left is not None:
            yield left.record
    place = store.layout.artifact(ref.kind, ref.fingerprint)
    folder = store.layout.damaged / ref.kind
    names = sorted(entry.name for entry in disk.entries(folder) if entry.name.startswith(f"{place.name}-"))
    for name in names:
        with suppress(StoreError):
            yield read_record(folder / name)


class Changed(NamedTuple):
    """One thing that differs between two environments: a package, Python, the system, or the code."""

    sort: Sort
    name: str
    a: str | None
    b: str | None

    @property
    def text(self) -> str:
        """What differs, in words."""
        if self.a is None or self.b is None:
            there = f"{self.name} {self.a or self.b}"
            return f"{there} was {'only in the second' if self.a is None else 'only in the first'}"
        return f"{self.name} {self.a} → {self.b}"


def environment_changes(
    a: Provenance, b: Provenance, packages: tuple[Mapping[str, str], Mapping[str, str]] | None = None
) -> Iterator[Changed]:
    """Yield what differs between two environments; `packages` are all of both, if that is known."""
    before, after = packages or (a.packages, b.packages)
    pairs: list[tuple[Sort, str, str | None, str | None]] = [
        ("package", name, before.get(name), after.get(name)) for name in sorted({*before, *after})
    ]
    pairs += [
        ("package", "python", a.python, b.python),
        ("platform", "platform", a.platform, b.platform),
        ("code", "code", code_of(a), code_of(b)),
    ]
    yield from (Changed(*each) for each in pairs if each[2] != each[3])


def code_of(made: Provenance) -> str | None:
    """Return the commit of the code, with the digest of what was not committed; None if it is installed."""
    if made.git_commit is None:
        return None
    dirty = f" with changes {(made.dirty_digest or 'of unknown content')[:12]}" if made.git_dirty else ""
    return f"{made.git_commit[:12]}{dirty}"


def causes_of_environment(a: Record, b: Record) -> list[Cause]:
    """Return why two artifacts of one recipe have different content, as far as their provenance tells."""
    where, again = f"{b.kind}/{b.name}", "the recipe is the same, and it was made again"
    text = (
        "recipe, packages, platform and code are the same: the stage is not deterministic, or a machine or "
        "disk failed"
    )
    unknown = Cause("unknown", where, "content", a.content_digest[:12], b.content_digest[:12], text)
    return [
        Cause(each.sort, where, each.name, each.a, each.b, f"{each.text}; {again}")
        for each in environment_changes(a.provenance, b.provenance)
    ] or [unknown]
