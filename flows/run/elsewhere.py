"""What a task in another process tells of itself, and is told: by files in a folder of the store.

A task that runs beside others in this process calls the executor's callbacks. One in another process, perhaps
on another machine, writes the same into a file every half second, and looks whether the run is being stopped.
The store is the one thing that both are sure to share. The files are gone when the run ends.
"""

import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tokmill.flows.run.tasks import CALLBACKS, TaskCallbacks
from tokmill.tasks.core.context import StageProgress
from tokmill.tasks.core.stage import How
from tokmill.tasks.store.digest import digest_bytes
from tokmill.tokenizer.core.stopping import allow_work, request_stop

_SECONDS = 0.5
_STOP = "stop"


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
            if (self._folder / _STOP).exists() or not self._folder.exists():
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
    """Listen to the tasks of a run in this block; an interruption stops them."""
    folder.mkdir(parents=True, exist_ok=True)
    heard = Listening(folder)
    thread = threading.Thread(target=heard.listen, name="listening", daemon=True)
    thread.start()
    try:
        yield heard
    except BaseException as error:
        if not isinstance(error, Exception):
            heard.stop()
        raise
    finally:
        heard.close()
        thread.join()


def forget(folder: Path) -> None:
    """Remove a run's folder, once none of its tasks runs any more."""
    shutil.rmtree(folder, ignore_errors=True)
