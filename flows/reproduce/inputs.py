"""Finds the inputs from outside of the store by their content, wherever they are by now.

A file is looked for where the record says that it was, then in folders and URLs that a person names, among
the files of its size. Files that no longer lie in one folder under their names get a folder of links with
them. Of a file whose content is another by now, it says in which row that differs.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokmill.flows.errors import UsageError
from tokmill.flows.run.sources import remote_tokenizer, tokenizer_at
from tokmill.tasks.comparing.documents import decoded_text, digests_of
from tokmill.tasks.core.errors import StoreError, TaskError
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.shards import FileSegment, Shard, ShardHasher
from tokmill.tasks.remote.location import Location, RemoteFile, is_remote, located
from tokmill.tasks.remote.objects import download, listed, stat
from tokmill.tasks.store import FileDigests, Store
from tokmill.tasks.store.disk import reported_as
from tokmill.tasks.store.names import check_path, inside, is_fingerprint, shortened
from tokmill.tasks.store.record import InputEntry, Record
from tokmill.tokenizer.core.errors import TokenizerError


@dataclass(frozen=True)
class Wanted:
    """A file, or a tokenizer's folder, from outside of the store."""

    record: Record  # of the artifact that was made from it
    entry: InputEntry  # the input in that record
    digest: str  # of the content
    name: str  # below its source's root, with slashes; the last part of its path for others
    source: str = ""  # whose file it is; empty for others
    size: int | None = None  # in bytes; None if the record does not say

    @property
    def said(self) -> str:
        """The file for people: its source, its name, and where it was."""
        what = f"source {self.source!r}: {self.name}" if self.source else f"{self.entry.role}: {self.name}"
        return f"{what} (it was {self.entry.origin})" if self.entry.origin else what


def wanted(record: Record) -> Iterator[Wanted]:
    """Yield the files that an artifact was made from; not the text of shards, nor what the record holds."""
    for entry in record.inputs:
        if entry.kind is not None or not entry.origin:
            continue
        about = entry.about if isinstance(entry.about, dict) else {}
        name = str(about.get("name") or entry.origin.rstrip("/").rpartition("/")[2])
        digest, source = str(about.get("digest", entry.digest)), str(about.get("source", ""))
        if not is_fingerprint(digest):
            raise StoreError(
                f"{record.reference}: input {name} has the digest {shortened(digest)}: that is not a digest"
            )
        size = about.get("size")
        yield Wanted(record, entry, digest, name, source, size if isinstance(size, int) else None)


@dataclass
class Finder:
    """Finds files by their content."""

    digests: FileDigests  # of files, cached in the new store
    places: Sequence[str] = ()  # folders and URLs to look in
    given: Mapping[str, Path] = field(default_factory=dict)  # files by their digest, as a bundle has them
    _by_size: dict[int, list[Location]] | None = None

    def find(self, one: Wanted) -> Location | None:
        """Return where a file is, or None."""
        if one.digest in self.given:
            return self.given[one.digest]
        return next((place for place in self._candidates(one) if self._is(one, place)), None)

    def namesake(self, one: Wanted) -> Location | None:
        """Return a file that is in its place or has its name, though its content is another, or None."""
        origin = located(one.entry.origin or "")
        if self._exists(origin):
            return origin
        named = (place for each in self._sizes().values() for place in each if _has_name(place, one.name))
        return next(named, None)

    def _candidates(self, one: Wanted) -> Iterator[Location]:
        origin = located(one.entry.origin or "")
        yield origin
        sizes = self._sizes()
        everything = [place for each in sizes.values() for place in each]
        known = everything if one.size is None else sizes.get(one.size, [])
        yield from sorted(known, key=lambda place: (not _has_name(place, one.name), str(place)))
        if one.size is None:
            yield from (folder for place in self.places if (folder := Path(place) / one.name).is_dir())

    def _is(self, one: Wanted, place: Location) -> bool:
        try:
            return self._digest(place) == one.digest
        except (OSError, TaskError, TokenizerError):
            return False

    def _digest(self, place: Location) -> str:
        if isinstance(place, Path) and place.is_dir():
            return tokenizer_at(place, self.digests).digest
        if isinstance(place, RemoteFile):
            return remote_tokenizer(place.url, self.digests).digest
        if isinstance(place, Path) and not place.is_file():  # a record may name a FIFO, or an endless device
            return ""
        return self.digests.digest(place)

    def _exists(self, place: Location) -> bool:
        if isinstance(place, Path):
            return place.exists()
        try:
            return bool(stat(place.url))
        except (OSError, TaskError):
            return False

    def _sizes(self) -> dict[int, list[Location]]:
        """The files in all places, by their size."""
        if self._by_size is None:
            self._by_size = defaultdict(list)
            for place in self.places:
                for size, file in _files(place):
                    self._by_size[size].append(file)
        return self._by_size


