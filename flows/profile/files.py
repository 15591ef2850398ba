"""Finds and reads profile files, and merges a profile with those that it extends into one table.

Tables are merged key by key; values and lists replace earlier ones. `name` and `description` are not
inherited, and `[train]` and `[tokenizer]` replace each other. Relative file patterns of a source start at the
folder of the file that contains them.
"""

import errno
import glob
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tokmill import flows
from tokmill.flows.errors import ProfileError, suggestion
from tokmill.flows.figures import shown
from tokmill.flows.profile.fields import KeyPath
from tokmill.tasks.remote.location import is_remote, local_path, stands_alone

Table: TypeAlias = dict[str, Any]

OVERRIDES = "--set"
TABLE = "the given table"
MAX_BYTES = 4 << 20
_MAX_DEPTH = 24
_MOST_PARTS = 500
_DOTTED = re.compile(r"""[\w"'-]+(?:[ \t]*\.[ \t]*[\w"'-]+)+""")
_SHOWN_CHARS = 60
_OWN_KEYS = frozenset({"name", "description", "extends"})
_DECLARED_TWICE = re.compile(r"Cannot declare \('sources', '(?P<name>[^']+)'\) twice")
_POSITION = re.compile(r"\(at (?P<where>[^)]*)\)")


@dataclass
class Layered:
    """One table merged from several files, and the file of each value."""

    table: Table = field(default_factory=dict)  # the merged table
    # key path → the file (or `--set`) that the value is from
    origins: dict[KeyPath, str] = field(default_factory=dict)
    # one sentence for each value of a source that a file replaced
    notes: list[str] = field(default_factory=list)

    def merge(self, layer: Mapping[str, Any], origin: str) -> None:
        """Merge `layer` into the table; its values and lists replace earlier ones."""
        self._drop_replaced(layer, "train", by="tokenizer")
        if origin != OVERRIDES:
            self._drop_replaced(layer, "tokenizer", by="train")
        _merge(self.table, layer)
        for path in _leaves(layer):
            old = self.origins.get(path)
            if old and path[0] == "sources" and origin != OVERRIDES:
                self.notes.append(f"{dotted(path)} in {origin} replaces the value in {old}")
            self.origins[path] = origin

    def _drop_replaced(self, layer: Mapping[str, Any], section: str, *, by: str) -> None:
        """Remove a section if the layer has the section `by`, which replaces it."""
        if by in layer and section not in layer:
            self.table.pop(section, None)
            self.origins = {path: file for path, file in self.origins.items() if path[0] != section}

    def origin(self, path: KeyPath) -> str | None:
        """Return the file of the value at `path`, or of the first value below it."""
        return next((name for key, name in self.origins.items() if key[: len(path)] == path), None)


def shipped_folder() -> Path:
    """Return the folder of the profiles that ship with the project."""
    return Path(flows.__file__).resolve().parent.parent / "profiles"


def shipped_names() -> list[str]:
    """Return the names of the profiles that ship with the project, sorted."""
    return sorted(path.stem for path in shipped_folder().glob("*.toml"))


