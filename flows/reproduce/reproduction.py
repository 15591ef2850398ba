"""Makes artifacts again in an empty store, from their records and the inputs that they were made from.

Inputs are found by their content (`inputs`), every record becomes a job of a DAG (`jobs`), and each content
digest is compared with the record's. The reasons of a difference are looked for only where it begins: at
artifacts of which no input differs.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tokmill.flows.errors import FlowError, RunError, UsageError
from tokmill.flows.reproduce.inputs import Finder, Wanted, arranged, wanted
from tokmill.flows.reproduce.jobs import Placed, Remaking
from tokmill.flows.reproduce.subject import Subject, as_json, inputs_of
from tokmill.flows.run.events import Listener, RunState, noting_warnings
from tokmill.flows.run.executor import Executor
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.tasks import LocalTasks
from tokmill.tasks.comparing.causes import environment_changes
from tokmill.tasks.comparing.walk import own_causes
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.remote.location import Location
from tokmill.tasks.store import FileDigests, Provenance, Store
from tokmill.tasks.store.fingerprint import digest_bytes
from tokmill.tasks.store.record import Record

MARK = "reproducing.json"
Verdict: TypeAlias = Literal["equal", "differs", "not made"]
_WITH_UNICODE = ("regex", "unicodedata2")
_NOTHING = (
    "nothing that records hold was different: the stage depends on something else, which is a fault "
    "of it, or the original was changed after it was made (`tokmill store verify`)"
)


class InputError(FlowError):
    """Inputs are no longer what they were, or are nowhere to be found."""


@dataclass(frozen=True)
class Compared:
    """One artifact that was to be made again."""

    record: Record  # the original's
    verdict: Verdict  # whether the content is equal
    again: str = ""  # the digest of the new content; empty if it was not made
    files: Sequence[str] = ()  # those that differ, or are on one side only
    reasons: Sequence[str] = ()  # why it may differ; none unless it differs though none of its inputs does

    def to_json(self) -> dict[str, Any]:
        """Return it for `--json`."""
        return {
            "artifact": self.record.reference,
            "fingerprint": self.record.fingerprint,
            "verdict": self.verdict,
            "content_digest": self.record.content_digest,
            "again": self.again,
            "files": list(self.files),
            "reasons": list(self.reasons),
        }


@dataclass(frozen=True)
class Reproduction:
    """What came of it."""

    subject: Subject  # what was to be made again
    store: str  # where it was made; a temporary folder is gone by now
    compared: Sequence[Compared]  # each artifact, inputs first
    failure: str = ""  # why not all of it was made; empty if it was

    @property
    def is_equal(self) -> bool:
        """Whether everything was made, with equal digests."""
        return all(each.verdict == "equal" for each in self.compared)

    def to_json(self) -> dict[str, Any]:
        """Return it for `--json`."""
        return {
            "subject": self.subject.name,
            "store": self.store,
            "equal": self.is_equal,
            "failure": self.failure,
            "artifacts": [each.to_json() for each in self.compared],
        }


def reproduce(
    subject: Subject,
    into: Path | None,
    *,
    look_in: Sequence[str] = (),
    given: Mapping[str, Path] | None = None,
    explain: Callable[[Wanted, Location], str] = lambda one, file: f"{file} is another one",
    workers: int = 1,
    memory_bytes: int | None = None,
    reporter: Listener | None = None,
) -> Reproduction:
    """Make the artifacts of a subject again, in a folder or a temporary one, and compare them.

    Inputs are looked for in `look_in`, or given by digest; `explain` says how a namesake differs.
    """
    records, failure, state = subject.lineage(), "", RunState(reporter)
    with _new_store(into, records) as store:
        finder = Finder(FileDigests(store.root), look_in, given or {})
        found = _found(subject, records, finder, explain)
        remaking = Remaking(store, records, found, _roots(found, store.layout.cache / "inputs"))
        jobs = remaking.jobs()
        with store.at_work("reproduce"), LocalTasks(workers) as tasks, noting_warnings(state.note):
            machine = Machine(store.location, workers, memory_bytes)
            try:
                Executor(store, tasks, state, machine, Provenance.collect()).run(jobs)
            except (RunError, TaskError) as error:
                failure = str(error)
        compared = list(_compared(records, store, remaking.made))
        return Reproduction(subject, store.location, compared, failure)


@contextmanager
def _new_store(into: Path | None, records: Sequence[Record]) -> Iterator[Store]:
    """Open an empty store, or the one in which the same was begun before."""
    if into is None:
        folder = Path(tempfile.mkdtemp(prefix="tokmill-reproduced-"))
        try:
            yield Store.open(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    store = Store.open(into)
    mark = store.layout.cache / MARK
    said = as_json({"of": digest_bytes("\n".join(record.fingerprint for record in records).encode())})
    begun = mark.exists() and mark.read_bytes() == said
    # caches are not in the way: a bundle is unpacked among them
    if not begun and store.root.exists() and any(entry.name != ".cache" for entry in store.root.iterdir()):
        raise UsageError(
            f"--into {into} is not empty, and holds no attempt to make the same again; name an empty folder"
        )
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_bytes(said)
    yield store


def _found(
    subject: Subject, records: Sequence[Record], finder: Finder, explain: Callable[[Wanted, Location], str]
) -> Placed:
    """Find all inputs from outside, or name those that are not there."""
    found: dict[tuple[str, str, int | None], tuple[Wanted, Location]] = {}
    missing: list[str] = []
    for one in (one for record in records for one in wanted(record)):
        if (place := finder.find(one)) is not None:
            found[one.record.fingerprint, one.entry.role, one.entry.position] = one, place
        elif (namesake := finder.namesake(one)) is not None:
            missing.append(f"{one.said}: {explain(one, namesake)}")
        else:
            missing.append(f"{one.said}: nothing has its content, and nothing has its name")
    if missing:
        number = f"{len(missing)} inputs are" if len(missing) > 1 else "an input is"
        where = f" (looked in {', '.join(finder.places)})" if finder.places else ""
        lines = "\n".join(f"  {line}" for line in missing)
        raise InputError(
            f"{subject.name} cannot be made again: {number} not found by its content{where}; name the folder "
            f"or URL of the original with --look-in\n{lines}"
        )
    return found


def _roots(found: Placed, folder: Path) -> dict[str, dict[str, str]]:
    """Arrange the files of each artifact's sources below roots."""
    by_record: dict[str, list[tuple[Wanted, Location]]] = {}
    for one, place in found.values():
        if one.source:
            by_record.setdefault(one.record.fingerprint, []).append((one, place))
    return {
        fingerprint: arranged(files, folder / fingerprint[:16]) for fingerprint, files in by_record.items()
    }


