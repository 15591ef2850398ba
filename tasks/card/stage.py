"""card and tokenizer_card: describe the data, or a tokenizer, as Markdown and as JSON.

Every number comes from the records and tables of the artifacts upstream (`data`, `tokenizer`). Nothing in a
card depends on when, where or by whom it was made: the same artifacts give the same card.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, field_validator

from tokmill.tasks.balance.stage import BalanceParams
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.core.stage import Outcome, Params, Stage
from tokmill.tasks.sampling import check_sources
from tokmill.tasks.train.stage import TrainParams

if TYPE_CHECKING:
    from tokmill.tasks.card.words import Facts


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


class TokenizerCardParams(HubParams):
    """What only people know of a tokenizer."""

    title: str = Field(default="Tokenizer", pattern=r"^[^\n]+$", description="Title of the card; one line.")
    description: str = Field(
        default="", description="What the tokenizer is for, and what it is not; Markdown, a few sentences."
    )
    license: str = Field(default="", description="Under which terms the tokenizer may be used.")
    reasons: dict[str, str] = Field(
        default_factory=dict,
        description="Why settings of [train] and [balance] are as they are, by setting; those of settings "
        "that have no effect here are left out.",
        examples=[{"split_pattern": "keeps vowel signs with their letters"}],
    )

    @field_validator("reasons")
    @classmethod
    def _check_reasons(cls, reasons: dict[str, str]) -> dict[str, str]:
        known = [*TrainParams.model_fields, *BalanceParams.model_fields]
        for name in reasons:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"{name!r} is not a setting of [train] or [balance]{hint}")
        return reasons


def run_card(
    params: CardParams,
    *,
    out: Path,
    earlier_mixtures: Sequence[Path] = (),
    earlier_packings: Sequence[Path] = (),
    **artifacts: Path,
) -> Outcome:
    """Write the data card of some artifacts, by kind.

    Earlier mixtures and packings are those that documents were taken down from, the oldest first; documents
    that are held out are in `validation`, `validation_encoded` and so on.
    """
    from tokmill.tasks.card.data import Upstream, facts_of
    from tokmill.tasks.card.data_text import to_markdown

    upstream = Upstream(artifacts, {"mixture": earlier_mixtures, "packed": earlier_packings})
    check_sources("source_notes", params.source_notes, upstream.corpus.sources, TaskError, "card")
    facts = facts_of(upstream, params.model_dump())
    _write(out, facts, to_markdown(facts))
    found = {
        "mixture_bytes_per_token": facts["mixture"]["bytes_per_token"],
        "unknown_share": facts["tokenizer"].get("unknown_share"),
        "num_sources": len(facts["sources"]),
        "num_tokens": facts["packed"]["num_tokens"],
        "num_sequences": facts["packed"]["num_sequences"],
        "num_artifacts": len(facts["artifacts"]),
    }
    return Outcome(metrics={name: value for name, value in found.items() if value is not None})


def run_tokenizer_card(
    params: TokenizerCardParams,
    *,
    out: Path,
    tokenizer: Path,
    audit: Path,
    usage: Path,
    balance: Path | None = None,
) -> Outcome:
    """Write the card of a tokenizer, of its audit, and of its use in what was encoded.

    The balance is that of the text that it was trained on, if it is not an existing one.
    """
    from tokmill.tasks.card.tokenizer import facts_of
    from tokmill.tasks.card.tokenizer_text import to_markdown

    facts = facts_of(params.model_dump(), tokenizer, audit, usage, balance)
    _write(out, facts, to_markdown(facts))
    return Outcome(
        metrics={
            "vocab_size": facts["vocab_size"],
            "num_decisions": len(facts["decisions"]),
            "num_suspects": facts["num_suspects"],
            "num_unmet_probes": len(facts["probes"]),
        }
    )


def _write(out: Path, facts: "Facts", text: str) -> None:
    from pydantic_core import to_json

    (out / "card.json").write_bytes(to_json(facts, indent=2) + b"\n")
    (out / "card.md").write_text(text, encoding="utf-8")


CARD = Stage(verb="card", task="card", kind="card", version=9, params=CardParams, run=run_card)
TOKENIZER_CARD = Stage(
    verb="tokenizer_card",
    task="tokenizer_card",
    kind="tokenizer_card",
    version=5,
    params=TokenizerCardParams,
    run=run_tokenizer_card,
)
