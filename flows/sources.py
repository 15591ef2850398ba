"""From what a profile names to what bears identity: the sources' files, and a tokenizer that exists."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.errors import ProfileError
from flows.profile import Profile
from tasks.formats.resolving import resolve_files
from tasks.stage import ArtifactRef, External
from tasks.store import FileDigests, Store, digest_folder


@dataclass(frozen=True)
class Sources:
    """What a run starts from.

    Attributes:
        files: the files of all sources, in order of source and name, with their digests.
        roots: each source's folder (an absolute path), which bears no identity.
        tokenizer: the tokenizer that the profile names; None where it trains one.
    """

    files: Sequence[External]
    roots: Mapping[str, str]
    tokenizer: ArtifactRef | External | None


def resolve_sources(profile: Profile, store: Store, *, rehash: bool = False) -> Sources:
    """Find and digest the files of every source, and the tokenizer if the profile names one.

    Raises:
        SourceError: a source matches nothing, or one file twice; a file cannot be read.
        StoreError: the profile names a tokenizer that the store does not have.
        ProfileError: what it names is no tokenizer.
    """
    digests = FileDigests(store.root, rehash=rehash)
    files: list[External] = []
    roots: dict[str, str] = {}
    for name in sorted(profile.sources):
        found, roots[name] = resolve_files(profile.sources[name], Path.cwd(), digests, source=name)
        files += found
    tokenizer = (
        None if profile.tokenizer is None else _tokenizer(profile, profile.tokenizer.use, store, digests)
    )
    return Sources(files, roots, tokenizer)


def _tokenizer(profile: Profile, use: str, store: Store, digests: FileDigests) -> ArtifactRef | External:
    """A path that exists is taken as one; anything else is a reference into the store."""
    path = Path(use).expanduser()
    if path.exists():
        digest = digests.digest(path) if path.is_file() else digest_folder(path, digests.digest)
        return External(digest=digest, value=str(path.absolute()))
    ref = store.resolve(use)
    if ref.kind != "tokenizer":
        raise ProfileError(
            f"profile {profile.name!r}: tokenizer.use={use!r} is a {ref.kind}; name a tokenizer"
        )
    return ref
