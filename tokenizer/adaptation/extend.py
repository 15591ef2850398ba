"""Add terms to a byte-level BPE vocabulary, without changing an id or the encoding of any other text.

A term is a whole pre-token, with the blank before it and without, and is taken whole as `ignore_merges` says.
No merge is added, and new ids follow the last one. Terms are given, or those of a corpus that save most
tokens.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import regex
from numpy.typing import NDArray

from tokmill.tokenizer.adaptation.plan import EmbeddingPlan
from tokmill.tokenizer.byte_bpe.model import BytePairModel
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.tokenizer import Tokenizer

_LETTER = regex.compile(r"\p{L}")  # the tables of `str` change with Python

Forms: TypeAlias = Literal["both", "spaced", "bare"]


@dataclass(frozen=True)
class Term:
    """A term in one form, as it would be a token.

    Attributes:
        token: its bytes, after normalization.
        given: the term that it is a form of.
        ids: what it is encoded as now.
    """

    token: bytes
    given: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Skipped:
    """A term that is not added, and why."""

    given: str
    reason: str


def check_terms(tok: Tokenizer, terms: Iterable[str], forms: Forms) -> tuple[list[Term], list[Skipped]]:
    """Return the forms of terms that can be added, in order, and those that need not or cannot be."""
    found: dict[bytes, Term] = {}
    skipped = []
    for given in terms:
        _check(given)
        for text in {"both": [f" {given}", given], "spaced": [f" {given}"], "bare": [given]}[forms]:
            token = tok.normalize(text).encode()
            earlier = found.get(token)
            if earlier is not None and earlier.given != given:
                raise VocabularyError(
                    f"extend: {given!r:.200} and {earlier.given!r:.200} are the same after normalization, "
                    f"{token!r:.200}; leave one out"
                )
            ids = tuple(tok.encode(text, as_text=True))
            if reason := _obstacle(tok, text, token, ids):
                skipped.append(Skipped(text, reason))
            else:
                found[token] = Term(token, given, ids)
    return list(found.values()), skipped


def _check(given: str) -> None:
    if not given or given != given.strip():
        raise VocabularyError(
            f"extend: the term {given!r:.200} must be a text without blanks at its ends; a form with a blank "
            "before it is added on its own"
        )


def _obstacle(tok: Tokenizer, text: str, token: bytes, ids: tuple[int, ...]) -> str:
    """Return why a term is not added; empty if it can be."""
    if not ids:
        return "normalization leaves nothing of it"
    if len(ids) == 1:
        return "it is one token already"
    if token in tok.vocab:
        return "it is a token already, though merging does not lead to it"
    added = next((name for name, token in tok.added_tokens.items() if token in ids), None)
    if added is not None:
        return f"it holds the added token {added!r}, at which text is cut first"
    parts = pretokens_of(tok, text)
    if len(parts) != 1:
        shown = " ".join(repr(part.decode("utf-8", "replace")) for part in parts[:4])
        return f"the split pattern cuts it into {shown}"
    return ""


def pretokens_of(tok: Tokenizer, text: str) -> list[bytes]:
    """Return the pre-tokens of a text."""
    data = np.frombuffer(tok.normalize(text).encode(), dtype=np.uint8)
    parts = tok.splitter.split(data, np.array([0, len(data)], dtype=np.int64))
    return [data[start:end].tobytes() for start, end in zip(parts.starts, parts.ends, strict=True)]


def mine(tok: Tokenizer, counts: PretokenCounts, number: int, *, least: int = 2) -> list[Term]:
    """Return the pre-tokens of a corpus that would save most tokens, the best first.

    A pre-token saves its count × (its tokens - 1). Equal ones are in order of their bytes. Pre-tokens
    without a letter are left out.
    """
    lengths = _token_counts(tok, counts)
    saved = counts.counts.astype(np.int64) * (lengths - 1)
    candidates = np.flatnonzero((lengths > 1) & (counts.counts >= np.uint64(least)))
    found: list[Term] = []
    for index in candidates[np.argsort(-saved[candidates], kind="stable")].tolist():
        token = counts.data[counts.offsets[index] : counts.offsets[index + 1]].tobytes()
        if _is_word(token) and token not in tok.vocab and pretokens_of(tok, token.decode()) == [token]:
            found.append(Term(token, token.decode(), tuple(tok.encode(token, as_text=True))))
        if len(found) == number:
            break
    return found


def _is_word(token: bytes) -> bool:
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return False
    return _LETTER.search(text) is not None


def _token_counts(tok: Tokenizer, counts: PretokenCounts) -> NDArray[np.int64]:
    """Return how many tokens each pre-token has: int64 [number of pre-tokens]."""
    batch = tok.encode_buffers(counts.data, counts.offsets, as_text=True)
    return np.diff(batch.offsets)


@dataclass(frozen=True)
class Changed:
    """A tokenizer whose vocabulary was changed, and where its embeddings come from."""

    tokenizer: Tokenizer
    plan: EmbeddingPlan


def extended(tok: Tokenizer, terms: Sequence[Term]) -> Changed:
    """Add terms that were checked (`check_terms`) or found (`mine`) as tokens, in their order."""
    model = byte_pairs(tok, "extend")
    if not terms:
        raise VocabularyError("extend: there is no term to add; every one is a token, or is cut in two")
    vocabulary, first = model.vocabulary, model.vocabulary.size
    tokens = dict(vocabulary.ordinary()) | {first + k: term.token for k, term in enumerate(terms)}
    grown = Vocabulary.build(tokens, vocabulary.special_tokens, vocabulary.num_reserved)
    made = replace(tok.definition, model=BytePairModel(grown, model.merges, ignore_merges=True))
    sources = {first + k: term.ids for k, term in enumerate(terms)}
    plan = EmbeddingPlan.of(tok.definition.tokens, [*range(first), *[-1] * len(terms)], sources)
    return Changed(Tokenizer(made), plan)


def byte_pairs(tok: Tokenizer, what: str) -> BytePairModel:
    """Return the model of a tokenizer whose tokens are all reached, by merging or whole."""
    model = tok.definition.model
    if not isinstance(model, BytePairModel):
        raise VocabularyError(
            f"{what}: a {tok.family} vocabulary cannot be changed: any token may appear within words of all "
            "texts; train another, or use a byte_bpe tokenizer"
        )
    if not model.ignore_merges:
        unreached = unreached_tokens(model)
        if len(unreached):
            raise VocabularyError(
                f"{what}: merging does not lead to {len(unreached)} tokens (the first is "
                f"{model.vocabulary.tokens[int(unreached[0])]!r}), which would be taken whole from now on; "
                "load the tokenizer with ignore_merges=true if they should be"
            )
    return model


def unreached_tokens(model: BytePairModel) -> np.ndarray:
    """Return the ids of tokens of two bytes or more that merging does not lead to, int64, ascending."""
    made = np.zeros(model.vocabulary.size, dtype=np.bool_)
    made[model.merges[:, 2]] = True
    lengths = np.diff(model.vocabulary.offsets)
    made[list(model.vocabulary.special_tokens.values())] = True
    return np.flatnonzero((lengths > 1) & ~made)
