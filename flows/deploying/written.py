"""What `prefect.yaml` says of the deployments: the same as a registration, for the profile `quickstart`."""

from typing import Any

from tokmill.flows.deploying.deployed import DEPLOYED, Deployment, written_deployment
from tokmill.flows.deploying.schedules import written_schedules


def as_written() -> list[dict[str, Any]]:
    """Return the entries of `prefect.yaml` without their work pool."""
    return [_entry(written_deployment(deployed)) for deployed in DEPLOYED]


def _entry(made: Deployment) -> dict[str, Any]:
    limits = made.concurrency
    return {
        "name": made.name,
        "description": made.deployed.description,
        "entrypoint": made.deployed.entrypoint,
        "tags": made.tags,
        "parameters": made.parameters,
        "concurrency_limit": {
            "limit": limits["concurrency_limit"],
            **limits["concurrency_options"],
        },
        "schedules": written_schedules(made.schedule),
    }
