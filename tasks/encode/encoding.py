"""Encode documents into an encoded shard: select them, add the end tokens, and collect statistics.

The files written do not depend on how documents are divided into batches. The caller's thread only encodes; a
second one measures and writes. Memory holds few batches and the token counts.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.pipelining import write_behind
from tokmill.tasks.fim.rearrangement import Encode, TextFim, encode_rearranged
from tokmill.tasks.formats.encoded import EncodedStatistics, token_dtype
from tokmill.tasks.formats.files.arrays import NpyAppender
from tokmill.tasks.formats.text.documents import DocumentBatch, offsets_of
from tokmill.tasks.kernels.documents import count_narrow, count_wide, gather
from tokmill.tasks.kernels.text_size import text_size
from tokmill.tokenizer.components.specials import find
from tokmill.tokenizer.core.buffers import EncodedBatch
from tokmill.tokenizer.core.errors import LawError, SpecialTokenError

if TYPE_CHECKING:
    from tokmill.tokenizer import Tokenizer

# Bytes of text and tokens that may wait to be written before encoding pauses.
_BEHIND_BYTES = 4 << 20

_Done: TypeAlias = tuple[DocumentBatch, EncodedBatch, NDArray[np.int64]]
"""A batch, its tokens, and how many tokens were added to each document."""


class Additions(NamedTuple):
    """Tokens to add to documents besides the token that ends them."""

    begin_id: int | None = None  # the token before each document
    fim: TextFim | None = None  # how some documents are rearranged to fill in the middle


def encode_batches(
    tokenizer: "Tokenizer",
    batches: Iterable[DocumentBatch],
    out: Path,
    *,
    end_id: int | None,
    min_tokens: int,
    additions: Additions | None = None,
    special_tokens_in_text: Literal["as_text", "raise", "allowed"] = "as_text",
    where: Callable[[int], str] = "document {}".format,
) -> EncodedStatistics:
    """Encode documents into the files of one encoded shard; `where` names the place of one by its ordinal."""
    begin_id, fim = additions or Additions()
    specials: Any = {"allowed_special": "all"} if special_tokens_in_text == "allowed" else {"as_text": True}
    encode: Encode = partial(tokenizer.encode_buffers, **specials)
    with write_shard(out, tokenizer.vocab_size) as writer:

        def write(done: _Done) -> None:
            _write(writer, *done, min_tokens, (begin_id, end_id))

        with write_behind(write, limit=_BEHIND_BYTES, size=_num_bytes) as leave:
            for batch in batches:
                if special_tokens_in_text == "raise":
                    _refuse_special_tokens(tokenizer, batch, where)
                try:
                    if fim is None:
                        encoded, added = encode(batch.data, batch.offsets), np.zeros(len(batch), np.int64)
                    else:
                        encoded, added = encode_rearranged(encode, batch, fim)
                except LawError as error:
                    place = where(int(batch.ordinals[error.document]))
                    raise LawError(error.says, error.document, place) from error
                leave((batch, encoded, added))
                del batch, encoded, added
    return writer.statistics


def _num_bytes(done: _Done) -> int:
    batch, encoded, _ = done
    return len(batch.data) + int(encoded.ids.nbytes)


def _write(
    writer: "EncodedShardWriter",
    batch: DocumentBatch,
    encoded: EncodedBatch,
    added: NDArray[np.int64],
    min_tokens: int,
    boundary_ids: tuple[int | None, int | None],
) -> None:
    lengths, sizes = np.diff(encoded.offsets), np.diff(batch.offsets)
    keep = lengths - added >= min_tokens
    tokens, offsets = keep_documents(encoded.ids, lengths, keep, *boundary_ids)
    num_kept = int(np.count_nonzero(keep))
    begins, ends = (0 if token_id is None else num_kept for token_id in boundary_ids)
    kept = batch.data if keep.all() else batch.data[np.repeat(keep, sizes)]
    statistics = EncodedStatistics(
        **text_size(kept, offsets_of(sizes[keep]))._asdict(),
        num_tokens=len(tokens),
        num_begin_tokens=begins,
        num_end_tokens=ends,
        num_fim_tokens=int(added[keep].sum()),
        num_dropped_documents=len(keep) - num_kept,
        num_dropped_tokens=int((lengths - added)[~keep].sum()),
        num_dropped_bytes=int(sizes[~keep].sum()),
    )
    writer.append(tokens, offsets, batch.ordinals[keep], statistics)


def end_token_id(tokenizer: "Tokenizer", name: str | None, parameter: str = "end_of_document") -> int | None:
    """The id of the special or added token `name`, which `parameter` names; None for no name."""
    known_ids = tokenizer.definition.cut_out_ids
    if name is None or name in known_ids:
        return None if name is None else int(known_ids[name])
    known = ", ".join(repr(special) for special in list(tokenizer.special_tokens)[:8]) or "none"
    raise SpecialTokenError(
        f"encode: {parameter}={name!r} is not a special token of this vocabulary, which has {known}; "
        f"name one of these, add it to the tokenizer's special_tokens, or leave {parameter} empty"
    )


def keep_documents(
    tokens: NDArray[Any],
    lengths: NDArray[np.int64],
    keep: NDArray[np.bool_],
    begin_id: int | None,
    end_id: int | None,
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The documents of these lengths, [n], where `keep` is true, each with its boundary tokens.

    Returns the kept documents' tokens, dtype as given, and their offsets, int64 (number kept + 1,).
    """
    kept = lengths[keep]
    if begin_id is None and end_id is None and keep.all():
        return tokens, offsets_of(kept)
    before = int(begin_id is not None)
    offsets = offsets_of(kept + before + (end_id is not None))
    chosen = np.empty(offsets[-1], dtype=tokens.dtype)
    width = tokens.itemsize
    starts = (np.cumsum(lengths) - lengths)[keep]
    places = (offsets[:-1] + before) * width
    gather(tokens.view(np.uint8), starts * width, kept * width, places, chosen.view(np.uint8))
    if begin_id is not None:
        chosen[offsets[:-1]] = begin_id
    if end_id is not None:
        chosen[offsets[1:] - 1] = end_id
    return chosen, offsets


