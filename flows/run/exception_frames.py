"""Frees the objects that a reported exception still holds.

An exception keeps the frames that it passed through, and with them every local variable: connections, arrays,
files. Prefect keeps the exception in the states of its runs until the interpreter exits. By then it is too
late to free objects of extension modules: DuckDB reports each of them as leaked.
"""

import traceback


def clear_frames(error: BaseException) -> None:
    """Clear the local variables in the frames of an exception and of its causes; the traceback stays."""
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
