"""The entry point of the command line; turns errors into messages and exit codes.

Exit codes: 0 done, 1 a stage, an artifact or the machine failed, 2 wrong usage (an invalid profile, a name
that does not exist), 130 interrupted, 143 terminated. `TOKMILL_DEBUG=1` adds the traceback to an error.
"""

import io
import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Sequence
from pathlib import Path

import typer

from tokmill.flows.cli.app import FAILED, USAGE, InterruptedCommandError, app
from tokmill.flows.cli.output import visible
from tokmill.flows.errors import FlowError, ProfileError, UsageError
from tokmill.flows.process import clear_frames, from_a_command
from tokmill.tasks.core.errors import TaskError, TracingError
from tokmill.tokenizer.core.errors import TokenizerError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: the words after `tokmill`; those of the process if not given.
    """
    _open_closed_streams()
    _show_what_streams_cannot()
    try:
        with from_a_command():
            app(args=_checked(sys.argv[1:] if arguments is None else arguments), prog_name="tokmill")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED
    except Exception as error:
        code = _report(error)
        clear_frames(error)
        return code
    return 0


def _open_closed_streams() -> None:
    """Open what the caller has closed (`>&-`), in order: else a file of ours gets its number, and output."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - until the end


def _show_what_streams_cannot() -> None:
    """Escape characters that the encoding of an output lacks (`PYTHONIOENCODING=ascii`), and go on."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _checked(arguments: Sequence[str]) -> list[str]:
    """Return the arguments; one that is not text cannot be a name, be printed or be recorded."""
    for argument in arguments:
        if "\0" in argument or argument.encode("utf-8", "ignore").decode() != argument:
            raise UsageError(
                f"the argument {argument[:80]!r} is not UTF-8 text, or has a NUL; rename what it names"
            )
    return list(arguments)


def _report(error: Exception) -> int:
    """Print the error's message and return its exit code."""
    if os.environ.get("TOKMILL_DEBUG", "") not in {"", "0"}:
        traceback.print_exception(error)
    if isinstance(error, BrokenPipeError):
        # The reader of our output is gone (`tokmill ls | head`): print nothing, at interpreter exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    if isinstance(error, InterruptedCommandError):
        return error.exit_code()
    message, code = _message_and_code(error)
    typer.echo(_wrapped(visible(f"tokmill: {message}")), err=True)
    return code


def _wrapped(message: str) -> str:
    """Wrap a message's lines on a terminal; leave them whole for a log or a pipe."""
    if not sys.stderr.isatty():
        return message
    width = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        for line in message.splitlines()
    )


def _message_and_code(error: Exception) -> tuple[str, int]:
    if isinstance(error, ProfileError | UsageError | TracingError):
        return str(error), USAGE
    if isinstance(error, FlowError | TaskError | TokenizerError):
        return str(error), FAILED
    if isinstance(error, FileNotFoundError) and error.filename is None and Path().stat().st_nlink == 0:
        return "the working directory was removed; change to another", FAILED
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}", FAILED
    kind = type(error).__name__
    return (
        f"unexpected {kind}: {error}\n(a bug in tokmill; TOKMILL_DEBUG=1 shows where it happened)",
        FAILED,
    )
