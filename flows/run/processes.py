"""Processes of a run that make the parts of its jobs, where Python's lock would hold up threads.

A thread that performs a task (`tasks.perform`) borrows a process for an attempt, and waits. A server that has
imported what stages need forks them in milliseconds, and they share its memory. Nothing is sent but requests
and references: texts and artifacts are files. A process that is killed costs its attempt. When a run ends, or
its own process is killed, they all do: by the end of their connections, at last by `flows.process`.
"""

import errno
import gc
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, NoReturn

from tokmill.flows.process import start_tethered, stop
from tokmill.flows.run.events import noting_warnings
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.tasks import ATTEMPT, TaskSpec, attempt
from tokmill.tasks.core.context import ProgressCallback, context_value
from tokmill.tasks.core.errors import MachineError
from tokmill.tasks.store.build import Realized
from tokmill.tasks.store.tables import Report
from tokmill.tokenizer.core.stopping import raise_if_stopped, request_stop
from tokmill.tokenizer.jit import Compilation, make_ready
from tokmill.tokenizer.preparing import kernel_modules

_LOG = logging.getLogger("tokmill.tasks")  # whose warnings a run shows
_LOOK_SECONDS, _END_SECONDS = 0.1, 2.0  # between looks for a stop; for processes to stop their work
_MESSAGE = 64  # the most bytes of what the server is asked, and of its answers
# so that memory which one stage needed goes back to the system instead of staying with each process
_FRUGAL = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(16 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 20),
}
# what stages import late; pandas, where it is installed, because Arrow does
_IMPORTED = (
    *("numba", "pandas", "pyarrow.compute", "pyarrow.parquet", "tokmill.flows.run.composition"),
    *("tokmill.tasks.audit.measurement", "tokmill.tasks.count.counter", "tokmill.tasks.encode.encoding"),
    *("tokmill.tasks.formats.packed.memmap", "tokmill.tokenizer.jit.compiler", "tokmill.tokenizer.loading"),
)


@contextmanager
def parts_elsewhere(machine: Machine, num_bytes: int) -> Iterator[None]:
    """Have the parts of jobs made by other processes in this block, if so much text needs them.

    An interruption has all work stopped.
    """
    if not machine.needs_processes(num_bytes):
        yield
        return
    pool = _Pool()
    try:
        with context_value(ATTEMPT, pool.attempt):
            yield
    except BaseException as error:
        if not isinstance(error, Exception):
            request_stop()
        raise
    finally:
        pool.close()


class _Worker(NamedTuple):
    """A process of a pool, and this end of the connection to it, at whose end it stops its work."""

    pid: int
    connection: Connection

    def attempt(self, spec: TaskSpec, listeners: Mapping[str, Callable[[Any], None] | None]) -> Any:
        """Have it attempt a task; return the result, or the error and its causes."""
        self.connection.send(spec)
        while True:
            raise_if_stopped()
            if self.connection.poll(_LOOK_SECONDS):
                what, said = self.connection.recv()
                if what == "end":
                    return said
                if listener := listeners[what]:
                    listener(said)