def _files(place: str) -> Iterator[tuple[int, Location]]:
    if is_remote(place):
        yield from ((info.num_bytes, RemoteFile(info.url)) for info in listed(place))
        return
    folder = Path(place).expanduser()
    if not folder.exists():
        raise UsageError(f"--look-in {place}: there is no such folder")
    files = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    yield from ((file.stat().st_size, file.absolute()) for file in files if file.is_file())


def _has_name(place: Location, name: str) -> bool:
    return f"/{place}".endswith(f"/{name}")


def arranged(found: Sequence[tuple[Wanted, Location]], folder: Path) -> dict[str, str]:
    """Return each source's root: where all its files have their names, or else a folder of links to them."""
    roots: dict[str, str] = {}
    for source in dict.fromkeys(one.source for one, _ in found):
        its = [(one, place) for one, place in found if one.source == source]
        common = {str(place).removesuffix(f"/{one.name}") for one, place in its if _has_name(place, one.name)}
        if len(common) == 1 and all(_has_name(place, one.name) for one, place in its):
            roots[source] = common.pop()
        else:
            roots[source] = str(_linked(its, inside(folder, source, "source")))
    return roots


def _linked(its: Sequence[tuple[Wanted, Location]], folder: Path) -> Path:
    for one, place in its:
        above, _, last = check_path(one.name, f"source {one.source}: file").rpartition("/")
        link = (inside(folder, above, f"source {one.source}: folder") if above else folder) / last
        with reported_as(f"source {one.source}: {link} cannot be made"):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            if isinstance(place, Path):
                link.symlink_to(place.resolve())
            else:
                download(stat(place.url), link)
    return folder.absolute()


def value_of(one: Wanted, root: str) -> dict[str, Any]:
    """Return the value of a source's file for the stage that reads it: as `resolve_files` gives it."""
    path = located(f"{root}/{one.name}")
    value = {"source": one.source, "name": one.name, "path": str(path), "digest": one.digest}
    if isinstance(path, RemoteFile):
        state = stat(path.url)
        return {**value, "size": state.num_bytes, "tag": state.tag}
    status = path.stat()
    return {**value, "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def explanation_in(store: Store) -> Callable[[Wanted, Location], str]:
    """Return what says how a file differs from the one of its name that the store of the originals knows."""

    def explain(one: Wanted, file: Location) -> str:
        try:
            corpus = Corpus.open(store.path(one.record.ref))
            for shard in corpus.shards(one.source):
                for segment in (each for each in shard.segments if each.file == one.name):
                    if where := _where(store, shard, segment, file):
                        return f"{file} has another row {where} (rows count from 0)"
        except (TaskError, TokenizerError, OSError):  # the corpus is gone, or the file of another format now
            pass
        return f"{file} is another one"

    return explain


def _where(store: Store, shard: Shard, segment: FileSegment, file: Location) -> str:
    """Return the row in which a part of a shard differs, as far as that is known; empty if it does not."""
    hasher, now = ShardHasher(), dict[int, bytes]()
    for batch in read_file_batches(file, segment.format, shard.options, segment.span()):
        ordinals = batch.rows - segment.first_row + segment.first_ordinal
        hasher.update(ordinals, batch.offsets, batch.data)
        texts = (batch.data[start:end].tobytes() for start, end in pairwise(batch.offsets.tolist()))
        now |= digests_of(ordinals, texts)
    alone = len(shard.segments) == 1
    if alone and hasher.hexdigest() == shard.digest:
        return ""
    if (before := decoded_text(store, shard)) is not None:
        for ordinal in range(segment.first_ordinal, segment.first_ordinal + segment.num_rows):
            if now.get(ordinal) != before.get(ordinal):
                return str(ordinal - segment.first_ordinal + segment.first_row)
    last = segment.first_row + segment.num_rows - 1
    return f"between {segment.first_row} and {last}" if alone else ""