def _compared(records: Sequence[Record], store: Store, made: Mapping[str, ArtifactRef]) -> Iterator[Compared]:
    """Compare artifacts, inputs first, with what was made of their records."""
    differing = set[str]()
    for record in records:
        if record.fingerprint not in made:
            differing.add(record.fingerprint)
            yield Compared(record, "not made")
            continue
        new = store.record(made[record.fingerprint])
        if record.content_digest == new.content_digest:
            yield Compared(record, "equal", new.content_digest)
            continue
        is_first = differing.isdisjoint(inputs_of(record))
        differing.add(record.fingerprint)
        ours, theirs = ({entry.path: entry.content for entry in one.files} for one in (record, new))
        files = sorted(path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path))
        reasons = (list(_reasons(record, new)) or [_NOTHING]) if is_first else []
        yield Compared(record, "differs", new.content_digest, files, reasons)


def _reasons(record: Record, new: Record) -> Iterator[str]:
    """Yield what was different when an artifact was made, in sentences."""
    yield from (cause.text for cause in own_causes(record, new))
    tables = [str(each.metrics.get("unicode_tables", "unknown")) for each in (record, new)]
    if tables[0] != tables[1]:
        yield f"Unicode tables {' → '.join(tables)}"
    for each in environment_changes(record.provenance, new.provenance):
        if each.a and each.b:
            yield f"{each.text}{'; it has Unicode tables' if each.name in _WITH_UNICODE else ''}"
