"""The flows `verify-store` and `collect-garbage`: the upkeep of a store, beside runs that go on."""

from typing import Annotated, Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact
from pydantic import Field

from tokmill.flows.errors import RunError
from tokmill.flows.prefect.links import key_of
from tokmill.flows.run.machine import open_store, store_url
from tokmill.flows.upkeep import checking, collecting


@flow(name="verify-store", description="Every artifact's files compared with the digests in its record.")
def verify_store(deep: bool = True, store: str | None = None) -> dict[str, Any]:
    """Check every artifact of a store, and fail if there is a problem.

    Args:
        deep: Compare digests; if not, only sizes.
        store: Folder or URL of the store; empty for TOKMILL_STORE.

    Raises:
        RunError: an artifact is missing, incomplete or damaged. The next run that needs it makes it again.
    """
    opened = open_store(store_url(store or None))
    checked = checking.check_store(opened, deep=deep)
    create_markdown_artifact(
        checked.to_markdown(), key_of("verify", opened.root.name), description=checked.summary
    )
    if not checked.ok:
        raise RunError(checked.summary)
    get_run_logger().info(checked.summary)
    return checked.to_json()


@flow(name="collect-garbage", description="What no name, run or dependent keeps is removed from the store.")
def collect_garbage(
    older_than_days: Annotated[float, Field(ge=0)] = 14.0,
    keep: Annotated[int, Field(ge=0)] = 1,
    apply: bool = True,
    store: str | None = None,
) -> dict[str, Any]:
    """Remove the artifacts that nothing keeps, as `tokmill store gc` does.

    Args:
        older_than_days: Younger artifacts and runs are kept.
        keep: Latest versions of each name, and last completed runs of each profile, that are kept.
        apply: Remove them; if not, only list them.
        store: Folder or URL of the store; empty for TOKMILL_STORE.

    Raises:
        StoreError: another collector runs, or the store cannot be read; nothing is removed then.
    """
    opened, logger = open_store(store_url(store or None)), get_run_logger()
    collected = collecting.collect_garbage(
        opened, older_than_days=older_than_days, keep=keep, apply=apply, report=logger.info
    )
    create_markdown_artifact(
        collected.to_markdown(), key_of("garbage", opened.root.name), description=collected.summary
    )
    logger.info(collected.summary)
    return collected.to_json()
