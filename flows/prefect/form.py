"""The form of a deployment in the Prefect UI: one plain field per value, filled in with the profile's.

The form is a JSON schema, which the server also checks a run's parameters against, before it accepts the run.
It has one section per table of the profile. Prefect's pages show a whole number, a number, text, a choice, a
switch and a list of choices as one field each; anything else (a value that may be null, a union, a table with
free keys) becomes a toggle or a JSON editor. So:

- a value that may be unset is a field without a default: left empty, it stays unset;
- a value by source is one number field per source of the profile;
- bounds, choices and descriptions are those of the profile's models.

A default is what the field shows, not what the run uses: see `flows.prefect.flow_run`.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata
from typing import Any, TypeAlias, get_args

from tokmill.flows.prefect.flow_run import KEPT, SHOWN
from tokmill.flows.profile import Profile
from tokmill.flows.profile.model import SIZE
from tokmill.flows.profile.sections import Kind, StageName

Schema: TypeAlias = dict[str, Any]

_KEPT_VERSIONS = 20
_MOST_SOURCES = 40  # a longer list of number fields is no form; `more` takes them
_RULES = (
    *("type", "enum", "pattern", "minLength", "maxLength", "minItems", "maxItems"),
    *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"),
)
MACHINE: Mapping[str, Schema] = {
    "more": {
        "title": "More",
        "items": {"type": "string", "pattern": r"^[^=]+=.*"},
        "description": "Any other value of the profile, as section.key=value, e.g. encode.min_tokens=16.",
    },
    "until": {
        "title": "Until",
        "items": {"type": "string", "enum": list(get_args(Kind))},
        "description": "Make these artifacts and what they are made from, but nothing else; empty for all.",
    },
    "refresh": {
        "title": "Refresh",
        "items": {"type": "string", "enum": list(get_args(StageName))},
        "description": "Stages whose artifacts are made again although the store has them. What comes out "
        "equal leaves what follows as it is.",
    },
    "verify": {},
    "rehash": {},
    "workers": {},
    "memory": {"pattern": f"^$|{SIZE}"},
    "store": {},
}
"""The fields of the machine; those that `[execution]` has are described and ruled there."""


SECTIONS: Mapping[str, tuple[str, Sequence[str]]] = {
    "train": (
        "Tokenizer: training",
        ("family", "vocab_size", "split_pattern", "normalizer", "min_frequency"),
    ),
    "balance": (
        "Tokenizer: shares of the sources",
        ("method", "temperature", "weights", "max_repetition"),
    ),
    "tokenizer": ("Tokenizer", ("use",)),
    "mix": (
        "Training data: shares of the sources",
        (
            *("method", "temperature", "weights", "schedule", "schedule_unit"),
            *("max_repetition", "total_tokens", "seed"),
        ),
    ),
    "pack": (
        "Training data: sequences",
        ("sequence_length", "strategy", "long_documents", "formats"),
    ),
    "holdout": ("Holdout", ("share", "seed")),
    "audit": (
        "Audit and its gate",
        (
            *("sample_megabytes", "min_bytes_per_token", "max_fertility", "max_unknown_share"),
            *("max_premium", "max_unused_share", "max_regression", "no_unreachable", "on_failure"),
        ),
    ),
    "experiment": ("Experiment", ("name", "tags", "notes")),
}
"""The profile's tables in the form: heading, and keys in its order."""


def form_of(
    profile: Profile | None, sections: Iterable[str], choices: Iterable[str], machine: Iterable[str] = MACHINE
) -> Schema:
    """Return the schema of a form."""
    names = list(choices)
    properties: dict[str, Schema] = {"profile": _profile_field(names)}
    for name in sections:
        fields = _fields(profile, name)
        if fields:
            properties[name] = {
                "title": SECTIONS[name][0],
                "type": "object",
                "properties": fields,
                "additionalProperties": False,
            }
    for name in machine:
        properties[name] = _machine_field(profile, name)
    return {
        "title": "Parameters",
        "type": "object",
        "properties": in_order(properties),
        "required": ["profile"],
        "additionalProperties": False,
        "definitions": {},
    }


def version_of(schema: Schema) -> str:
    """Return the version of a deployment: that of tokmill, and digits that change with the form."""
    text = json.dumps(schema["properties"], sort_keys=True)
    return f"{metadata.version('tokmill')}+{hashlib.blake2b(text.encode()).hexdigest()[:8]}"


def shown_in(schema: Schema) -> dict[str, Any]:
    """Return section → key → the value that a form shows."""
    shown = {name: _defaults(field) for name, field in schema["properties"].items() if "properties" in field}
    return {name: values for name, values in shown.items() if values}


def keeping(schema: Schema, earlier: Schema | None, **kept: Any) -> Schema:
    """Return a schema with what earlier forms showed, and what else is `kept` for the next registration."""
    known = kept_in(earlier).get(SHOWN, {})
    versions = {key: value for key, value in known.items() if key != version_of(schema)}
    latest = dict(list(versions.items())[1 - _KEPT_VERSIONS :])
    return schema | {"definitions": {KEPT: {SHOWN: latest | {version_of(schema): shown_in(schema)}, **kept}}}


