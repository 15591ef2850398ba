"""The entry point of the command line, and what an error becomes.

Exit codes: 0 done, 1 a stage, an artifact or the machine failed, 2 wrong usage (a profile that is wrong,
something asked for that does not exist), 130 interrupted, 143 terminated. An error is one block on standard
error; `TOKMILL_DEBUG=1` adds the traceback. Commands import what they need when they are called, so that
`tokmill --help` stays quick.
"""

import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Sequence

import typer

from tokmill.flows.cli.app import FAILED, USAGE, app
from tokmill.flows.cli.interruption import InterruptedCommandError
from tokmill.flows.run.exception_frames import clear_frames


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: the words after `tokmill`; the process's own if not given.
    """
    try:
        app(args=None if arguments is None else list(arguments), prog_name="tokmill")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED
    except Exception as error:
        code = _answer(error)
        clear_frames(error)
        return code
    return 0


def _answer(error: Exception) -> int:
    """Say what went wrong and return the exit code for it."""
    if os.environ.get("TOKMILL_DEBUG", "") not in {"", "0"}:
        traceback.print_exception(error)
    if isinstance(error, BrokenPipeError):
        # The reader of our output went away (`tokmill ls | head`): say nothing, also at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    if isinstance(error, InterruptedCommandError):
        return error.interruption.answer()
    message, code = _verdict(error)
    typer.echo(_laid_out(f"tokmill: {message}"), err=True)
    return code


def _laid_out(message: str) -> str:
    """Break a message's lines between words on a terminal; a log or a pipe gets them whole."""
    if not sys.stderr.isatty():
        return message
    width = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        for line in message.splitlines()
    )


def _verdict(error: Exception) -> tuple[str, int]:
    from tokmill.flows.errors import FlowError, ProfileError, UsageError
    from tokmill.tasks.core.errors import TaskError
    from tokmill.tokenizer.core.errors import TokenizerError

    if isinstance(error, ProfileError | UsageError):
        return str(error), USAGE
    if isinstance(error, FlowError | TaskError | TokenizerError):
        return str(error), FAILED
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}", FAILED
    kind = type(error).__name__
    return (
        f"unexpected {kind}: {error}\n(a fault of tokmill's; TOKMILL_DEBUG=1 shows where it happened)",
        FAILED,
    )
