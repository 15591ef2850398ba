"""Times in records and runs: UTC, ISO 8601, with `Z`; they must exist in the calendar."""

from datetime import datetime
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, StringConstraints

_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?Z$"


def _in_the_calendar(text: str) -> str:
    datetime.fromisoformat(text)  # its ValueError becomes pydantic's
    return text


Moment: TypeAlias = Annotated[str, StringConstraints(pattern=_PATTERN), AfterValidator(_in_the_calendar)]
"""A moment in UTC, as `tasks.store.provenance.utc_now` writes it."""
