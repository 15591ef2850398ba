"""Processes for the crash tests: one that dies at a chosen step, one that waits.

    python -m tests.test_tasks.store_child at-every-step publishing|collecting|… <folder> [<store>]
    python -m tests.test_tasks.store_child slowly <store>
    python -m tests.test_tasks.store_child with-little-room <store>

The steps are what Python itself announces through its audit hooks (files opened, renamed, made, removed), so
a child dies inside the real code, between two steps of it, by a real SIGKILL.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tests.effort import EVERYTHING
from tests.test_tasks.store_stages import WriteParams, ask, left_over, stage_of
from tokmill.flows.reproduce.subject import cargo_of
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import Outcome, Request
from tokmill.tasks.store import Store
from tokmill.tasks.store.push import move
from tokmill.tasks.store.retention import Policy

# Removals are killed at every fourth step, collections at every seventh, a push at every fifteenth, with
# TOKMILL_EVERYTHING at all and at every third: each step costs a second of work. The test checks that some
# die between two removals.
COLLECTION_STRIDE, REMOVAL_STRIDE, PUSH_STRIDE = (1, 1, 3) if EVERYTHING else (7, 4, 15)
_STEPS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"}


def tell(line: str) -> None:
    """Tell the test that started this process."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def watch(root: Path, on_step: Callable[[str], None]) -> None:
    """Call `on_step` with `event path` just before each step that concerns a file below `root`."""

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in _STEPS and isinstance(arguments[0], str | os.PathLike):
            path = os.fspath(arguments[0])
            if str(path).startswith(str(root)):
                on_step(f"{event} {path}")

    sys.addaudithook(hook)


def publish_and_list(store: Store, base: str) -> None:
    """What the first test does."""
    store.realize(ask(text="abc", times=3))
    store.list()


def push(store: Store, base: str) -> None:
    """Push all of the store `base`."""
    move(Store.open(base), store, cargo_of(Store.open(base), []), str)


# How many steps lie between two kills, and what is done; see above.
WORK: dict[str, tuple[int, Callable[[Store, str], object]]] = {
    "publishing": (1, publish_and_list),
    "collecting": (COLLECTION_STRIDE, lambda store, base: store.collect(Policy(older_than_days=0, keep=0))),
    "removing": (
        REMOVAL_STRIDE,
        lambda store, base: store.remove(store.resolve("text/base"), with_dependents=True),
    ),
    "pushing": (PUSH_STRIDE, push),
}


def at_every_step(what: str, folder: str, base: str = "") -> None:
    """Do something in stores 0, 1, 2, … of `folder`, killed before the step of that number times the stride.

    The stores are copies of `base`, or empty. Prints, for each store that was killed, the step that it did
    not come to.
    """
    stride, work = WORK[what]
    number, killed = 0, True
    while killed:
        store = Store.open(Path(folder) / str(number))
        if what in ("collecting", "removing"):
            shutil.copytree(base, store.root)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            count = 0

            def step(what: str, last: int = number * stride, announce: int = writing) -> None:
                nonlocal count
                if count == last:
                    os.write(announce, what.encode())
                    os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out
                count += 1

            watch(store.root, step)
            work(store, base)
            os._exit(0)
        os.close(writing)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        with os.fdopen(reading) as announced:
            what_step = announced.read().replace(str(store.root), "")
        if killed:
            tell(what_step)
        number += 1


def slow_request() -> Request:
    """A request whose stage says that it runs, then waits for a line."""

    def wait(params: WriteParams, *, out: Path) -> Outcome:
        (out / "text.txt").write_text("half")
        tell("running")
        sys.stdin.readline()
        (out / "text.txt").write_text("whole")
        return Outcome({})

    return Request(stage_of(wait), "slow", WriteParams(), {})


def slowly(root: str) -> None:
    """Realize the slow request; say what the store reports, then how it was come by."""
    realized = Store.open(root).realize(slow_request(), report=tell)
    tell(f"{realized.how} {realized.ref.content_digest}")


def with_little_room(root: str) -> None:
    """Realize artifacts on a disk that has room for ever fewer pages; tell how each went."""
    store = Store.open(root)
    for pages in range(12, -1, -1):
        tell("published" if _published_within(store, pages) else "refused")
    tell(f"listed {len(store.list())}, problems {len(store.verify())}")


def _published_within(store: Store, pages: int) -> bool:
    """Whether an artifact is published on a disk with so many pages left; it must be whole or absent."""
    room = os.statvfs(store.root)
    filler = store.root / "filler"
    filler.write_bytes(b"x" * ((room.f_bavail - pages) * room.f_bsize))
    request, told = ask(f"n{pages}", text=str(pages)), ""
    try:
        store.realize(request, report=lambda line: None)
    except StoreError as error:
        told = str(error)
    found = store.lookup(request, verify="full")
    assert "make room and run again" in told if found is None else told == "", told
    assert left_over(store.root) == []
    filler.unlink()
    return found is not None


if __name__ == "__main__":
    commands = {"at-every-step": at_every_step, "slowly": slowly, "with-little-room": with_little_room}
    commands[sys.argv[1]](*sys.argv[2:])
