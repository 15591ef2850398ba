"""Mark runs as crashed whose process has died.

A process that is killed, or whose machine goes down, cannot record the end of its run. The next process that
reads the runs does it instead. The heartbeat (`tasks.store.liveness`) shows that the process has died, and
when it was last alive.
"""

from datetime import UTC, datetime
from pathlib import Path

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store.durable import reported_as
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.liveness import SUFFIX, Process, silent
from tokmill.tasks.store.provenance import as_text
from tokmill.tasks.store.runs import Run, read_run, run_path
from tokmill.tasks.store.storage import STORAGE


def settle(layout: Layout) -> list[Run]:
    """Record the end of every run whose process has died; return those that had no end yet.

    Raises:
        StoreError: it cannot be written.
    """
    names = sorted(entry.name for entry in STORAGE.entries(layout.runs) if entry.name.endswith(SUFFIX))
    return [run for name in names if (run := _settled(layout, layout.runs / name)) is not None]


def write_run(layout: Layout, run: Run) -> Path:
    """Write a run's file, and return it.

    Raises:
        StoreError: its id cannot be a file's name, or the disk is full.
    """
    path = run_path(layout.runs, run.run_id)
    with reported_as(f"run {run.run_id} cannot be recorded"):
        STORAGE.replace(path, run.model_dump_json(indent=1).encode("utf-8") + b"\n")
    return path


def _settled(layout: Layout, heartbeat: Path) -> Run | None:
    dead = silent(heartbeat)
    if dead is None:
        return None
    run = _crashed(layout, heartbeat.stem, *dead)
    if run is not None:
        write_run(layout, run)
    with reported_as(f"run {heartbeat.stem} cannot be recorded"):
        STORAGE.remove(heartbeat)
    return run


def _crashed(layout: Layout, run_id: str, process: Process, heard: float) -> Run | None:
    """Return the run with its end; None if it has one already, or if there is no such run."""
    try:
        run = read_run(run_path(layout.runs, run_id))
    except StoreError:  # it was never written, or is reported when its rows are read
        return None
    if run.state != "running":
        return None
    process_gone = f"process {process.pid} on {process.host} is gone"
    message = f"{process_gone}: it was killed, or its machine went down"
    ended = as_text(datetime.fromtimestamp(heard, UTC))
    return run.model_copy(update={"state": "crashed", "message": message, "ended": max(ended, run.started)})
