"""Finds overrides that have no effect, because other settings of the profile make them irrelevant.

In a file such settings are normal: a profile's `method` can be changed without clearing the settings of the
other methods. A person who sets one for a run expects a difference, so each is named with the reason.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tokmill.flows.profile.files import OVERRIDES, Layered, dotted
from tokmill.flows.profile.model import Profile
from tokmill.flows.profile.shape import KeyPath, models_at
from tokmill.tasks.core.stage import Params


def ignored_overrides(profile: Profile, layered: Layered) -> list[str]:
    """Return one sentence for each override without effect, in the order in which they were given."""
    overrides = [path for path, origin in layered.origins.items() if origin == OVERRIDES]
    return list(dict.fromkeys(line for path in overrides for line in _ignored(profile, layered.table, path)))


def _ignored(profile: Profile, table: Mapping[str, Any], path: KeyPath) -> Iterator[str]:
    """Yield why the override at `path` has no effect, if it has none."""
    section = path[0]
    reason = _unused_section(profile, section)
    if reason:
        yield f"warning: --set {dotted(path)} has no effect: {reason}"
        return
    given: Any = table
    for depth, key in enumerate(path):
        for model in models_at(Profile, path[:depth]) if isinstance(given, Mapping) else ():
            reasons = model.without_effect(given) if issubclass(model, Params) else {}
            if key in reasons:
                reason = f"in [{dotted(path[:depth])}], {reasons[key]}"
                yield f"warning: --set {dotted(path[: depth + 1])} has no effect: {reason}"
                return
        given = given.get(key) if isinstance(given, Mapping) else None


def _unused_section(profile: Profile, section: str) -> str:
    """Return why no stage of the run reads a section, or nothing if one does."""
    if section == "balance" and profile.tokenizer is not None:
        return "[tokenizer] names an existing tokenizer, so none is trained on balanced text"
    curriculum = profile.mix.curriculum
    if section == "score" and (curriculum is None or "perplexity" not in curriculum.measures):
        return "no mix.curriculum measures perplexity"
    return ""
