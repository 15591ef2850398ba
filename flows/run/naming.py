"""Names and tags of flow runs: what differs between two runs of a profile is in their names.

A run is named after its profile and what overrides change of it (`multilingual-32k · temperature 5`), unless
a person has typed a name, which is kept. Tags are the profile's name and the family of its tokenizer, by
which the page of runs can be filtered. Tasks get no tags: for each Prefect would ask for a concurrency limit.
"""

import logging
from collections.abc import Iterable
from typing import Any, cast
from uuid import UUID

from coolname.data import config  # Prefect's list of words
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from tokmill.flows.profile import Profile
from tokmill.flows.profile.changes import in_words, value_in_words

_LOG = logging.getLogger(__name__)
_OURS = "tokmill"  # as on our deployments
_LONGEST = 120
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
_SEPARATOR = " · "


def typed_name() -> str | None:
    """Return the current flow run's name if a person chose it; None for one of Prefect's random names."""
    given = flow_run.name
    return given if given and not _is_random(given) else None


def named(profile: Profile, more: Iterable[str] = ()) -> str:
    """Return the name of a run: the profile's, what overrides change of it, and what else is to be said."""
    parts = [profile.name, *more, *in_words(profile.changed, Profile)]
    name = _SEPARATOR.join(parts)
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def listed(what: str, values: Iterable[Any]) -> str:
    """Return several values of a setting in words: `vocab size 4,000 / 8,000`; nothing for none."""
    words = " / ".join(value_in_words(value) for value in values)
    return f"{what} {words}" if words else ""


def tags_of(profile: Profile) -> set[str]:
    """Return the tags of a profile's runs: ours, its name, and the family of the tokenizer that it trains."""
    training = profile.training()
    return {_OURS, profile.name} | (set() if training is None else {training.family})


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
