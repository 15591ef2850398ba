"""tokenizer_card: describe a tokenizer, as Markdown and as JSON.

The data card is about what was packed; this one goes with the tokenizer to wherever it is used. Every figure
comes from the records and tables of the artifacts upstream (`tasks.tokenizer_card.gathering`), reasons from
the profile. They are written as `card.json` and laid out as `card.md` (`tasks.tokenizer_card.text`).
"""

from difflib import get_close_matches
from pathlib import Path

from pydantic import Field, field_validator

from tokmill.tasks.balance.stage import BalanceParams
from tokmill.tasks.card.stage import HubParams
from tokmill.tasks.core.stage import Outcome, Stage
from tokmill.tasks.formats.files.manifests import write_model
from tokmill.tasks.train.stage import TrainParams


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


def run(
    params: TokenizerCardParams,
    *,
    out: Path,
    tokenizer: Path,
    audit: Path,
    usage: Path,
    balance: Path | None = None,
) -> Outcome:
    """Write `card.md` and `card.json` into `out`.

    Args:
        params: what only people know.
        out: the artifact's directory.
        tokenizer: the tokenizer.
        audit: its audit.
        usage: how its vocabulary is used in what was encoded.
        balance: how the text that it was trained on was weighted; None if it is an existing one.

    Raises:
        StoreError: an artifact has no record or is broken.
    """
    from tokmill.tasks.tokenizer_card.gathering import Upstream, gather
    from tokmill.tasks.tokenizer_card.text import to_markdown

    upstream = Upstream(tokenizer, audit, usage, balance)
    card = gather(upstream, params.model_dump(exclude={"reasons"}), params.reasons)
    write_model(out / "card.json", card)
    (out / "card.md").write_text(to_markdown(card), encoding="utf-8")
    return Outcome(
        metrics={
            "vocab_size": card.vocab_size,
            "num_decisions": len(card.decisions),
            "num_suspects": card.num_suspects,
            "num_unmet_probes": len(card.probes),
        }
    )


TOKENIZER_CARD = Stage(
    verb="tokenizer_card",
    task="tokenizer_card",
    kind="tokenizer_card",
    version=5,
    params=TokenizerCardParams,
    run=run,
)
