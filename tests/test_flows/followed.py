"""Follows `tokmill run PROFILE` to its first encoded shard: which of our files are on the way.

A file is on the way if one of its functions is on the call stack when something happens to the profile, the
request or the shard (`LANDMARKS`): a debugger would show it there. The stack begins at the command, goes on
in the thread that Prefect gives the task and in those that read and write beside it, and ends where a kernel
is entered. What has returned by then (the look whether anything is to be made, checks, locks, labels, the
progress display) is not on the way, and neither is the opening of the tokenizer.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import tokmill

_ROOT = os.path.realpath(Path(tokmill.__file__).parent.parent) + os.sep
_NOT_OURS = (f"tests{os.sep}", ".")  # `.venv` is where the README makes an environment
_TITLE = "encode["
_TASK = "flows/run/tasks.py", "perform"
_KERNEL = "tokenizer/jit/kernel.py", "__call__"
_OPENING = "tasks/formats/tokenizer.py"
_FIRST = "flows/commands/run.py"
_LOOK = "flows/run/direct.py"

LANDMARKS = {
    ("flows/profile/files.py", "read_table"),  # the profile is read
    ("flows/run/composition.py", "compose"),  # the DAG is composed
    ("flows/run/dag.py", "request"),  # a step becomes a request
    ("flows/prefect/task.py", "as_task"),  # and a Prefect task
    ("tasks/store/fingerprint.py", "fingerprint"),
    ("tasks/formats/text/content.py", "blocks"),  # a file of text is opened
    _KERNEL,  # text is cut, encoded, checked, measured
    ("tasks/formats/files/npy.py", "append"),  # tokens are written
    ("tasks/formats/files/manifests.py", "write_model"),  # and statistics
    ("tasks/store/record.py", "encode_record"),  # and the record
    ("tasks/store/build.py", "commit"),  # the shard is there
}


class Follower:
    """Looks at every call in every thread, and notes the stack at landmarks.

    The files go into `result` as JSON. The process ends as soon as the shard is published.
    """

    def __init__(self, result: Path) -> None:
        self._result = result
        self._names: dict[CodeType, str] = {}
        self._encodes = False
        self._found: set[str] = set()

    def follow(self) -> None:
        """Begin, in this thread and in those that are started from now on."""
        threading.setprofile(self._look)
        sys.setprofile(self._look)

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in {"call", "return"}:
            return
        where = self._name(frame.f_code), frame.f_code.co_name
        if where == _TASK and frame.f_locals["spec"].title.startswith(_TITLE):
            self._encodes = event == "call"
            if event == "return":
                self._end()
        elif event == "call" and where in LANDMARKS:
            self._note(frame, where)

    def _note(self, frame: FrameType, where: tuple[str, str]) -> None:
        in_main = threading.current_thread() is threading.main_thread()
        stack = list(self._stack(frame))
        begun = _FIRST in stack and _LOOK not in stack
        if (in_main and begun) or (not in_main and self._encodes and _OPENING not in stack):
            self._found |= set(stack[: stack.index(_FIRST) + 1] if in_main else stack)
            if where == _KERNEL:
                self._found.add(self._name(frame.f_locals["self"].py_func.__code__))

    def _stack(self, frame: FrameType | None) -> Iterator[str]:
        """Our files on the stack, innermost first."""
        while frame is not None:
            name = self._name(frame.f_code)
            if name and frame.f_code.co_name != "<module>":
                yield name
            frame = frame.f_back

    def _name(self, code: CodeType) -> str:
        """The file of a function below the checkout; empty for those of others, an environment in it too."""
        if code not in self._names:
            path = os.path.realpath(code.co_filename)
            name = path.removeprefix(_ROOT) if path.startswith(_ROOT) else ""
            self._names[code] = "" if name.startswith(_NOT_OURS) else name
        return self._names[code]

    def _end(self) -> None:
        sys.setprofile(None)
        self._result.write_text(json.dumps(sorted(self._found)), encoding="utf-8")
        os._exit(0)
