"""What is made of a published artifact outside of a run: exports, and changed tokenizers."""

import shutil
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokmill.flows.errors import UsageError, suggestion
from tokmill.flows.run.sources import remote_tokenizer, tokenizer_at
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef, Params, Request, Stage
from tokmill.tasks.formats.packed.manifest import PackedFormat, PackedManifest
from tokmill.tasks.formats.text.source_files import resolve_files
from tokmill.tasks.formats.text.sources import SourceSpec
from tokmill.tasks.packing.export import EXPORT, EXPORT_SHARD, ExportParams, ExportShardParams
from tokmill.tasks.remote.location import is_remote
from tokmill.tasks.store import FileDigests, Store
from tokmill.tasks.store.digest import digest_file
from tokmill.tasks.store.disk import whole_folder
from tokmill.tasks.train.adopt import ADOPT, AdoptParams

CHECKSUMS_FILE = "checksums.txt"


def parse_formats(names: Sequence[str]) -> tuple[PackedFormat, ...]:
    """Return formats once each in a fixed order; raises UsageError for a name that is not one."""
    known: tuple[PackedFormat, ...] = typing.get_args(PackedFormat)
    for name in names:
        if name not in known:
            hint = suggestion(name, known, known_as="formats")
            raise UsageError(f"export: --format {name} is not known{hint}")
    return tuple(name for name in known if name in names)


def export_packed(
    store: Store, packed: ArtifactRef, formats: tuple[PackedFormat, ...], *, labels: bool = False
) -> ArtifactRef:
    """Publish the sequences of `packed` in other formats; earlier exports are reused."""
    with store.at_work("export"):
        if problems := store.verify([packed], full=True):
            raise StoreError(f"export: {problems[0]}; run its profile again to repair it")
        name, shards = f"{packed.name}.{'+'.join(formats)}", list[ArtifactRef]()
        for entry in PackedManifest.open(store.place(packed)).shards:
            params = ExportShardParams(index=entry.index, formats=formats, labels=labels)
            request = Request(EXPORT_SHARD, f"{name}.shard/{entry.index}", params, {"packed": packed})
            shards.append(store.realize(request).ref)
        whole = ExportParams(formats=formats, labels=labels)
        return store.realize(Request(EXPORT, name, whole, {"packed": packed, "shards": shards})).ref


def copy_out(store: Store, packed: ArtifactRef, out: Path) -> Path:
    """Copy an artifact's files to the new folder `out`, with `checksums.txt`; all of them or none.

    `b2sum --length=256 --check` reads the checksums.
    """
    record = store.record(packed)
    with whole_folder(out) as temporary:
        for entry in record.files:
            (temporary / entry.path).parent.mkdir(exist_ok=True)
            shutil.copyfile(store.path(packed, [entry.path]) / entry.path, temporary / entry.path)
            if digest_file(temporary / entry.path) != entry.digest:
                raise StoreError(
                    f"export: the copy of {entry.path} differs from the published file; try again"
                )
        lines = "".join(f"{entry.digest}  {entry.path}\n" for entry in record.files)
        (temporary / CHECKSUMS_FILE).write_text(lines, encoding="utf-8")
    return out


def change(
    store: Store,
    stage: Stage[Any],
    params: Params,
    tokenizer: str,
    files: Mapping[str, Sequence[str]],
    *,
    split_pattern: str | None = None,
    name: str | None = None,
) -> ArtifactRef:
    """Publish a changed tokenizer, an artifact or a path; one that was made before is reused.

    `files` has patterns of text files by role, `name` is the new artifact's, by default the old one's.
    """
    with store.at_work("change"):
        digests = FileDigests(store.root)
        old = _tokenizer(store, tokenizer, split_pattern, digests)
        texts: dict[str, Any] = {}
        for role, patterns in files.items():
            if patterns:
                spec = SourceSpec(files=list(patterns))
                texts[role], _ = resolve_files(spec, Path.cwd(), digests, source=role)

        def request(changed: ArtifactRef) -> Request:
            return Request(stage, name or changed.name, params, {"tokenizer": changed, **texts})

        if "@" not in tokenizer:  # the latest version may be what this very command made before it was killed
            for before in store.record(old).refs("tokenizer"):
                old = before if store.fingerprint(request(before)) == old.fingerprint else old
        return store.realize(request(old)).ref


def _tokenizer(store: Store, reference: str, split_pattern: str | None, digests: FileDigests) -> ArtifactRef:
    """Return the artifact of a tokenizer; a file or folder is adopted under its name."""
    path = Path(reference).expanduser()
    if is_remote(reference) or path.exists():
        file = remote_tokenizer(reference, digests) if is_remote(reference) else tokenizer_at(path, digests)
        name, params = path.stem.partition(".")[0] or "tokenizer", AdoptParams(split_pattern=split_pattern)
        return store.realize(Request(ADOPT, name, params, {"file": file})).ref
    try:
        ref = store.resolve(reference if "/" in reference else f"tokenizer/{reference}")
    except StoreError as error:
        raise UsageError(str(error)) from error
    if ref.kind != "tokenizer":
        raise UsageError(f"{reference} is a {ref.kind}; tokenizers are called tokenizer/NAME")
    return ref
