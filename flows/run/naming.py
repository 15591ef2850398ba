"""Names and tags of Prefect's flow runs: a name that a person has typed is kept, and all get our tags.

By tags the page of runs can be filtered. Tasks get none: for each Prefect would ask for a concurrency limit.
"""

import logging
from typing import Any, cast
from uuid import UUID

from coolname.data import config  # Prefect's list of words
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from tokmill.flows.profile import Profile
from tokmill.flows.run.called import tags_of

_LOG = logging.getLogger(__name__)
# The page fills its form in with one of these and an animal, so a person hardly ever types such a name.
_OF_THE_FORM = frozenset(
    [
        "Awesome",
        "Rustic",
        "Small",
        "Gorgeous",
        "Fantastic",
        "Sleek",
        "Intelligent",
        "Unbranded",
        "Refined",
        "Licensed",
        "Generic",
        "Practical",
        "Ergonomic",
        "Handcrafted",
        "Tasty",
        "Handmade",
        "Incredible",
    ]
)
_LETTERS_OF_THE_FORM = 6


def typed_name() -> str | None:
    """Return the current flow run's name if a person chose it; None for one of Prefect's random names."""
    given = flow_run.name
    return given if given and not _is_random(given) else None


def tag_run(profile: Profile) -> None:
    """Add the tags of a profile to the current flow run; a run without tags is better than one that fails."""
    known = set(flow_run.tags)
    wanted = known | tags_of(profile)
    if wanted == known:
        return
    try:
        with get_client(sync_client=True) as client:
            client.update_flow_run(UUID(str(flow_run.id)), tags=sorted(wanted))
    except Exception as error:
        _LOG.warning("the run has no tags: %s", error)


def _is_random(name: str) -> bool:
    """Whether a name looks like Prefect's random ones: `tan-newt`, or in the page's form `Generic-Loach`."""
    first, _, second = name.partition("-")
    if first in _OF_THE_FORM and second[:1].isupper() and len(second) <= _LETTERS_OF_THE_FORM:
        return True
    lists = cast(dict[str, dict[str, Any]], config)
    words = {word for part in lists.values() if part["type"] == "words" for word in part["words"]}
    parts = name.split("-")
    return len(parts) == 2 and words.issuperset(parts)
