"""What the frames of a failure hold is let go of once the failure was told.

An exception keeps the frames that it passed through, and with them every local: connections, arrays, files.
Prefect keeps the exception, in the states of its runs, until the interpreter ends, when it is too late to
free what an extension module made: DuckDB's then says at length what was leaked.
"""

import traceback


def let_go(error: BaseException) -> None:
    """Clear the locals of the frames of a failure, and of what caused it; where it was raised stays known."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        failure = waiting.pop()
        if failure is None or id(failure) in seen:
            continue
        seen.add(id(failure))
        traceback.clear_frames(failure.__traceback__)
        waiting += [failure.__cause__, failure.__context__]
        if isinstance(failure, BaseExceptionGroup):
            waiting += failure.exceptions