def _refuse_special_tokens(tokenizer: "Tokenizer", batch: DocumentBatch, where: Callable[[int], str]) -> None:
    starts, ends, _ = find(batch.data, batch.offsets, tokenizer.special_tokens)
    if not len(starts):
        return
    document = int(np.searchsorted(batch.offsets, starts[0], side="right")) - 1
    raise SpecialTokenError(
        f"encode: {where(int(batch.ordinals[document]))} holds the special token "
        f"{batch.data[starts[0] : ends[0]].tobytes().decode()!r} at byte "
        f"{int(starts[0] - batch.offsets[document])}; remove it from the text, or set "
        "special_tokens_in_text to 'as_text' or 'allowed'"
    )


class EncodedShardWriter:
    """Appends documents to the files of one encoded shard; made by `write_shard`, which closes them."""

    def __init__(self, out: Path, vocab_size: int, files: ExitStack) -> None:
        self._out = out
        self._counts = np.zeros(vocab_size, dtype=np.uint64)
        dtypes = {"tokens": token_dtype(vocab_size), "offsets": "int64", "ordinals": "int64"}
        self._files = {
            name: files.enter_context(NpyAppender(out / f"{name}.npy", np.dtype(dtype)))
            for name, dtype in dtypes.items()
        }
        self._files["offsets"].append(np.zeros(1, dtype=np.int64))
        self.statistics = EncodedStatistics()

    def append(
        self,
        tokens: NDArray[Any],
        offsets: NDArray[np.int64],
        ordinals: NDArray[np.int64],
        statistics: EncodedStatistics,
    ) -> None:
        """Append documents tokens[offsets[k]:offsets[k + 1]], whose ordinals increase across all calls.

        The statistics are those of these documents, and of those dropped between them.
        """
        self._files["offsets"].append(offsets[1:] + self._files["tokens"].length)
        self._files["tokens"].append(tokens)
        self._files["ordinals"].append(ordinals)
        counted = (count_narrow if tokens.dtype == np.uint16 else count_wide)(tokens, self._counts)
        if counted < len(tokens):
            raise StoreError(
                f"{self._out}: id {tokens[counted]} must be less than vocab_size={len(self._counts)}; "
                "encode with the tokenizer that has this vocab_size"
            )
        self.statistics += statistics

    def finish(self) -> None:
        """Write the files that are known only at the end: offsets, statistics and token counts."""
        np.save(self._out / "token_counts.npy", self._counts)
        self.statistics.save(self._out)


@contextmanager
def write_shard(out: Path, vocab_size: int) -> Iterator[EncodedShardWriter]:
    """Yield a writer of an encoded shard into the directory `out`; leaving the block completes it."""
    with ExitStack() as files:
        writer = EncodedShardWriter(out, vocab_size, files)
        yield writer
        writer.finish()
