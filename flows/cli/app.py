"""The Typer application and its groups, which the commands of `tokmill.flows.commands` register with.

A command is a function: its parameters are what a person may write, and what it returns is printed.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import typer
from rich.markup import escape
from typer.core import TyperGroup

from tokmill.flows.cli.interruption import InterruptedCommandError, noting_signals
from tokmill.flows.cli.options import JsonOption
from tokmill.flows.cli.output import Part, print_json, print_parts

FAILED, USAGE = 1, 2

_DAILY = ("init", "plan", "run", "runs", "ls", "show", "compare", "lineage", "trace", "report", "sql")
_ORDER = (*_DAILY, "encode", "decode", "up", "doctor", "profiles", "store", "vocab", "data", "server")
_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Commands(TyperGroup):
    """Lists the commands in the order in which people use them, and turns signals into an error."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the commands in the order of the help; one that is not in `_ORDER` comes last."""
        names = super().list_commands(ctx)
        return sorted(names, key=(*_ORDER, *names).index)

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        """Run the command.

        Raises:
            InterruptedCommandError: a signal ended it.
        """
        with noting_signals() as noted:
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:
                raise InterruptedCommandError(noted) from None
            except Exception as error:
                # A signal may interrupt a call that then fails with an error of its own.
                if noted.signals:
                    raise InterruptedCommandError(noted) from error
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
    """What a command prints.

    Attributes:
        document: for `--json`, an option that each command with an answer has; or a function that returns it.
        parts: for people.
        failed: whether the command failed nevertheless, with exit code 1.
    """

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


in_runs = typer.Typer(
    invoke_without_command=True,
    help="List runs; show, tag, note, reproduce or bundle one.",
    epilog=examples(
        "tokmill runs --experiment temperature",
        "tokmill runs --sort bytes_per_token --best 3",
        "tokmill runs show latest",
        "tokmill runs tag latest winner",
    ),
)
app.add_typer(in_runs, name="runs")


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
