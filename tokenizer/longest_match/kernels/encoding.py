"""Encoding by the longest match: each pre-token is walked along a trie, from one token's end to the next."""

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int64, Int64In, UInt32
from tokmill.tokenizer.kernels.token_trie import TokenTrie, longest_token


@kernel
def encode_longest(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    kinds: Int64In,
    trie: TokenTrie,
    ids: UInt32,
    id_ends: Int64,
) -> int:
    """Encode the pre-tokens of segments; return the number of ids."""
    number = 0
    id_ends[0] = 0
    for segment in range(kinds.shape[0]):
        if kinds[segment] >= 0:
            ids[number] = kinds[segment]
            number += 1
        else:
            for k in range(offsets[segment], offsets[segment + 1]):
                at = starts[k]
                while at < ends[k]:
                    token, at = longest_token(data, at, ends[k], trie)
                    ids[number] = token
                    number += 1
        id_ends[segment + 1] = number
    return number
