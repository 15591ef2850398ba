"""The driver's end of a worker: start it, tell it what to do, wait no longer than agreed, end it."""

import json
import os
import selectors
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import Any, Self

from side_by_side.environment import CHECKOUT


class SideError(Exception):
    """A side raised, died or took too long; the message says which, in a few words for a table."""


class Process:
    """A worker process.

    Args:
        num_threads: what libraries that look at the environment are to use.
    """

    def __init__(self, num_threads: int = 1) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by __exit__
        self._process = subprocess.Popen(
            [sys.executable, "-m", "side_by_side.worker"],
            cwd=CHECKOUT / "benchmarks",
            env=child_environment(num_threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Have something done and return the answer.

        Raises:
            SideError: there is no good answer within `timeout` seconds; the process has ended then.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died: there will be no answer
        answer = json.loads(self._line(timeout))
        if "failed" in answer:
            self.end()
            raise SideError(answer["failed"])
        return dict(answer)

    def _line(self, timeout: float) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            in_time = selector.select(timeout)
        # an answer is written in one go, so what has begun will end
        line = self._process.stdout.readline() if in_time else b""
        if not line:
            self.end()
            raise SideError(f"no result within {timeout:.0f} s" if not in_time else self._last_words())
        return line

    def _last_words(self) -> str:
        self._errors.seek(0)
        said = self._errors.read().strip().splitlines() or ["nothing said"]
        return f"died with {self._process.returncode}: {said[-1][:200]}"

    def end(self) -> None:
        """End the process, at once and for good."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.end()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            assert pipe is not None
            pipe.close()


def compile_kernels() -> None:
    """Compile the kernels, so that neither memory nor time of what is measured has that in it."""
    code = "from tokmill.tokenizer.preparing import prepare; prepare()"
    subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, env=child_environment(1), check=True)


def child_environment(num_threads: int) -> dict[str, str]:
    """Return an environment in which libraries use so many threads, and fetch nothing."""
    number = str(num_threads)
    return os.environ | {
        "RAYON_NUM_THREADS": number,
        "OMP_NUM_THREADS": number,
        "OPENBLAS_NUM_THREADS": number,
        "NUMBA_NUM_THREADS": number,
        "TOKENIZERS_PARALLELISM": "false" if num_threads == 1 else "true",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
