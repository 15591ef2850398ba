"""One archive from which artifacts are made again elsewhere, without a network: a zip file, not compressed.

    bundle.json                    format, what it is of, the artifacts, and the inputs from outside by digest
    records/<kind>/<prefix>.json   the records of the artifacts and of all that they were made from
    run.json, profile.toml         the run's record and its resolved profile, if the bundle is of a run
    requirements.txt               exact versions of the packages
    inputs/<digest>                the inputs themselves, on request

The same content gives the same bytes: names are sorted, and times are left out. What is read from a bundle is
checked: names (`tasks.store.names`), records by their own digests, and inputs by theirs. Since nothing is
compressed, what is unpacked takes no more room than the bundle.
"""

import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from tokmill.flows.errors import UsageError
from tokmill.flows.profile.drafting import to_toml
from tokmill.flows.reproduce.inputs import Finder, Wanted, wanted
from tokmill.flows.reproduce.known import Subject, as_json, requirements
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.remote.location import Location
from tokmill.tasks.remote.objects import download, stat
from tokmill.tasks.store import FileDigests, digest_file
from tokmill.tasks.store.disk import reported_as
from tokmill.tasks.store.layout import PREFIX_CHARS
from tokmill.tasks.store.names import Digest, InsidePath, check_path, inside
from tokmill.tasks.store.record import Record, encode_record, parse_record
from tokmill.tasks.store.runs import Run

FORMAT = 1
_ABOUT, _RUN, _PROFILE, _PACKAGES = "bundle.json", "run.json", "profile.toml", "requirements.txt"
_MOMENT = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can say
_BLOCK = 1 << 20
_MOST_BYTES = 256 << 20  # of a part that is read into memory


class BundledInput(BaseModel):
    """An input from outside of the store."""

    model_config = ConfigDict(frozen=True)

    digest: Digest
    name: InsidePath
    source: str = ""
    origin: str = ""
    included: bool = False


class About(BaseModel):
    """The content of `bundle.json`.

    Attributes:
        format: of the archive; greater ones are refused.
        subject: what it is of, for people.
        targets: kind and fingerprint of the artifacts that it is of.
        inputs: sorted by digest.
    """

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT
    subject: str
    targets: list[tuple[str, str]]
    inputs: list[BundledInput]


def write_bundle(subject: Subject, file: Path, *, with_inputs: bool, look_in: Sequence[str] = ()) -> About:
    """Write a bundle.

    Args:
        subject: the run or the artifacts.
        file: where to write it; a file of that name is replaced once the new one is whole.
        with_inputs: include the inputs, which are compared with their digests.
        look_in: folders and URLs in which inputs are looked for that are no longer where they were.

    Raises:
        UsageError: an input that is to be included is not found by its content.
        StoreError: a record is not there, or the file cannot be written.
    """
    records = subject.lineage()
    inputs = {one.digest: one for record in records for one in wanted(record)}
    found = _found(list(inputs.values()), look_in, file) if with_inputs else {}
    listed = []
    for digest in sorted(inputs):
        one = inputs[digest]
        check_path(one.name, f"bundle: the name of {one.said},")
        origin = one.entry.origin or ""
        listed.append(
            BundledInput(digest=digest, name=one.name, source=one.source, origin=origin, included=with_inputs)
        )
    targets = [(target.kind, target.fingerprint) for target in subject.targets]
    about = About(subject=subject.name, targets=targets, inputs=listed)
    parts: dict[str, bytes | Location] = {
        f"records/{record.kind}/{record.fingerprint[:PREFIX_CHARS]}.json": encode_record(record)
        for record in records
    }
    parts |= {_ABOUT: as_json(about.model_dump()), _PACKAGES: requirements(subject, records).encode()}
    if subject.run is not None:
        parts[_RUN] = subject.run.model_dump_json(indent=1).encode() + b"\n"
        parts[_PROFILE] = to_toml(subject.run.parameters).encode()
    parts |= {f"inputs/{digest}": place for digest, place in found.items()}
    with reported_as(f"bundle: {file} cannot be written"):
        _write(parts, file)
    return about


def _found(inputs: Sequence[Wanted], look_in: Sequence[str], file: Path) -> dict[str, Location]:
    finder = Finder(FileDigests(file.parent / f".{file.name}.digests"), look_in)
    places = {one.digest: finder.find(one) for one in inputs}
    lost = [one for one in inputs if places[one.digest] is None]
    if lost:
        lines = "\n".join(f"  {one.said}" for one in lost)
        raise UsageError(
            f"bundle: {len(lost)} of {len(inputs)} inputs are not found by their content; name a folder or "
            f"URL with --look-in, or leave out --with-inputs\n{lines}"
        )
    return {digest: place for digest, place in places.items() if place is not None}


