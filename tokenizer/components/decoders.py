"""Decoders: how the byte strings of tokens become text again.

The model gives the bytes of each id; a decoder puts them together. The names are those of Hugging Face's
tokenizers:

- `fuse` lays them end to end and adds nothing, which is right for every model whose pre-tokens tile the text;
- `wordpiece` puts a space before every token, unless it begins with `##`, which it removes; the first token
  stays as it is;
- `metaspace` makes a space of every `▁` (U+2581), and drops that with which the first token begins;
  `metaspace_first` drops all of the first token (there it is `Metaspace`), `metaspace_fused` the first space
  of the text, whatever token it is from, and `metaspace_never` none;
- `wordpiece_cleanup` removes the space before `.`, `?`, `!`, `,` and English contractions, too;
- `end_of_word` makes a space of the `</w>` that a token ends with, and drops it at the end of the text (there
  it is `BPEDecoder`).

A few ids go through a list, many through a kernel.

Laws: what a token adds to the text depends on whether it is the first one, or the last, and on no other; no
    call costs more because the vocabulary is larger. Bytes that are not UTF-8 are treated when a text is
    decoded (`errors`).
"""

import codecs
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.errors import TokenizerError, VocabularyError
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.encoding import gather_tokens

CONTINUES = b"##"
"""How a token begins that continues a word."""

ENDS = b"</w>"
"""How a token ends that ends a word."""

MARK = "\u2581".encode()
"""What stands for a space in SentencePiece's tokens."""

_CLEANUP = (
    *((b" " + mark, mark) for mark in (b".", b"?", b"!", b",")),
    (b" ' ", b"'"),
    (b" n't", b"n't"),
    (b" 'm", b"'m"),
    (b" do not", b" don't"),
    (b" 's", b"'s"),
    (b" 've", b"'ve"),
    (b" 're", b"'re"),
)
"""What Hugging Face's clean-up replaces in each token with its space, in this order."""


def _after_a_space(token: bytes) -> bytes:
    return token[len(CONTINUES) :] if token.startswith(CONTINUES) else b" " + token


def _cleaned_up(token: bytes) -> bytes:
    added = _after_a_space(token)
    for old, new in _CLEANUP:
        added = added.replace(old, new)
    return added


def _with_spaces(token: bytes) -> bytes:
    return token.replace(MARK, b" ")


def _space_at_end(token: bytes) -> bytes:
    return token[: -len(ENDS)] + b" " if token.endswith(ENDS) else token


_ADDED: MappingProxyType[str, Callable[[bytes], bytes]] = MappingProxyType(
    {
        "fuse": lambda token: token,
        "wordpiece": _after_a_space,
        "wordpiece_cleanup": _cleaned_up,
        "metaspace": _with_spaces,
        "metaspace_first": _with_spaces,
        "metaspace_fused": _with_spaces,
        "metaspace_never": _with_spaces,
        "end_of_word": _space_at_end,
    }
)
_FIRST: MappingProxyType[str, Callable[[bytes], bytes]] = MappingProxyType(
    {
        "metaspace": lambda token: _with_spaces(token.removeprefix(MARK)),
        "metaspace_first": lambda token: token.replace(MARK, b""),
        "metaspace_fused": lambda token: _with_spaces(token).removeprefix(b" "),
        "metaspace_never": _with_spaces,
        "end_of_word": _space_at_end,
    }
)
"""What the first token becomes, if it does not stay as it is."""

_LAST: MappingProxyType[str, Callable[[bytes], bytes]] = MappingProxyType(
    {"end_of_word": lambda token: token.removesuffix(ENDS)}
)
"""What the last token becomes, if it is nothing special: the beginning of what it would become elsewhere."""

