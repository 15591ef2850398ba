"""The fields of a profile by key path: their models, keys, and which of them overrides change.

An override that repeats the profile's own value, or its default, changes nothing. So a form that is filled
with a profile's values, and sends all of them, has the same changes as one field typed by hand.
"""

import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tokmill.tasks.core.markdown import number

KeyPath: typing.TypeAlias = tuple[str, ...]
Models: typing.TypeAlias = Sequence[type[BaseModel]]
_MACHINE: Final = "execution"
_MEANT: Final = ("balance", "train", "pack")
_NAMED: Final = 3
_LONGEST_VALUE: Final = 24


def models_at(model: type[BaseModel], path: Iterable[str]) -> Models:
    """Return the models of the table at `path`; several if the field is a union of models."""
    models: Models = [model]
    through_mapping = False
    for key in path:
        if through_mapping:
            through_mapping = False
            continue
        fields = [found.model_fields[key] for found in models if key in found.model_fields]
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
        (found.model_fields[key] for found in models_at(model, above) if key in found.model_fields), None
    )


def keys_of(models: Models) -> Iterator[str]:
    """Yield the keys of the models."""
    for model in models:
        yield from model.model_fields


def section_keys(model: type[BaseModel]) -> Iterator[KeyPath]:
    """Yield every key of the profile's fixed sections: `("train", "vocab_size")`."""
    for section, field in model.model_fields.items():
        if not _is_mapping(field.annotation):
            for inner in models_in(field.annotation):
                yield from ((section, key) for key in inner.model_fields)


def may_be_unset(model: type[BaseModel], path: KeyPath) -> bool:
    """Whether the field at `path` may be None."""
    field = field_at(model, path)
    return field is not None and types.NoneType in typing.get_args(field.annotation)


class Change(NamedTuple):
    """One field of a profile that an override changes.

    Attributes:
        path: its keys, e.g. `("balance", "temperature")`.
        before: the profile's own value; None if it has none.
        after: the value of the run; None if it has none.
    """

    path: tuple[str, ...]
    before: Any
    after: Any

    @property
    def field(self) -> str:
        """The field as `--set` names it: `balance.temperature`."""
        return ".".join(self.path)


def changes_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return the fields that differ between two profiles, resolved, in the order of the second one."""
    left, right = dict(_fields(before)), dict(_fields(after))
    paths = [*right, *(path for path in left if path not in right)]
    return tuple(
        Change(path, left.get(path), right.get(path)) for path in paths if left.get(path) != right.get(path)
    )


def in_words(changes: Sequence[Change], model: type[BaseModel]) -> list[str]:
    """Return what changes say about a run, for its name: `temperature 5`, `mix method unimax`.

    A field of several sections is named with its own, unless people mean that one: of the balance, the
    training or the packing. Settings of the machine are left out, since they change no result.
    """
    here = [change for change in changes if change.path[0] != _MACHINE]
    differing = [change for change in here if change.after is not None] or here  # a rule may drop another's
    words = [_words(change, _sections(model)) for change in differing[:_NAMED]]
    rest = len(differing) - _NAMED
    return words if rest <= 0 else [*words, f"{rest} more"]


def value_in_words(value: Any) -> str:
    """Return a value as people write it: `5` for 5.0, `16,384`, `a, b` for a list, `unset` for None."""
    if value is None:
        return "unset"
    if isinstance(value, list | tuple):
        return ", ".join(map(value_in_words, value)) or "none"
    if isinstance(value, bool | int | float | str):
        return number(value)
    return str(value)


def _words(change: Change, first: Mapping[str, str]) -> str:
    section, *keys = change.path
    alone = len(keys) == 1 and first.get(keys[0]) == section
    value = value_in_words(change.after)
    if len(value) > _LONGEST_VALUE:
        value = f"{value[: _LONGEST_VALUE - 1]}…"
    return f"{' '.join(keys if alone else change.path).replace('_', ' ')} {value}"


def _sections(model: type[BaseModel]) -> Mapping[str, str]:
    """Return field → the section that people mean by it."""
    first: dict[str, str] = {}
    for section in (*_MEANT, *model.model_fields):
        for key in keys_of(models_at(model, (section,))):
            first.setdefault(key, section)
    return first


def _fields(value: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from _fields(item, (*path, key))
        else:
            yield (*path, key), item
