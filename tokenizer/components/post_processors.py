"""Templates: the special tokens that a tokenizer puts around one text, or around two that belong together.

A template has parts for one text and for two: special tokens, and the texts `A` and `B`, each once, with type
ids. It is spelled as in Hugging Face's `TemplateProcessing`: `[CLS] $A [SEP] $B:1 [SEP]:1`, where `:1` is a
type id, 0 by default. Nothing is added without `add_special_tokens`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from tokmill.tokenizer.core.buffers import EncodedBatch
from tokmill.tokenizer.core.errors import VocabularyError

MAX_PARTS = 64
Kind = Literal["special", "sequence"]


@dataclass(frozen=True, slots=True)
class Part:
    """A special token, or a text, and its type id.

    Attributes:
        kind: `special`, or `sequence` for a text.
        name: the special token's name, or `A` or `B`.
        type_id: a number that models may read with the ids.
    """

    kind: Kind
    name: str
    type_id: int = 0

    def __str__(self) -> str:
        name = f"${self.name}" if self.kind == "sequence" else self.name
        return f"{name}:{self.type_id}" if self.type_id else name

    def to_spec(self) -> list[Any]:
        """Return the part as JSON-able data."""
        return [self.kind, self.name, self.type_id]


@dataclass(frozen=True, slots=True)
class Template:
    """The special tokens around one text, and around two.

    Attributes:
        single: for one text.
        pair: for two.
    """

    single: tuple[Part, ...]
    pair: tuple[Part, ...]

    def __post_init__(self) -> None:
        for name, parts, wanted in (("single", self.single, ["A"]), ("pair", self.pair, ["A", "B"])):
            texts = sorted(part.name for part in parts if part.kind == "sequence")
            if texts != wanted or len(parts) > MAX_PARTS:
                raise VocabularyError(
                    f"template: {name} has {len(parts)} parts with the texts {texts!r:.200}, but must have "
                    f"at most {MAX_PARTS} with {wanted}, each once"
                )
        for part in (*self.single, *self.pair):
            if type(part.type_id) is not int or not 0 <= part.type_id < 1 << 31:
                raise VocabularyError(
                    f"template: type id {part.type_id!r:.80} of {part.name!r:.200} must be from 0 to 2^31 - 1"
                )

    @classmethod
    def around_each(cls, before: Sequence[str], after: Sequence[str], *, type_ids: bool = False) -> Self:
        """Build the template that has the same special tokens around each of two texts.

        Args:
            before: the tokens before a text; with type ids before the first one only.
            after: the tokens after a text.
            type_ids: whether the second text has another type id.
        """

        def around(text: str, names: Sequence[str], type_id: int) -> tuple[Part, ...]:
            begin, end = ([Part("special", name, type_id) for name in some] for some in (names, after))
            return (*begin, Part("sequence", text, type_id), *end)

        first, second = around("A", before, 0), around("B", [] if type_ids else before, int(type_ids))
        return cls(first, (*first, *second))

    @property
    def names(self) -> list[str]:
        """The special tokens, each once, in the order in which they come first."""
        parts = (*self.single, *self.pair)
        return list(dict.fromkeys(part.name for part in parts if part.kind == "special"))

    def around(self) -> tuple[list[str], list[str]]:
        """Return the special tokens before and after one text."""
        place = next(i for i, part in enumerate(self.single) if part.kind == "sequence")
        names = [part.name for part in self.single]
        return names[:place], names[place + 1 :]

    def check(self, special_tokens: Mapping[str, int]) -> None:
        """Check that its special tokens are in a tokenizer's vocabulary.

        Raises:
            VocabularyError: one is missing.
        """
        missing = [name for name in self.names if name not in special_tokens]
        if missing:
            raise VocabularyError(
                f"template: {missing[0]!r:.200} is not a special token of this vocabulary; add it to them"
            )

    def wrap(self, batch: EncodedBatch, special_tokens: Mapping[str, int]) -> EncodedBatch:
        """Put the special tokens around each document of a batch."""
        before, behind = (
            np.array([special_tokens[name] for name in names], batch.ids.dtype) for names in self.around()
        )
        lengths = np.diff(batch.offsets) + len(before) + len(behind)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        ids = np.empty(int(offsets[-1]), batch.ids.dtype)
        inside = np.ones(len(ids), np.bool_)
        for first, tokens in ((offsets[:-1], before), (offsets[1:] - len(behind), behind)):
            places = (first[:, None] + np.arange(len(tokens))).ravel()
            ids[places] = np.tile(tokens, len(first))
            inside[places] = False
        ids[inside] = batch.ids
        return EncodedBatch(ids, offsets)

    def types(self, lengths: list[int], *, add_special_tokens: bool) -> list[int]:
        """Return the type id of each id that `join` gives, for one text or two of some numbers of ids."""
        by_name = dict(zip("AB", lengths, strict=False))
        ids: list[int] = []
        for part in self.single if len(lengths) == 1 else self.pair:
            if part.kind == "sequence":
                ids += [part.type_id] * by_name[part.name]
            elif add_special_tokens:
                ids.append(part.type_id)
        return ids

    def join(self, texts: list[list[int]], special_tokens: Mapping[str, int] | None) -> list[int]:
        """Join the ids of one text or two with the special tokens around them, or, for None, without."""
        by_name = dict(zip("AB", texts, strict=False))
        ids: list[int] = []
        for part in self.single if len(texts) == 1 else self.pair:
            if part.kind == "sequence":
                ids += by_name[part.name]
            elif special_tokens is not None:
                ids.append(special_tokens[part.name])
        return ids

    def spec(self) -> dict[str, Any]:
        """Return the template as JSON-able data."""
        return {
            "single": [part.to_spec() for part in self.single],
            "pair": [part.to_spec() for part in self.pair],
        }

    @classmethod
    def parse(cls, single: str, pair: str | None = None) -> Self:
        """Build a template from its spelling.

        Args:
            single: for one text, e.g. `[CLS] $A [SEP]`.
            pair: for two; by default that for one, and then the second text and what follows the first one,
                all of type 1, as BERT has it.

        Raises:
            VocabularyError: it breaks a law.
        """
        alone = _read_parts(single)
        if pair is not None:
            return cls(alone, _read_parts(pair))
        place = next((i for i, part in enumerate(alone) if part.kind == "sequence"), len(alone))
        behind = (replace(part, type_id=1) for part in alone[place + 1 :])
        return cls(alone, (*alone, Part("sequence", "B", 1), *behind))

    @property
    def spelling(self) -> tuple[str, str]:
        """The template for one text and that for two, as `parse` reads them."""
        single, pair = (" ".join(map(str, parts)) for parts in (self.single, self.pair))
        return single, pair

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Build a template from the result of `spec`.

        Raises:
            VocabularyError: it breaks a law.
            TypeError, KeyError, ValueError: it is not of this form.
        """
        return cls(_parts(spec["single"]), _parts(spec["pair"]))