def kept_in(schema: Schema | None) -> dict[str, Any]:
    """Return what a registered schema keeps; empty for one that is not ours."""
    found: dict[str, Any] = ((schema or {}).get("definitions") or {}).get(KEPT, {})
    return found


def _profile_field(choices: list[str]) -> Schema:
    field: Schema = {
        "title": "Profile",
        "type": "string",
        "description": "The run reads the file as it is when the run starts.",
    }
    if choices:
        field["enum"] = choices
    return field | ({"default": choices[0]} if len(choices) == 1 else {})


def _machine_field(profile: Profile | None, name: str) -> Schema:
    field = _described("execution").get(name)
    if field is None:
        return {**MACHINE[name], "type": "array", "default": []}
    value = None if profile is None or name == "store" else getattr(profile.execution, name)
    return field_of(name, field, value) | MACHINE[name]


def field_of(name: str, described: Schema, value: Any) -> Schema:
    """Return a field that shows a plain value."""
    text = {"title": label_of(name), "description": described["description"]}
    return text | (_plain(described, value, None) or {})


def _fields(profile: Profile | None, name: str) -> dict[str, Schema]:
    """Return the fields of a section; none if the profile has no use for it."""
    if profile is not None and not _used(profile, name):
        return {}
    described = _described(name)
    values = _values(profile, name)
    fields = {}
    for key in SECTIONS[name][1]:
        given = _plain(described[key], values.get(key), profile)
        if given is not None and not (name == "holdout" and key != "share" and not values):
            text = f"{name}.{key}: {described[key]['description']}"
            fields[key] = {"title": label_of(key), "description": text} | given
    return in_order(fields)


def label_of(key: str) -> str:
    """Return the label of a field: `vocab_size` → `Vocab size`."""
    return key.replace("_", " ").capitalize()


@cache  # it takes as long as all else of a form
def _described(name: str) -> Mapping[str, Schema]:
    """Return the schemas of the fields of one of the profile's tables; nobody changes them."""
    schema = Profile.model_json_schema()
    table = schema["properties"][name]
    reference: str = table.get("$ref") or table["anyOf"][0]["$ref"]
    fields: Mapping[str, Schema] = schema["$defs"][reference.rpartition("/")[2]]["properties"]
    return fields


def _used(profile: Profile, name: str) -> bool:
    trains = profile.training() is not None
    return {"train": trains, "balance": trains, "tokenizer": not trains}.get(name, True)


def _values(profile: Profile | None, name: str) -> dict[str, Any]:
    if profile is None:
        return {}
    section = profile.training() if name == "train" else getattr(profile, name)
    return {} if section is None else dict(section.model_dump(mode="json", exclude_none=True))


def _plain(field: Schema, value: Any, profile: Profile | None) -> Schema | None:
    """Return a field that Prefect's pages show as one, with the profile's value; None if there is none."""
    options = [one for one in field.get("anyOf", [field]) if one["type"] != "null"]
    by_name = next((one for one in options if "additionalProperties" in one), None)
    if by_name is not None and (isinstance(value, Mapping) or len(options) == 1):
        return _by_source(by_name, value or {}, profile)
    (plain, *_) = [one for one in options if one is not by_name]
    items = plain.get("items")
    if items is not None and "$ref" in items:
        return _points(value or [], profile)
    rules = {rule: plain[rule] for rule in _RULES if rule in plain}
    if items is not None:
        rules["items"] = dict(items)
    return rules if value is None else rules | {"default": value}


def _by_source(field: Schema, values: Mapping[str, Any], profile: Profile | None) -> Schema | None:
    """Return one number field per source; for other names than sources, per name that has a value."""
    sources = [] if profile is None else list(profile.sources)
    names = [*values] if not set(values) <= set(sources) else sources
    if not names or len(names) > _MOST_SOURCES:
        return None
    inner = field["additionalProperties"]
    rules = {rule: inner[rule] for rule in _RULES if rule in inner}
    fields = {
        name: {"title": name, **rules, **({"default": values[name]} if name in values else {})}
        for name in names
    }
    return {"type": "object", "properties": in_order(fields), "additionalProperties": False}


def _points(points: list[dict[str, Any]], profile: Profile | None) -> Schema | None:
    """Return the list of a schedule's points: from where on, and the weights of the sources."""
    weights = _by_source({"additionalProperties": {"type": "number", "minimum": 0}}, {}, profile)
    if weights is None or any(point.get("proportions") for point in points):
        return None
    shown = [{"start": point["start"], "weights": point["weights"]} for point in points]
    start = {"title": "From", "type": "number", "minimum": 0}
    fields = in_order({"start": start, "weights": {"title": "Weights", **weights}})
    point = {"type": "object", "properties": fields, "required": ["start", "weights"]}
    return {"type": "array", "items": point | {"additionalProperties": False}, "default": shown}


def _defaults(field: Schema) -> dict[str, Any]:
    """Return key → the shown value of the fields of an object."""
    found = {}
    for key, inner in field["properties"].items():
        value = _defaults(inner) if "properties" in inner else inner.get("default")
        if value is not None and value != {}:
            found[key] = value
    return found


def in_order(fields: Mapping[str, Schema]) -> dict[str, Schema]:
    """Return fields that Prefect's pages show in this order."""
    return {name: {**field, "position": index} for index, (name, field) in enumerate(fields.items())}
