"""holdout: divide a corpus into a part for training and a part for validation.

`hash_documents` hashes the documents of one shard. `holdout` chooses the documents that are held out and
publishes one part: a corpus with the same sources, shards, files and ordinals, whose shards have fewer
documents (`tasks.formats.text.shards`). All later stages read it like any other corpus.

Laws. A document's part depends on its content, the seed and the limits alone, so copies of a document are in
the same part, in whatever source or file they are. With one share for all sources, a document stays in its
part when a source grows. With several, what is held out stays so; a document for training is held out once a
copy of it comes into a source with a larger share. Every document is in exactly one part.

A copy has the same text, byte for byte once it is decoded. White space at its ends, other line ends or
another Unicode form make another text.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from tokmill.tasks.core.errors import HoldoutError
from tokmill.tasks.core.stage import NO_SOURCE, Account, Outcome, Params, Stage
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.text.shards import CorpusPart, Shard, read_shard
from tokmill.tasks.sampling import check_sources

_LOG = logging.getLogger(__name__)

TRAINING: CorpusPart = "training"
VALIDATION: CorpusPart = "validation"
PARTS = (TRAINING, VALIDATION)

Share: TypeAlias = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Number: TypeAlias = Annotated[int, Field(ge=0)]


class HoldoutParams(Params):
    """Which documents are held out of training, for validation."""

    share: Share | dict[str, Share] = Field(
        default=0.01,
        description="The fraction of each source's documents that is held out, from 0 to less than 1: one "
        "number, or a table by source (0 for sources that it does not name). With one number, a document "
        "keeps its side when a source grows.",
    )
    num_documents: dict[str, Number] = Field(
        default_factory=dict,
        description="For some sources, how many documents instead of a share; copies of a document are held "
        "out together. When the source grows, others may take their place.",
        examples=[{"code": 500}],
    )
    seed: int = Field(
        default=0, ge=0, lt=1 << 64, description="Seed of the choice: another one holds out others."
    )

    def for_part(self, part: CorpusPart) -> "CorpusPartParams":
        """The parameters of the stage, for one part."""
        return CorpusPartParams(**self.model_dump(), part=part)


class CorpusPartParams(HoldoutParams):
    """The same, and the part that is published."""

    part: CorpusPart = Field(description="The documents for training, or those that are held out.")


class NoParams(Params):
    """Hashing has no parameters."""


def run_shard(params: NoParams, *, out: Path, shard: Mapping[str, Any]) -> Outcome:
    """Hash and measure the documents of one corpus shard."""
    import numpy as np

    from tokmill.tasks.formats.text.shards import document_hashes
    from tokmill.tasks.holdout.split import DocumentHashes, write_hashes
    from tokmill.tasks.kernels.text_size import document_sizes

    plan = Shard.model_validate(shard["shard"])
    number = write_hashes(
        out,
        (
            DocumentHashes(
                batch.ordinals,
                document_hashes(batch.data, batch.offsets),
                np.stack([np.diff(batch.offsets), *document_sizes(batch.data, batch.offsets)], axis=1),
            )
            for batch in read_shard(plan, shard["roots"])
        ),
    )
    account = Account(
        source=NO_SOURCE, unit="documents", num_in=plan.num_documents, became={"hashed": number}
    )
    return Outcome(metrics={"num_documents": number}, accounts=[account])


def run(params: CorpusPartParams, *, out: Path, corpus: Path, documents: Sequence[Path]) -> Outcome:
    """Write one part of the corpus into `out`."""
    from tokmill.tasks.holdout.split import choose, write_part

    whole = Corpus.open(corpus)
    hashed, sources = whole.pair(documents, "holdout"), whole.sources
    shares = params.share if isinstance(params.share, dict) else dict.fromkeys(sources, params.share)
    check_sources("shares", shares, sources, HoldoutError, "holdout")
    check_sources("num_documents", params.num_documents, sources, HoldoutError, "holdout")
    shares = {source: float(shares.get(source, 0)) for source in sources}
    limits = choose({**shares, **params.num_documents}, hashed, params.seed)
    manifest, accounts = write_part(whole, hashed, limits, params.part, params.seed, out)
    ends = [account for account in accounts if account.unit == "documents"]
    for account in ends:
        by_number = account.source in params.num_documents
        setting = f"num_documents.{account.source}" if by_number else f"share.{account.source}"
        value = params.num_documents[account.source] if by_number else shares[account.source]
        _check(account.source, account.num_in, account.became["held_out"], setting, value)
    if not any(account.became["held_out"] for account in ends):
        raise HoldoutError(
            "holdout: no document of any source is held out; raise share, or set num_documents, or remove "
            "[holdout]"
        )
    return Outcome(metrics=manifest.metrics(), accounts=accounts)


def _check(source: str, total: int, held_out: int, setting: str, value: float) -> None:
    """Refuse a holdout that leaves nothing for training; warn of a source of which nothing is held out."""
    if held_out == total and total:
        raise HoldoutError(
            f"holdout: {setting}={value:g}: all {total} documents of source '{source}' would be held out, "
            "and none is left for training; copies are held out together, also with those that other sources "
            f"hold out; hold out fewer, or none with {setting} = 0"
        )
    if value and not held_out:
        _LOG.warning(
            "holdout: none of the %d documents of source '%s' is held out; raise %s", total, source, setting
        )


HASH_DOCUMENTS = Stage(
    verb="hash_documents", task="hash", kind="hashes_shard", version=1, params=NoParams, run=run_shard
)
HOLDOUT = Stage(verb="holdout", task="holdout", kind="corpus", version=2, params=CorpusPartParams, run=run)
