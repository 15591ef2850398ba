"""`--set a.b=c`: one value of a profile, written on the command line.

The key is a TOML dotted key (`sources."zh.hans".on_error`), the value a TOML value (`2048`, `0.5`, `["a",
"b"]`, `{code = 2.0}`). Any other value is text, so `train.split_pattern=gpt2` needs no quotes. Several
overrides are applied in the given order.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping, Set
from typing import Any

from tokmill.flows.errors import ProfileError
from tokmill.flows.profile.files import MAX_DEPTH, Table, beyond_limits, limit_problem, parse_toml


def overrides_table(overrides: Iterable[str] | Mapping[str, Any]) -> Table:
    """Return overrides as one nested table, to be merged into a profile.

    Args:
        overrides: `a.b=c` strings, or a mapping from dotted keys (or nested tables) to values.

    Raises:
        ProfileError: one has no `=` or no dotted key, or one sets a key as a value and another as a table.
    """
    pairs = as_toml(overrides).items() if isinstance(overrides, Mapping) else map(parse_override, overrides)
    table: Table = {}
    for key, value in pairs:
        _put(table, _key_path(key), value, f"{key}={value}")
    return table


def parse_override(text: str) -> tuple[str, Any]:
    """Split `a.b=c` into its dotted key and its value.

    Raises:
        ProfileError: there is no `=`.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ProfileError(
            f"--set {text!r}: not of the form key=value; write e.g. --set pack.sequence_length=2048"
        )
    return key.strip(), _value(value.strip())


def _value(text: str) -> object:
    """Read a TOML value; anything else, including a second line or a comment, is text."""
    try:
        alone = parse_toml(f"value = {text}")
        listed = parse_toml(f"value = [{text}]")
    except tomllib.TOMLDecodeError:
        return text
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"--set …={text[:40]}…: {limit_problem(error)}") from error
    if problem := beyond_limits(alone):
        raise ProfileError(f"--set …={text[:40]}: {problem}")
    return alone["value"] if listed == {"value": [alone["value"]]} else text


def _key_path(key: str) -> list[str]:
    """Read a dotted key by TOML's rules."""
    try:
        inner: Any = parse_toml(f"{key} = 0")
    except (ValueError, RecursionError):  # not TOML, or nested too deeply
        inner = {}
    path: list[str] = []
    while isinstance(inner, dict) and len(inner) == 1:
        name, inner = next(iter(inner.items()))
        path.append(name)
    if inner != 0 or len(path) > MAX_DEPTH:
        raise ProfileError(
            f'--set {key[:80]}: not a dotted key; write e.g. pack.sequence_length, or sources."a.b".files'
        )
    return path


def _put(table: Table, path: list[str], value: object, shown: str) -> None:
    *above, last = path
    for key in above:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise ProfileError(f"--set {shown}: {key} is also set to a value; set either {key} or keys in it")
    table[last] = value


def as_toml(given: Any, where: str = "") -> Any:
    """Return a value, with all in it, as `tomllib` returns it; what has no such form is left as it is.

    Args:
        given: the value.
        where: its dotted key, for errors.

    Raises:
        ProfileError: it is a set, whose order would differ from one process to the next, or an integer of
            more than 64 bits.
    """
    if isinstance(given, Mapping):
        return {key: as_toml(value, f"{where}.{key}" if where else str(key)) for key, value in given.items()}
    if isinstance(given, list | tuple):
        return [as_toml(value, where) for value in given]
    if isinstance(given, Set):
        raise ProfileError(f"{where} is a set, which has no order; write a list")
    if isinstance(given, int) and not -(1 << 63) <= given < 1 << 64:
        raise ProfileError(f"{where}: the number has {given.bit_length()} bits; use one of at most 64")
    if isinstance(given, os.PathLike):
        return os.fspath(given)
    to_list = getattr(given, "tolist", None)  # of numpy's scalars and arrays, Arrow's arrays, pandas' Series
    return given if to_list is None else to_list()
