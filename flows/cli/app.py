"""The Typer application and its groups, which the commands of `tokmill.flows.commands` register with.

A command is a function: its parameters are what a person may write, and what it returns is printed. After
Ctrl-C, SIGTERM, or the loss of its terminal it ends, and states which work is kept.
"""

import functools
import inspect
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import typer
from rich.markup import escape
from typer.core import TyperGroup

from tokmill.flows.cli.options import JsonOption
from tokmill.flows.cli.output import Part, print_json, print_parts
from tokmill.flows.process import end_soon, handling, last_words

FAILED, USAGE = 1, 2

_DAILY = ("init", "plan", "run", "runs", "ls", "show", "compare", "lineage", "trace", "report", "sql")
_ORDER = (*_DAILY, "encode", "decode", "up", "doctor", "profiles", "store", "vocab", "data", "server")
_SIGNALS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated (SIGTERM)",
    signal.SIGHUP: "the terminal was closed (SIGHUP)",
}
_Function = TypeVar("_Function", bound=Callable[..., Any])


class InterruptedCommandError(Exception):
    """The signals that ended a command; not a KeyboardInterrupt, which Typer would handle itself."""

    def __init__(self) -> None:
        super().__init__("interrupted")
        self.signals: list[int] = []
        self.kept: Callable[[], str] = lambda: "what was published stays"
        self._unreported = threading.Lock()

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self.signals.append(number)
        end_soon(number)
        raise KeyboardInterrupt

    def report(self, number: int) -> None:
        """Print, once, what ended the command, which work is kept, and how to continue."""
        if self._unreported.acquire(blocking=False):
            name = _SIGNALS[signal.Signals(number)]
            sys.stderr.write(f"tokmill: {name}; {self.kept()}, and the same command continues from there\n")
            sys.stderr.flush()

    def exit_code(self) -> int:
        """Print the message, and return the exit code: 128 plus the signal's number."""
        number = self.signals[0] if self.signals else signal.SIGINT
        self.report(number)
        return 128 + number


_current = InterruptedCommandError()


def keeping(words: Callable[[], str]) -> None:
    """Set the function that describes the kept work if this command is interrupted."""
    _current.kept = words


@contextmanager
def noting_signals() -> Iterator[InterruptedCommandError]:
    """Record the signals that arrive in this block, even if the KeyboardInterrupt is caught."""
    global _current  # noqa: PLW0603 - signals are the process's
    noted = _current = InterruptedCommandError()
    last_words(noted.report)
    with handling(noted.note):
        yield noted


class _Commands(TyperGroup):
    """Lists the commands in the order in which people use them, and turns signals into an error."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the commands in the order of the help; one that is not in `_ORDER` comes last."""
        names = super().list_commands(ctx)
        return sorted(names, key=(*_ORDER, *names).index)

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        """Run the command; raises InterruptedCommandError if a signal ended it or a call in it."""
        with noting_signals() as noted:
            try:
                return super().invoke(ctx)
            except (KeyboardInterrupt, Exception) as error:
                if noted.signals or isinstance(error, KeyboardInterrupt):
                    raise noted from error
                raise


app = typer.Typer(
    cls=_Commands,
    name="tokmill",
    help="Raw text to training-ready token shards: a DAG of cached, versioned tasks.",
    epilog="A first look: tokmill run quickstart, tokmill ls, tokmill COMMAND --help",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _group(name: str, about: str) -> typer.Typer:
    made = typer.Typer(no_args_is_help=True, help=about)
    app.add_typer(made, name=name, rich_help_panel="More")
    return made


in_store = _group("store", "Check, measure, clean, tag, copy and reindex the store.")
in_vocab = _group("vocab", "Sweep, examine, extend and trim vocabularies.")
in_data = _group("data", "Export packed data; find and take down documents.")
in_server = _group("server", "Register deployments, and work for a Prefect server.")


class Answer(NamedTuple):
    """What a command prints: for `--json` a document, or a function that returns it, and parts for people."""

    document: Any
    parts: Iterable[Part]
    failed: bool = False


def command(
    group: typer.Typer, *commands: str, name: str | None = None, panel: str | None = None
) -> Callable[[_Function], _Function]:
    """Register a function as a command of a group, with examples at the end of its help."""

    def register(function: _Function) -> _Function:
        group.command(name, epilog=examples(*commands), rich_help_panel=panel)(printing(function))
        return function

    return register


def printing(function: Callable[..., Any]) -> Callable[..., None]:
    """Return a command that prints what a function returns: an `Answer`, or a line."""
    signature = inspect.signature(function)
    answers = Answer in {signature.return_annotation, *getattr(signature.return_annotation, "__args__", ())}

    @functools.wraps(function)
    def run(**arguments: Any) -> None:
        as_json = answers and arguments.pop("as_json")
        answer = function(**arguments)
        if isinstance(answer, str):
            print_parts([answer])
        elif answer is not None:
            if as_json:
                print_json(answer.document() if callable(answer.document) else answer.document)
            else:
                print_parts(answer.parts)
            if answer.failed:
                raise typer.Exit(FAILED)

    if answers:
        kind = inspect.Parameter.KEYWORD_ONLY
        added = inspect.Parameter("as_json", kind, default=False, annotation=JsonOption)
        signature = signature.replace(parameters=[*signature.parameters.values(), added])
        setattr(run, "__signature__", signature)  # noqa: B010 - which Typer reads, and types do not know
    return run


def examples(*commands: str) -> str:
    """Return the examples at the end of a command's help, one per line."""
    return "\n".join(["Examples:", *(f"  $ {escape(command)}" for command in commands)])


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tokmill {version('tokmill')}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    pass
