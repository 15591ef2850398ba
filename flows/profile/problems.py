"""Turns pydantic's errors into messages about the keys of a profile.

pydantic reports each violated rule with a location, a type and the rule's numbers. Each becomes one sentence:
the dotted key and its value, the rule, the fix, the file of the value. Errors of the alternatives of a union
(`int | "all"`) are combined into one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tokmill.flows.errors import ProfileError, nearest, suggestion
from tokmill.flows.profile.fields import KeyPath, field_at, models_at
from tokmill.flows.profile.files import Layered, dotted

_RULES = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "multiple_of": "a multiple of {multiple_of}",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "string_pattern_mismatch": "of the form {pattern}",
    "string_too_short": "at least {min_length} characters long",
    "string_too_long": "at most {max_length} characters long",
    "too_short": "at least {min_length} long",
    "too_long": "at most {max_length} long",
    "finite_number": "a finite number",
}
_TYPES = {
    **{"int": "a whole number", "float": "a number", "bool": "true or false", "string": "text in quotes"},
    **dict.fromkeys(("list", "tuple", "set", "frozen_set"), "a list in [brackets]"),
    **dict.fromkeys(("dict", "mapping", "model"), "a table"),
}
_SHOWN_CHARS = 60


def profile_error(name: str, problems: Sequence[str]) -> ProfileError:
    """Return the error of a profile: a single problem on the first line, several below it."""
    if len(problems) == 1:
        return ProfileError(f"profile '{name}': {problems[0]}")
    listed = "".join(f"\n  - {problem}" for problem in problems)
    return ProfileError(f"profile '{name}': {len(problems)} problems{listed}")


def problems_of(error: ValidationError, model: type[BaseModel], layered: Layered) -> list[str]:
    """Return one sentence for every invalid value of the profile."""
    grouped: dict[KeyPath, list[ErrorDetails]] = {}
    for details in error.errors(include_url=False):
        grouped.setdefault(_key_path(details, layered.table), []).append(details)
    # a list may be too short only because invalid items are not counted
    return [
        _problem(path, errors, model, layered)
        for path, errors in grouped.items()
        if not all(details["type"] == "too_short" for details in errors)
        or not any(other[: len(path)] == path != other for other in grouped)
    ]


def first_problem(error: ValidationError) -> str:
    """Return the first value that breaks a rule: where, its value, and the rule; for what is no profile."""
    first = error.errors()[0]
    rule = first["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}={first['input']!r:.{_SHOWN_CHARS}}: {rule}" if place else rule


def written(value: object) -> str:
    """Return a value as it is written in a profile, shortened."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"


def place(layered: Layered, path: KeyPath) -> str:
    """Return the file of the value at `path`, or of the table around it, as ` (profiles/own.toml)`."""
    for length in range(len(path), 0, -1):
        origin = layered.origin(path[:length])
        if origin is not None:
            return f" ({origin})"
    return ""


def _problem(path: KeyPath, errors: Sequence[ErrorDetails], model: type[BaseModel], layered: Layered) -> str:
    first = errors[0]
    where = place(layered, path)
    if first["type"] == "extra_forbidden":
        return f"{_unknown_key(path, model)}{where}"
    if first["type"] == "missing":
        return f"{dotted(path)} is missing{_example(path, model, 'add e.g.')}{where}"
    key = dotted(path)
    if first["type"] in {"value_error", "assertion_error"}:  # one of our own messages
        message = str(first["ctx"]["error"])
        return f"{message if not key or message.startswith(key) else f'{key}: {message}'}{where}"
    rules = " or ".join(dict.fromkeys(_rule(details) for details in errors))
    fix = _nearest_choice(first) or _example(path, model, "use e.g.")
    return f"{key}={written(first['input'])} must be {rules}{fix}{where}"


def _rule(details: ErrorDetails) -> str:
    kind = details["type"]
    context = {
        key: f"{value:g}" if isinstance(value, float) else value
        for key, value in details.get("ctx", {}).items()
    }
    if kind in _RULES:
        return _RULES[kind].format(**context)
    base = next((base for base in _TYPES if kind.startswith(f"{base}_")), None)
    return _TYPES[base] if base else details["msg"].removeprefix("Input should be ").lower()


def _nearest_choice(details: ErrorDetails) -> str:
    if details["type"] not in {"literal_error", "enum"} or not isinstance(details["input"], str):
        return ""
    choices = [part.strip("' ") for part in str(details["ctx"]["expected"]).replace(" or ", ", ").split(",")]
    close = nearest(details["input"], choices)
    return f"; did you mean '{close}'?" if close else ""


def _example(path: KeyPath, model: type[BaseModel], lead: str) -> str:
    """Return `; use e.g. 2048` from the field's examples or its default, or nothing."""
    field = field_at(model, path)
    if field is None:
        return ""
    examples = field.examples or (
        [] if field.is_required() else [field.get_default(call_default_factory=False)]
    )
    if not examples or not isinstance(examples[0], str | int | float | list) or examples[0] == "":
        return ""
    return f"; {lead} {written(examples[0])}"


def _unknown_key(path: KeyPath, model: type[BaseModel]) -> str:
    *above, key = path
    known = [name for each in models_at(model, above) for name in each.model_fields]
    close = nearest(key, known)
    elsewhere = [
        (section, key)
        for section in model.model_fields
        if section != "sources" and any(key in each.model_fields for each in models_at(model, (section,)))
    ]
    if close is not None:
        hint = f"; did you mean {dotted((*above, close))}?"
    elif elsewhere:
        hint = f"; did you mean {dotted(elsewhere[0])}?"
    else:
        hint = suggestion(key, known, known_as=f"known in [{dotted(tuple(above))}]" if above else "known")
    return f"unknown key {dotted(path)}{hint}"


def _key_path(details: ErrorDetails, table: Mapping[str, Any]) -> KeyPath:
    """Return the error's location as keys of the profile, without the names of a union's alternatives."""
    path: list[str] = []
    value: Any = table
    for part in details["loc"]:
        if isinstance(value, dict) and part in value:
            value = value[part]
            path.append(str(part))
        elif isinstance(value, list | tuple) and isinstance(part, int):
            value = value[part] if part < len(value) else None
            path.append(str(part))
    if details["type"] == "missing":
        path.append(str(details["loc"][-1]))
    return tuple(path)
