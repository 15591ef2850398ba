"""The form of a deployment in the Prefect UI, as a JSON schema, against which the server checks parameters.

Prefect's pages show plain values and lists of choices as one field each; what may be null, a union, or free
keys become toggles or JSON editors. So what may be unset has no default, and sources a number each.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias, get_args

from tokmill.flows.profile import Profile
from tokmill.flows.profile.load import parse_override
from tokmill.flows.profile.model import SIZE
from tokmill.flows.profile.sections import Kind, StageName

Schema: TypeAlias = dict[str, Any]
Section: TypeAlias = dict[str, Any] | None
"""Values of one table of the profile, by key; None for the profile's own."""

_MOST_SOURCES: Final = 40  # a longer list of number fields is no form; `more` takes them
_RULES: Final = (
    *("type", "enum", "pattern", "minLength", "maxLength", "minItems", "maxItems"),
    *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"),
)
_LIST: Final[Schema] = {"type": "array", "default": []}
MACHINE: Final[Mapping[str, Schema]] = {
    "more": {
        **_LIST,
        "title": "More",
        "items": {"type": "string", "pattern": r"^[^=]+=.*"},
        "description": "Any other value of the profile, as section.key=value, e.g. encode.min_tokens=16.",
    },
    "until": {
        **_LIST,
        "title": "Until",
        "items": {"type": "string", "enum": list(get_args(Kind))},
        "description": "Make these artifacts and what they are made from, but nothing else; empty for all.",
    },
    "refresh": {
        **_LIST,
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

SECTIONS: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
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
    profile: Profile | None,
    sections: Sequence[str],
    choices: Sequence[str],
    machine: Iterable[str],
    own: Mapping[str, Schema],
) -> Schema:
    """Return the schema of a form: profile (if it has sections), the flow's own fields, sections, machine."""
    chosen = {
        "title": "Profile",
        "type": "string",
        "description": "The run reads the file as it is when the run starts.",
        **({"enum": list(choices)} if choices else {}),
        **({"default": choices[0]} if len(choices) == 1 else {}),
    }
    tables = {name: _section(profile, name) for name in sections}
    fields = {
        **({"profile": chosen} if sections else {}),
        **own,
        **{name: table for name, table in tables.items() if table["properties"]},
        **{name: _machine_field(profile, name) for name in machine},
    }
    return {**object_of("Parameters", fields), "required": ["profile"] if sections else [], "definitions": {}}


def object_of(title: str, fields: Mapping[str, Schema]) -> Schema:
    """Return a section of a form."""
    return {"title": title, "type": "object", "properties": in_order(fields), "additionalProperties": False}


def in_order(fields: Mapping[str, Schema]) -> dict[str, Schema]:
    """Return fields that Prefect's pages show in this order."""
    return {name: {**field, "position": index} for index, (name, field) in enumerate(fields.items())}


def _machine_field(profile: Profile | None, name: str) -> Schema:
    described = _described("execution").get(name)
    if described is None:
        return MACHINE[name]
    value = None if profile is None or name == "store" else getattr(profile.execution, name)
    return field_of(name, described, value) | MACHINE[name]


def field_of(name: str, described: Schema, value: Any) -> Schema:
    """Return a field that shows a plain value."""
    text = {"title": label_of(name), "description": described["description"]}
    return text | (_plain(described, value, None) or {})


def label_of(key: str) -> str:
    """Return the label of a field: `vocab_size` → `Vocab size`."""
    return key.replace("_", " ").capitalize()


def _section(profile: Profile | None, name: str) -> Schema:
    """Return a section, without fields if the profile has no use for it."""
    title, keys = SECTIONS[name]
    described, values, fields = _described(name), dict[str, Any](), dict[str, Schema]()
    if profile is not None:
        trains = profile.training() is not None
        if not {"train": trains, "balance": trains, "tokenizer": not trains}.get(name, True):
            return object_of(title, {})
        values = values_of(profile, name)
    if name == "holdout" and not values:
        keys = ("share",)
    for key in keys:
        plain = _plain(described[key], values.get(key), profile)
        if plain is not None:
            text = f"{name}.{key}: {described[key]['description']}"
            fields[key] = {"title": label_of(key), "description": text} | plain
    return object_of(title, fields)


@cache  # it takes as long as all else of a form
def _described(name: str) -> Mapping[str, Schema]:
    """Return the schemas of the fields of one of the profile's tables; nobody changes them."""
    schema = Profile.model_json_schema()
    table = schema["properties"][name]
    reference: str = table.get("$ref") or table["anyOf"][0]["$ref"]
    fields: Mapping[str, Schema] = schema["$defs"][reference.rpartition("/")[2]]["properties"]
    return fields


def _plain(field: Schema, value: Any, profile: Profile | None) -> Schema | None:
    """Return a field that Prefect's pages show as one, with the profile's value; None if there is none."""
    options = [one for one in field.get("anyOf", [field]) if one["type"] != "null"]
    by_name = next((one for one in options if "additionalProperties" in one), None)
    if by_name is not None and (isinstance(value, Mapping) or len(options) == 1):
        return _by_source(by_name["additionalProperties"], value or {}, profile)
    (plain, *_) = [one for one in options if one is not by_name]
    items = plain.get("items")
    if items is not None and "$ref" in items:
        return _points(value or [], profile)
    rules = {rule: plain[rule] for rule in _RULES if rule in plain}
    rules |= {} if items is None else {"items": dict(items)}
    return rules if value is None else rules | {"default": value}


def _by_source(number: Schema, values: Mapping[str, Any], profile: Profile | None) -> Schema | None:
    """Return one number field per source; for other names than sources, per name that has a value."""
    sources = [] if profile is None else list(profile.sources)
    names = sources if set(values) <= set(sources) else [*values]
    if not names or len(names) > _MOST_SOURCES:
        return None
    rules = {rule: number[rule] for rule in _RULES if rule in number}
    fields = {
        name: {"title": name, **rules, **({"default": values[name]} if name in values else {})}
        for name in names
    }
    return {"type": "object", "properties": in_order(fields), "additionalProperties": False}


def _points(points: list[dict[str, Any]], profile: Profile | None) -> Schema | None:
    """Return the list of a schedule's points: from where on, and the weights of the sources."""
    weights = _by_source({"type": "number", "minimum": 0}, {}, profile)
    if weights is None or any(point.get("proportions") for point in points):
        return None
    fields = {
        "start": {"title": "From", "type": "number", "minimum": 0},
        "weights": {"title": "Weights", **weights},
    }
    shown = [{key: point[key] for key in fields} for point in points]
    return {"type": "array", "items": object_of("Point", fields) | {"required": [*fields]}, "default": shown}


def overrides_of(
    sections: Mapping[str, Section], more: Sequence[str], profile: Profile | None
) -> dict[str, Any]:
    """Return the values that replace the profile's own, as tables: those that differ from them.

    Raises:
        ProfileError: one of `more` is not of that form.
    """
    own = {} if profile is None else {name: values_of(profile, name) for name in sections}
    return changed(sections, own) | dict(map(parse_override, more))


def values_of(profile: Profile, table: str) -> dict[str, Any]:
    """Return the values of one of a profile's tables, as a form shows them."""
    section = profile.training() if table == "train" else getattr(profile, table)
    return {} if section is None else dict(section.model_dump(mode="json", exclude_none=True))


def changed(values: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that differ; tables key by key, and an empty field is the profile's own."""
    new: dict[str, Any] = {}
    for key, value in values.items():
        before = own.get(key)
        if isinstance(value, Mapping):
            if below := changed(value, before if isinstance(before, Mapping) else {}):
                new[key] = below
        elif value is not None and (value != before or key not in own):
            new[key] = value
    return new
