"""card: describe the data, how it was made and how to load it, as Markdown and as JSON.

Every number comes from the records and tables of the artifacts upstream (`tasks.card.gathering`). They are
written as `card.json` and laid out as `card.md` (`tasks.card.text`). The card is not made if the accounts of
the stages do not lead from one to the next.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.core.stage import Outcome, Params, Stage
from tokmill.tasks.formats.files.manifests import write_model
from tokmill.tasks.sampling import check_sources

_KINDS = (
    "ingested",
    "corpus",
    "counts",
    "balance",
    "tokenizer",
    "audit",
    "encoded",
    "usage",
    "mixture",
    "packed",
    "validation_corpus",
    "validation_encoded",
    "validation_mixture",
    "validation",
)


class HubParams(Params):
    """What model and dataset hubs list a card under."""

    languages: tuple[Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")], ...] = Field(
        default=(), description="Languages of the text, as codes of ISO 639.", examples=[["en", "fi"]]
    )
    tags: tuple[Annotated[str, Field(pattern=r"^[^\s,]+$")], ...] = Field(
        default=(), description="Tags beside our own, for hubs.", examples=[["news"]]
    )


class CardParams(HubParams):
    """What only people know of the data."""

    title: str = Field(
        default="Training data", pattern=r"^[^\n]+$", description="Title of the data card; one line."
    )
    description: str = Field(
        default="",
        description="What the data is for, and what it is not; Markdown, a few sentences.",
    )
    license: str = Field(
        default="", description="Under which terms the text may be used; name the license of each source."
    )
    source_notes: dict[str, str] = Field(
        default_factory=dict,
        description="A note on each source: where it is from, its license, what is wrong with it.",
        examples=[{"english": "Project texts, CC BY 4.0"}],
    )


def run(
    params: CardParams,
    *,
    out: Path,
    earlier_mixtures: Sequence[Path] = (),
    earlier_packings: Sequence[Path] = (),
    **artifacts: Path,
) -> Outcome:
    """Write `card.md` and `card.json` into `out`."""
    from tokmill.tasks.card.gathering import Upstream, gather_facts
    from tokmill.tasks.card.text import to_markdown

    upstream = Upstream(
        {kind: artifacts[kind] for kind in _KINDS if kind in artifacts},
        {"mixture": earlier_mixtures, "packed": earlier_packings},
    )
    check_sources("source_notes", params.source_notes, upstream.corpus.sources, TaskError, "card")
    facts = gather_facts(upstream, params.model_dump(exclude={"source_notes"}), params.source_notes)
    write_model(out / "card.json", facts)
    (out / "card.md").write_text(to_markdown(facts), encoding="utf-8")
    mixed, unknown = facts.mixture.bytes_per_token, facts.tokenizer.unknown_share
    return Outcome(
        metrics={
            **({} if mixed is None else {"mixture_bytes_per_token": mixed}),
            **({} if unknown is None else {"unknown_share": unknown}),
            "num_sources": len(facts.sources),
            "num_tokens": facts.packed.num_tokens,
            "num_sequences": facts.packed.num_sequences,
            "num_artifacts": len(facts.artifacts),
        }
    )


CARD = Stage(verb="card", task="card", kind="card", version=9, params=CardParams, run=run)
