"""Measure the noise of an encoded shard's documents, on the text that their tokens decode to.

Text that was encoded as an unknown token is lost, and so not measured.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import regex
from numpy.typing import NDArray

from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.kernels.noise import BROKEN, PLAIN, SYMBOL, Documents, measure_noise, new_noise, new_room
from tokmill.tasks.score.blocks import TokenBlock, token_blocks
from tokmill.tokenizer.kernels.lookup import gather_tokens

if TYPE_CHECKING:
    from tokmill.tokenizer import Tokenizer
    from tokmill.tokenizer.core.vocabulary import Vocabulary

_PLAIN = r"[\p{L}\p{M}\s]"
_BROKEN = r"[\p{Cc}\p{Cn}\p{Co}\p{Cs}\uFFFD--\s]"
_NUM_CODE_POINTS = 0x110000


def noise_of(
    tokenizer: "Tokenizer", shard: EncodedShard, end_id: int | None
) -> dict[str, NDArray[np.float32]]:
    """Measure the documents of a shard; `tasks.kernels.noise` defines the measures.

    Args:
        tokenizer: decodes the documents.
        shard: the encoded shard.
        end_id: the end-of-document token, which is not part of the text; None for none.

    Returns:
        For each measure, float32 [d].

    Raises:
        StoreError: a token is not in the tokenizer's vocabulary.
    """
    vocabulary, found = _known_text(tokenizer), new_noise(shard.num_documents)
    room = new_room(int(np.max(np.diff(shard.offsets), initial=0)))
    for block in token_blocks(shard, end_id):
        shard.check_ids(vocabulary.size, block.tokens)
        documents = _decoded(block, vocabulary.data, vocabulary.offsets)
        stop = block.first + len(block.lengths)
        part = type(found)(*(values[block.first : stop] for values in found))
        measure_noise(documents, character_classes(), block.first, room, part)
    return dict(found._asdict())


def _known_text(tokenizer: "Tokenizer") -> "Vocabulary":
    """What each token adds to the text; nothing for an unknown token, whose text is lost."""
    definition = tokenizer.definition
    added, unknown = definition.decoder.added(definition.vocabulary), definition.model.unknown_token
    return added if unknown is None else added.with_bytes({tokenizer.special_tokens[unknown]: b""})


def _decoded(block: TokenBlock, token_data: NDArray[np.uint8], token_offsets: NDArray[np.int64]) -> Documents:
    """The block's documents as tokens and as bytes."""
    ends = np.cumsum(block.lengths)
    within = np.arange(int(ends[-1])) - np.repeat(ends - block.lengths, block.lengths)
    tokens = block.tokens[np.repeat(block.starts, block.lengths) + within].astype(np.int64)
    bytes_before = np.concatenate([[0], np.cumsum(np.diff(token_offsets)[tokens])]).astype(np.int64)
    data = np.empty(int(bytes_before[-1]), dtype=np.uint8)
    gather_tokens(tokens, token_data, token_offsets, data)
    bounds = np.concatenate([[0], ends]).astype(np.int64)
    return Documents(data, bytes_before[bounds], tokens, bounds)


@lru_cache(maxsize=1)
def character_classes() -> NDArray[np.uint8]:
    """The class of every code point for the noise kernel: uint8 [0x110000]."""
    every = np.arange(_NUM_CODE_POINTS, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    classes = np.full(_NUM_CODE_POINTS, SYMBOL, dtype=np.uint8)
    for pattern, kind in ((_PLAIN, PLAIN), (_BROKEN, BROKEN)):
        for run in regex.finditer(f"{pattern}+", every, flags=regex.VERSION1):
            classes[run.start() : run.end()] = kind
    return classes