def _write(parts: Mapping[str, "bytes | Location"], file: Path) -> None:
    """Write the archive beside its place, and then rename it; a folder (of a tokenizer) becomes its files."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.part")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            for name in sorted(parts):
                for within, content in _contents(name, parts[name]):
                    _add(archive, within, content)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
        shutil.rmtree(file.parent / f".{file.name}.digests", ignore_errors=True)


def _contents(name: str, content: "bytes | Location") -> "Iterator[tuple[str, bytes | Location]]":
    if isinstance(content, Path) and content.is_dir():
        files = sorted(each for each in content.rglob("*") if each.is_file())
        yield from ((f"{name}/{each.relative_to(content).as_posix()}", each) for each in files)
    else:
        yield name, content


def _add(archive: zipfile.ZipFile, name: str, content: "bytes | Location") -> None:
    info = zipfile.ZipInfo(name, _MOMENT)
    info.external_attr = 0o644 << 16
    with archive.open(info, "w", force_zip64=not isinstance(content, bytes)) as out:
        if isinstance(content, bytes):
            out.write(content)
        elif isinstance(content, Path):
            with content.open("rb") as given:
                shutil.copyfileobj(given, out, _BLOCK)
        else:
            local = Path(f"{archive.filename}.download")
            try:
                download(content.url, local, stat(content.url).num_bytes)
                with local.open("rb") as given:
                    shutil.copyfileobj(given, out, _BLOCK)
            finally:
                local.unlink(missing_ok=True)


@dataclass(frozen=True)
class Bundle:
    """An opened bundle.

    Attributes:
        about: what it has.
        subject: what it is of.
        inputs: by digest, those that it has, unpacked.
    """

    about: About
    subject: Subject
    inputs: Mapping[str, Path]


def is_bundle(reference: str) -> bool:
    """Whether a command's argument names a file that is a zip archive."""
    return Path(reference).is_file() and zipfile.is_zipfile(reference)


def open_bundle(file: Path, folder: Path) -> Bundle:
    """Read a bundle, and unpack its inputs into a folder.

    Raises:
        UsageError: it is not a bundle, or a newer tokmill wrote it.
        StoreError: it is damaged, is larger than it says, or names what lies elsewhere; or the disk is full.
    """
    try:
        with zipfile.ZipFile(file) as archive, reported_as(f"bundle {file} cannot be unpacked"):
            _check_size(archive, file)
            about = _about(archive, file)
            names = [name for name in archive.namelist() if name.startswith("records/")]
            records = [parse_record(Path(name), _read(archive, name)) for name in names]
            run = Run.model_validate_json(_read(archive, _RUN)) if _RUN in archive.namelist() else None
            parts = _parts_by_input(archive)
            inputs = {
                one.digest: _unpacked(archive, one, parts.get(one.digest, []), folder)
                for one in about.inputs
                if one.included
            }
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise StoreError(f"bundle {file} is damaged: {field}: {first['msg']}; copy it again") from error
    except (zipfile.BadZipFile, KeyError) as error:
        raise StoreError(f"bundle {file} is damaged: {error}; copy it again") from error
    known = {(record.kind, record.fingerprint): record for record in records}

    def recorded(kind: str, fingerprint: str) -> Record:
        if (kind, fingerprint) not in known:
            raise StoreError(f"the bundle has no record of {kind} {fingerprint[:PREFIX_CHARS]}; bundle again")
        return known[kind, fingerprint]

    targets = [recorded(kind, fingerprint) for kind, fingerprint in about.targets]
    return Bundle(about, Subject(about.subject, recorded, targets, run), inputs)


def _check_size(archive: zipfile.ZipFile, file: Path) -> None:
    """Refuse an archive whose parts take more room than it has."""
    parts = archive.infolist()
    if any(part.compress_type != zipfile.ZIP_STORED or part.flag_bits & 1 for part in parts):
        raise StoreError(
            f"bundle {file} has compressed or encrypted parts; `tokmill runs bundle` writes none"
        )
    unpacked, size = sum(part.file_size for part in parts), file.stat().st_size
    if unpacked > size:
        raise StoreError(f"bundle {file} has {size:,} bytes, and {unpacked:,} unpacked; copy it again")


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    """Read a part that is kept in memory."""
    size = archive.getinfo(name).file_size
    if size > _MOST_BYTES:
        raise StoreError(f"bundle: {name} has {size:,} bytes, and may have {_MOST_BYTES:,}")
    return archive.read(name)


def _about(archive: zipfile.ZipFile, file: Path) -> About:
    if _ABOUT not in archive.namelist():
        raise UsageError(f"{file} is not a bundle: it has no {_ABOUT}; `tokmill runs bundle` writes one")
    about = About.model_validate_json(_read(archive, _ABOUT))
    if about.format > FORMAT:
        raise UsageError(
            f"{file}: format={about.format} is newer than {FORMAT}, the newest that this tokmill reads; use "
            "the tokmill that wrote it"
        )
    return about


def _parts_by_input(archive: zipfile.ZipFile) -> Mapping[str, list[str]]:
    """Return the names of the inputs' parts, by the inputs' digests."""
    found: dict[str, list[str]] = {}
    for name in archive.namelist():
        top, _, rest = name.partition("/")
        if top == "inputs":
            found.setdefault(rest.partition("/")[0], []).append(name)
    return found


def _unpacked(archive: zipfile.ZipFile, one: BundledInput, members: Sequence[str], folder: Path) -> Path:
    """Unpack an input; what is there from an earlier attempt is unpacked again only if it is not whole."""
    name = f"inputs/{one.digest}"
    target = folder / one.digest / one.name.rpartition("/")[2]
    if members == [name]:
        if not target.exists() or digest_file(target) != one.digest:
            _copy(archive, name, target)
        if digest_file(target) != one.digest:
            raise StoreError(f"bundle: input {one.name} is not what was bundled; copy the bundle again")
        return target
    if not members:
        raise StoreError(f"bundle: input {one.name} is said to be there, and is not; copy the bundle again")
    for member in members:
        _copy(archive, member, inside(target, member[len(name) + 1 :], f"bundle: a file of input {one.name}"))
    return target


def _copy(archive: zipfile.ZipFile, member: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as given, target.open("wb") as out:
        shutil.copyfileobj(given, out, _BLOCK)
