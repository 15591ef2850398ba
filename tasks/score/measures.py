"""Score documents by their perplexity under a model of other documents, and by the noise of their text.

Every document is in one of two folds, by a hash of its shard's content digest and its place there. Model k is
trained on fold k, of a large corpus on a sample by the same hash, and scores the other fold. On disk it is
`<k>-<name>.npy` for each array of `tasks.kernels.scoring.TrigramModel`. Noise is measured on what tokens
decode to; text that became an unknown token is lost.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import regex
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.formats.files.arrays import NpyAppender, open_vector
from tokmill.tasks.formats.files.indices import check_ascending, check_within
from tokmill.tasks.formats.files.manifests import Manifest
from tokmill.tasks.kernels.scoring import (
    BROKEN,
    PLAIN,
    SYMBOL,
    Documents,
    TrigramModel,
    measure_noise,
    new_noise,
    new_room,
    surprisals,
)
from tokmill.tasks.mixing.permutation import permutation_key, scrambled
from tokmill.tokenizer.core.stopping import raise_if_stopped
from tokmill.tokenizer.kernels.encoding import gather_tokens

if TYPE_CHECKING:
    from tokmill.tokenizer import Tokenizer
    from tokmill.tokenizer.core.vocabulary import Vocabulary


_TOKENS = 1 << 20


class TokenBlock(NamedTuple):
    """Consecutive documents."""

    first: int  # position of the first document in the shard
    tokens: NDArray[Any]  # uint16 | uint32 [t], a view; tokens between two documents belong to neither
    starts: NDArray[np.int64]  # int64 [d], index in `tokens` at which each document begins
    lengths: NDArray[np.int64]  # int64 [d], tokens of each document


def token_blocks(shard: EncodedShard, end_id: int | None, size: int = _TOKENS) -> Iterator[TokenBlock]:
    """Yield the documents of a shard in blocks of about `size` tokens, at least one document each."""
    offsets, first = shard.offsets, 0
    while first < shard.num_documents:
        raise_if_stopped()
        stop = int(np.searchsorted(offsets, offsets[first] + size))
        stop = max(first + 1, min(stop, shard.num_documents))
        begin, end = int(offsets[first]), int(offsets[stop])
        starts = np.asarray(offsets[first:stop] - begin, dtype=np.int64)
        lengths = np.asarray(np.diff(offsets[first : stop + 1]), dtype=np.int64)
        tokens = shard.tokens[begin:end]
        if end_id is not None:
            last = tokens[np.maximum(starts + lengths - 1, 0)] if len(tokens) else np.empty(0)
            lengths = lengths - ((lengths > 0) & (last == end_id))
        yield TokenBlock(first, tokens, starts, lengths)
        first = stop


FOLDS = (0, 1)
_ONE = float(1 << 63)


class ModelManifest(Manifest):
    """The content of `model.json`."""

    FILE: ClassVar[str] = "model.json"
    TITLE: ClassVar[str] = "trigram model"

    vocab_size: int  # number of ids of the models
    seed: int  # seed that decided the folds
    end_of_document_id: int | None  # the end token, which is left out of documents, or None
    num_tokens: tuple[int, int]  # tokens that each model was trained on
    num_documents: tuple[int, int]  # documents that each model was trained on


def sample_of(
    shard: EncodedShard, digest: str, manifest: ModelManifest, fold: int, share: float
) -> Iterator[NDArray[Any]]:
    """Yield the documents of a shard on which the model of a fold is trained."""
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


@dataclass(frozen=True)
class TrigramModels:
    """Both models in a directory."""

    manifest: ModelManifest
    models: tuple[TrigramModel, TrigramModel]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the models in the directory `path`."""
        manifest = ModelManifest.open(path)
        return cls(manifest, (_read(path, 0, manifest), _read(path, 1, manifest)))


def perplexity_of(shard: EncodedShard, digest: str, models: TrigramModels) -> NDArray[np.float32]:
    """Mean surprisal of each document of a shard, in nats per token; perplexity is e to that power.

    Returns:
        float32 [d]; NaN for a document without tokens.
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


_DTYPES: dict[str, type[np.generic]] = {
    **dict.fromkeys(TrigramModel._fields, np.float32),
    **dict.fromkeys(("starts", "bigram_starts"), np.int64),
    **dict.fromkeys(("second", "third"), np.uint32),
}


def write_trigrams(path: Path, fold: int, model: TrigramModel) -> None:
    """Write one model into the directory `path`."""
    for name, dtype in _DTYPES.items():
        with NpyAppender(path / f"{fold}-{name}.npy", dtype) as file:
            file.append(getattr(model, name))


def _read(path: Path, fold: int, manifest: ModelManifest) -> TrigramModel:
    files = {name: open_vector(path / f"{fold}-{name}.npy", dtype) for name, dtype in _DTYPES.items()}
    arrays = {name: np.array(values, dtype=_DTYPES[name]) for name, values in files.items()}
    model = TrigramModel(**arrays)
    size, bigrams = manifest.vocab_size + 1, len(model.second)
    found = [len(model.unigrams), len(model.rests), len(model.starts) - 1, _last(model.starts)]
    found += [len(model.bigrams), len(model.bigram_rests), len(model.bigram_starts) - 1]
    found += [_last(model.bigram_starts), len(model.trigrams)]
    if found != [size] * 3 + [bigrams] * 4 + [len(model.third)] * 2:
        raise StoreError(f"{path}: the arrays of model {fold} do not fit each other; verify the artifact")
    for name, end in (("starts", bigrams), ("bigram_starts", len(model.third))):
        check_ascending(path / f"{fold}-{name}.npy", name, getattr(model, name), first=0, last=end)
    for name in ("second", "third"):
        check_within(path / f"{fold}-{name}.npy", name, getattr(model, name), least=0, below=size)
    return model


def _last(values: NDArray[np.int64]) -> int:
    return int(values[-1]) if len(values) else -1


_PLAIN = r"[\p{L}\p{M}\s]"
_BROKEN = r"[\p{Cc}\p{Cn}\p{Co}\p{Cs}\uFFFD--\s]"
_NUM_CODE_POINTS = 0x110000


def noise_of(
    tokenizer: "Tokenizer", shard: EncodedShard, end_id: int | None
) -> dict[str, NDArray[np.float32]]:
    """Measure the documents of a shard; `tasks.kernels.scoring` defines the measures.

    Returns:
        For each measure, float32 [d].
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
