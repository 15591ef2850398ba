"""The commands of `tokmill`; importing this package registers them all, in the order that the help shows."""

from tokmill.flows.commands import (
    artifacts,
    catalog,
    compare,
    export,
    profiles,
    report,
    run,
    serve,
    sql,
    suspects,
    sweep,
    text,
    trace,
    upkeep,
    vocabulary,
)

__all__ = [
    "artifacts",
    "catalog",
    "compare",
    "export",
    "profiles",
    "report",
    "run",
    "serve",
    "sql",
    "suspects",
    "sweep",
    "text",
    "trace",
    "upkeep",
    "vocabulary",
]
