"""How surprising documents are to a model that did not see them.

Every document belongs to one of two folds, by a hash of its shard's content digest and its place there. A
model is trained on documents of each fold, and the documents of a fold are scored by the other's model. Of a
large corpus a sample is enough: documents whose hash is below a bound, so that about as many tokens come as
asked.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.formats.trigram_models import ModelManifest, TrigramModels
from tokmill.tasks.kernels.surprisal import surprisals
from tokmill.tasks.mixing.permutation import permutation_key, scrambled
from tokmill.tasks.score.blocks import TokenBlock, token_blocks

FOLDS = (0, 1)
_ONE = float(1 << 63)


def sample_of(
    shard: EncodedShard, digest: str, manifest: ModelManifest, fold: int, share: float
) -> Iterator[NDArray[Any]]:
    """Yield the documents of a shard that the model of a fold is trained on.

    Args:
        shard: the encoded shard.
        digest: its content digest.
        manifest: says the seed, and what is no part of a document.
        fold: 0 or 1.
        share: which part of the fold's documents to take, in (0, 1].

    Raises:
        StoreError: a token is none of the model's.
    """
    for block in token_blocks(shard, manifest.end_of_document_id):
        shard.check_ids(manifest.vocab_size, block.tokens)
        lots = _lots(block, digest, manifest.seed)
        bound = min(share * _ONE, _ONE - 1)
        mine = (lots & 1 == fold) & ((lots >> np.uint64(1)).astype(np.float64) <= bound) & (block.lengths > 0)
        for index in np.flatnonzero(mine).tolist():
            start = int(block.starts[index])
            yield block.tokens[start : start + int(block.lengths[index])].copy()


def _lots(block: TokenBlock, digest: str, seed: int) -> NDArray[np.uint64]:
    """A random number for each document of a block."""
    key = permutation_key("fold", seed, digest)
    places = np.arange(block.first, block.first + len(block.lengths), dtype=np.uint64)
    return scrambled(scrambled(places, key[0]), key[1])


def perplexity_of(shard: EncodedShard, digest: str, models: TrigramModels) -> NDArray[np.float32]:
    """Mean surprisal of each document of a shard, in nats a token; perplexity is e to that power.

    Args:
        shard: the encoded shard.
        digest: its content digest.
        models: of the corpus that it belongs to.

    Returns:
        float32 [d]; NaN for a document without tokens.

    Raises:
        StoreError: a token is none of the models'.
    """
    manifest = models.manifest
    found = np.full(shard.num_documents, np.nan, dtype=np.float32)
    for block in token_blocks(shard, manifest.end_of_document_id):
        shard.check_ids(manifest.vocab_size, block.tokens)
        folds = (_lots(block, digest, manifest.seed) & 1).astype(np.int64)
        part = found[block.first : block.first + len(block.lengths)]
        tokens = block.tokens.astype(np.int64)
        for fold in FOLDS:
            chosen = np.flatnonzero(folds == fold).astype(np.int64)
            surprisals(tokens, block.starts, block.lengths, chosen, models.models[1 - fold], part)
    return found
