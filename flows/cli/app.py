"""The Typer application that the commands register with; `tokmill.flows.commands` holds them."""

from typing import Annotated

import typer
from rich.markup import escape
from typer.core import TyperGroup

from tokmill.flows.cli.interruption import InterruptedCommandError, noting_signals

FAILED, USAGE = 1, 2


_ORDER = (
    *("run", "plan", "up", "deploy", "work", "doctor"),
    *("profiles", "init"),
    *("ls", "runs", "show", "lineage", "diff", "verify", "tag", "remove", "gc", "du", "sql", "catalog"),
    *("trace", "impact", "takedown", "export", "reproduce", "bundle", "push", "pull"),
    *("encode", "decode", "sweep", "compare", "report", "suspects", "extend", "trim", "resize-embeddings"),
)


class _Commands(TyperGroup):
    """Lists the commands in the order in which people use them, and turns signals into an error."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the commands in the order of the help."""
        return sorted(super().list_commands(ctx), key=_ORDER.index)

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
    help="Raw text to training-ready token shards, as one DAG of cached, versioned tasks.",
    epilog="A first look:\n  $ tokmill run quickstart\n  $ tokmill ls\n  $ tokmill COMMAND --help",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    pass
