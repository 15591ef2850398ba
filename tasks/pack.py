"""Pack: a mixture's documents become sequences of one length, with the boundaries kept.

The model. First it is planned, on lengths only, which piece of which document goes where
(`tasks.packing.pieces`); then every shard of sequences is written on its own, in each format asked for
(`tasks.packing.write`); last the shards are put together under one manifest. So another format does not plan
again, and a crash costs the shards in flight.

Laws. Per source: tokens in = packed + truncated + dropped. No sequence is longer than `sequence_length`, and
only padding fills it up. The sequences are in the mixture's order. The same plan gives the same bytes,
whatever the number of workers. `tasks.formats.packed` says how to read them.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tasks.errors import PackingError
from tasks.formats.encoded import Encoded
from tasks.formats.mixture import Mixture
from tasks.formats.packed_files import PackedFormat, PackedManifest, PackedShardEntry, ShardFiles
from tasks.formats.packing_plan import PackingManifest, PackingPlan, write_packing_plan
from tasks.packing.params import PackParams, PackPlanParams, PackShardParams
from tasks.packing.plan import planned
from tasks.packing.write import Block, check_vocabulary, write_block
from tasks.stage import Outcome, Scalar, Stage


def run_plan(
    params: PackPlanParams, *, out: Path, mixture: Path, encoded: Path, shards: Sequence[Path]
) -> Outcome:
    """Plan the packing of a mixture; writes `packing.json` and `pieces.parquet`.

    `shards`, the encoded shards, are not read here: the mixture knows the lengths. They are part of the
    identity.

    Raises:
        PackingError: no sequence comes out, or the mixture is of another encoding.
    """
    mixed, manifest = Mixture.open(mixture), Encoded.open(encoded).manifest
    _check_same_sources(mixed.sources, [entry.source for entry in manifest.sources])
    made = planned(params, mixed.plan(), mixed.manifest.sources, manifest)
    write_packing_plan(out, made.manifest, made.shards)
    return Outcome(metrics=_metrics(made.manifest), accounts=made.manifest.accounts)


def _check_same_sources(mixed: Sequence[str], encoded: Sequence[str]) -> None:
    if list(mixed) != list(encoded):
        raise PackingError(
            f"pack: the mixture is of the sources {', '.join(mixed)}, the encoding of "
            f"{', '.join(encoded)}; pack the encoding that was mixed"
        )


def _metrics(manifest: PackingManifest) -> dict[str, Scalar]:
    capacity = manifest.num_sequences * manifest.sequence_length
    return {
        "sequence_length": manifest.sequence_length,
        "num_sequences": manifest.num_sequences,
        "num_tokens": manifest.num_tokens,
        "num_padding_tokens": manifest.num_padding_tokens,
        "padding_share": round(manifest.num_padding_tokens / capacity, 12),
        "num_shards": len(manifest.shards),
    }


def run_shard(
    params: PackShardParams, *, out: Path, plan: Path, encoded: Path, shards: Sequence[Path]
) -> Outcome:
    """Write shard `params.index` of a plan; writes its files in every format, and a manifest of its own.

    Raises:
        PackingError: the plan does not fit the encoding, or an id is beyond the vocabulary.
    """
    opened = PackingPlan.open(plan)
    manifest = opened.manifest
    entry = manifest.shards[params.index] if params.index < opened.num_shards else None
    if entry is None:
        raise PackingError(
            f"pack: shard index {params.index} must be below {opened.num_shards}, the plan's number of shards"
        )
    pad_id = _pad_id(params.pad_id, manifest)
    shape = (entry.num_sequences, manifest.sequence_length)
    block = Block(opened.pieces(params.index), shape, manifest.dtype, pad_id)
    block.fill(_shard_paths(manifest.sources, Encoded.open(encoded), shards))
    check_vocabulary(block.rows, manifest.vocab_size)
    write_block(block, ShardFiles(out, params.index), params.formats)
    made = PackedShardEntry(**entry.model_dump(exclude={"num_pieces"}))
    _packed_manifest(manifest, params.formats, pad_id, [made]).save(out)
    return Outcome(metrics={"num_sequences": entry.num_sequences, "num_tokens": entry.num_tokens})


def _pad_id(asked: int | None, manifest: PackingManifest) -> int:
    end = manifest.end_of_document_id
    pad_id = asked if asked is not None else (end if end is not None else 0)
    if pad_id >= manifest.vocab_size:
        raise PackingError(
            f"pack: pad_id={pad_id} must be below vocab_size={manifest.vocab_size}; use a token of the "
            "vocabulary"
        )
    return pad_id


def _shard_paths(
    sources: Sequence[str], encoded: Encoded, shards: Sequence[Path]
) -> Mapping[tuple[int, int], Path]:
    return {(sources.index(source), entry.index): path for source, entry, path in encoded.pair(shards)}


def _packed_manifest(
    plan: PackingManifest, formats: tuple[PackedFormat, ...], pad_id: int, shards: Sequence[PackedShardEntry]
) -> PackedManifest:
    num_sequences = sum(shard.num_sequences for shard in shards)
    num_tokens = sum(shard.num_tokens for shard in shards)
    return PackedManifest(
        formats=formats,
        tokenizer=plan.tokenizer,
        dtype=plan.dtype,
        vocab_size=plan.vocab_size,
        pad_id=pad_id,
        end_of_document_id=plan.end_of_document_id,
        sequence_length=plan.sequence_length,
        strategy=plan.strategy,
        long_documents=plan.long_documents,
        last_sequence=plan.last_sequence,
        num_sequences=num_sequences,
        num_tokens=num_tokens,
        num_padding_tokens=num_sequences * plan.sequence_length - num_tokens,
        sources=tuple(plan.sources),
        shards=tuple(shards),
    )


def run(params: PackParams, *, out: Path, plan: Path, shards: Sequence[Path]) -> Outcome:
    """Put the packed shards of a plan together; hard-links their files and writes `packed.json`.

    Raises:
        PackingError: the shards are not those of the plan.
    """
    manifest = PackingPlan.open(plan).manifest
    parts = [PackedManifest.open(path) for path in shards]
    entries = [entry for part in parts for entry in part.shards]
    wanted = [PackedShardEntry(**shard.model_dump(exclude={"num_pieces"})) for shard in manifest.shards]
    if entries != wanted:
        raise PackingError(
            f"pack: the packed shards {[entry.index for entry in entries]} are not the plan's "
            f"{len(wanted)} shards in order; write every shard of this plan"
        )
    for path, part in zip(shards, parts, strict=True):
        _link_shard(path, out, part)
    made = _packed_manifest(manifest, parts[0].formats, parts[0].pad_id, entries)
    made.save(out)
    return Outcome(metrics=_metrics(manifest), accounts=manifest.accounts)


def _link_shard(folder: Path, out: Path, part: PackedManifest) -> None:
    files = ShardFiles(folder, part.shards[0].index)
    for name in [*(path for kind in part.formats for path in files.of_format(kind)), files.pieces]:
        _link(name, out / name.name)


def _link(file: Path, place: Path) -> None:
    """Hard-link a file; copy it where the file system has no links or they would cross its border."""
    try:
        os.link(file, place)
    except OSError:
        shutil.copyfile(file, place)


PACK_PLAN = Stage(
    verb="pack_plan", task="pack", kind="pack_plan", version=1, params=PackPlanParams, run=run_plan
)
PACK_SHARD = Stage(
    verb="pack_shard", task="pack", kind="packed_shard", version=1, params=PackShardParams, run=run_shard
)
PACK = Stage(verb="pack", task="pack", kind="packed", version=1, params=PackParams, run=run)
