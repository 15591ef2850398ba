"""Names from outside: the one check of what bundles, buckets, records and run files call things.

A name that becomes part of a path has passed one of these types or `check_` functions first.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, StringConstraints

from tokmill.tasks.core.errors import StoreError

MOST_PART_BYTES: Final = 255  # as file systems have it
MOST_PATH_BYTES: Final = 2048  # the folder that it is joined to has as many again: Linux takes 4,096

RESERVED_KINDS: Final = frozenset({
    "labels", "aliases", "runs", "annotations", "leases", "damaged", "removed",
})  # fmt: skip

_KIND = re.compile(r"[a-z][a-z0-9_]{0,99}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,199}(/[A-Za-z0-9][A-Za-z0-9_.+-]{0,199})*")
_MOST_NAME_CHARS: Final = 1000
_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
_LABEL = re.compile(r"v[1-9][0-9]{0,14}")
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_DRIVE = re.compile(r"[A-Za-z]:")
_RULE: Final = (
    "it must be relative, in UTF-8, of parts that '/' joins; none may be empty, '.' or '..', begin with a "
    f"drive, hold a backslash or NUL, or have more than {MOST_PART_BYTES} bytes"
)
_HARMLESS = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.@+-]{0,99}(/[A-Za-z0-9_-][A-Za-z0-9_.@+-]{0,99}){0,7}")


def is_inside(path: str) -> bool:
    """Whether a path from outside stays inside the folder it is joined to, on every file system."""
    if _HARMLESS.fullmatch(path):
        return True
    parts = path.split("/")
    return (
        is_utf8(path)
        and not {"", ".", ".."}.intersection(parts)
        and not any("\\" in part or "\0" in part or _DRIVE.match(part) for part in parts)
        and max(len(part.encode()) for part in parts) <= MOST_PART_BYTES
        and len(path.encode()) <= MOST_PATH_BYTES
    )


def is_utf8(text: str) -> bool:
    """Whether a text, such as a file's name, can be written in UTF-8."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def check_path(path: str, what: str) -> str:
    """Return a path from outside; raise StoreError, with `what` it is, unless it stays inside."""
    if not is_inside(path):
        raise StoreError(f"{what} {shortened(path)} cannot be used: {_RULE}; it was not written by tokmill")
    return path


def inside(folder: Path, path: str, what: str) -> Path:
    """Return the place of a path from outside below a folder."""
    place = folder / check_path(path, what)
    if not place.resolve().is_relative_to(folder.resolve()):
        raise StoreError(
            f"{what} {shortened(path)} cannot be used: a link leads it out of {folder}; remove the link"
        )
    return place


def shortened(text: str) -> str:
    """Return a name from outside as it can be shown: quoted, escaped, and at most 100 characters."""
    return repr(text) if len(text) <= 100 else f"{text[:99]!r}…"


def is_kind(text: str) -> bool:
    """Whether `text` can be a kind of artifacts."""
    return _KIND.fullmatch(text) is not None and text not in RESERVED_KINDS


def is_name(text: str) -> bool:
    """Whether `text` can be an artifact's name."""
    return len(text) <= _MOST_NAME_CHARS and _NAME.fullmatch(text) is not None


def is_alias(text: str) -> bool:
    """Whether `text` can be given to an artifact."""
    return _ALIAS.fullmatch(text) is not None and text != "latest" and not is_label(text)


def is_fingerprint(text: str) -> bool:
    """Whether `text` is a fingerprint, or a digest: 64 hexadecimal digits."""
    return _FINGERPRINT.fullmatch(text) is not None


def is_label(text: str) -> bool:
    """Whether `text` is a version label such as v1."""
    return _LABEL.fullmatch(text) is not None


def is_run_id(text: str) -> bool:
    """Whether `text` can be the id of a run, and so a file's name."""
    return _RUN_ID.fullmatch(text) is not None


def _check(what: str, is_valid: Callable[[str], bool], rule: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        """Raise StoreError unless a text from outside can be such a name."""
        if not is_valid(text):
            raise StoreError(f"{what} {shortened(text)} cannot be used: {rule}")

    return check


check_kind = _check("kind", is_kind, f"kinds match {_KIND.pattern} and are not {sorted(RESERVED_KINDS)}")
check_name = _check(
    "name",
    is_name,
    "its parts, separated by '/', start with a letter or digit and hold letters, digits, '_', '.', '+' and "
    f"'-' only, at most 200 each and {_MOST_NAME_CHARS:,} in all",
)
check_label = _check("label", is_label, "labels are v1, v2, …")
check_alias = _check(
    "alias",
    is_alias,
    f"it must match {_ALIAS.pattern}; 'latest' and v1, v2, … are the store's own; use e.g. 'prod'",
)
check_run_id = _check("run id", is_run_id, f"it must match {_RUN_ID.pattern}, e.g. a UUID")


def _inside(path: str) -> str:
    if not is_inside(path):
        raise ValueError(f"{shortened(path)} cannot name a file: {_RULE}")
    return path


def _matching(pattern: "re.Pattern[str]") -> StringConstraints:
    return StringConstraints(pattern=f"^({pattern.pattern})$")


InsidePath: TypeAlias = Annotated[str, AfterValidator(_inside)]
"""A path that stays inside the folder it is joined to."""

Digest: TypeAlias = Annotated[str, _matching(_FINGERPRINT)]
"""A digest or a fingerprint."""

Kind: TypeAlias = Annotated[str, _matching(_KIND)]
Name: TypeAlias = Annotated[str, _matching(_NAME), StringConstraints(max_length=_MOST_NAME_CHARS)]
Label: TypeAlias = Annotated[str, _matching(_LABEL)]
RunId: TypeAlias = Annotated[str, _matching(_RUN_ID)]
