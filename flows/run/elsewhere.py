"""What a run and its tasks in other processes tell each other: by files in a folder of the store.

A task that runs beside others in the run's process calls the executor's callbacks. One in another process,
perhaps on another machine, writes the same into a file now and then, and looks what the run asks of it:

    <telling>/<run id>/<attempt>/run            of the run: `go`, `hold` (begin nothing) or `stop`
    <telling>/<run id>/<attempt>/<title>.json   of a task: its progress, and how it got its artifact

The store is the one thing that both are sure to share. Where all tasks are on the run's machine the folder is
`.prefect/telling`, which is local also if the store is in a bucket; else it is `telling`. There every look is
a request: so they become rarer the longer a task takes, up to `_FAR`, and a short task writes only its end.

The folder of an attempt is removed when the attempt ends, however it does. A task that misses it stops: its
run was interrupted, or is tried again. What a killed run leaves goes with `tokmill gc`.
"""

import json
import threading
import time
import uuid
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from tokmill.flows.run.tasks import CALLBACKS, TaskCallbacks
from tokmill.tasks.core.context import StageProgress
from tokmill.tasks.core.stage import How
from tokmill.tasks.store import shared
from tokmill.tasks.store.cache import url_of
from tokmill.tasks.store.digest import digest_bytes
from tokmill.tasks.store.layout import Layout
from tokmill.tokenizer.core.stopping import allow_work, request_stop

Asking: TypeAlias = Literal["go", "hold", "stop"]

_RUN, _SUFFIX = "run", ".json"
_MOST_BYTES = 1 << 16
_PATIENCE_SECONDS = 5.0  # for the last words to a store that does not answer
_held_here = threading.Event()


class Pace(NamedTuple):
    """How many seconds apart something is done: at first, and at most."""

    first: float
    most: float

    def after(self, seconds: float) -> float:
        """Return the next pause."""
        return min(1.5 * seconds, self.most)


class _Paces(NamedTuple):
    look: Pace  # of a task: what is asked of it
    write: Pace  # of a task: its progress
    listen: Pace  # of the run


_NEAR: Final = _Paces(Pace(0.5, 0.5), Pace(0.5, 0.5), Pace(0.5, 0.5))
_FAR: Final = _Paces(Pace(1.0, 3.0), Pace(1.0, 15.0), Pace(1.0, 5.0))


def _paces(folder: Path) -> _Paces:
    return _FAR if url_of(folder) is not None else _NEAR


class Told(NamedTuple):
    """What a task told last; `how` is None until it has its artifact."""

    title: str
    progress: StageProgress | None = None
    how: How | None = None
    seconds: float = 0.0


def telling_folder(layout: Layout, run_id: str, *, far: bool) -> Path:
    """Return the folder in which a run and its tasks tell each other.

    Args:
        layout: the store.
        run_id: of the run.
        far: whether tasks may be on other machines.
    """
    return (layout.telling if far else layout.telling_nearby) / run_id


def _name(title: str) -> str:
    return f"{digest_bytes(title.encode())[:32]}{_SUFFIX}"


def _read(file: Path) -> Told | None:
    try:
        title, progress, how, seconds = json.loads(shared.heard(file, _MOST_BYTES))
    except (OSError, ValueError):  # not yet there, or just removed
        return None
    return Told(title, progress and StageProgress(*progress), how, seconds)


