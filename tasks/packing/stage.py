"""Pack: turn a mixture's documents into sequences of one length, and keep the documents' bounds.

First the place of every piece of a document is planned, on lengths only; then every shard of sequences is
written separately, in each format; last, the shards are put together under one manifest.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tokmill.tasks.core.errors import PackingError, StoreError
from tokmill.tasks.core.stage import Outcome, Scalar, Stage
from tokmill.tasks.formats.encoded import Encoded, ShardEntry
from tokmill.tasks.formats.mixture import Mixture
from tokmill.tasks.formats.packed.manifest import PackedManifest, Packing, PackingManifest
from tokmill.tasks.formats.packed.pieces import PackingPlan
from tokmill.tasks.packing.accounts import warnings
from tokmill.tasks.packing.order import long_warnings
from tokmill.tasks.packing.params import PackParams, PackPlanParams, PackShardParams
from tokmill.tasks.packing.plan import plan_packing
from tokmill.tasks.packing.write import assembled, figures_of, write_shard
from tokmill.tasks.store.digest import digest_folder
from tokmill.tasks.store.layout import RECORD_FILE
from tokmill.tasks.store.record import read_record
from tokmill.tasks.store.verify import check_files
from tokmill.tokenizer.core.stopping import raise_if_stopped, within_limit

_LOG = logging.getLogger(__name__)


def run_plan(
    params: PackPlanParams, *, out: Path, mixture: Path, encoded: Path, shards: Sequence[Path]
) -> Outcome:
    """Plan the packing of a mixture; writes `packing.json` and `pieces.parquet`.

    The digests of the encoded shards are checked here, once; the plan uses the lengths in the mixture.
    """
    mixed, tokens = Mixture.open(mixture), Encoded.open(encoded)
    if mixed.sources != tokens.sources:
        raise PackingError(
            f"pack: the mixture has the sources {', '.join(mixed.sources)}, the encoding "
            f"{', '.join(tokens.sources)}; pack the encoding that was mixed"
        )
    _check_digests(tokens, shards)
    manifest = plan_packing(params, mixed, tokens.manifest, out)
    longest = 0 if mixed.manifest.curriculum else mixed.manifest.longest_document_tokens
    for message in [
        *warnings(manifest.shares, manifest.strategy, manifest.window),
        *long_warnings(longest, manifest),
    ]:
        _LOG.warning(message)
    return Outcome(metrics=_metrics(manifest), accounts=manifest.accounts)


def _check_digests(encoded: Encoded, shards: Sequence[Path]) -> None:
    pairs = list(encoded.pair(shards))
    with ThreadPoolExecutor() as pool:  # hashing lets other threads run
        for (source, entry, path), digest in zip(pairs, pool.map(within_limit(_digest), pairs), strict=True):
            if digest != entry.digest:
                raise PackingError(
                    f"pack: shard {entry.index} of source '{source}' ({path}) has the content digest "
                    f"{digest} but was encoded with {entry.digest}; it has been changed or damaged: `tokmill "
                    "store verify` names the file, and a run with execution.verify='full' sets it aside and "
                    "encodes it again"
                )


def _digest(pair: tuple[str, ShardEntry, Path]) -> str:
    raise_if_stopped()
    source, entry, folder = pair
    if not (folder / RECORD_FILE).is_file():
        return digest_folder(folder)
    record = read_record(folder)
    try:
        check_files(folder, [folder / file.path for file in record.files])
    except StoreError as error:
        raise PackingError(f"pack: shard {entry.index} of source '{source}': {error}") from error
    return record.content_digest


def _metrics(manifest: PackingManifest) -> dict[str, Scalar]:
    capacity = manifest.num_sequences * manifest.sequence_length
    off = manifest.request_deviation
    return {
        "sequence_length": manifest.sequence_length,
        "num_sequences": manifest.num_sequences,
        "num_tokens": manifest.num_tokens,
        "num_padding_tokens": manifest.num_padding_tokens,
        "padding_share": round(manifest.num_padding_tokens / capacity, 12),
        "share_deviation": manifest.share_deviation,
        **({} if off is None else {"request_share_deviation": off}),
        "num_documents": manifest.num_documents,
        "num_split_documents": manifest.num_split_documents,
        "num_cut_documents": manifest.num_cut_documents,
        "num_lost_tokens": manifest.num_lost_tokens,
        "num_shards": len(manifest.shards),
    }


def run_shard(
    params: PackShardParams, *, out: Path, plan: Path, encoded: Path, shards: Sequence[Path]
) -> Outcome:
    """Write shard `params.index` of a plan in every format, with a manifest of its own."""
    opened = PackingPlan.open(plan)
    manifest = opened.manifest
    if params.index >= opened.num_shards:
        raise PackingError(
            f"pack: shard index {params.index} must be below {opened.num_shards}, the plan's number of shards"
        )
    entry, end = manifest.shards[params.index].entry, manifest.end_of_document_id
    pad_id = params.pad_id if params.pad_id is not None else (end if end is not None else 0)
    if pad_id >= manifest.vocab_size:
        raise PackingError(
            f"pack: pad_id={pad_id} must be below vocab_size={manifest.vocab_size}; use a token of the "
            "vocabulary"
        )
    shared = {name: getattr(manifest, name) for name in Packing.model_fields}
    shared |= figures_of([entry], manifest.sequence_length)
    packed = PackedManifest(**shared, formats=params.formats, pad_id=pad_id, labels=params.labels)
    paths = {
        (manifest.sources.index(source), entry.index): path
        for source, entry, path in Encoded.open(encoded).pair(shards)
    }
    write_shard(packed, opened.pieces(params.index), paths, out)
    packed.save(out)
    return Outcome(metrics={"num_sequences": entry.num_sequences, "num_tokens": entry.num_tokens})


def run(params: PackParams, *, out: Path, plan: Path, shards: Sequence[Path]) -> Outcome:
    """Put the packed shards of a plan together: hard-link their files and write `packed.json`."""
    manifest = PackingPlan.open(plan).manifest
    assembled(shards, [shard.entry for shard in manifest.shards], out)
    return Outcome(metrics=_metrics(manifest), accounts=manifest.accounts)


PACK_PLAN = Stage(
    verb="pack_plan", task="pack", kind="pack_plan", version=5, params=PackPlanParams, run=run_plan
)
PACK_SHARD = Stage(
    verb="pack_shard", task="pack", kind="packed_shard", version=4, params=PackShardParams, run=run_shard
)
PACK = Stage(verb="pack", task="pack", kind="packed", version=4, params=PackParams, run=run)
"""Packing: documents into sequences of one length, planned on lengths and written shard by shard."""
