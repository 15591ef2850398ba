"""Resolves names in a profile to inputs with digests: source files, a tokenizer or packed sequences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokmill.flows.errors import ProfileError
from tokmill.flows.profile import Profile
from tokmill.tasks.core.stage import ArtifactRef, External
from tokmill.tasks.formats.encoded import COLUMN
from tokmill.tasks.formats.text.source_files import resolve_files
from tokmill.tasks.remote.location import is_remote, located
from tokmill.tasks.remote.objects import files_at
from tokmill.tasks.score.column import missing_values
from tokmill.tasks.store import FileDigests, Record, Store, digest_folder
from tokmill.tasks.store.digest import FileEntry, content_digest
from tokmill.tasks.store.fingerprint import digest_bytes
from tokmill.tokenizer.formats import file_in


@dataclass(frozen=True)
class Sources:
    """The inputs of a run."""

    files: Sequence[External]  # the files of all sources, in order of source and name, with their digests
    roots: Mapping[str, str]  # each source's folder (an absolute path), which does not enter fingerprints
    tokenizer: ArtifactRef | External | None  # the tokenizer that the profile names; None if it trains one
    parallel: Sequence[External] = ()  # the parallel texts that the audit reads, in the order of the profile
    # the tokenizer that the audit compares with, if the profile names one
    compare_with: ArtifactRef | External | None = None
    # by role, the artifacts of the earlier mixture that the run continues; empty if it continues none
    consumed: Mapping[str, ArtifactRef | Sequence[ArtifactRef]] = field(default_factory=dict)


def resolve_sources(profile: Profile, store: Store, *, rehash: bool = False) -> Sources:
    """Find and digest the files of every source, and the tokenizer if the profile names one."""
    digests = FileDigests(store.root, rehash=rehash)
    files: list[External] = []
    roots: dict[str, str] = {}
    for name in sorted(profile.sources):
        found, roots[name] = resolve_files(profile.sources[name], Path.cwd(), digests, source=name)
        files += found
    _check_curriculum(profile, files)
    tokenizer, compared = (
        None if named is None else _tokenizer(profile, f"{table}.use", named.use, store, digests)
        for table, named in (
            ("tokenizer", profile.tokenizer),
            ("audit.compare_with", profile.audit.compare_with),
        )
    )
    consumed = {} if profile.replan is None else _consumed(profile, profile.replan.packed, store)
    return Sources(files, roots, tokenizer, _parallel(profile, digests), compared, consumed)


def _check_curriculum(profile: Profile, files: Sequence[External]) -> None:
    """Check, before anything is made, that each source has the columns of its curriculum."""
    curriculum = profile.mix.curriculum
    if curriculum is None:
        return
    columns = [each.removeprefix(COLUMN) for each in curriculum.difficulty if each.startswith(COLUMN)]
    for source in filter(curriculum.has, sorted(profile.sources) if columns else ()):
        of_source = [file.value for file in files if file.value["source"] == source]
        for column in columns:
            if problem := missing_values(column, of_source, profile.sources[source]):
                raise ProfileError(
                    f"profile {profile.name!r}: mix.curriculum: source '{source}': {problem}; name "
                    "another column, or the sources that have it in mix.curriculum.sources"
                )


def _parallel(profile: Profile, digests: FileDigests) -> list[External]:
    """Return the parallel texts: the language is a part of what identifies each, its path is not."""
    found = []
    for language, name in profile.audit.parallel.items():
        path = located(Path(name).expanduser()) if not is_remote(name) else located(name)
        if isinstance(path, Path) and not path.is_file():
            raise ProfileError(
                f"profile {profile.name!r}: audit.parallel.{language}={name!r} is no file; name a text "
                "file with a sentence a line"
            )
        digest = digests.digest(path)
        value = {"language": language, "path": str(path.absolute() if isinstance(path, Path) else path)}
        about = {"language": language, "digest": digest}
        both = digest_bytes(f"{language} {digest}".encode())
        found.append(External(digest=both, value=value, about=about))
    return found


def _tokenizer(
    profile: Profile, setting: str, use: str, store: Store, digests: FileDigests
) -> ArtifactRef | External:
    """Resolve a tokenizer: an existing path, or else a reference to an artifact."""
    if is_remote(use):
        return remote_tokenizer(use, digests)
    path = Path(use).expanduser()
    if path.exists():
        return tokenizer_at(path, digests)
    ref = store.resolve(use)
    if ref.kind != "tokenizer":
        raise ProfileError(f"profile {profile.name!r}: {setting}={use!r} is a {ref.kind}; name a tokenizer")
    return ref


def tokenizer_at(path: Path, digests: FileDigests) -> External:
    """Return the input that a tokenizer's file or folder is."""
    if path.is_dir():
        file_in(path)
    digest = digest_folder(path, digests.digest) if path.is_dir() else digests.digest(path)
    return External(digest=digest, value=str(path.absolute()))


def remote_tokenizer(url: str, digests: FileDigests) -> External:
    """Return the input that a tokenizer's file is, by its URL, or all files directly below one."""
    files = files_at(url)
    if len(files) == 1 and files[0].url == url:
        return External(digest=digests.digest(files[0]), value=url)
    entries = [
        FileEntry(
            path=file.url[len(url.rstrip("/")) + 1 :], size_bytes=file.num_bytes, digest=digests.digest(file)
        )
        for file in files
    ]
    return External(digest=content_digest(entries), value=url)


def _consumed(
    profile: Profile, reference: str, store: Store
) -> dict[str, ArtifactRef | Sequence[ArtifactRef]]:
    """Return packed sequences, their mixture and encoding, and the ledger that it continues, if any."""
    if reference.startswith("packed/") and "@" not in reference:
        raise ProfileError(
            f"profile {profile.name!r}: replan.packed={reference!r} must name a version, since this run "
            f"makes the next one; use e.g. {reference}@v1"
        )
    packed = store.resolve(reference)
    if packed.kind != "packed":
        raise ProfileError(
            f"profile {profile.name!r}: replan.packed={reference!r} is a {packed.kind}; name packed sequences"
        )
    record = _first(store, packed, "packed")  # it was exported from that one, or some documents taken down
    plan = store.record(record.refs("plan")[0])
    (mixture,), (encoded,), shards = plan.refs("mixture"), plan.refs("encoded"), plan.refs("shards")
    ledgers = _first(store, mixture, "mixture").refs("ledger")  # it was made from that one, without some
    consumed: dict[str, ArtifactRef | Sequence[ArtifactRef]] = {
        "mixture": mixture,
        "packed": packed,
        "encoded": encoded,
        "shards": shards,
    }
    return consumed | ({"ledger": ledgers[0]} if ledgers else {})


def _first(store: Store, ref: ArtifactRef, role: str) -> Record:
    """Return the record at the beginning of a chain of artifacts that were each made from the one before."""
    record = store.record(ref)
    while earlier := record.refs(role):
        record = store.record(earlier[0])
    return record
