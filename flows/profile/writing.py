"""A resolved profile as TOML, which `tokmill run` takes: values first, then a table for each section."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(profile: Mapping[str, Any]) -> str:
    """Return JSON values as TOML; what is None is left out, since TOML has no such value.

    Numbers keep their type: a float is written so that it is read as the same float.
    """
    return "\n".join(_table(profile, ())).strip() + "\n"


def _table(table: Mapping[str, Any], path: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table: its values, then the tables in it."""
    inner = {name: value for name, value in table.items() if isinstance(value, Mapping)}
    values = {name: value for name, value in table.items() if name not in inner and value is not None}
    if path and (values or not inner):
        yield f"\n[{'.'.join(map(toml_key, path))}]"
    for name, value in values.items():
        yield f"{toml_key(name)} = {toml_value(value)}"
    for name, value in inner.items():
        yield from _table(value, (*path, name))


def toml_key(name: str) -> str:
    """Return a name as a key, quoted where it must be."""
    return name if _BARE.fullmatch(name) else _text(name)


def toml_value(value: Any) -> str:
    """Return a JSON value as TOML."""
    if isinstance(value, Mapping):
        pairs = (f"{toml_key(name)} = {toml_value(each)}" for name, each in value.items() if each is not None)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return _text(value) if isinstance(value, str) else _number(value)


def _number(value: float) -> str:
    """Return a number or a truth value; Python's `1e-05` and `inf` are TOML, too."""
    return json.dumps(value) if isinstance(value, bool) else repr(value)


def _text(text: str) -> str:
    """Return a basic string: JSON's escapes are TOML's, and so is this one of what cannot be printed."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08X}" for char in quoted)
