"""Probes that users add in a profile."""

from pydantic import Field

from tokmill.tasks.audit.probing.judging import Encoded, Judge, Probe, Verdict, at_most, same_as, unchanged
from tokmill.tasks.core.stage import Params
from tokmill.tokenizer import Tokenizer


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