DECODERS = (*_ADDED,)
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

    def join(self, tokens: Iterable[bytes]) -> bytes:
        """Return the text of some tokens, given by their bytes."""
        parts = list(tokens)
        text = b"".join([*map(self.first, parts[:1]), *map(_ADDED[self.name], parts[1:])])
        return text[: len(text) - self.dropped(parts[-1])] if parts else text

    def first(self, token: bytes) -> bytes:
        """Return what the first token adds to the text."""
        return _FIRST[self.name](token) if self.name in _FIRST else token

    def dropped(self, token: bytes) -> int:
        """Return how many bytes of what a token becomes are left out at the end of the text."""
        last = _LAST.get(self.name)
        return 0 if last is None else len(_ADDED[self.name](token)) - len(last(token))

    def added(self, vocabulary: Vocabulary) -> Vocabulary:
        """Return a vocabulary of what each token adds to the text if it is not the first one."""
        if self.name == "fuse":
            return vocabulary
        data, offsets = buffers.pack_bytes(
            [_ADDED[self.name](token) if token else b"" for token in vocabulary.tokens]
        )
        return replace(vocabulary, data=data, offsets=offsets)

    def of(self, vocabulary: Vocabulary) -> "IdDecoder":
        """Return the decoder of a vocabulary's ids."""
        return IdDecoder(vocabulary, self.added(vocabulary), self)


class IdDecoder:
    """Turns ids into bytes; it only reads, so threads may share it."""

    def __init__(self, vocabulary: Vocabulary, added: Vocabulary, how: Decoder) -> None:
        """Take what each token is, what it adds to the text after others, and what else there is to know."""
        self._vocabulary, self._added, self._how = vocabulary, added, how

    @cached_property
    def _texts(self) -> list[bytes | None]:
        """What each id adds to the text; None where an id has no token."""
        tokens, added = self._vocabulary.tokens, self._added.tokens
        return [text if token else None for token, text in zip(tokens, added, strict=True)]

    def decode(self, ids: ArrayLike | Iterable[int]) -> bytes:
        """Return the bytes of ids."""
        if type(ids) is list and len(ids) <= _FEW:
            few = self._few(ids)
            if few is not None:
                return few
        flat = buffers.as_ids(ids)
        self._check(flat)
        offsets = self._added.offsets
        out = np.empty(int(np.diff(offsets)[flat].sum()), np.uint8)
        gather_tokens(flat, self._added.data, offsets, out)
        return self._framed(out.tobytes(), int(flat[0]), int(flat[-1])) if flat.shape[0] else b""

    def _few(self, ids: list[int]) -> bytes | None:
        """Return the bytes of ids, or None if one of them has to be checked."""
        try:
            if min(ids, default=0) >= 0:
                text = b"".join(map(cast(list[bytes], self._texts).__getitem__, ids))
                return self._framed(text, ids[0], ids[-1]) if ids else text
        except (IndexError, TypeError):  # an unknown id, or not an integer
            pass
        return None

    def _framed(self, text: bytes, first: int, last: int) -> bytes:
        """Put what the first token becomes in place of what it would add; drop the end of the last one."""
        if self._added is self._vocabulary:
            return text
        begun = self._how.first(self._vocabulary.tokens[first]) + text[len(self._added.tokens[first]) :]
        return begun[: len(begun) - self._how.dropped(self._vocabulary.tokens[last])]

    def _check(self, ids: NDArray[np.int64]) -> None:
        lengths = np.diff(self._vocabulary.offsets)
        size = lengths.shape[0]
        inside = (ids >= 0) & (ids < size)
        known = inside & (lengths[ids if inside.all() else np.where(inside, ids, 0)] > 0)
        if not known.all():
            place = int(np.argmin(known))
            raise VocabularyError(
                f"decode: id {int(ids[place])} at position {place} is not a token of this vocabulary, "
                f"whose ids are below {size}; was it made by another tokenizer?"
            )

    def stream(self, ids: Iterable[int], errors: str) -> Iterator[str]:
        """Decode ids as they come; incomplete characters are held back, and what the end of a text drops."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors)
        held = b""
        adding: Callable[[bytes], bytes] | None = self._how.first
        for token in ids:
            self._check(buffers.as_ids([token]))
            added = adding(self._vocabulary.tokens[token]) if adding else self._added.tokens[token]
            kept, adding = len(added) - self._how.dropped(self._vocabulary.tokens[token]), None
            text = decoder.decode(held + added[:kept])
            held = added[kept:]
            if text:
                yield text
        rest = decoder.decode(b"", final=True)
        if rest:
            yield rest
