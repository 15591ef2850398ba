"""Terms for a vocabulary: check those that are given, or find those of a corpus that save most tokens.

A term is a whole pre-token, as it stands in a text: with the blank before it, and without. What the split
pattern cuts in two can never be one token.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.tokenizer import Tokenizer

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
    """Return the forms of terms that can be added, in order, and those that need not or cannot be.

    Args:
        tok: the tokenizer.
        terms: without the blank before them.
        forms: `spaced` adds " term", as it stands within a text, `bare` "term", as at its beginning.

    Raises:
        VocabularyError: a term is empty or blank at an end, or two become the same by normalization.
    """
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

    Args:
        tok: the tokenizer.
        counts: pre-tokens of the corpus, cut and normalized as the tokenizer does.
        number: terms wanted.
        least: pre-tokens that occur less often are left out.
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
    return any(character.isalpha() for character in text)


def _token_counts(tok: Tokenizer, counts: PretokenCounts) -> NDArray[np.int64]:
    """Return how many tokens each pre-token has: int64 [number of pre-tokens]."""
    batch = tok.encode_buffers(counts.data, counts.offsets, as_text=True)
    return np.diff(batch.offsets)
