"""What a task in another process tells of itself, and is told: by files in a folder of the store.

A task that runs beside others in this process calls the executor's callbacks. One in another process, perhaps
on another machine, writes the same into a file every half second, and looks whether the run is being stopped.
The store is the one thing that both are sure to share. The files are gone when the run ends; after an
interruption they stay until the run is tried again, or for a day, because tasks must still notice it.
"""

import json
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tokmill.flows.run.tasks import CALLBACKS, TaskCallbacks
from tokmill.tasks.core.context import StageProgress
from tokmill.tasks.core.stage import How
from tokmill.tasks.store.digest import digest_bytes
from tokmill.tokenizer.core.stopping import allow_work, request_stop

_SECONDS = 0.5
_STOP, _HOLD = "stop", "hold"
_KEPT_SECONDS = 86_400
_held_here = threading.Event()


class Told(NamedTuple):
    """What a task told last; `how` is None until it has its artifact."""

    title: str
    progress: StageProgress | None = None
    how: How | None = None
    seconds: float = 0.0


def _file(folder: Path, title: str) -> Path:
    return folder / f"{digest_bytes(title.encode())[:32]}.json"


def _read(file: Path) -> Told | None:
    try:
        title, progress, how, seconds = json.loads(file.read_bytes())
    except (OSError, ValueError):  # not yet there, or just removed
        return None
    return Told(title, progress and StageProgress(*progress), how, seconds)


def held_back(folder: Path | None) -> bool:
    """Whether a task must not begin, because its run is paused.

    Args:
        folder: of the run; None if the task runs in the run's process.
    """
    return _held_here.is_set() if folder is None else (folder / _HOLD).exists()


def hold_here(held: bool = True) -> None:
    """Have no task begin in this process any more, or allow it again."""
    if held:
        _held_here.set()
    else:
        _held_here.clear()


@contextmanager
def telling(folder: Path | None, title: str) -> Iterator[None]:
    """Tell of a task that is executed in this block, and stop it if the run is being stopped.

    Args:
        folder: where its file goes; None if it runs in the process of its run.
        title: of the task.
    """
    if folder is None:
        yield
        return
    allow_work()
    teller = _Teller(folder, title)
    beating = threading.Thread(target=teller.beat, name="telling", daemon=True)
    with TaskCallbacks(teller.on_start, teller.on_progress, teller.on_end).installed():
        beating.start()
        try:
            yield
        finally:
            teller.ended.set()
            beating.join()
            teller.write()


class _Teller:
    def __init__(self, folder: Path, title: str) -> None:
        self.ended = threading.Event()
        self._folder = folder
        self._began = time.monotonic()
        self._said = self._last = Told(title)
        self._written = False
        self._is_shared = folder.exists()  # the mirror of a store in a bucket is not, on another machine

    def on_start(self, title: str) -> None:
        """Begin again to measure time."""
        self._began = time.monotonic()

    def on_progress(self, title: str, progress: StageProgress) -> None:
        """Note how much is done."""
        self._last = self._last._replace(progress=progress)

    def on_end(self, title: str, how: How) -> None:
        """Note how the artifact came about."""
        self._last = self._last._replace(how=how, seconds=time.monotonic() - self._began)

    def beat(self) -> None:
        """Write what is new, and look for a stop, until the task has ended."""
        self.write()
        while not self.ended.wait(_SECONDS):
            if (self._folder / _STOP).exists() or (self._is_shared and not self._folder.exists()):
                request_stop()
            self.write()

    def write(self) -> None:
        """Write what is new, if anything; a run without figures is better than one that fails."""
        now = self._last
        if self._written and now == self._said:
            return
        file = _file(self._folder, now.title)
        try:
            temporary = file.with_suffix(".new")
            temporary.write_text(json.dumps(now), "utf-8")
            temporary.replace(file)
        except OSError:
            return
        self._said, self._written = now, True


class Listening:
    """Hears in the run's process what its tasks tell, and passes it to the callbacks that it is given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._callbacks: TaskCallbacks | None = None
        self._started: set[str] = set()
        self._ended = threading.Event()

    def take_callbacks(self) -> None:
        """Use the callbacks that are installed where this is called."""
        self._callbacks = CALLBACKS.get()

    def last(self, title: str) -> Told | None:
        """Return what a task that has ended told last, and forget its file."""
        file = _file(self.folder, title)
        told = _read(file)
        file.unlink(missing_ok=True)
        return told

    def stop(self) -> None:
        """Have every task of the run stop soon, on whichever machine it is."""
        (self.folder / _STOP).touch()

    def hold(self) -> None:
        """Have no task of the run begin any more."""
        (self.folder / _HOLD).touch()

    def listen(self) -> None:
        """Pass on what is new, until `close`."""
        while not self._ended.wait(_SECONDS):
            for file in self.folder.glob("*.json"):
                told, callbacks = _read(file), self._callbacks
                if told is not None and told.how is None and callbacks is not None:
                    self._pass(callbacks, told)

    def _pass(self, callbacks: TaskCallbacks, told: Told) -> None:
        if told.title not in self._started:
            self._started.add(told.title)
            callbacks.on_start(told.title)
        if told.progress is not None:
            callbacks.on_progress(told.title, told.progress)

    def close(self) -> None:
        """End `listen`."""
        self._ended.set()


@contextmanager
def listening(folder: Path) -> Iterator[Listening]:
    """Listen to the tasks of a run in this block; an interruption stops them.

    Args:
        folder: of the run. Each attempt has its own folder in it: a task of an earlier attempt that still
            runs stops when it misses its own, and a new task must not see what the old ones were told.
    """
    _sweep(folder)
    heard = Listening(folder / uuid.uuid4().hex)
    heard.folder.mkdir(parents=True)
    thread = threading.Thread(target=heard.listen, name="listening", daemon=True)
    thread.start()
    try:
        yield heard
    except BaseException as error:
        if not isinstance(error, Exception):
            heard.stop()
        raise
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        heard.close()
        thread.join()


def _sweep(folder: Path) -> None:
    """Remove what interrupted attempts have left: of this run, and of other runs long ago."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # another run removes them, too
        for stop in folder.parent.glob(f"*/*/{_STOP}"):
            if time.time() - stop.stat().st_mtime > _KEPT_SECONDS:
                shutil.rmtree(stop.parent.parent, ignore_errors=True)