def find_profile(name_or_path: str, beside: Path | None = None) -> Path:
    """Return the file of a profile, given as a path or by the name of a shipped profile."""
    if name_or_path.endswith(".toml") or os.sep in name_or_path:
        path = _path(name_or_path, beside or Path.cwd())
        if path.is_file():
            return path.resolve()
        beside_it = [other.name for other in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        meant = suggestion(path.name, beside_it, known_as="profiles there")
        meant = meant or f"; `tokmill init {name_or_path}` writes one"
        raise ProfileError(f"profile '{name_or_path}': no file at {path}{meant}")
    if name_or_path in shipped_names():
        return shipped_folder() / f"{name_or_path}.toml"
    raise ProfileError(_unknown_name(name_or_path, beside or Path.cwd()))


def read_layers(path: Path) -> Layered:
    """Read a profile and all profiles that it extends, and merge them, the base first."""
    chain: list[tuple[Path, Table]] = []
    following: Path | None = path
    while following is not None:
        if any(following == seen for seen, _ in chain):
            loop = " → ".join(shown(seen) for seen, _ in chain)
            raise ProfileError(
                f"profile '{path.stem}': extends is circular: {loop} → {shown(following)}; "
                "remove `extends` from one of them"
            )
        table = read_table(following)
        chain.append((following, table))
        following = _base_of(following, table)
    layered = Layered()
    for file, table in reversed(chain):
        own = table if file == path else {k: v for k, v in table.items() if k not in _OWN_KEYS}
        layered.merge(with_absolute_paths(own, file.parent), shown(file))
    layered.table.pop("extends", None)
    return layered


def read_table(path: Path) -> Table:
    """Parse one TOML file."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) <= MAX_BYTES:
            return parse_toml(data.decode("utf-8").replace("\r\n", "\n"))
        problem = f"{shown(path)} is larger than {MAX_BYTES >> 20} MiB; name a profile"
    except OSError as error:
        problem = f"cannot read {path}: {error.strerror}"
    except UnicodeDecodeError as error:
        problem = f"{shown(path)} is not UTF-8 at byte {error.start}; save it as UTF-8"
    except tomllib.TOMLDecodeError as error:
        problem = f"{shown(path)}: {_syntax_problem(str(error))}"
    except LimitError as error:
        problem = f"{shown(path)}: {error}"
    raise ProfileError(f"profile '{path.stem}': {problem}")


class LimitError(ValueError):
    """TOML that is nested too deeply, or has too large a number."""


def parse_toml(text: str) -> Table:
    """Parse TOML; raises TOMLDecodeError, or LimitError beyond what a profile may have."""
    deep = LimitError(f"tables and lists are nested more than {_MAX_DEPTH} deep; write them flat")
    # the parser's time grows with the square of the parts of a key, so these are counted first
    if any(key.group().count(".") > _MOST_PARTS for key in _DOTTED.finditer(text)):
        raise deep
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise deep from None
    except ValueError:
        raise LimitError("a number has thousands of digits; write one of at most 19") from None
    values = [(table, 0)]
    for value, depth in values:  # grows while it is read
        if depth > _MAX_DEPTH:
            raise deep
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise LimitError(f"the number {str(value)[:24]}… has more than 64 bits; use a smaller one")
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        values += [(each, depth + 1) for each in inner]
    return table


def _path(text: str, folder: Path) -> Path:
    """Make a path absolute."""
    try:
        path = folder / Path(text).expanduser()
        path.stat()
    except (RuntimeError, ValueError) as error:  # an unknown user; a NUL
        raise ProfileError(f"profile '{text[:_SHOWN_CHARS]}': {error}; write the path in full") from error
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            problem = f"profile '{text[:_SHOWN_CHARS]}…': {error.strerror}; name an existing file"
            raise ProfileError(problem) from error
    return path


def with_absolute_paths(table: Mapping[str, Any], folder: Path) -> Table:
    """Return a profile's table with its relative paths and patterns made absolute, from `folder`.

    A tokenizer's `use` is a path if that file exists, and the name of an artifact otherwise. Values of the
    wrong type are left for the validation.
    """
    return {key: _absolute(value, folder, (key,)) for key, value in table.items()}


def _absolute(value: Any, folder: Path, at: tuple[str | int, ...]) -> Any:
    if isinstance(value, Mapping):
        return {key: _absolute(inner, folder, (*at, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [_absolute(inner, folder, (*at, 0)) for inner in value]
    match at if isinstance(value, str) and value else ():
        case ("sources", _, "files" | "exclude" as key, 0):
            by_name = key == "exclude" and "/" not in value  # a name at any depth, not a path
            return value if by_name or stands_alone(value) else f"{glob.escape(str(folder))}/{value}"
        case ("tokenizer", "use") | ("audit", "compare_with", "use") | ("audit", "parallel", _):
            path = None if is_remote(value) else _path(str(local_path(value)), folder)
            return str(path) if path and (at[1] == "parallel" or path.exists()) else value
        case _:
            return value


def dotted(path: KeyPath) -> str:
    """Return a key path as TOML writes it: `sources.code.files`, `sources."zh.hans".files`."""
    return ".".join(key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"' for key in path)


def _merge(table: Table, layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, dict) and isinstance(table.get(key), dict):
            _merge(table[key], value)
        else:
            table[key] = value


def _leaves(table: Mapping[str, Any], above: KeyPath = ()) -> Iterator[KeyPath]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key)


def _base_of(path: Path, table: Table) -> Path | None:
    base = table.get("extends")
    if base is None:
        return None
    if not isinstance(base, str):
        raise ProfileError(
            f"profile '{path.stem}': {shown(path)}: extends={base!r} must be a file or a shipped profile; "
            'write e.g. extends = "quickstart"'
        )
    try:
        return find_profile(base, beside=path.parent)
    except ProfileError as error:
        raise ProfileError(f"profile '{path.stem}': {shown(path)}: extends: {error}") from error


def _syntax_problem(message: str) -> str:
    """Return the place and the kind of a syntax error."""
    position = _POSITION.search(message)
    where = position["where"] if position else "somewhere"
    problem = f"not TOML: {_POSITION.sub('', message).strip()}"
    if twice := _DECLARED_TWICE.search(message):
        problem = f"two sources are named '{twice['name']}'; rename one of them"
    elif problem.endswith("Cannot overwrite a value"):
        problem = "a key is set twice in one table; set it once"
    return f"{where}: {problem}"


def _unknown_name(name: str, folder: Path) -> str:
    if _path(f"{name}.toml", folder).is_file():
        return f"profile '{name}': no profile of that name ships with tokmill; for the file write {name}.toml"
    hint = suggestion(name, shipped_names(), known_as="shipped profiles")
    return f"profile '{name}': no such profile ships with tokmill{hint}; a file is given as path/to/own.toml"
