"""The tokenizer: text to ids and back.

    text → special and added tokens cut out → normalizer → pre-tokens → model → ids → bytes → text

Laws: decoding gives the (normalized) text back, byte for byte, if the model knows every text; a model with an
    unknown token (`definition.model.unknown_token`) gives that token's name for text that it does not know.
    Ids do not depend on how documents are batched, on threads or on caches; ordinary text never becomes a
    special token, except the unknown token. Text is passed as str, or as UTF-8 buffers (see `buffers`),
    without a Python object per document.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokmill.tokenizer.components.decoders import IdDecoder
from tokmill.tokenizer.components.post_processors import Template
from tokmill.tokenizer.components.specials import (
    AllowedSpecial,
    AsText,
    Segments,
    Wanted,
)
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.buffers import ArrowStrings, EncodedBatch, LocatedBatch, Text, Texts, read_strings
from tokmill.tokenizer.description import DescribedTokenizer
from tokmill.tokenizer.encoding import ChunkedEncoder, ShortTexts, TextCutter
from tokmill.tokenizer.streaming import as_bytes, encode_parts

_PLAIN = Template.parse("$A", "$A $B:1")  # in place of a missing template


class Tokenizer(DescribedTokenizer):
    """A tokenizer of any family. Immutable, and safe to use from many threads at once."""

    def encode(
        self,
        text: Text,
        pair: Text | None = None,
        *,
        allowed_special: AllowedSpecial = (),
        as_text: AsText = False,
        add_special_tokens: bool = False,
    ) -> list[int]:
        """Encode one text, or two that belong together.

        Args:
            text: str, or bytes of UTF-8; a lone surrogate in a str counts as U+FFFD.
            pair: the second text; its ids follow those of the first.
            allowed_special: names of special tokens that become their ids, or "all".
            as_text: special tokens that are encoded like any other text: True for all that are not allowed.
            add_special_tokens: whether to add the special tokens of the tokenizer's template; without
                a template there are none.

        Raises:
            SpecialTokenError: the text contains a special token that is neither; the message has its place.
            TokenizerError: it is not a text.
        """
        if pair is not None or add_special_tokens:
            given = [text] if pair is None else [text, pair]
            batch = self.encode_batch(given, allowed_special=allowed_special, as_text=as_text)
            return self._templated(batch.to_lists(), add_special_tokens=add_special_tokens)
        short = self._encode_short(text, allowed_special, as_text)
        if short is not None:
            return short
        ids: list[int] = self.encode_batch(
            [text], allowed_special=allowed_special, as_text=as_text
        ).ids.tolist()
        return ids

    def encode_with_types(
        self,
        text: Text,
        pair: Text | None = None,
        *,
        allowed_special: AllowedSpecial = (),
        as_text: AsText = False,
        add_special_tokens: bool = True,
    ) -> tuple[list[int], list[int]]:
        """Encode as `encode` does, with the type id of each token, which models such as BERT read.

        Returns:
            The ids and their types: those of the template; without one 0, and 1 for the second text.
        """
        given = [text] if pair is None else [text, pair]
        texts = self.encode_batch(given, allowed_special=allowed_special, as_text=as_text).to_lists()
        template, lengths = self._template or _PLAIN, list(map(len, texts))
        types = template.types(lengths, add_special_tokens=add_special_tokens)
        return self._templated(texts, add_special_tokens=add_special_tokens), types

    @property
    def _template(self) -> Template | None:
        """The special tokens around texts; None for none."""
        return self.definition.post_processor

    def _templated(self, texts: list[list[int]], *, add_special_tokens: bool) -> list[int]:
        """Join the ids of one text or two by the template, if there is one."""
        template = self._template
        if template is None:
            return [token for ids in texts for token in ids]
        return template.join(texts, self.definition.named_tokens if add_special_tokens else None)

    def _encode_short(self, text: Text, allowed_special: AllowedSpecial, as_text: AsText) -> list[int] | None:
        """Return the ids of a short text without special tokens; None if a kernel has to encode it."""
        names_known = allowed_special in ((), "all") and isinstance(as_text, bool)
        return self._short_texts.encode(text) if names_known else None

    @cached_property
    def _short_texts(self) -> ShortTexts:
        names = (*self.definition.special_tokens, *self.definition.added_tokens)
        return ShortTexts(
            self.splitter, self.definition.normalizer.name, names, self._encoder.encode_pretoken
        )

    @cached_property
    def _cutter(self) -> TextCutter:
        return TextCutter(self.definition)

    def encode_pretoken(self, pretoken: bytes) -> list[int]:
        """Return the ids that the model gives a pre-token, without normalizer and split pattern."""
        return self._encoder.encode_pretoken(pretoken)

    def encode_pretokens(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> EncodedBatch:
        """Encode many pre-tokens, each `data[offsets[k]:offsets[k + 1]]`; see `encode_pretoken`."""
        return EncodedBatch(*self._encoder.pretokens(data, offsets))

    def encode_batch(
        self,
        texts: Texts,
        *,
        allowed_special: AllowedSpecial = (),
        as_text: AsText = False,
        num_threads: int = 1,
        add_special_tokens: bool = False,
    ) -> EncodedBatch:
        """Encode many texts, as `encode` does each, or a pyarrow array, as `encode_arrow` does.

        The number of threads does not change the ids; a document is encoded by one thread.
        """
        data, offsets = buffers.pack(texts)
        batch = self.encode_buffers(
            data, offsets, allowed_special=allowed_special, as_text=as_text, num_threads=num_threads
        )
        template = self._template
        return (
            template.wrap(batch, self.definition.named_tokens) if template and add_special_tokens else batch
        )

    def encode_buffers(
        self,
        data: ArrayLike,
        offsets: ArrayLike,
        *,
        allowed_special: AllowedSpecial = (),
        as_text: AsText = False,
        num_threads: int = 1,
    ) -> EncodedBatch:
        """Encode many documents that lie in one buffer; see `encode_batch`.

        `data` is UTF-8, as uint8 of shape (num_bytes,), and is not changed; `offsets` are integers of shape
        (num_documents + 1,): document d is `data[offsets[d]:offsets[d + 1]]`.
        """
        text, cuts = buffers.checked(data, offsets)
        text, segments = self._cutter.cut(text, cuts, self._cutter.wanted(allowed_special, as_text))
        ids, ends = self._encoder.run(text, segments, self.id_type, num_threads)
        return EncodedBatch(ids, ends[segments.documents])

    def encode_arrow(
        self,
        texts: ArrowStrings,
        *,
        allowed_special: AllowedSpecial = (),
        as_text: AsText = False,
        num_threads: int = 1,
    ) -> EncodedBatch:
        """Encode the strings of a pyarrow array, whose buffers are read where they are; see `encode_batch`.

        An `Array` or `ChunkedArray` of type string, large_string, binary or large_binary, without nulls.

        Raises:
            TokenizerError: the array has another type, or nulls; the message has the place.
        """
        data, offsets = read_strings(texts)
        return self.encode_buffers(
            data, offsets, allowed_special=allowed_special, as_text=as_text, num_threads=num_threads
        )

    @cached_property
    def _encoder(self) -> ChunkedEncoder:
        normalizer = self.definition.normalizers[1]
        return ChunkedEncoder(self.definition.model.encoder(), self.splitter, normalizer)

    def encode_iterable(
        self, parts: Iterable[Text], *, allowed_special: AllowedSpecial = (), as_text: AsText = False
    ) -> Iterator[int]:
        """Encode one text that comes in parts, such as an open file, lazily.

        The ids are those of the joined text, wherever it was cut; `streaming` explains what is kept in
        memory, and `encode` the arguments.

        Raises:
            SpecialTokenError: see `encode`; once the text before it has been encoded.
            TokenizerError: a part is not a text.
        """
        buffers.check_many(parts)
        wanted = self._cutter.wanted(allowed_special, as_text)
        if self.definition.absorbing or (
            wanted.normalized and self.definition.normalizers[1].name is not None
        ):
            return self._encode_joined(parts, wanted)
        return encode_parts(parts, self._encoder.stream(self.definition.normalizer, wanted), wanted)

    def _encode_joined(self, parts: Iterable[Text], wanted: Wanted) -> Iterator[int]:
        """Encode a text that comes in parts as a whole, since what tokens take may be long."""
        data, offsets = buffers.pack_bytes([b"".join(as_bytes(parts))])
        text, segments = self._cutter.cut(data, offsets, wanted)
        yield from self._encoder.run(text, segments, np.int64)[0].tolist()

    def encode_with_offsets(
        self, text: Text, *, allowed_special: AllowedSpecial = (), as_text: AsText = False
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Encode one text, and locate each token in it.

        Returns:
            The ids, and for each the range of characters of the normalized text (`normalize`, with the same
            special tokens) that it covers; a token that covers part of a character has the whole character,
            and one that covers nothing (a mark) an empty range. The bytes that a Unigram model of Hugging
            Face's has for unknown characters have all those beside each other in a pre-token, as there.
        """
        found, bounds = self._located(*buffers.pack([text]), self._cutter.wanted(allowed_special, as_text))
        data, starts, ends = found.data, found.starts, found.ends
        if getattr(self.definition.model, "joins_bytes", False):
            stand_in = np.isin(found.ids, [*self.definition.vocabulary.byte_ids])
            starts, ends = _joined(starts, ends, stand_in, self.splitter.split(data, bounds).starts)
        characters = np.concatenate([np.zeros(1, np.int64), np.cumsum((data & 0xC0) != 0x80)])
        within = characters[np.minimum(starts + 1, data.shape[0])] - 1
        spans = zip(np.where(starts < ends, within, characters[starts]), characters[ends], strict=True)
        return found.ids.tolist(), [(int(start), int(end)) for start, end in spans]

    def locate_buffers(
        self,
        data: ArrayLike,
        offsets: ArrayLike,
        *,
        allowed_special: AllowedSpecial = (),
        as_text: AsText = False,
    ) -> LocatedBatch:
        """Encode documents as `encode_buffers` does, and locate each token in the normalized text."""
        return self._located(data, offsets, self._cutter.wanted(allowed_special, as_text))[0]

    def _located(
        self, data: ArrayLike, offsets: ArrayLike, wanted: Wanted
    ) -> tuple[LocatedBatch, NDArray[np.int64]]:
        """Locate tokens; return also the bounds of the segments of the normalized text."""
        text, segments = self._cutter.cut(*buffers.checked(data, offsets), wanted)
        ids, ends = self._encoder.run(text, segments, np.int64)
        text, bounds, starts, stops = self._encoder.locate(text, segments, ids)
        documents = segments.documents
        return LocatedBatch(ids, ends[documents], starts, stops, text, bounds[documents]), bounds

    def count_tokens(
        self, text: Text, *, allowed_special: AllowedSpecial = (), as_text: AsText = False
    ) -> int:
        """Return the number of tokens of a text; see `encode`."""
        short = self._encode_short(text, allowed_special, as_text)
        if short is not None:
            return len(short)
        return int(self.encode_batch([text], allowed_special=allowed_special, as_text=as_text).offsets[-1])

    def normalize(self, text: Text, *, allowed_special: AllowedSpecial = ()) -> str:
        """Return a text as it is encoded: normalized around its added tokens.

        Args:
            text: see `encode`.
            allowed_special: names of special tokens that are left as they are, or "all"; others are text.
        """
        data, offsets = buffers.pack([text])
        return self.normalize_buffers(data, offsets, allowed_special=allowed_special)[0].tobytes().decode()

    def normalize_buffers(
        self, data: ArrayLike, offsets: ArrayLike, *, allowed_special: AllowedSpecial = ()
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return documents as they are encoded; see `normalize`."""
        definition = self.definition
        if definition.normalizer.name is None and not (definition.absorbing or definition.normalized_tokens):
            return buffers.checked(data, offsets)
        text, segments = self.normalized_segments(data, offsets, allowed_special=allowed_special)
        return text, segments.bounds[segments.documents]

    def normalized_segments(
        self, data: ArrayLike, offsets: ArrayLike, *, allowed_special: AllowedSpecial = ()
    ) -> tuple[NDArray[np.uint8], Segments]:
        """Return documents as they are encoded: normalized, and cut at tokens; see `normalize`."""
        wanted = self._cutter.wanted(allowed_special, True)
        return self._cutter.normalized(*buffers.checked(data, offsets), wanted)

    def decode(self, ids: ArrayLike | Iterable[int], errors: str = "replace") -> str:
        """Decode ids to text; bytes that are not UTF-8 become U+FFFD unless `errors` is another handler.

        An unknown token becomes its name, such as `[UNK]`: the text that it stood for is lost.

        Raises:
            VocabularyError: an id has no token; the message has the id and its position.
        """
        return self.decode_bytes(ids).decode("utf-8", errors)

    def decode_bytes(self, ids: ArrayLike | Iterable[int]) -> bytes:
        """Decode ids to bytes; see `decode`."""
        return self._decoder.decode(ids)

    @cached_property
    def _decoder(self) -> IdDecoder:
        return self.definition.decoder.of(self.definition.vocabulary)

    def decode_batch(
        self, batch: EncodedBatch | Sequence[Sequence[int]], errors: str = "replace"
    ) -> list[str]:
        """Decode many documents; see `decode`."""
        return [self.decode(ids, errors) for ids in batch]

    def decode_stream(self, ids: Iterable[int], errors: str = "replace") -> Iterator[str]:
        """Decode ids as they come; the bytes of a character that is not complete yet are held back."""
        return self._decoder.stream(ids, errors)

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of one token, marks such as `##` and `</w>` included.

        Raises:
            VocabularyError: no token has this id.
        """
        self.decode_bytes([token])  # checks it
        return self.definition.tokens[token]


def _joined(
    starts: NDArray[np.int64], ends: NDArray[np.int64], chosen: NDArray[np.bool_], begins: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give chosen tokens side by side in a pre-token one range; pre-tokens begin at `begins`."""
    goes_on = chosen[1:] & chosen[:-1] & ~np.isin(starts[1:], begins)
    first = np.flatnonzero(np.concatenate([np.ones(1, np.bool_), ~goes_on])[: len(starts)])
    sizes = np.diff(np.append(first, len(starts)))
    return np.repeat(starts[first], sizes), np.repeat(ends[first + sizes - 1], sizes)
