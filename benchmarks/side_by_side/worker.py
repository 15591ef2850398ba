"""One side at work: a process that does what lines of JSON on its standard input say.

    {"do": "open", "kind": "encoders", "side": "tiktoken", "text": "/…/english", "with": {…}}
    {"do": "fresh"}    make a fresh object      → seconds
    {"do": "work"}     do the work once         → seconds, peak memory, evidence of what was made
    {"do": "quit"}

Each line is answered by one: {"failed": "…"} or what is said above. Whatever a library prints goes to
standard error. Times are of the call alone: evidence is gathered after the clock has stopped.
"""

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from side_by_side.outcomes import UnsupportedError
from side_by_side.texts import Text

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


class Worker:
    """Does what it is told; methods are named as in the requests."""

    def open(self, kind: str, side: str, text: str, options: dict[str, Any]) -> dict[str, Any]:
        """Load a side and its text."""
        self.side = importlib.import_module(f"side_by_side.{kind}").SIDES[side](**options)
        self.side.prepare(Text.read(Path(text)))
        return {}

    def fresh(self) -> dict[str, Any]:
        """Make a fresh object."""
        return _timed(self.side.fresh)[1]

    def work(self) -> dict[str, Any]:
        """Do the work; says how much memory the process had before, and at the most."""
        _forget_peak()
        before = peak_bytes()
        result, seconds = _timed(self.side.work)
        peak = peak_bytes()
        return seconds | {"before": before, "peak": peak, "evidence": self.side.evidence(result)}


def _timed(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return result, {"cpu": cpu, "wall": wall}


def peak_bytes() -> int:
    """Return the most memory that this process has had resident.

    `ru_maxrss` would say what its parent had when it was started, if that was more.
    """
    if _STATUS.is_file():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _forget_peak() -> None:
    """Have the peak begin at what is resident now, where the system can do that."""
    if _CLEAR.exists():
        _CLEAR.write_text("5")


def main() -> None:
    """Answer requests until there are none."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        request = json.loads(line)
        do = request.pop("do")
        if do == "quit":
            return
        try:
            answer = getattr(worker, do)(**request)
        except UnsupportedError as error:
            answer = {"failed": str(error)}
        except Exception as error:  # a peer may raise anything; the driver shows it
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
