"""Writes profiles: `tokmill init` drafts one from existing files, and a resolved one becomes TOML again."""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from tokmill.flows.errors import UsageError
from tokmill.flows.profile.sniffing import Seen, sniff
from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.source_files import resolve_files
from tokmill.tasks.formats.text.sources import UTF_8, SourceSpec
from tokmill.tasks.remote.location import located, stands_alone

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_TEMPLATE = """\
# tokmill profiles --keys lists every key with its meaning. Keys that are not set have their default.
description = {description}
{sources}
[balance]          # the share of each source in the tokenizer's training text
method = "temperature"
temperature = 2.0  # 1 keeps natural shares; larger values raise small sources
max_repetition = 4.0

[train]
vocab_size = {vocab_size}
split_pattern = "o200k"  # keeps vowel signs with their letters, which gpt2, cl100k and llama3 cut off
special_tokens = ["<|endoftext|>"]

[encode]
end_of_document = "<|endoftext|>"

[pack]
sequence_length = {sequence_length}
"""


@dataclass(frozen=True)
class DraftedSource:
    """One source of a draft: its patterns as written in the profile, and what was found."""

    name: str
    patterns: Sequence[str]
    num_files: int
    seen: Seen


class _NoDigests:
    """Stands in for file digests, so that no file is read."""

    def digest(self, file: object) -> str:
        return ""


def files_of(spec: SourceSpec, source: str) -> list[Mapping[str, Any]]:
    """Return the files of a source, relative to the working directory, without reading them."""
    files, _ = resolve_files(spec, Path.cwd(), _NoDigests(), source=source)
    return [file.value for file in files]


def draft_profile(
    path: Path,
    sources: Sequence[str],
    *,
    vocab_size: int,
    sequence_length: int,
    overwrite: bool,
    exclude: Sequence[str] = (),
    reading: Mapping[str, Any] | None = None,
    text_columns: Sequence[str] = (),
) -> list[DraftedSource]:
    """Write a profile for `sources` (`name=glob`) and return them with the files and formats found.

    `reading` has their encoding, and the delimiter and quoting of CSV files, as far as they are known.
    """
    if path.suffix != ".toml":
        raise UsageError(f"init: {path} must end in .toml; write {path}.toml")
    if not _NAME.fullmatch(path.stem):
        raise UsageError(
            f"init: {path.stem!r} names artifacts and must match {_NAME.pattern}; rename the file"
        )
    if path.exists() and not overwrite:
        raise UsageError(f"init: {path} exists; choose another name, or overwrite it with --force")
    patterns_by_name = _by_name(sources)
    columns = _columns(text_columns, patterns_by_name)
    common: dict[str, Any] = {"exclude": list(exclude)} if exclude else {}
    common |= {key: value for key, value in (reading or {}).items() if value is not None}
    drafted = [
        _draft(name, patterns, path.parent, common, columns.get(name))
        for name, patterns in patterns_by_name.items()
    ]
    text = _TEMPLATE.format(
        description=toml_value(f"Drafted from {', '.join(source.name for source in drafted)}."),
        sources="".join(map(_source_table, drafted)),
        vocab_size=vocab_size,
        sequence_length=sequence_length,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return drafted


def _by_name(sources: Sequence[str]) -> dict[str, list[str]]:
    """Return name → patterns; repeated names are combined."""
    patterns: dict[str, list[str]] = {}
    for option in sources:
        name, equals, pattern = option.partition("=")
        if not (equals and pattern and _NAME.fullmatch(name)):
            rule = f"where name matches {_NAME.pattern}; write" if equals and pattern else "write"
            raise UsageError(
                f"init: --source {option!r} must be name=glob, {rule} e.g. --source books='books/**/*.txt'"
            )
        patterns.setdefault(name, []).append(pattern)
    return patterns


def _columns(text_columns: Sequence[str], sources: Collection[str]) -> dict[str, str]:
    """Return source → text column."""
    columns: dict[str, str] = {}
    for option in text_columns:
        name, _, column = option.partition("=")
        if name not in sources or not column:
            raise UsageError(
                f"init: --text-column {option!r} must be source=column, where source is one of "
                f"{', '.join(sources)}; write e.g. --text-column {next(iter(sources))}=text"
            )
        columns[name] = column
    return columns


def _draft(
    name: str, patterns: Sequence[str], folder: Path, common: Mapping[str, Any], text_column: str | None
) -> DraftedSource:
    """Find a source's files, relative to the working directory, and detect their format."""
    where = ""
    try:
        spec = SourceSpec(files=list(patterns), **common)
        files = files_of(spec, name)
        where = f"source '{name}': "
        paths = [located(file["path"]) for file in files]
        seen = sniff(paths, spec.read_options(), source=name, text_column=text_column)
    except ValidationError as error:
        raise UsageError(f"init: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error
    except SourceError as error:
        raise UsageError(f"init: {where}{error}") from error
    excluded = [
        _from(folder, each) if "/" in each.rstrip("/") else each for each in common.get("exclude", ())
    ]
    options = {**({"exclude": excluded} if excluded else {}), **seen.options}
    options |= {"encoding": spec.encoding} if spec.encoding != UTF_8 else {}
    relative = [_from(folder, pattern) for pattern in patterns]
    return DraftedSource(name, relative, len(files), replace(seen, options=options))


def _from(folder: Path, pattern: str) -> str:
    """Make a pattern that is relative to the working directory relative to the profile's folder."""
    if stands_alone(pattern) or folder.resolve() == Path.cwd():
        return pattern
    return os.path.relpath(Path.cwd() / pattern, folder.resolve())


def _source_table(source: DraftedSource) -> str:
    files = "1 file" if source.num_files == 1 else f"{source.num_files:,} files"
    lines = [f"\n[sources.{toml_key(source.name)}]  # {files}; {source.seen.remark}"]
    entries: Mapping[str, Any] = {"files": list(source.patterns), **source.seen.options}
    lines += [f"{key} = {toml_value(value)}" for key, value in entries.items()]
    return "\n".join(lines) + "\n"


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
    if isinstance(value, str):
        return _text(value)
    return json.dumps(value) if isinstance(value, bool) else repr(value)  # `1e-05` and `inf` are TOML, too


def _text(text: str) -> str:
    """Return a basic string: JSON's escapes are TOML's, and so is this one of what cannot be printed."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08X}" for char in quoted)
