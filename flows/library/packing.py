"""`tokmill.pack`: documents in sequences of one length, as arrays or as a packed set on disk."""

import shutil
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tokmill.flows.errors import UsageError
from tokmill.flows.figures import labelled
from tokmill.flows.library.artifact import Artifact
from tokmill.flows.library.bench import Bench, parted
from tokmill.flows.library.mixing import EncodedColumns, Mixed, together
from tokmill.flows.library.options import DatasetOptions, PackOptions
from tokmill.tasks.core.markdown import number
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.packing.params import PackParams
from tokmill.tokenizer.core import markup

if TYPE_CHECKING:
    from tokmill.tasks.loading import PackedDataset

_FIELDS = ("input_ids", "cu_seqlens", "segment_ids", "position_ids", "loss_mask")


class Packed:
    """Packed sequences.

    `len(packed)` of them, `packed[i]` for one, `arrays()` for all, `dataset()` for batches.

    Attributes:
        artifact: the artifact, with its path and record.
        bench: the profile that made it; None for an opened artifact.
    """

    def __init__(self, artifact: Artifact, bench: Bench | None = None) -> None:
        self.artifact = artifact
        self.bench = bench

    @property
    def path(self) -> Path:
        """The folder of the packed set, which `PackedDataset` and trainers' own readers open."""
        return self.artifact.path

    @cached_property
    def reader(self) -> PackedReader:
        """Random access to sequences, with the origin of each piece (`provenance`)."""
        return PackedReader.open(self.path)

    @property
    def figures(self) -> dict[str, Any]:
        """Sequences, tokens, padding, documents that were split or cut."""
        return dict(self.artifact.figures)

    def arrays(
        self, fields: Sequence[str] = _FIELDS, first: int = 0, stop: int | None = None
    ) -> dict[str, Any]:
        """Return sequences as arrays, for n sequences of L tokens.

        Args:
            fields: those to return:
                `input_ids` uint16 or uint32 [n, L], tokens and padding;
                `cu_seqlens` int32 [m + 1], the bounds of pieces and padding, of all sequences as one row of n
                × L tokens (with `max_seqlen`), for attention over varying lengths;
                `segment_ids` int32 [n, L], the number of each token's piece from 1, 0 on padding;
                `position_ids` int32 [n, L], from 0 in every piece;
                `loss_mask` bool [n, L], false on padding and on the first token of every piece;
                `labels` int64 [n, L], the tokens where `loss_mask` is true, else -100; not shifted;
                `bounds`, a list of int32 [pieces + 1], the bounds of each sequence's pieces.
            first: the first sequence.
            stop: the sequence after the last; by default all.

        Raises:
            UsageError: there are no such sequences.
            LoadingError: there is no such field, there are 2^31 tokens or more and `cu_seqlens` is asked for,
                or the packed set lacks the format memmap.
        """
        last = len(self) if stop is None else stop
        if not 0 <= first < last <= len(self):
            raise UsageError(f"arrays: sequences {first} to {last} are not all there; there are {len(self)}")
        import numpy as np  # noqa: PLC0415

        from tokmill.tasks.loading.batches import Block, Wanted, check_bounds, made  # noqa: PLC0415
        from tokmill.tasks.loading.rows import PackedRows  # noqa: PLC0415

        manifest, wanted = self.reader.manifest, Wanted(tuple(fields), "stored")  # type: ignore[arg-type]
        check_bounds(wanted, last - first, manifest.sequence_length)
        block = Block(np.arange(first, last, dtype=np.int64), (last - first,))
        (batch,) = made(block, PackedRows(self.path, manifest), wanted)
        return {name: values for name, values in batch.items() if name != "sequence"}

    def dataset(self, **options: Unpack[DatasetOptions]) -> "PackedDataset":
        """Return batches for training; see `PackedDataset` for the options."""
        from tokmill.tasks.loading import PackedDataset  # noqa: PLC0415

        return PackedDataset(self.path, **options)

    def validation(self, *, workers: int | None = None, progress: bool | None = None) -> "Packed":
        """Return the documents that are held out of training, packed alike, each once and unchanged.

        Args:
            workers: see `pack`.
            progress: see `run`.

        Raises:
            UsageError: none are held out, or this set was opened, not packed here.
        """
        if self.bench is None or "holdout" not in self.bench.table:
            raise UsageError(
                f"{self.artifact.reference} has no holdout; pass holdout=0.01 to tokmill.train or encode"
            )
        made, done = self.bench.made("validation", workers=workers, progress=progress)
        return Packed(done["validation"], made)

    def save(self, folder: str | Path) -> Path:
        """Copy the packed set, with its record, into a new folder; return it.

        Raises:
            UsageError: the folder exists and is not empty.
        """
        place = Path(folder).expanduser()
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise UsageError(f"save: {place} exists and is not an empty folder; name a new one")
        shutil.copytree(self.path, place, dirs_exist_ok=True)
        return place

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, index: int) -> Any:
        """Return one sequence; see `PackedReader`."""
        return self.reader[index]

    def __repr__(self) -> str:
        found = self.figures
        share = number(found["padding_share"] * 100)
        return (
            f"Packed({self.artifact.reference!r}, {found['num_sequences']:,} sequences of "
            f"{found['sequence_length']:,} tokens, {share} % padding)"
        )

    def _repr_html_(self) -> str:
        pairs = dict(labelled(name, value) for name, value in self.figures.items())
        address = self.artifact.store.address(self.artifact.ref)
        return markup.sheet(
            f"Packed set {self.artifact.reference}", markup.figures({**pairs, "folder": address})
        )


def pack(
    documents: Mixed | EncodedColumns,
    *,
    sequence_length: int,
    into: str | Path | None = None,
    name: str | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    **options: Unpack[PackOptions],
) -> Packed:
    """Pack documents into sequences of one length, as the pipeline does, and keep their bounds.

        packed = tokmill.pack(mixture, sequence_length=2048, strategy="best_fit")
        packed.arrays()["input_ids"].shape

    Args:
        documents: a mixture; or encoded columns, of which every document then comes once, in a seeded order.
        sequence_length: tokens per sequence, including padding.
        into: a new folder to copy the packed set to; without it, and without a store, it lasts as long as the
            process.
        name: of the artifacts in the store; by default that of the mixture.
        workers: parallel tasks; by default one per core. It changes no result.
        progress: see `run`.
        **options: parameters of packing: `strategy`, `long_documents`, `window`, `formats`, `pad_id`,
            `shuffle_window`, ….

    Raises:
        UsageError: there is no such parameter, or `into` exists.
        ProfileError: a parameter is invalid.
        RunError: there is not one sequence.
    """
    (params,) = parted("pack", options, PackParams)
    bench = documents.bench if isinstance(documents, Mixed) else together(documents)
    named = {} if name is None else {"name": name}
    wanted = bench.with_sections(pack={"sequence_length": sequence_length, **params}, **named)
    made, done = wanted.made("packed", workers=workers, progress=progress)
    packed = Packed(done["packed"], made)
    if into is not None:
        packed.save(into)
    return packed
