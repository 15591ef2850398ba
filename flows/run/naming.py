"""The name of a flow run: the one that a person typed, or else the profile's."""

from typing import Any, cast

from coolname.data import config  # Prefect's list of words
from prefect.runtime import flow_run


def run_name() -> str:
    """Return the current flow run's name, or the profile's if Prefect chose the run's at random."""
    given = flow_run.name
    return given if given and not is_random(given) else str((flow_run.parameters or {})["profile"])


def is_random(name: str) -> bool:
    """Whether a name looks like Prefect's random ones: two words of its list, as in `tan-newt`."""
    lists = cast(dict[str, dict[str, Any]], config)
    words = {word for part in lists.values() if part["type"] == "words" for word in part["words"]}
    parts = name.split("-")
    return len(parts) == 2 and words.issuperset(parts)
