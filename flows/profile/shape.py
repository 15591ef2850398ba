"""Finds the models, fields and keys of a profile by key path."""

import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import BaseModel
from pydantic.fields import FieldInfo

KeyPath: typing.TypeAlias = tuple[str, ...]
Models: typing.TypeAlias = Sequence[type[BaseModel]]


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
