"""From ids to bytes."""

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int64, Int64In


@kernel
def gather_tokens(ids: Int64In, token_data: BytesIn, token_offsets: Int64In, out: Bytes) -> None:
    """Write the bytes of each token, one after the other, into `out`, which has exactly their size."""
    position = 0
    for i in range(ids.shape[0]):
        for k in range(token_offsets[ids[i]], token_offsets[ids[i] + 1]):
            out[position] = token_data[k]
            position += 1


@kernel
def locate_tokens(
    ids: Int64In, token_offsets: Int64In, bounds: Int64In, kinds: Int64In, starts: Int64, ends: Int64
) -> int:
    """Find where in the text each token lies, given that tokens tile the segments that they were made from.

    Args:
        ids: shape (num_tokens,).
        token_offsets: shape (num_ids + 1,), the length of each token.
        bounds: shape (num_segments + 1,), the segments of text and special tokens.
        kinds: shape (num_segments,), the id of a special token, or -1 for text.
        starts: shape (num_tokens,); receives where each token begins.
        ends: shape (num_tokens,); receives where it ends.

    Returns:
        The number of tokens that were located.
    """
    token = 0
    for segment in range(kinds.shape[0]):
        position, end = bounds[segment], bounds[segment + 1]
        while position < end:
            starts[token] = position
            if kinds[segment] >= 0:
                position = end
            else:
                position += token_offsets[ids[token] + 1] - token_offsets[ids[token]]
            ends[token] = position
            token += 1
    return token
