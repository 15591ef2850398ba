"""The commands of `tokmill`; importing this package registers them all, in the order that the help shows."""

from tokmill.flows.commands import (
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
