"""Score: measure the difficulty of each document, for a curriculum; costly, so the scores are artifacts.

`score_noise` measures the text that the tokens of an encoded shard decode to (`tasks.kernels.scoring`).
`score_column` reads a numeric column of the source's files. Both write one value (noise: four) per document
of the encoded shard, in order. `fit_trigrams` trains two small models on the encoded corpus, and
`score_perplexity` scores each document by the model that was not trained on it (`tasks.score.measures`).

Laws. The noise and column scores of a document depend on its shard alone, its perplexity on the corpus. So
another schedule, weight or curriculum does not require scoring again.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from tokmill.tasks.core.stage import NO_SOURCE, Account, Outcome, Params, Stage
from tokmill.tasks.encode.stage import artifact_digest
from tokmill.tasks.formats.encoded import COLUMN, Encoded, EncodedShard, write_scores
from tokmill.tasks.formats.text.shards import Shard
from tokmill.tasks.formats.tokenizer import open_tokenizer

if TYPE_CHECKING:
    from tokmill.tasks.formats.encoded import ScoreManifest


class NoiseParams(Params):
    """The token to leave out of each document's text."""

    end_of_document: str | None = Field(
        default="<|endoftext|>", description="Special token after each document; empty for none."
    )


class ColumnParams(Params):
    """The column to read from the source's files."""

    column: str = Field(min_length=1, description="Name of a column or JSON key that holds a number.")


def run_noise(params: NoiseParams, *, out: Path, tokenizer: Path, shard: Path) -> Outcome:
    """Measure the noise of an encoded shard's documents."""
    from tokmill.tasks.encode.encoding import end_token_id
    from tokmill.tasks.score.measures import noise_of

    opened = open_tokenizer(tokenizer)
    end_id = end_token_id(opened, params.end_of_document)
    return _outcome(write_scores(out, "noise", noise_of(opened, EncodedShard.open(shard), end_id)))


def run_column(params: ColumnParams, *, out: Path, text: Mapping[str, Any], shard: Path) -> Outcome:
    """Read a column for an encoded shard's documents.

    Args:
        params: see `ColumnParams`.
        out: the artifact's directory.
        text: {"shard": a corpus `Shard` as JSON, "roots": {source: absolute folder}}.
        shard: the encoded shard.
    """
    from tokmill.tasks.score.column import column_of

    plan = Shard.model_validate(text["shard"])
    values = column_of(params.column, plan, text["roots"], EncodedShard.open(shard))
    return _outcome(write_scores(out, f"{COLUMN}{params.column}", {"value": values}))


class TrigramParams(Params):
    """Parameters of the trigram models for perplexity."""

    train_tokens: int = Field(
        default=10_000_000,
        ge=1,
        lt=1 << 31,
        description=(
            "Approximate number of tokens to train each of the two models on: a sample if the corpus "
            "has more. Training takes about 60 bytes of memory per token."
        ),
    )
    seed: int = Field(
        default=0,
        ge=0,
        lt=1 << 63,
        description="Seed that decides which of the two models a document trains.",
    )


class PerplexityParams(Params):
    """No parameters: the model determines the scores."""


def run_fit(params: TrigramParams, *, out: Path, encoded: Path, shards: Sequence[Path]) -> Outcome:
    """Train one trigram model on each of two halves of an encoded corpus."""
    from tokmill.tasks.score.kneser_ney import train
    from tokmill.tasks.score.measures import FOLDS, ModelManifest, sample_of, write_trigrams

    opened = Encoded.open(encoded)
    known = ModelManifest(
        vocab_size=opened.manifest.vocab_size,
        seed=params.seed,
        end_of_document_id=opened.manifest.end_of_document_id,
        num_tokens=(0, 0),
        num_documents=(0, 0),
    )
    num_tokens = sum(entry.num_tokens for source in opened.manifest.sources for entry in source.shards)
    share = min(1.0, 2 * params.train_tokens / max(1, num_tokens))
    sizes = []
    for fold in FOLDS:
        samples = [
            document
            for _, entry, path in opened.pair(shards)
            for document in sample_of(EncodedShard.open(path), entry.digest, known, fold, share)
        ]
        write_trigrams(out, fold, train(samples, known.vocab_size))
        sizes.append((len(samples), sum(map(len, samples))))
    (documents, tokens), (other_documents, other_tokens) = sizes
    figures = {"num_documents": (documents, other_documents), "num_tokens": (tokens, other_tokens)}
    known.model_copy(update=figures).save(out)
    return Outcome(
        metrics={
            "vocab_size": known.vocab_size,
            "num_documents": documents + other_documents,
            "num_tokens": tokens + other_tokens,
        }
    )


def run_perplexity(params: PerplexityParams, *, out: Path, model: Path, shard: Path) -> Outcome:
    """Score each document of an encoded shard by the model that was not trained on it."""
    from tokmill.tasks.score.measures import TrigramModels, perplexity_of

    opened = EncodedShard.open(shard)
    scores = perplexity_of(opened, artifact_digest(shard), TrigramModels.open(model))
    return _outcome(write_scores(out, "perplexity", {"surprisal": scores}))


def _outcome(manifest: "ScoreManifest") -> Outcome:
    number, missing = manifest.num_documents, manifest.num_missing
    became = {"scored": number - missing, "missing": missing}
    return Outcome(
        metrics={"measure": manifest.measure, "num_documents": number, "num_missing": missing},
        accounts=[Account(source=NO_SOURCE, unit="documents", num_in=number, became=became)],
    )


SCORE_NOISE = Stage(
    verb="score_noise", task="score", kind="noise_scores", version=1, params=NoiseParams, run=run_noise
)
SCORE_COLUMN = Stage(
    verb="score_column", task="score", kind="column_scores", version=1, params=ColumnParams, run=run_column
)
FIT_TRIGRAMS = Stage(
    verb="fit_trigrams", task="fit", kind="trigrams", version=1, params=TrigramParams, run=run_fit
)
SCORE_PERPLEXITY = Stage(
    verb="score_perplexity",
    task="score",
    kind="perplexity_scores",
    version=1,
    params=PerplexityParams,
    run=run_perplexity,
)
