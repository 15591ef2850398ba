"""The commands; importing this package registers them all, in the order that the help shows."""

from tokmill.flows.cli.commands import (
    artifacts,
    catalog,
    exporting,
    profiles,
    running,
    serving,
    text,
    tracing,
)

__all__ = ["artifacts", "catalog", "exporting", "profiles", "running", "serving", "text", "tracing"]
