"""How deep the stack is where a run encodes: our functions from `tokmill run` to `encode_pretokens`.

    python benchmarks/frames.py

Runs the profile smoke without Prefect and with one worker, in a store of its own, and lists the deepest stack
that leads through the stage encode, outermost first. Functions of other packages are left out.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from tokmill.__main__ import main
from tokmill.tokenizer.jit.kernel import Kernel

CHECKOUT = Path(__file__).resolve().parent.parent
OURS = {"tokmill", "flows", "tasks", "tokenizer"}
STAGE = "tasks/encode/"
KERNEL = ".encode_pretokens"


def deepest_stack() -> list[str]:
    """Run the profile, and return the functions of the deepest stack, innermost first."""
    deepest: list[str] = []

    def look(frame: FrameType, event: str, _: object) -> None:
        called = event == "call" and frame.f_code is Kernel.__call__.__code__
        if called and frame.f_locals["self"].name.endswith(KERNEL):
            stack = list(_our_functions(frame))
            if any(name.startswith(STAGE) for name in stack):
                deepest[:] = max(deepest, stack, key=len)

    sys.argv = ["tokmill", "run", "smoke", "--no-prefect", "--workers", "1"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TOKMILL_STORE"] = f"{folder}/store"
        os.chdir(folder)
        sys.setprofile(look)
        main()
        sys.setprofile(None)
        os.chdir(CHECKOUT)
    return deepest


def _our_functions(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        path = Path(frame.f_code.co_filename).resolve()
        if path.is_relative_to(CHECKOUT) and path.relative_to(CHECKOUT).parts[0] in OURS:
            yield f"{path.relative_to(CHECKOUT)}: {frame.f_code.co_name}"
        frame = frame.f_back


if __name__ == "__main__":
    stack = deepest_stack()
    print(*reversed(stack), f"{len(stack)} frames", sep="\n")
