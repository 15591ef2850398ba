"""Score documents by their perplexity under a model that was not trained on them.

Every document belongs to one of two folds, by a hash of its shard's content digest and its place in the
shard. A model is trained on each fold, and the documents of a fold are scored by the other fold's model. From
a large corpus a sample is taken: the documents whose hash is below a bound, chosen to give about the
requested number of tokens.
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
    """Yield the documents of a shard on which the model of a fold is trained.

    Args:
        shard: the encoded shard.
        digest: the shard's content digest.
        manifest: has the seed, and the end token, which is not part of a document.
        fold: 0 or 1.
        share: fraction of the fold's documents to sample, in (0, 1].

    Raises:
        StoreError: a token is not in the model's vocabulary.
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
    """A pseudo-random number for each document of a block."""
    key = permutation_key("fold", seed, digest)
    places = np.arange(block.first, block.first + len(block.lengths), dtype=np.uint64)
    return scrambled(scrambled(places, key[0]), key[1])


def perplexity_of(shard: EncodedShard, digest: str, models: TrigramModels) -> NDArray[np.float32]:
    """Mean surprisal of each document of a shard, in nats per token; perplexity is e to that power.

    Args:
        shard: the encoded shard.
        digest: the shard's content digest.
        models: the models of the shard's corpus.

    Returns:
        float32 [d]; NaN for a document without tokens.

    Raises:
        StoreError: a token is not in the models' vocabulary.
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
