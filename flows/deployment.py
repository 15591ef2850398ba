"""Registers the deployment `build-corpus` at the Prefect server that the environment names.

`python -m flows.deployment` is what `tokmill up` runs; teams that deploy from a checkout use
`prefect.yaml`, which says the same (a test holds the two equal).
"""

import os
from pathlib import Path

from prefect.deployments.runner import RunnerDeployment
from prefect.schedules import Cron
from prefect.types.entrypoint import EntrypointType

from flows.run import build_corpus
from flows.serving import DEPLOYMENT, NIGHTLY, WORK_POOL

DESCRIPTION = "Raw text to packed token shards: one profile, every stage cached by fingerprint."


def deployment() -> RunnerDeployment:
    """The deployment as it is registered; its schedule is there but paused.

    Runs work in the folder that this is called in, so that profiles are found by the same paths as on the
    command line.
    """
    return RunnerDeployment.from_flow(
        build_corpus,
        DEPLOYMENT,
        description=DESCRIPTION,
        parameters={"profile": "quickstart"},
        schedules=[Cron(NIGHTLY, timezone="UTC", active=False)],
        work_pool_name=WORK_POOL,
        job_variables={"working_dir": str(Path.cwd()), "env": _environment()},
        entrypoint_type=EntrypointType.MODULE_PATH,
        tags=["tokmill"],
    )


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("TOKMILL_STORE",) if name in os.environ}


if __name__ == "__main__":
    deployment().apply()
