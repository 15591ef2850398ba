"""What may be expected of a probe, and how it is judged.

A judge takes a tokenizer and an encoded text, and returns whether the expectation is met (None if there is
none) and a remark with the figures.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import regex

from tokmill.tokenizer import Tokenizer

_LETTER_OR_DIGIT = regex.compile(r"[\p{L}\p{N}]")


class Verdict(NamedTuple):
    """Whether an expectation is met, and a remark in one line."""

    met: bool | None
    remark: str


@dataclass(frozen=True)
class Encoded:
    """A text, its ids, and what they decode to."""

    text: str
    ids: list[int]
    decoded: str

    @classmethod
    def of(cls, tok: Tokenizer, text: str) -> "Encoded":
        """Encode a text; names of special tokens in it are text."""
        ids = tok.encode(text, as_text=True)
        return cls(text, ids, tok.decode(ids))

    @property
    def figures(self) -> str:
        """How many tokens it has, and whether it comes back."""
        back = "" if self.decoded == self.text else f"; comes back as {_shown(self.decoded)}"
        return f"{_tokens(len(self.ids))}{back}"


Judge: TypeAlias = Callable[[Tokenizer, Encoded], Verdict]


@dataclass(frozen=True)
class Probe:
    """A text to encode; `expectation` says what `judge` judges, and is None if nothing is expected."""

    name: str
    group: str
    text: str
    expectation: str | None
    judge: Judge


def cut_of(tok: Tokenizer, text: str) -> list[str]:
    """Return the parts of the normalized text that tokens cover, without spaces and marks for them."""
    normalized = tok.normalize(text)
    spans = tok.encode_with_offsets(text, as_text=True)[1]
    parts = [normalized[start:end].strip(" ▁") for start, end in spans]
    return [part for part in parts if part]


def unchanged(tok: Tokenizer, found: Encoded) -> Verdict:
    """Expect that a text comes back from its ids."""
    size = len(found.text.encode())
    return Verdict(found.decoded == found.text, f"{found.figures}; {size} bytes")


def at_most(number: int) -> Judge:
    """Expect so many tokens at most."""
    return lambda _, found: Verdict(len(found.ids) <= number, found.figures)


def costs(plain: str) -> Judge:
    """Expect nothing; compare the tokens with those of another text."""

    def judge(tok: Tokenizer, found: Encoded) -> Verdict:
        number = len(Encoded.of(tok, plain).ids)
        times = f", {len(found.ids) / number:.2f} times" if number else ""
        return Verdict(None, f"{found.figures}; {number} for {_shown(plain)}{times}")

    return judge


def no_more_than(other: str) -> Judge:
    """Expect no more tokens than another text has."""

    def judge(tok: Tokenizer, found: Encoded) -> Verdict:
        remark = costs(other)(tok, found).remark
        return Verdict(len(found.ids) <= len(Encoded.of(tok, other).ids), remark)

    return judge


def adds_at_most(number: int, rest: str) -> Judge:
    """Expect that what stands before `rest` costs so many tokens at most, and is not lost."""

    def judge(tok: Tokenizer, found: Encoded) -> Verdict:
        more = len(found.ids) - len(Encoded.of(tok, rest).ids)
        return Verdict(found.decoded == found.text and more <= number, f"{found.figures}; {more} more")

    return judge


def same_as(other: str) -> Judge:
    """Expect the ids of another text."""

    def judge(tok: Tokenizer, found: Encoded) -> Verdict:
        its = Encoded.of(tok, other)
        return Verdict(found.ids == its.ids, f"{found.figures}; {len(its.ids)} for {_shown(other)}")

    return judge


def differs_from(other: str) -> Judge:
    """Expect other ids than those of another text."""
    return lambda tok, found: Verdict(not same_as(other)(tok, found).met, same_as(other)(tok, found).remark)


def begins_with(prefix: str) -> Judge:
    """Expect that the ids begin with those of the text's beginning."""

    def judge(tok: Tokenizer, found: Encoded) -> Verdict:
        its = Encoded.of(tok, prefix).ids
        met = found.decoded == found.text and found.ids[: len(its)] == its
        return Verdict(met, f"{found.figures}; {len(its)} for {_shown(prefix)}")

    return judge


def cut_at(parts: Sequence[str]) -> Judge:
    """Expect that a token begins with each of these parts of the text, in their order, punctuation aside."""

    def judge(tok: Tokenizer, found: Encoded) -> Verdict:
        normalized = tok.normalize(found.text).lower()
        starts, place, within = _starts(tok, found.text), 0, []
        for part in parts:
            at = normalized.find(part.lower(), place)
            if at not in starts:
                within.append(part)
            place = at + len(part) if at >= 0 else place
        inside = f"; within a token: {' '.join(within)}" if within else ""
        return Verdict(not within, f"{found.figures}: {'|'.join(cut_of(tok, found.text))}{inside}")

    return judge


def each_is_one(words: Sequence[str]) -> Judge:
    """Expect that each word is one token, alone or after a space."""

    def judge(tok: Tokenizer, found: Encoded) -> Verdict:
        several = [word for word in words if min(_number(tok, word), _number(tok, f" {word}")) != 1]
        rest = f"; in parts: {' '.join(several)}" if several else ""
        return Verdict(not several, f"{len(words) - len(several)} of {len(words)} are one token{rest}")

    return judge


def no_special(tok: Tokenizer, found: Encoded) -> Verdict:
    """Expect none of the special tokens but the one for what is unknown."""
    kinds = tok.definition.kinds()
    special = {token for token in tok.special_tokens.values() if kinds[token] != "unknown"}
    return Verdict(special.isdisjoint(found.ids), found.figures)


def _starts(tok: Tokenizer, text: str) -> set[int]:
    """Return where tokens begin in the normalized text, and where their first letter or digit is."""
    normalized, spans = tok.normalize(text), tok.encode_with_offsets(text, as_text=True)[1]
    found = ((_LETTER_OR_DIGIT.search(normalized, *span), span[0]) for span in spans)
    first = (start if match is None else match.start() for match, start in found)
    return {*(start for start, _ in spans), *first}


def _number(tok: Tokenizer, text: str) -> int:
    return len(tok.encode(text, as_text=True))


def _tokens(number: int) -> str:
    return f"{number} token{'' if number == 1 else 's'}"


def _shown(text: str) -> str:
    """Return a text as it would be written in Python, shortened."""
    return repr(text if len(text) <= 40 else text[:39] + "…")
