"""The parameters of the audit: what it reads, and the gate's limits."""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, field_validator

from tokmill.tasks.audit.probe_judgement import Encoded, Judge, Probe, Verdict, at_most, same_as, unchanged
from tokmill.tasks.core.stage import Params
from tokmill.tokenizer import Tokenizer

Limit: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Limits: TypeAlias = Limit | dict[str, Limit]
EVERY = "*"
"""The name of the row over all languages."""


class OwnProbe(Params):
    """A text, and what is expected of it; all that is named must be met."""

    name: str = Field(min_length=1, description="What the probe is called; no two may have one name.")
    text: str = Field(min_length=1, description="The text; names of special tokens in it are text.")
    max_tokens: int | None = Field(default=None, ge=1, description="The most tokens that it may have.")
    single_token: bool = Field(default=False, description="Whether it must be one token.")
    same_as: str | None = Field(default=None, description="A text that must have the same ids.")
    unchanged: bool = Field(default=False, description="Whether its ids must decode to it.")

    def to_probe(self) -> Probe:
        """Return the probe."""
        judges: dict[str, Judge] = {}
        if self.single_token:
            judges["1 token"] = lambda _, found: Verdict(len(found.ids) == 1, found.figures)
        if self.max_tokens is not None:
            judges[f"at most {self.max_tokens} tokens"] = at_most(self.max_tokens)
        if self.same_as is not None:
            judges[f"the ids of {self.same_as!r}"] = same_as(self.same_as)
        if self.unchanged:
            judges["comes back unchanged"] = unchanged
        return Probe(self.name, "own", self.text, "; ".join(judges) or None, _all(list(judges.values())))


def _all(judges: list[Judge]) -> Judge:
    def judge(tok: Tokenizer, found: Encoded) -> Verdict:
        verdicts = [judge(tok, found) for judge in judges]
        remark = "; ".join(dict.fromkeys(verdict.remark for verdict in verdicts)) or found.figures
        return Verdict(all(verdict.met for verdict in verdicts) if verdicts else None, remark)

    return judge


class AuditParams(Params):
    """What the audit reads, and the limits of its gate; limits that are not set are not checked."""

    sample_megabytes: float = Field(
        default=2,
        gt=0,
        le=1 << 20,
        description="How much text of each source is read, in 10^6 bytes: of the documents held out, where "
        "there are some, else of the corpus.",
    )
    reference: str | None = Field(
        default=None,
        description="The language of audit.parallel that premiums are measured against; empty for the "
        "first one.",
    )
    seed: int = Field(default=0, ge=0, lt=1 << 64, description="Seed of the intervals of premiums.")
    probes: tuple[OwnProbe, ...] = Field(
        default=(),
        description="Probes beside our own: texts, and what is expected of them.",
        examples=[[{"name": "our ids", "text": "AB-1234", "max_tokens": 4}]],
    )
    min_bytes_per_token: Limits | None = Field(
        default=None,
        description="The fewest bytes of text per token: one number for every source, or a table by source.",
        examples=[{"english": 4.0}],
    )
    max_fertility: Limits | None = Field(
        default=None, description="The most tokens per word, likewise; words are those of Unicode's rules."
    )
    max_unknown_share: Limits | None = Field(
        default=None, description="The greatest fraction of unknown tokens, likewise."
    )
    max_premium: Limits | None = Field(
        default=None,
        description="The most tokens of a language for one of the reference language, on parallel text: "
        "one number, or a table by language.",
        examples=[{"hin": 2.5}],
    )
    max_unused_share: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="The greatest fraction of the vocabulary, without special and reserved tokens, that "
        "may be unused in the training text (in the text that was read, where the tokenizer was not trained "
        "here).",
    )
    no_unreachable: bool = Field(
        default=False,
        description="Whether the gate fails if text can never become some of the tokens, single bytes aside.",
    )
    max_regression: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="How many more tokens than those of the tokenizer audit.compare_with each source may "
        "have, as a fraction of them: 0.01 for one in a hundred.",
    )
    on_failure: Literal["warn", "fail"] = Field(
        default="warn",
        description="What the run does if the gate fails, or lacks the text to measure one of its limits: "
        "'warn' continues with a warning, 'fail' stops before anything is encoded. The audit is published in "
        "either case.",
    )

    @field_validator("probes")
    @classmethod
    def _check_names(cls, probes: tuple[OwnProbe, ...]) -> tuple[OwnProbe, ...]:
        names = [one.name for one in probes]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"two probes are named {twice[0]!r}; give each its own name")
        return probes


def check_language(name: str) -> str:
    """Return the name of a language.

    Raises:
        ValueError: it is empty, holds what cannot be shown, or is that of the row over all languages.
    """
    if not name.strip() or not name.isprintable() or name == EVERY:
        raise ValueError(f"{name!r} names no language; use e.g. 'eng'")
    return name


def limit_of(limits: Limits | None, name: str) -> float | None:
    """Return the limit of one source or language; None if there is none."""
    return limits.get(name) if isinstance(limits, Mapping) else limits


def named(limits: Limits | None) -> list[str]:
    """Return the sources or languages that limits name."""
    return [*limits] if isinstance(limits, Mapping) else []
