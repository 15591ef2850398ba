"""What runs are called, and their tags: what differs between two runs of a profile is in their names.

A run is named after its profile and what overrides change of it (`multilingual-32k · temperature 5`), unless
a person has typed a name, which is kept (`flows.run.naming`). Tags are the profile's name, the family of its
tokenizer, and those of its experiment.
"""

from collections.abc import Iterable
from typing import Any

from tokmill.flows.profile import Profile
from tokmill.flows.profile.changes import in_words, value_in_words

_OURS = "tokmill"  # as on our deployments
_LONGEST = 120
_SEPARATOR = " · "
# none of these changes what is made, and where a run is told of is nobody's business
_UNSAID = ("experiment", "mlflow", "notify", "openlineage")


def named(profile: Profile, more: Iterable[str] = ()) -> str:
    """Return the name of a run: the profile's, what overrides change of it, and what else is to be said."""
    changed = [change for change in profile.changed if change.path[0] not in _UNSAID]
    parts = [profile.name, *more, *in_words(changed, Profile)]
    name = _SEPARATOR.join(parts)
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def listed(what: str, values: Iterable[Any]) -> str:
    """Return several values of a setting in words: `vocab size 4,000 / 8,000`; nothing for none."""
    words = " / ".join(value_in_words(value) for value in values)
    return f"{what} {words}" if words else ""


def tags_of(profile: Profile) -> set[str]:
    """Return the tags of a profile's runs in the Prefect UI."""
    training, experiment = profile.training(), profile.experiment
    own = {_OURS, profile.name, *experiment.tags} | (set() if training is None else {training.family})
    return own | ({f"experiment: {experiment.name}"} if experiment.name else set())