_PART = re.compile(r"(\$[AB]|.+?)(?::([0-9]{1,10}))?")


def _read_parts(text: str) -> tuple[Part, ...]:
    found = [_PART.fullmatch(part) for part in text.split(" ") if part]
    return tuple(
        Part("sequence", part[1][1:], int(part[2] or 0))
        if part[1] in ("$A", "$B")
        else Part("special", part[1], int(part[2] or 0))
        for part in found
        if part is not None
    )


def _parts(rows: Iterable[Any]) -> tuple[Part, ...]:
    parts = tuple(Part(kind, name, type_id) for kind, name, type_id in rows)
    for part in parts:
        if part.kind not in ("special", "sequence") or not isinstance(part.name, str):
            raise VocabularyError(f"template: {part.to_spec()!r:.200} must be a special token or a text")
    return parts


def check_template(
    single: str | None, pair: str | None, special_tokens: Mapping[str, int] | None = None
) -> None:
    """Check a template's spelling, and that its special tokens exist, if they are given.

    Raises:
        VocabularyError: it is invalid, one is missing, or there is one for two texts only.
    """
    if single is None and pair is not None:
        raise VocabularyError(
            f"template: pair_template={pair!r:.200} needs a template for one text; use e.g. template='$A'"
        )
    if single is not None:
        made = Template.parse(single, pair)
        if special_tokens is not None:
            made.check(special_tokens)
