"""Checks events of OpenLineage against its published schemas, and the classes that are generated from them.

`check_event` has the classes, which `openlineage-python` brings. Strictly: a field that the schema does not
have, a required one that is missing, a value of another type, a facet whose `_schemaURL` names another
schema, and what the classes themselves check (moments, UUIDs) are all errors; and so is a producer that is no
URI, or is not ours.

`SCHEMAS` has the schemas themselves, if TOKMILL_OPENLINEAGE_SPEC names the folder `spec` of a checkout of
OpenLineage's repository. They are found by their files' names, since the checkout has one version of each.
"""

import importlib
import json
import os
import pkgutil
import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attr
from jsonschema import Draft202012Validator, FormatChecker
from openlineage.client import generated
from openlineage.client.event_v2 import RunEvent
from openlineage.client.generated import base
from referencing import Registry, Resource

from tokmill.flows.tracking.datasets import PRODUCER

SCHEMAS = os.environ.get("TOKMILL_OPENLINEAGE_SPEC", "")
_PRIVATE = ("_producer", "_schemaURL", "_deleted")


def _facets() -> dict[str, type]:
    """Return every class of facets by the URL of its schema."""
    found: dict[str, type] = {}
    for module in pkgutil.iter_modules(generated.__path__, f"{generated.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and attr.has(value) and hasattr(value, "_get_schema"):
                found[value._get_schema()] = value
    return found


FACETS = _facets()


def check_event(event: Mapping[str, Any]) -> None:
    """Raise ValueError, TypeError or AssertionError unless an event is as the schemas say."""
    given = dict(event)
    assert given["producer"] == PRODUCER
    for facet in facets_in(event):  # the client adds its own version to the tags, and makes the facet anew
        assert facet["_producer"] == PRODUCER or "/TagsRunFacet.json" in facet["_schemaURL"]
    assert urlsplit(PRODUCER).scheme, "the schemas ask for a URI"
    assert given.pop("schemaURL") == RunEvent._get_schema()
    _check(RunEvent, given, "event")


def facets_in(given: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the facets in an event, or in a part of it."""
    if isinstance(given, dict):
        if "_schemaURL" in given:
            yield given
        for each in given.values():
            yield from facets_in(each)
    elif isinstance(given, list):
        for each in given:
            yield from facets_in(each)


def schema_errors(event: Mapping[str, Any], folder: Path) -> list[str]:
    """Return what the schemas in a folder have against an event and its facets; [] if nothing."""
    formats = FormatChecker()
    formats.checks("uri")(lambda value: not isinstance(value, str) or bool(urlsplit(value).scheme))
    registry: Registry[Any] = Registry(retrieve=lambda url: _schema(folder, url))
    named = [(event["schemaURL"], event), *((facet["_schemaURL"], facet) for facet in facets_in(event))]
    found = []
    for url, value in named:
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": url}
        validator = Draft202012Validator(schema, registry=registry, format_checker=formats)
        found += [f"{url}: {error.json_path}: {error.message}" for error in validator.iter_errors(value)]
    return found


def _schema(folder: Path, url: str) -> "Resource[Any]":
    """Return the schema of a URL, whatever its version; its own URL stays as it is asked for."""
    name = urlsplit(url).path.rpartition("/")[2]
    (path,) = [path for path in folder.rglob(name) if "registry" not in path.parts]
    return Resource.from_contents({**json.loads(path.read_bytes()), "$id": url})


def _check(cls: type, given: Mapping[str, Any], where: str) -> None:
    """Check an object, and what it consists of; then have its class check the rest."""
    known = {**vars(typing), **vars(base), **vars(importlib.import_module(cls.__module__))}
    hints = typing.get_type_hints(cls, known)
    fields = {field.name.strip("_"): field for field in attr.fields(cls)}
    for name, value in given.items():
        bare = name.strip("_")
        assert bare in fields, f"{where}: {name} is in no schema of {cls.__name__}"
        _check_value(hints[fields[bare].name], value, f"{where}.{name}")
    required = {name for name, field in fields.items() if field.default is attr.NOTHING}
    missing = required - {name.strip("_") for name in given}
    assert not missing, f"{where}: {missing} is missing"
    for name, value in given.items():
        validator = fields[name.strip("_")].validator
        if validator is not None:
            validator(None, fields[name.strip("_")], value)


def _check_value(hint: Any, value: Any, where: str) -> None:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        (hint,) = [each for each in arguments if each is not type(None)]
        _check_value(hint, value, where)
    elif origin is list:
        assert isinstance(value, list), where
        for number, each in enumerate(value):
            _check_value(arguments[0], each, f"{where}[{number}]")
    elif origin is dict:
        assert isinstance(value, dict), where
        for name, each in value.items():
            facet = isinstance(each, dict) and "_schemaURL" in each
            _check_value(FACETS[each["_schemaURL"]] if facet else arguments[1], each, f"{where}.{name}")
    elif isinstance(hint, type) and issubclass(hint, Enum):
        hint(value)
    elif attr.has(hint):
        _check(hint, value, where)
    elif hint is not Any:
        assert isinstance(value, (int, float) if hint is float else hint), f"{where}: {value!r}"
