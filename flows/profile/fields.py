"""The fields of a profile by key path: what they take and mean, and which of them overrides change.

An override that repeats the profile's own value, or its default, changes nothing. So a form that is filled
with a profile's values, and sends all of them, has the same changes as one field typed by hand.
"""

import json
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tokmill.tasks.core.markdown import number

KeyPath: typing.TypeAlias = tuple[str, ...]
_MACHINE: Final = "execution"
_MEANT: Final = ("balance", "train", "pack")
_NAMED: Final = 3
_LONGEST_VALUE: Final = 24
_KINDS: Final = {str: "text", int: "whole number", float: "number", bool: "true or false"}
_BOUNDS: Final = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
_DERIVED: Final = {("ingest", "sources")}
"""Keys that follow from the rest of the profile, never set in one."""


def models_at(model: type[BaseModel], path: Iterable[str]) -> Sequence[type[BaseModel]]:
    """Return the models of the table at `path`; several if the field is a union of models."""
    models: Sequence[type[BaseModel]] = [model]
    through_mapping = False
    for key in path:
        if through_mapping:
            through_mapping = False
            continue
        fields = [each.model_fields[key] for each in models if key in each.model_fields]
        models = [inner for field in fields for inner in models_in(field.annotation)]
        through_mapping = any(_is_mapping(field.annotation) for field in fields)
    return models


def models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the models in an annotation, including those in optionals, unions, lists and mappings."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        if issubclass(annotation, BaseModel):
            yield annotation
        return
    for argument in typing.get_args(annotation):
        yield from models_in(argument)


def _is_mapping(annotation: object) -> bool:
    origin = typing.get_origin(annotation)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def field_at(model: type[BaseModel], path: KeyPath) -> FieldInfo | None:
    """Return the field at `path`, or None if the key is unknown."""
    *above, key = path or ("",)
    return next(
        (each.model_fields[key] for each in models_at(model, above) if key in each.model_fields), None
    )


def may_be_unset(model: type[BaseModel], path: KeyPath) -> bool:
    """Whether the field at `path` may be None."""
    field = field_at(model, path)
    return field is not None and types.NoneType in typing.get_args(field.annotation)


class Change(NamedTuple):
    """A field that an override changes: its keys, the profile's own value, and the run's; None for none."""

    path: tuple[str, ...]
    before: Any
    after: Any

    @property
    def field(self) -> str:
        """The field as `--set` names it: `balance.temperature`."""
        return ".".join(self.path)


def changes_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return the fields that differ between two profiles, resolved, in the order of the second one."""
    old, new = dict(_values(before)), dict(_values(after))
    return tuple(
        Change(path, old.get(path), new.get(path))
        for path in dict.fromkeys([*new, *old])
        if old.get(path) != new.get(path)
    )


def _values(value: Mapping[str, Any], path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from _values(item, (*path, key))
        else:
            yield (*path, key), item


def in_words(changes: Sequence[Change], model: type[BaseModel]) -> list[str]:
    """Return what changes say about a run, for its name: `temperature 5`, `mix method unimax`.

    A field of several sections is named with its own, unless people mean that one: of the balance, the
    training or the packing. Settings of the machine are left out, since they change no result.
    """
    owners: dict[str, str] = {}
    for section in (*_MEANT, *model.model_fields):
        for owner in models_at(model, (section,)):
            for key in owner.model_fields:
                owners.setdefault(key, section)
    here = [change for change in changes if change.path[0] != _MACHINE]
    differing = [change for change in here if change.after is not None] or here  # a rule may drop another's
    words = []
    for change in differing[:_NAMED]:
        section, *keys = change.path
        alone = len(keys) == 1 and owners.get(keys[0]) == section
        value = value_in_words(change.after)
        value = value if len(value) <= _LONGEST_VALUE else f"{value[: _LONGEST_VALUE - 1]}…"
        words.append(f"{' '.join(keys if alone else change.path).replace('_', ' ')} {value}")
    return [*words, *([f"{len(differing) - _NAMED} more"] if len(differing) > _NAMED else [])]


def value_in_words(value: Any) -> str:
    """Return a value as people write it: `5` for 5.0, `16,384`, `a, b` for a list, `unset` for None."""
    if value is None:
        return "unset"
    if isinstance(value, list | tuple):
        return ", ".join(map(value_in_words, value)) or "none"
    return number(value)


@dataclass(frozen=True)
class Key:
    """A key of a profile: its table, name, type with bounds, default as TOML or `required`, and meaning."""

    section: str
    name: str
    kind: str
    default: str
    description: str


def profile_keys(model: type[BaseModel]) -> list[Key]:
    """Return every key of the model of profiles, grouped by section, in the order of the fields."""
    extends = "Profile to start from: a file, relative to this one, or a shipped name."
    below, top = list[Key](), list[Key]()
    for name, field in model.model_fields.items():
        if inner := next(models_in(field.annotation), None):
            below += _keys("sources.NAME" if name == "sources" else name, inner)
        else:
            default = "" if name == "name" else _default(field)  # its default is the file's name
            top.append(Key("", name, _kind(field), default, field.description or ""))
    return [*top, Key("", "extends", "text", "", extends), *below]


def _keys(section: str, model: type[BaseModel]) -> Iterator[Key]:
    """Yield the keys of a table, then those of its subtables: `a.b.SOURCE` of a table, `[a.b]` of a list."""
    fields = {name: field for name, field in model.model_fields.items() if (section, name) not in _DERIVED}
    for name, field in fields.items():
        yield Key(section, name, _kind(field), _default(field), field.description or "")
    for name, field in fields.items():
        if inner := next(models_in(field.annotation), None):
            path, is_list = f"{section}.{name}", typing.get_origin(field.annotation) in (list, tuple)
            heading = f"{path}.SOURCE" if _is_mapping(field.annotation) else f"[{path}]" if is_list else path
            yield from _keys(heading, inner)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    return "" if value is None or value in ("", {}, [], ()) else json.dumps(value, ensure_ascii=False)


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
    if _is_mapping(annotation):
        return f"table of {_words(arguments[1])}"
    if origin in (list, tuple, set, frozenset):
        return f"list of {_words(arguments[0])}"
    return _KINDS.get(annotation, "table") if isinstance(annotation, type) else str(annotation)
