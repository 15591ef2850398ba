"""Lists every key of a profile with its type, default and meaning, from the models' fields."""

import json
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tokmill.flows.profile.fields import models_in
from tokmill.flows.profile.model import Profile

_WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false"}
_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
# Derived from the rest of the profile, never set in one.
_DERIVED = {("ingest", "sources")}


@dataclass(frozen=True)
class Key:
    """One key of a profile.

    Attributes:
        section: its table, e.g. `pack` or `sources.NAME`; empty for keys outside of tables.
        name: the key.
        kind: its type and bounds as text.
        default: as TOML; `required` if there is none, empty if it is unset.
        description: its meaning.
    """

    section: str
    name: str
    kind: str
    default: str
    description: str


def profile_keys() -> list[Key]:
    """Return every key, grouped by section, in the order of the models."""
    models = {name: _model_of(field) for name, field in Profile.model_fields.items()}
    top = [_key("", name, Profile.model_fields[name]) for name, model in models.items() if model is None]
    extends = Key(
        "",
        "extends",
        "text",
        "",
        "Profile to start from: a file, relative to this one, or a shipped name.",
    )
    below = [
        key
        for name, model in models.items()
        if model is not None
        for key in _keys("sources.NAME" if name == "sources" else name, model)
    ]
    return [*top, extends, *below]


def _keys(section: str, model: type[BaseModel]) -> Iterator[Key]:
    """Yield the keys of a table, then those of its subtables."""
    fields = {name: field for name, field in model.model_fields.items() if (section, name) not in _DERIVED}
    for name, field in fields.items():
        yield _key(section, name, field)
    for name, field in fields.items():
        inner = _model_of(field)
        if inner is not None:
            yield from _keys(_table_name(f"{section}.{name}", field.annotation), inner)


def _table_name(path: str, annotation: object) -> str:
    """Return the heading of a field's tables: `a.b.SOURCE` for one per source, `[a.b]` for a list."""
    origin = typing.get_origin(annotation)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"{path}.SOURCE"
    return f"[{path}]" if origin in (list, tuple) else path


def _key(section: str, name: str, field: FieldInfo) -> Key:
    return Key(section, name, _kind(field), _default(field), field.description or "")


def _model_of(field: FieldInfo) -> type[BaseModel] | None:
    return next(iter(models_in(field.annotation)), None)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "" if field is Profile.model_fields["name"] else "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    return "" if value is None or value in ("", {}, [], ()) else _toml(value)


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return json.dumps(value, ensure_ascii=False)


def _kind(field: FieldInfo) -> str:
    bounds = [
        f"{sign} {getattr(rule, name):,}"
        for rule in field.metadata
        for name, sign in _BOUNDS.items()
        if getattr(rule, name, None) is not None
    ]
    return " ".join([_words(field.annotation), " and ".join(bounds)]).strip()


def _words(annotation: object) -> str:
    """Return a type as text: `text`, `"concat" or "greedy"`, `list of text`, `table of numbers`."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _words(arguments[0])
    if origin is Literal:
        return " or ".join(json.dumps(choice) for choice in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(part) for part in arguments if part is not types.NoneType)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"table of {_words(arguments[1])}"
    if origin in (list, tuple, set, frozenset):
        return f"list of {_words(arguments[0])}"
    return _WORDS.get(annotation, "table") if isinstance(annotation, type) else str(annotation)
