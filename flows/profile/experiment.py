"""`[experiment]`: what a run belongs to, for those who look at many; it never changes a fingerprint.

Runs of one experiment are listed and compared together (`tokmill runs --experiment`, `tokmill compare`). Tags
and notes can also be added to a run afterwards; see `tasks.store.runs`.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

TAG = r"^[A-Za-z0-9][A-Za-z0-9_.:+-]{0,99}$"
"""A tag; without blanks and commas, so that it can be typed."""

Tag = Annotated[str, Field(pattern=TAG)]


class Experiment(BaseModel):
    """The group that a run belongs to, and what is to be remembered of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="Name of the experiment: its runs are listed and compared together.",
        examples=["temperature"],
    )
    tags: list[Tag] = Field(
        default=[],
        max_length=100,
        description="Tags of the run, by which runs are listed; more can be added afterwards.",
        examples=[["baseline"]],
    )
    notes: str = Field(
        "",
        max_length=10_000,
        description="What is tried, in the words of the person who tries it.",
        examples=["the crawl of May, without duplicates"],
    )
