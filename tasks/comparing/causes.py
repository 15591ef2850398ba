"""A cause: the first thing in the lineage of two artifacts by which they come to differ.

What follows from a cause is none: if a parameter of the balance differs, the tokenizers that were trained
with the two balances differ because of it, and not for a reason of their own.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as field_of
from typing import Any, Final, Literal, TypeAlias

from tokmill.tasks.store import Absent

Sort: TypeAlias = Literal["source", "input", "parameter", "stage", "package", "platform", "code", "unknown"]
"""What differs: a source's files, another input from outside, a parameter, the stage or its version, a
package or Python, the operating system, the code of a checkout; or it cannot be found out."""

WEAK: Final = "text"
"""The field of a cause that says only that a shard's text differs; a corpus, if one is found, says why."""


@dataclass(frozen=True)
class Cause:
    """One cause.

    Attributes:
        sort: what differs.
        artifact: where it enters, as `kind/name`.
        field: e.g. `balance.temperature`, `web` (a source), `pyarrow` (a package).
        a, b: both values; `Absent.ABSENT` where there is none.
        text: what differs, as a sentence without a full stop.
        details: more of it, a line each: the files of a source.
        data: the same for programs.
        through: the artifacts by which it reaches the compared ones, the nearest to the cause first.
        follows: whether it is only what follows where another stage takes part, such as a card that is also
            made from the documents held out; no cause beside that stage.
    """

    sort: Sort
    artifact: str
    field: str
    a: Any
    b: Any
    text: str
    details: Sequence[str] = ()
    data: Mapping[str, Any] = field_of(default_factory=dict)
    through: Sequence[str] = ()
    follows: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for causes that are one: a parameter that several stages take, a source of several shards.

        `balance.weights.web` and `mix.weights.web` are two, even if both change alike.
        """
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


_SECTIONS: Final = {"count": "train", "pack_plan": "pack", "tokenizer_card": "card"}
"""Stages that take the parameters of another one's section of the profile."""

_OF_PACK: Final = {"mix.sequence_length"}
"""Parameters that a stage takes from the profile's `[pack]`."""


def once_each(causes: Iterable[Cause]) -> list[Cause]:
    """Return the causes, each once; without what only follows from others of them.

    That a shard's text differs is no cause beside one that entered at a corpus.
    """
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


_LONGEST: Final = 60
