"""The files that a request goes through from `tokmill run` to an encoded shard: few, and all on the page.

A file is on the way if one of its functions is on the call stack when something happens to the profile, the
request or the shard (`LANDMARKS`): a debugger would show it there. The stack begins at the command, goes on
in the thread that Prefect gives the task, and ends where the kernel is entered that makes ids. What has
returned by then (checks, locks, labels, the progress display) is not on the way, and neither is the opening
of the tokenizer.
"""

import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import tokmill
from tests.test_flows.commands import RUN_SECONDS, Tokmill
from tests.test_flows.forking import run_forked

MOST_FILES = 18
ROOT = os.path.realpath(Path(tokmill.__file__).parent.parent) + os.sep
TASK, TITLE = ("flows/run/tasks.py", "perform"), "encode["
KERNEL, IDS = ("tokenizer/jit/kernel.py", "__call__"), "tokenizer/kernels/encoding.py"
FIRST, LOOK, OPENING = "flows/commands/run.py", "flows/run/direct.py", "tasks/formats/tokenizer.py"
LANDMARKS = {
    ("flows/run/composition.py", "compose"),  # the DAG is composed
    ("flows/prefect/task.py", "as_task"),  # a step becomes a Prefect task
    KERNEL,  # text becomes ids
    ("tasks/store/record.py", "encode_record"),  # the shard gets its record
}


@cache
def name_of(code: CodeType) -> str:
    """The file of a function below the checkout; empty for those of others, an environment in it too."""
    path = os.path.realpath(code.co_filename)
    name = path.removeprefix(ROOT) if path.startswith(ROOT) else ""
    return "" if name.startswith((f"tests{os.sep}", ".")) else name


def ours(frame: FrameType | None) -> Iterator[str]:
    """Our files on the stack, innermost first."""
    while frame is not None:
        name = name_of(frame.f_code)
        if name and frame.f_code.co_name != "<module>":
            yield name
        frame = frame.f_back


class Follower:
    """Looks at every call in every thread, and notes the stack at landmarks.

    The files go into `result` as JSON. The process ends as soon as the shard is published.
    """

    def __init__(self, result: Path) -> None:
        self._result = result
        self._encodes = False
        self._found: set[str] = set()

    def follow(self) -> None:
        """Begin, in this thread and in those that are started from now on."""
        threading.setprofile(self._look)
        sys.setprofile(self._look)

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in {"call", "return"}:
            return
        where = name_of(frame.f_code), frame.f_code.co_name
        if where == TASK and frame.f_locals["spec"].title.startswith(TITLE):
            self._encodes = event == "call"
            if event == "return":
                sys.setprofile(None)
                self._result.write_text(json.dumps(sorted(self._found)), encoding="utf-8")
                os._exit(0)
        elif event == "call" and where in LANDMARKS:
            self._note(frame, where)

    def _note(self, frame: FrameType, where: tuple[str, str]) -> None:
        in_main = threading.current_thread() is threading.main_thread()
        stack = list(ours(frame))
        begun = FIRST in stack and LOOK not in stack
        if (in_main and begun) or (not in_main and self._encodes and OPENING not in stack):
            kernel = name_of(frame.f_locals["self"].py_func.__code__) if where == KERNEL else IDS
            if kernel == IDS:
                self._found |= {*(stack[: stack.index(FIRST) + 1] if in_main else stack), IDS}


@pytest.mark.server
@pytest.mark.slow
def test_a_run_reaches_an_encoded_shard_through_few_files(on_prefect: Tokmill, checkout: Path) -> None:
    result = on_prefect.folder / "files.json"
    environment = {**on_prefect.environment, "TOKMILL_STORE": str(on_prefect.store)}
    command, follow = ("run", "smoke", "--workers", "1"), Follower(result).follow
    code, _, said = run_forked(command, on_prefect.folder, environment, RUN_SECONDS, follow)
    page = (checkout / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("## The way of a run")[2].partition("\n## ")[0]
    rows = "\n".join(line for line in section.splitlines() if line.startswith("|"))
    assert code == 0, said
    found = json.loads(result.read_text(encoding="utf-8"))
    assert found == sorted(set(re.findall(r"`((?:flows|tasks|tokenizer)/[\w/]+\.py)`", rows)))
    assert len(found) <= MOST_FILES
