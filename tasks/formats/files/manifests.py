"""The JSON files of artifacts, one pydantic model each, and errors for unreadable files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self, TypeVar

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError

from tokmill.tasks.core.faults import broken
from tokmill.tasks.store.verify import check_files

M = TypeVar("M", bound=BaseModel)


class Entry(BaseModel):
    """A part of a manifest; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Manifest(Entry):
    """The content of the JSON file `FILE` of an artifact; `TITLE` names it in messages."""

    FILE: ClassVar[str]
    TITLE: ClassVar[str]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the file in the directory `path`; StoreError if it is missing or broken."""
        return read_model(path / cls.FILE, cls, cls.TITLE)

    @classmethod
    def found(cls, path: Path) -> Self | None:
        """Read the file if there is one in the directory `path`."""
        return cls.open(path) if (path / cls.FILE).is_file() else None

    def save(self, path: Path) -> None:
        """Write the file into the directory `path`; equal content gives equal bytes."""
        write_model(path / self.FILE, self)


def read_model(file: Path, model: type[M], what: str) -> M:
    """Read JSON as a `model`, `what` in messages; in an artifact, it must be the file that was published.

    Raises:
        StoreError: the file is missing, broken, or another than the record beside it says.
        MachineError: it cannot be read because of the machine.
    """
    check_files(file.parent, [file] if file.exists() else [])
    with readable(file, what):
        return model.model_validate_json(file.read_bytes())


def write_model(file: Path, value: BaseModel) -> None:
    """Write `value` into `file` as JSON; equal values give equal bytes."""
    file.write_text(value.model_dump_json(indent=2) + "\n", encoding="utf-8")


@contextmanager
def readable(file: Path, what: str) -> Iterator[None]:
    """Raise StoreError, naming `file` and its expected content `what`, if the block cannot read it."""
    try:
        yield
    except (OSError, ValidationError, UnicodeDecodeError, pa.ArrowException) as error:
        raise broken(file, f"not a readable {what}", error) from error
