"""Publishes tokenizers that are made from others, outside of a flow: extended and trimmed ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokmill.flows.errors import UsageError
from tokmill.flows.run.sources import remote_tokenizer, tokenizer_at
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef, Params, Request, Stage
from tokmill.tasks.formats.text.source_files import resolve_files
from tokmill.tasks.formats.text.sources import SourceSpec
from tokmill.tasks.remote.location import is_remote
from tokmill.tasks.store import FileDigests, Store
from tokmill.tasks.train.adopt import ADOPT, AdoptParams


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
    """Publish a changed tokenizer; one that was made before is reused, also as the latest version.

    Args:
        store: the store.
        stage: `extend` or `trim`.
        params: its parameters.
        tokenizer: the tokenizer to change: an artifact, or a path, which is adopted first.
        files: by role, patterns of the text files.
        split_pattern: for tokenizer files that do not say it.
        name: the new artifact's name; that of the old one if None.

    Raises:
        UsageError: there is no such tokenizer.
        SourceError: a pattern matches nothing.
        TokenizerError: the vocabulary cannot be changed so.
    """
    with store.at_work("change"):
        digests = FileDigests(store.root)
        old = _tokenizer(store, tokenizer, split_pattern, digests)
        texts: dict[str, Any] = {}
        for role, patterns in files.items():
            if patterns:
                texts[role], _ = resolve_files(
                    SourceSpec(files=list(patterns)), Path.cwd(), digests, source=role
                )

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
        name = path.stem.partition(".")[0] or "tokenizer"
        return store.realize(
            Request(ADOPT, name, AdoptParams(split_pattern=split_pattern), {"file": file})
        ).ref
    try:
        ref = store.resolve(reference if "/" in reference else f"tokenizer/{reference}")
    except StoreError as error:
        raise UsageError(str(error)) from error
    if ref.kind != "tokenizer":
        raise UsageError(f"{reference} is a {ref.kind}; tokenizers are called tokenizer/NAME")
    return ref
