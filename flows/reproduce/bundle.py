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

import re
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pydantic import BaseModel, ValidationError

from tokmill.flows.errors import UsageError
from tokmill.flows.profile.drafting import to_toml
from tokmill.flows.reproduce.inputs import Finder, Wanted, wanted
from tokmill.flows.reproduce.subject import Subject, as_json
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.remote.location import Location, RemoteFile
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
_OWN, _NAME = "tokmill", re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MOST_BYTES = 256 << 20  # of a part that is read into memory


class BundledInput(BaseModel, frozen=True):
    """An input from outside of the store."""

    digest: Digest
    name: InsidePath
    source: str = ""
    origin: str = ""
    included: bool = False


class About(BaseModel, frozen=True):
    """The content of `bundle.json`."""

    format: int = FORMAT  # greater ones are refused
    subject: str  # what it is of, for people
    targets: list[tuple[str, str]]  # kind and fingerprint of the artifacts that it is of
    inputs: list[BundledInput]  # sorted by digest


def write_bundle(subject: Subject, file: Path, *, with_inputs: bool, look_in: Sequence[str] = ()) -> About:
    """Write a bundle, with the inputs, compared with their digests, if they are wanted."""
    records = subject.lineage()
    inputs = {one.digest: one for record in records for one in wanted(record)}
    listed = [
        BundledInput(
            digest=digest,
            name=check_path(one.name, f"bundle: the name of {one.said},"),
            source=one.source,
            origin=one.entry.origin or "",
            included=with_inputs,
        )
        for digest, one in sorted(inputs.items())
    ]
    found = _found(list(inputs.values()), look_in, file) if with_inputs else {}
    targets = [(target.kind, target.fingerprint) for target in subject.targets]
    about = About(subject=subject.name, targets=targets, inputs=listed)
    parts: dict[str, bytes | Location] = {
        f"records/{record.kind}/{record.fingerprint[:PREFIX_CHARS]}.json": encode_record(record)
        for record in records
    }
    parts |= {_ABOUT: as_json(about.model_dump()), _PACKAGES: _requirements(subject, records).encode()}
    if subject.run is not None:
        parts[_RUN] = subject.run.model_dump_json(indent=1).encode() + b"\n"
        parts[_PROFILE] = to_toml(subject.run.parameters).encode()
    parts |= {f"inputs/{digest}": place for digest, place in found.items()}
    with reported_as(f"bundle: {file} cannot be written"):
        _write(parts, file)
    return about


def _found(inputs: Sequence[Wanted], look_in: Sequence[str], file: Path) -> dict[str, Location]:
    with TemporaryDirectory(prefix="tokmill-digests-") as cache:
        finder = Finder(FileDigests(Path(cache)), look_in)
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
                content = parts[name]
                if isinstance(content, Path) and content.is_dir():
                    files = sorted(each for each in content.rglob("*") if each.is_file())
                    for each in files:
                        _add(archive, f"{name}/{each.relative_to(content).as_posix()}", each)
                else:
                    _add(archive, name, content)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def _add(archive: zipfile.ZipFile, name: str, content: "bytes | Location") -> None:
    if isinstance(content, RemoteFile):
        with TemporaryDirectory(dir=Path(str(archive.filename)).parent, prefix=".download-") as folder:
            local = Path(folder) / "file"
            download(stat(content.url), local)
            _add(archive, name, local)
        return
    info = zipfile.ZipInfo(name, _MOMENT)
    info.external_attr = 0o644 << 16
    with (
        BytesIO(content) if isinstance(content, bytes) else content.open("rb") as given,
        archive.open(info, "w", force_zip64=not isinstance(content, bytes)) as out,
    ):
        shutil.copyfileobj(given, out, _BLOCK)


class Bundle(NamedTuple):
    """An opened bundle: what it is of, and by digest the inputs that it has, unpacked."""

    subject: Subject
    inputs: Mapping[str, Path]


def is_bundle(reference: str) -> bool:
    """Whether a command's argument names a file that is a zip archive."""
    return Path(reference).is_file() and zipfile.is_zipfile(reference)


def open_bundle(file: Path, folder: Path) -> Bundle:
    """Read a bundle, and unpack its inputs into a folder; what it says is checked."""
    try:
        with zipfile.ZipFile(file) as archive, reported_as(f"bundle {file} cannot be unpacked"):
            _check_size(archive, file)
            about = _about(archive, file)
            names = [name for name in archive.namelist() if name.startswith("records/")]
            records = [parse_record(Path(name), _read(archive, name)) for name in names]
            run = Run.model_validate_json(_read(archive, _RUN)) if _RUN in archive.namelist() else None
            included = [one for one in about.inputs if one.included]
            inputs = {one.digest: _unpacked(archive, one, folder) for one in included}
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
    return Bundle(Subject(about.subject, recorded, targets, run), inputs)


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


def _unpacked(archive: zipfile.ZipFile, one: BundledInput, folder: Path) -> Path:
    """Unpack an input; what is there from an earlier attempt is unpacked again only if it is not whole."""
    part, target = f"inputs/{one.digest}", folder / one.digest / one.name.rpartition("/")[2]
    if part in archive.NameToInfo:
        if not target.exists() or digest_file(target) != one.digest:
            _copy(archive, part, target)
        if digest_file(target) != one.digest:
            raise StoreError(f"bundle: input {one.name} is not what was bundled; copy the bundle again")
        return target
    members = [name for name in archive.namelist() if name.startswith(f"{part}/")]
    if not members:
        raise StoreError(f"bundle: input {one.name} is said to be there, and is not; copy the bundle again")
    for member in members:
        _copy(archive, member, inside(target, member[len(part) + 1 :], f"bundle: a file of input {one.name}"))
    return target


def _copy(archive: zipfile.ZipFile, member: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as given, target.open("wb") as out:
        shutil.copyfileobj(given, out, _BLOCK)


def _requirements(subject: Subject, records: Sequence[Record]) -> str:
    """Return the exact versions of packages with which artifacts were made, as `pip install -r` reads them.

    What records say comes first: of the run all packages that were installed, of an artifact those that its
    content may depend on. Packages that tokmill needs and no record names have the versions that are here.
    """
    recorded: dict[str, str] = {}
    for record in records:
        recorded |= record.provenance.packages
    if subject.run is not None:
        recorded |= subject.run.packages
    versions = {_normal(name): version for name, version in recorded.items()}
    needed = _needed(_OWN, set())
    here = {name: metadata.version(name) for name in sorted(needed) if name not in versions}
    chosen = {
        name: version for name, version in {**here, **versions}.items() if name in needed or name == _OWN
    }
    made = records[-1].provenance
    commit = f" at commit {made.git_commit}" if made.git_commit else ""
    head = [
        f"# {subject.name}, made with {made.python} on {made.platform}",
        f"# {_OWN} {chosen.pop(_OWN, 'of an unknown version')}{commit}; install it from where you have it",
        *(
            [f"# not in the records, so of the environment that bundled: {', '.join(sorted(here))}"]
            if here
            else []
        ),
    ]
    return "\n".join([*head, *(f"{name}=={chosen[name]}" for name in sorted(chosen))]) + "\n"


def _needed(package: str, seen: set[str]) -> set[str]:
    """Return the installed packages that a package needs, with those that these need."""
    try:
        wanted = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        wanted = []
    for name in (found[0] for text in wanted if "extra ==" not in text and (found := _NAME.match(text))):
        if _normal(name) not in seen and next(iter(metadata.distributions(name=name)), None):
            seen.add(_normal(name))
            _needed(_normal(name), seen)
    return seen


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
