"""The commands of `tokmill`; importing this package registers them all."""

from tokmill.flows.commands import (  # noqa: F401
    artifacts,
    compare,
    data,
    doctor,
    profiles,
    report,
    run,
    runs,
    server,
    sql,
    store,
    suspects,
    sweep,
    text,
    trace,
    vocabulary,
)
