"""extend, trim: a tokenizer with more or fewer tokens than another, and a plan for the embeddings.

The artifact is a tokenizer like any other, with three more files: `embedding-plan.json`, `report.json` and
`report.md`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import orjson
from pydantic import Field, model_validator

from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.core.stage import Outcome, Params, Stage
from tokmill.tasks.formats.text.sources import ReadOptions
from tokmill.tasks.formats.tokenizer import open_tokenizer, publish_tokenizer
from tokmill.tasks.vocabulary.report import ChangedToken, File, Report, batches, measure, token_counts

if TYPE_CHECKING:
    from tokmill.tokenizer import Tokenizer
    from tokmill.tokenizer.adaptation.extend import Changed, Term
    from tokmill.tokenizer.core.pretoken_counts import PretokenCounts

PLAN_FILE = "embedding-plan.json"


class ExtendParams(Params):
    """The terms to add, and where others are looked for."""

    terms: tuple[str, ...] = Field(default=(), description="Terms to add, without blanks at their ends.")
    forms: Literal["both", "spaced", "bare"] = Field(
        default="both",
        description="Add each term as it stands within a text, with a blank before it ('spaced'), as at the "
        "beginning ('bare'), or both.",
    )
    num_mined: int = Field(
        default=0, ge=0, description="How many further pre-tokens of the texts to add, those that save most."
    )
    num_merges: int = Field(
        default=0,
        ge=0,
        description="How many merges to add by going on with the training on the texts; fewer if no pair "
        "occurs often enough any more.",
    )
    min_count: int = Field(
        default=2, ge=1, description="Mined pre-tokens, and pairs to merge, occur at least so often."
    )
    read: ReadOptions = Field(default=ReadOptions(), description="How the texts are read.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.terms and not self.num_mined and not self.num_merges:
            raise ValueError(
                "extend: there is nothing to add; give terms, or a number of terms to find, or of merges "
                "to learn"
            )
        return self


class TrimParams(Params):
    """The size that is wanted."""

    vocab_size: int = Field(ge=257, description="Tokens of the smaller vocabulary, special ones included.")
    read: ReadOptions = Field(default=ReadOptions(), description="How the texts are read.")


def run_extend(
    params: ExtendParams,
    *,
    out: Path,
    tokenizer: Path,
    texts: Sequence[File] = (),
    others: Sequence[File] = (),
) -> Outcome:
    """Add terms to a tokenizer, some of them found in `texts`; the report is also of `others`."""
    from tokmill.tokenizer.adaptation.extend import byte_pairs

    tok = open_tokenizer(tokenizer)
    byte_pairs(tok, "extend")  # before any text is read
    changed, reasons, terms = _grown(tok, params, texts)
    tokens = [
        ChangedToken(
            id=new,
            text=changed.tokenizer.definition.model.readable(new),
            parts=_spelled(tok, ids),
            term=terms.get(new),
        )
        for new, ids in changed.plan.sources.items()
    ]
    action = f"{len(tokens)} tokens added"
    return _published(tok, changed, (action, tokens, reasons), (params.read, texts, others), out)


def _grown(
    tok: "Tokenizer", params: ExtendParams, texts: Sequence[File]
) -> "tuple[Changed, dict[str, str], dict[int, str]]":
    from tokmill.tokenizer.adaptation.continuation import continued
    from tokmill.tokenizer.adaptation.extend import Changed, check_terms, extended

    searched = bool(params.num_mined or params.num_merges)
    counts = _pretokens(tok, params, texts) if searched else None
    found, skipped = check_terms(tok, params.terms, params.forms)
    reasons = {one.given: one.reason for one in skipped}
    terms = {tok.vocab_size + k: term.given for k, term in enumerate(found)}
    if counts is not None and params.num_mined:
        found += _mined(tok, params, counts, {term.token for term in found})
    if counts is None or not params.num_merges:
        return extended(tok, found), reasons, terms
    if not found:
        return continued(tok, counts, params.num_merges, least=params.min_count), reasons, terms
    first = extended(tok, found)
    then = continued(first.tokenizer, counts, params.num_merges, least=params.min_count)
    return Changed(then.tokenizer, first.plan.then(then.plan, tok.definition.tokens)), reasons, terms


def _pretokens(tok: "Tokenizer", params: ExtendParams, texts: Sequence[File]) -> "PretokenCounts":
    from tokmill.tokenizer.counting import PretokenCounter

    if not texts:
        raise TaskError("extend: terms are to be found, but there is no text to find them in; name files")
    counter, normalizer = PretokenCounter(), tok.definition.normalizer
    for file in texts:
        for batch in batches(file, params.read):
            data, offsets = normalizer.buffers(batch.data, batch.offsets)
            counter.add_documents(data, offsets, tok.splitter, (*tok.special_tokens, *tok.added_tokens), None)
    counts = counter.take()
    if not len(counts):
        raise TaskError("extend: the texts in which terms are to be found are empty; name files with text")
    return counts


def _mined(
    tok: "Tokenizer", params: ExtendParams, counts: "PretokenCounts", known: set[bytes]
) -> "list[Term]":
    """Return the pre-tokens that save most tokens, without those that are known."""
    from tokmill.tokenizer.adaptation.extend import mine

    found = mine(tok, counts, params.num_mined + len(known), least=params.min_count)
    return [term for term in found if term.token not in known][: params.num_mined]


def run_trim(
    params: TrimParams, *, out: Path, tokenizer: Path, texts: Sequence[File], others: Sequence[File] = ()
) -> Outcome:
    """Take the tokens away that occur least often in the texts; the report is also of `others`."""
    from tokmill.tokenizer.adaptation.trim import trimmed

    tok = open_tokenizer(tokenizer)
    counts = token_counts(tok, texts, params.read)
    if not counts.any():
        raise TaskError(
            "trim: the texts hold no token, so nothing says which ones are rare; name files with text"
        )
    changed = trimmed(tok, counts, params.vocab_size)
    model, kept = tok.definition.model, set(changed.plan.kept.tolist())
    gone = [token for token, text in enumerate(model.vocabulary.tokens) if text and token not in kept]
    tokens = [
        ChangedToken(
            id=old,
            text=model.readable(old),
            parts=_spelled(changed.tokenizer, changed.tokenizer.encode(tok.token_bytes(old), as_text=True)),
        )
        for old in gone
    ]
    action = f"{len(gone)} tokens taken away"
    return _published(tok, changed, (action, tokens, {}), (params.read, texts, others), out)


def _spelled(tok: "Tokenizer", ids: Sequence[int]) -> tuple[str, ...]:
    return tuple(tok.definition.model.readable(token) for token in ids)


def _published(
    tok: "Tokenizer",
    changed: "Changed",
    what: tuple[str, list[ChangedToken], dict[str, str]],
    files: tuple[ReadOptions, Sequence[File], Sequence[File]],
    out: Path,
) -> Outcome:
    action, tokens, skipped = what
    options, texts, others = files
    exports = publish_tokenizer(changed.tokenizer, out)
    plan = orjson.dumps(changed.plan.to_spec(), option=orjson.OPT_APPEND_NEWLINE)
    (out / PLAN_FILE).write_bytes(plan)
    measured, rest = (
        [measure(tok, changed.tokenizer, file, options) for file in some] for some in (texts, others)
    )
    if texts and changed.tokenizer.vocab_size > tok.vocab_size:
        occurring = np.stack([counts for _, counts in measured]).sum(axis=0)
        tokens = [one.model_copy(update={"num_occurrences": int(occurring[one.id])}) for one in tokens]
    report = Report(
        action=action,
        old_size=tok.vocab_size,
        new_size=changed.tokenizer.vocab_size,
        changed=tokens,
        skipped=skipped,
        texts=[file for file, _ in measured],
        others=[file for file, _ in rest],
    )
    report.save(out)
    before = sum(one.num_tokens_before for one in report.texts)
    saved = sum(one.saved for one in report.texts)
    savings = {"num_saved_tokens": saved, "saved_share": round(saved / before, 6) if before else 0.0}
    return Outcome(
        metrics={
            "vocab_size": changed.tokenizer.vocab_size,
            **changed.tokenizer.definition.model.figures(),
            "num_changed_tokens": len(tokens),
            **(savings if texts else {}),
            "exports": ", ".join(exports),
            **({"warnings": report.warning} if report.warning else {}),
        }
    )


EXTEND = Stage(verb="extend", task="extend", kind="tokenizer", version=4, params=ExtendParams, run=run_extend)
TRIM = Stage(verb="trim", task="trim", kind="tokenizer", version=3, params=TrimParams, run=run_trim)
