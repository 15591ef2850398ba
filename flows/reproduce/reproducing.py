"""Makes artifacts again in an empty store, from their records and the inputs that they were made from.

Inputs are found by their content (`inputs`), every record becomes a job of a DAG (`remaking`), and each
content digest is compared with the record's; a difference is explained (`comparing`).
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tokmill.flows.errors import FlowError, RunError, UsageError
from tokmill.flows.reproduce.comparing import Compared, compare
from tokmill.flows.reproduce.inputs import Finder, Wanted, arranged, wanted
from tokmill.flows.reproduce.known import Subject, as_json
from tokmill.flows.reproduce.remaking import Remaking
from tokmill.flows.run.events import Listener, RunState, noting_warnings
from tokmill.flows.run.executor import Executor
from tokmill.flows.run.tasks import LocalTasks, TaskSettings
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.remote.location import Location
from tokmill.tasks.store import FileDigests, Provenance, Store
from tokmill.tasks.store.fingerprint import digest_bytes
from tokmill.tasks.store.record import Record

MARK = "reproducing.json"
Placed = Mapping[tuple[str, str, int | None], tuple[Wanted, Location]]


class InputError(FlowError):
    """Inputs are no longer what they were, or are nowhere to be found."""


@dataclass(frozen=True)
class Reproduction:
    """What came of it.

    Attributes:
        subject: what was to be made again.
        store: where it was made.
        is_temporary: whether that is gone by now, since no folder was named.
        compared: each artifact, inputs first.
        failure: why not all of it was made; empty if it was.
    """

    subject: Subject
    store: str
    compared: Sequence[Compared]
    failure: str = ""
    is_temporary: bool = False

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


@dataclass(frozen=True)
class Request:
    """How to reproduce something.

    Attributes:
        look_in: folders and URLs in which inputs are looked for.
        given: files of inputs by their digest.
        explain: says how a file that has the name of an input, but other content, differs from it.
        workers: artifacts that are made at a time.
        memory_bytes: for all of them together.
        reporter: receives the progress.
    """

    look_in: Sequence[str] = ()
    given: Mapping[str, Path] = field(default_factory=dict)
    explain: Callable[[Wanted, Location], str] = lambda one, file: f"{file} is another one"
    workers: int = 1
    memory_bytes: int | None = None
    reporter: Listener | None = None

    def with_files(self, given: Mapping[str, Path]) -> "Request":
        """Return the request with files of inputs, by their digest."""
        return replace(self, given=given)

    def explained(self, explain: Callable[[Wanted, Location], str]) -> "Request":
        """Return the request with another way to say how a file differs."""
        return replace(self, explain=explain)


def reproduce(subject: Subject, into: Path | None, request: Request) -> Reproduction:
    """Make the artifacts of a subject again, and compare them.

    Args:
        subject: what to make again.
        into: the folder of the new store, empty, or left by an earlier attempt at the same; by default a
            temporary one, which is removed in the end.
        request: how.

    Raises:
        UsageError: `into` holds something else.
        InputError: inputs are not found by their content; the message names each, and what is there instead.
        StoreError: a record is missing, or this tokmill has no such stage.
    """
    records = subject.lineage()
    with _new_store(into, records) as store:
        found = _found(subject, records, store, request)
        remaking = Remaking(store, found, _roots(found, store.layout.cache / "inputs"))
        jobs = remaking.jobs(records)
        failure = ""
        state = RunState(request.reporter)
        with store.at_work("reproduce"), LocalTasks(request.workers) as tasks, noting_warnings(state.note):
            share = None if request.memory_bytes is None else request.memory_bytes // request.workers
            settings = TaskSettings(memory_bytes=share, provenance=Provenance.collect())
            executor = Executor(store, tasks, state, settings)
            try:
                executor.run(jobs)
            except (RunError, TaskError) as error:
                failure = str(error)
        compared = compare(records, store, remaking.made)
        return Reproduction(subject, store.location, compared, failure, into is None)


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
    mark, said = store.layout.cache / MARK, as_json({"of": _digest(records)})
    begun = mark.exists() and mark.read_bytes() == said
    if not begun and _holds_something(store.root):
        raise UsageError(
            f"--into {into} is not empty, and holds no attempt to make the same again; name an empty folder"
        )
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_bytes(said)
    yield store


def _holds_something(folder: Path) -> bool:
    """Whether there is more in a folder than caches, among which a bundle is unpacked."""
    return folder.exists() and any(entry.name != ".cache" for entry in folder.iterdir())


def _digest(records: Sequence[Record]) -> str:
    return digest_bytes("\n".join(record.fingerprint for record in records).encode())


def _found(subject: Subject, records: Sequence[Record], store: Store, request: Request) -> Placed:
    """Find all inputs from outside, or name those that are not there."""
    finder = Finder(FileDigests(store.root), request.look_in, request.given)
    found: dict[tuple[str, str, int | None], tuple[Wanted, Location]] = {}
    missing: list[str] = []
    for record in records:
        for one in wanted(record):
            place = finder.find(one)
            if place is None:
                missing.append(_missing(finder, one, request))
            else:
                found[record.fingerprint, one.entry.role, one.entry.position] = one, place
    if missing:
        number = f"{len(missing)} inputs are" if len(missing) > 1 else "an input is"
        where = f" (looked in {', '.join(request.look_in)})" if request.look_in else ""
        lines = "\n".join(f"  {line}" for line in missing)
        raise InputError(
            f"{subject.name} cannot be made again: {number} not found by its content{where}; name the folder "
            f"or URL of the original with --look-in\n{lines}"
        )
    return found


def _missing(finder: Finder, one: Wanted, request: Request) -> str:
    namesake = finder.namesake(one)
    if namesake is None:
        return f"{one.said}: nothing has its content, and nothing has its name"
    return f"{one.said}: {request.explain(one, namesake)}"


def _roots(found: Placed, folder: Path) -> dict[str, dict[str, str]]:
    """Arrange the files of each artifact's sources below roots."""
    by_record: dict[str, list[tuple[Wanted, Location]]] = {}
    for (fingerprint, _, _), (one, place) in found.items():
        if one.source:
            by_record.setdefault(fingerprint, []).append((one, place))
    return {
        fingerprint: arranged(files, folder / fingerprint[:16]) for fingerprint, files in by_record.items()
    }