class _Pool:
    """The processes of a run: those that wait for work, and the server that forks them."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._asked = False
        self._warnings: dict[str, object] = {}
        self._asking = threading.Lock()
        self._control, theirs = socket.socketpair()
        # modules are to be found where this process found them; "" stands for the working directory
        folders = [folder or str(Path.cwd()) for folder in sys.path if isinstance(folder, str)]
        environment = {**_FRUGAL, **os.environ, "PYTHONPATH": os.pathsep.join(folders)}
        with theirs:
            number = theirs.fileno()
            self._server = start_tethered([__name__, str(number)], environment, 2, number)

    def attempt(self, spec: TaskSpec, watch: ProgressCallback | None, report: Report) -> Realized:
        """Have a process attempt a task; a MachineError that may pass if it is killed."""
        worker = self._borrowed()
        try:
            outcome = worker.attempt(spec, {"progress": watch, "remark": report, "warning": self._warn})
        except BaseException as error:
            worker.connection.close()
            if not isinstance(error, EOFError | OSError):
                raise
            code = os.waitstatus_to_exitcode(self._ask(str(worker.pid)))
            if code == 0 and isinstance(error, OSError):  # a listener's
                raise
            how = f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"
            raise MachineError(
                f"{spec.request.stage.task}: its process {worker.pid} {how}; if memory ran out, run with "
                "fewer --workers, or lower --memory"
            ) from ConnectionResetError(*error.args)
        self._idle.append(worker)
        if isinstance(outcome, Realized):
            return outcome
        for raised, cause in pairwise(outcome):
            raised.__cause__ = cause
        raise outcome[0]

    def _warn(self, text: str) -> None:
        """Log a warning, once for all processes."""
        first = object()
        if self._warnings.setdefault(text, first) is first:
            _LOG.warning("%s", text)

    def _borrowed(self) -> _Worker:
        with suppress(IndexError):
            return self._idle.pop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            pid = self._ask("fork", theirs.fileno())
            if pid < 0:
                said = os.strerror(-pid)
                raise MachineError(
                    f"no process can be started ({said}); run with fewer --workers"
                ) from OSError(-pid, said)
            return _Worker(pid, Connection(ours.detach()))

    def _ask(self, text: str, *descriptors: int) -> int:
        """Ask the server for a process at the other end of a connection, or how a process ended."""
        answer = b""
        with self._asking, suppress(OSError):
            self._asked = True
            socket.send_fds(self._control, [text.encode()], descriptors)
            answer = self._control.recv(_MESSAGE)
        if not answer:
            raise MachineError("the process that starts others has ended; run again")
        return int(answer)

    def close(self) -> None:
        """End all processes."""
        for worker in self._idle:
            worker.connection.close()
        self._control.close()
        with suppress(subprocess.TimeoutExpired):
            self._server.wait(_END_SECONDS if self._asked else 0)
        stop(self._server, 0, signal.SIGKILL)


def serve(control: socket.socket) -> NoReturn:
    """Fork processes, and wait for those that have ended, as asked; until nobody can ask any more."""
    for name in _IMPORTED:
        with suppress(ImportError):
            import_module(name)
    for module in kernel_modules():
        if ".kernels." in module:  # which families share
            with suppress(LookupError):
                make_ready([module], _refuse)
    gc.freeze()  # so that no collection writes to the pages that all share
    while (asked := socket.recv_fds(control, _MESSAGE, 1))[0]:
        text, descriptors = asked[:2]
        if descriptors:
            try:
                answer = os.fork()
            except OSError as error:
                answer = -(error.errno or errno.EAGAIN)
            if answer == 0:
                control.close()
                _work(Connection(descriptors[0]))
            os.close(descriptors[0])
        else:
            answer = os.waitpid(int(text), 0)[1]
        control.send(str(answer).encode())
    with suppress(ChildProcessError):
        while True:
            os.wait()
    os._exit(0)  # at once: nothing is to be put away


def _refuse(kernel: Compilation) -> None:
    """Raise LookupError for a kernel that the cache does not have."""
    if kernel.seconds is None:
        raise LookupError(kernel.kernel)


def _work(connection: Connection) -> NoReturn:
    """Attempt tasks until the connection ends."""
    waiting, telling = SimpleQueue[TaskSpec | None](), threading.Lock()

    def tell(what: str, said: object) -> None:
        with telling:
            connection.send((what, said))

    def receive() -> None:
        try:
            with suppress(EOFError, OSError):
                while True:
                    waiting.put(connection.recv())
        finally:
            request_stop()
            waiting.put(None)

    threading.Thread(target=receive, daemon=True).start()
    try:
        with noting_warnings(partial(tell, "warning")), suppress(OSError):
            while (spec := waiting.get()) is not None:
                tell("end", _outcome(spec, tell))
    finally:
        os._exit(0)


def _outcome(spec: TaskSpec, tell: Callable[[str, object], None]) -> object:
    """Return the result of an attempt, or the error and its causes, which pickle would leave out."""
    try:
        return attempt(spec, partial(tell, "progress"), partial(tell, "remark"))
    except BaseException as error:
        error.add_note(traceback.format_exc())
        causes = [error]
        while (cause := causes[-1].__cause__) is not None and cause not in causes:
            causes.append(cause)
        return [_portable(each) for each in causes]


def _portable(error: BaseException) -> Any:
    """Return an error that another process can read."""
    try:
        return pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # an error's own methods may raise anything
        return RuntimeError(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    import_module("tokmill.flows.run.processes").serve(socket.socket(fileno=int(sys.argv[1])))
