"""What people say of a run afterwards: tags, taken away again or not, and notes.

    <store>/annotations/<run id>.<moment>-<random>.json    one remark: a tag, the end of a tag, or a note

A file is created once and never changed, so that any number of people and machines may annotate one run at
the same time, also while it is executed, and the history stays. The tags of a run are those of its record and
of its remarks: of two remarks on one tag, the later one counts.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.disk import reported_as
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.names import RunId
from tokmill.tasks.store.provenance import Moment, user_name, utc_now

if TYPE_CHECKING:
    from tokmill.tasks.store.catalog import Catalog

Action: TypeAlias = Literal["tag", "untag", "note"]

TAG_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,99}"
_TAG = re.compile(TAG_PATTERN)
_MOST_CHARS: Final = 10_000
_MOST_BYTES: Final = 1 << 20

TAGS_OF_RUNS: Final = """
    SELECT run_id, list(text ORDER BY text) AS tags
    FROM (SELECT run_id, text, arg_max(action, moment) AS latest
          FROM (SELECT run_id, tag AS text, 'tag' AS action, moment FROM run_tags
                UNION ALL SELECT run_id, text, action, moment FROM run_annotations)
          WHERE action <> 'note' GROUP BY ALL)
    WHERE latest = 'tag' GROUP BY run_id
"""
"""The tags that runs have now, by run; runs without any are left out."""


class Remark(BaseModel):
    """One remark on a run.

    Attributes:
        run_id: the run.
        action: to tag it, to take a tag away, or to note something.
        text: the tag, or the note.
        moment: when.
        user: who.
    """

    model_config = ConfigDict(frozen=True)

    run_id: RunId
    action: Action
    text: Annotated[str, Field(min_length=1, max_length=_MOST_CHARS)]
    moment: Moment
    user: str = ""


def annotate(layout: Layout, run_id: str, action: Action, text: str) -> Path:
    """Add a remark to a run, and return its file.

    Raises:
        StoreError: the text cannot be a tag or a note, or the store cannot be written to.
    """
    check_remark(action, text)
    moment = utc_now()
    remark = Remark(run_id=run_id, action=action, text=text, moment=moment, user=user_name())
    name = f"{run_id}.{re.sub('[^0-9]', '', moment)}-{uuid.uuid4().hex[:8]}.json"
    path = layout.annotations / name
    with reported_as(f"run {run_id} cannot be annotated"):
        shared.create(path, remark.model_dump_json(indent=1).encode("utf-8") + b"\n")
    return path


def check_remark(action: Action, text: str) -> None:
    """Raise StoreError unless the text can be a tag, or a note."""
    if action != "note":
        if not _TAG.fullmatch(text):
            raise StoreError(f"tag {text!r} cannot be used: it must match {_TAG.pattern}, e.g. 'baseline'")
    elif not text.strip() or len(text) > _MOST_CHARS:
        raise StoreError(f"a note has from 1 to {_MOST_CHARS:,} characters, and this one has {len(text):,}")


def read_remark(path: Path) -> Remark:
    """Read a remark's file.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        remark = Remark.model_validate_json(disk.read(path, _MOST_BYTES))
    except OSError as error:
        raise StoreError(f"{path} cannot be read as a remark on a run: {error.strerror}") from error
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise StoreError(f"{path} cannot be read as a remark on a run: {reason}") from error
    if remark.run_id != path.name.partition(".")[0]:
        raise StoreError(f"{path} is a remark on run {remark.run_id}, which does not belong there")
    return remark


def remark_paths(layout: Layout) -> Sequence[Path]:
    """Return the files of all remarks, in order of run and time."""
    names = (entry.name for entry in disk.entries(layout.annotations))
    return [layout.annotations / name for name in sorted(names) if is_remark(name)]


def is_remark(name: str) -> bool:
    """Whether a file among the annotations can be a remark; others are work in progress."""
    return name.endswith(".json") and not name.startswith(".") and name.isascii()


def tags_of_runs(catalog: "Catalog") -> Mapping[str, Sequence[str]]:
    """Return run id → its tags, sorted; runs without any are left out."""
    return {row["run_id"]: row["tags"] for row in catalog.query(TAGS_OF_RUNS)}
