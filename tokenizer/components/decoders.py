"""Decoders: how the byte strings of tokens become text again.

The model gives the bytes of each id; a decoder puts them together. `fuse` lays them end to end and adds
nothing, which is right for every model whose pre-tokens tile the text; the name is that of Hugging Face's
tokenizers. A few ids go through a list, many through a kernel.

Laws: the bytes of several ids are those of each, joined; no call costs more because the vocabulary is
    larger. Bytes that are not UTF-8 are treated when a text is decoded (`errors`), not here.
"""

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.errors import TokenizerError, VocabularyError
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.decoding import gather_tokens

DECODERS = ("fuse",)
_FEW = 1 << 12  # above, laying a list out as an array pays


@dataclass(frozen=True)
class Decoder:
    """A way to join tokens.

    Attributes:
        name: one of `DECODERS`.

    Raises:
        TokenizerError: an unknown name.
    """

    name: str = "fuse"

    def __post_init__(self) -> None:
        if self.name not in DECODERS:
            raise TokenizerError(f"decoder={self.name!r:.80} is not known; use one of {', '.join(DECODERS)}")

    def spec(self) -> str:
        """Return the decoder as JSON-able data: its name."""
        return self.name

    def of(self, vocabulary: Vocabulary) -> "IdDecoder":
        """Return the decoder of a vocabulary's ids."""
        return IdDecoder(vocabulary)


class IdDecoder:
    """Turns ids into bytes; it only reads, so threads may share it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._data, self._offsets = vocabulary.data, vocabulary.offsets
        self._vocabulary = vocabulary

    @cached_property
    def _tokens(self) -> list[bytes | None]:
        """The bytes of each id; None where an id has no token."""
        return [token or None for token in self._vocabulary.tokens]

    def decode(self, ids: ArrayLike | Iterable[int]) -> bytes:
        """Return the bytes of ids.

        Raises:
            VocabularyError: an id has no token; the message has the id and its position.
            TokenizerError: the ids are not a flat sequence of integers.
        """
        if type(ids) is list and len(ids) <= _FEW:
            few = self._few(ids)
            if few is not None:
                return few
        flat = buffers.as_ids(ids)
        self._check(flat)
        out = np.empty(int((self._offsets[flat + 1] - self._offsets[flat]).sum()), np.uint8)
        gather_tokens(flat, self._data, self._offsets, out)
        return out.tobytes()

    def _few(self, ids: list[int]) -> bytes | None:
        """Return the bytes of ids, or None if one of them has to be checked."""
        try:
            if min(ids, default=0) >= 0:
                return b"".join(map(cast(list[bytes], self._tokens).__getitem__, ids))
        except (IndexError, TypeError):  # an unknown id, or not an integer
            pass
        return None

    def _check(self, ids: NDArray[np.int64]) -> None:
        size = self._offsets.shape[0] - 1
        inside = (ids >= 0) & (ids < size)
        asked = np.where(inside, ids, 0)
        known = inside & (self._offsets[asked] < self._offsets[asked + 1])
        if not known.all():
            place = int(np.argmin(known))
            raise VocabularyError(
                f"decode: id {int(ids[place])} at position {place} is no token of this vocabulary, "
                f"whose ids are below {size}; was it made by another tokenizer?"
            )

    def stream(self, ids: Iterable[int], errors: str) -> Iterator[str]:
        """Decode ids as they come; the bytes of an incomplete character are held back."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors)
        for token in ids:
            text = decoder.decode(self.decode([token]))
            if text:
                yield text
        rest = decoder.decode(b"", final=True)
        if rest:
            yield rest
