"""Every key that a profile may have, with its type, default and meaning, read off the models themselves."""

import json
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tokmill.flows.profile.model import Profile
from tokmill.flows.profile.shape import models_in

_WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false"}
_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
# Filled in from the rest of the profile, never written in one.
_DERIVED = {("ingest", "sources")}


@dataclass(frozen=True)
class Key:
    """One key of a profile.

    Attributes:
        section: the table it stands in, e.g. `pack` or `sources.NAME`; empty at the top.
        name: the key.
        kind: what it holds, in words.
        default: as TOML; `required` where there is none, empty where it is left unset.
        description: what it means.
    """

    section: str
    name: str
    kind: str
    default: str
    description: str


def profile_keys() -> list[Key]:
    """Return every key, section after section, in the order of the models."""
    models = {name: _model_of(field) for name, field in Profile.model_fields.items()}
    top = [_key("", name, Profile.model_fields[name]) for name, model in models.items() if model is None]
    extends = Key(
        "", "extends", "text", "", "A profile to start from: a file, relative to this one, or a shipped name."
    )
    below = [
        key
        for name, model in models.items()
        if model is not None
        for key in _keys("sources.NAME" if name == "sources" else name, model)
    ]
    return [*top, extends, *below]


def _keys(section: str, model: type[BaseModel]) -> Iterator[Key]:
    """Yield the keys of a table, then those of the tables in it."""
    fields = {name: field for name, field in model.model_fields.items() if (section, name) not in _DERIVED}
    for name, field in fields.items():
        yield _key(section, name, field)
    for name, field in fields.items():
        inner = _model_of(field)
        if inner is not None:
            yield from _keys(_table_name(f"{section}.{name}", field.annotation), inner)


def _table_name(path: str, annotation: object) -> str:
    """Name the tables that a field holds: `a.b.SOURCE` for one per source, `[a.b]` for a list of them."""
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
    """Say a type: `text`, `"concat" or "greedy"`, `list of text`, `table of numbers`."""
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
