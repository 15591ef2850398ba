"""The commands of `tokmill`; importing this package registers them all."""

from tokmill.flows.commands import (  # noqa: F401
    artifacts,
    audits,
    compare,
    data,
    profiles,
    reproduce,
    run,
    runs,
    server,
    sql,
    store,
    text,
    vocabulary,
)