def asked_of_tasks(folder: Path | None) -> Asking:
    """Return what a run asks of its tasks; `stop` if its attempt is over.

    Args:
        folder: of the attempt; None if the task runs in the run's process.
    """
    if folder is None:
        return "hold" if _held_here.is_set() else "go"
    try:
        found = shared.heard(folder / _RUN, _MOST_BYTES)
    except FileNotFoundError:
        return "stop"
    except OSError:  # whoever cannot be heard has asked for nothing
        return "go"
    return "stop" if found == b"stop" else "hold" if found == b"hold" else "go"


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
        folder: of the run's attempt; None if the task runs in the process of its run.
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
            beating.join(_PATIENCE_SECONDS)


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
        """Look what is asked, and write what is new, until the task has ended or must stop."""
        paces = _paces(self._folder)
        look, write = paces.look.first, paces.write.first
        due = time.monotonic() + write
        while not self.ended.wait(look):
            if asked_of_tasks(self._folder) == "stop":
                request_stop()
                return  # the folder is gone, or goes soon
            look = paces.look.after(look)
            if time.monotonic() >= due:
                self._write()
                write = paces.write.after(write)
                due = time.monotonic() + write
        self._write()

    def _write(self) -> None:
        """Write what is new, if anything; a run without figures is better than one that fails."""
        now = self._last
        if self._written and now == self._said:
            return
        with suppress(OSError):
            shared.leave(self._folder / _name(now.title), json.dumps(now).encode())
            self._said, self._written = now, True


class Listening:
    """Hears in the run's process what its tasks tell, and passes it to the callbacks that it is given.

    Args:
        layout: the store.
        folder: of the run's attempt.
    """

    def __init__(self, layout: Layout, folder: Path) -> None:
        self.folder = folder
        self.below_the_store = folder.relative_to(layout.root).as_posix()
        self._callbacks: TaskCallbacks | None = None
        self._started: set[str] = set()
        self._ends: dict[str, Told] = {}  # what was heard, and not asked for yet, by name
        self._over: set[str] = set()  # names that were asked for: their files can go
        self._ended = threading.Event()
        self._pace = _paces(folder).listen
        self._pause = self._pace.first

    def take_callbacks(self) -> None:
        """Use the callbacks that are installed where this is called; tasks are about to begin."""
        self._callbacks = CALLBACKS.get()
        self._pause = self._pace.first

    def last(self, title: str) -> Told | None:
        """Return what a task that has ended told last, and forget it."""
        name = _name(title)
        if name in self._over:
            return None
        self._over.add(name)
        return self._ends.pop(name, None) or _read(self.folder / name)

    def ask(self, asking: Asking) -> None:
        """Ask something of every task of the run, on whichever machine it is.

        After a signal there is little time, so a store that does not answer is not waited for.
        """
        asked = threading.Thread(target=self._ask, args=[asking], name="asking", daemon=True)
        asked.start()
        asked.join(1.0)

    def _ask(self, asking: Asking) -> None:
        with suppress(OSError):
            shared.leave(self.folder / _RUN, asking.encode())

    def listen(self) -> None:
        """Pass on what is new, until `close`."""
        seen: dict[str, Hashable] = {}
        while not self._ended.wait(self._pause):
            self._pause = self._pace.after(self._pause)
            with suppress(OSError):
                for name, stamp in shared.stamps(self.folder).items():
                    if name in self._over:
                        shared.remove_message(self.folder / name)
                    elif name.endswith(_SUFFIX) and seen.get(name) != stamp:
                        seen[name] = stamp
                        self._hear(name)

    def _hear(self, name: str) -> None:
        told, callbacks = _read(self.folder / name), self._callbacks
        if told is not None and told.how is not None:
            self._ends[name] = told
        elif told is not None and callbacks is not None:
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
def listening(layout: Layout, folder: Path) -> Iterator[Listening]:
    """Listen to the tasks of a run in this block; after it, those that still run are stopped.

    Args:
        layout: the store.
        folder: of the run. Each attempt has its own folder in it: a task of an earlier attempt that still
            runs stops when it misses its own, and a new task must not see what the old ones were told.

    Raises:
        OSError: the store cannot be written to.
    """
    shared.remove_message(folder)
    heard = Listening(layout, folder / uuid.uuid4().hex)
    heard.folder.mkdir(parents=True)
    shared.leave(heard.folder / _RUN, b"go")
    thread = threading.Thread(target=heard.listen, name="listening", daemon=True)
    thread.start()
    try:
        yield heard
    finally:
        heard.close()
        thread.join(_PATIENCE_SECONDS)
        shared.remove_message(folder)
