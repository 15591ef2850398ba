"""The profiles of a served folder, which runs from the Prefect UI are limited to, with those shipped.

Anyone who can start a run in the UI can name a profile; one outside of the folder in which the server was
started could make a run read any file of the machine. Profiles are data: nothing in one is executed.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokmill.flows.errors import ProfileError
from tokmill.flows.profile.files import MAX_BYTES, find_profile, parse_toml, shipped_folder

SERVED = "TOKMILL_SERVED"  # the folder; no limit if empty or not set
_SHIPPED = "quickstart"
_DIGITS = 6
_LOOKS_LIKE_ONE = re.compile(r"^\s*(\[\s*sources\s*[.\]]|extends\s*=)", re.MULTILINE)


@dataclass(frozen=True)
class ServedProfile:
    """A profile that is served: its path below the folder, or the name of a shipped one, and its file."""

    given: str
    path: Path

    @property
    def slug(self) -> str:
        """Its name in the names of deployments: `runs-own`."""
        return re.sub(r"[^a-z0-9_]+", "-", self.given.removesuffix(".toml").lower()).strip("-") or "profile"


def served_profiles(folder: Path) -> list[ServedProfile]:
    """Return the profiles of a folder and of the folders in it, by path, and the shipped quickstart.

    A file is taken for a profile if it has a table of sources, or extends another. Hidden folders are left
    out, and so are files whose slug another has.
    """
    profiles = [ServedProfile(_SHIPPED, shipped_folder() / f"{_SHIPPED}.toml")]
    for pattern in ("*.toml", "*/*.toml"):
        for file in sorted(folder.glob(pattern)):
            path = file.relative_to(folder)
            if not any(part.startswith(".") for part in path.parts) and _is_profile(file):
                profiles.append(ServedProfile(path.as_posix(), file))
    return list({one.slug: one for one in profiles}.values())


def _is_profile(file: Path) -> bool:
    """Whether a file is meant as a profile; one that is not TOML is judged by its lines."""
    try:
        text = file.read_text("utf-8", "replace") if file.stat().st_size <= MAX_BYTES else ""
        table = parse_toml(text)
    except OSError:
        return False
    except ValueError:
        return _LOOKS_LIKE_ONE.search(text) is not None
    return isinstance(table.get("sources"), dict) or isinstance(table.get("extends"), str)


def require_served(name_or_path: str) -> None:
    """Refuse a profile that is neither below the served folder nor shipped; links are resolved first."""
    served = os.environ.get(SERVED)
    if not served:
        return
    folder, file = Path(served).resolve(), Path(name_or_path).expanduser()
    if name_or_path.endswith(".toml") or os.sep in name_or_path:
        where = (Path.cwd() / file).resolve()  # without revealing whether it exists
    else:
        where = find_profile(name_or_path).resolve()
    if not (where.is_relative_to(folder) or where.is_relative_to(shipped_folder())):
        raise ProfileError(
            f"profile '{name_or_path}': {where} is outside the served folder {folder}; move it there, or "
            "serve with `tokmill up --allow-profiles`"
        )


@dataclass(frozen=True)
class ServedFolder:
    """A working folder of runs, the store of their artifacts, and a work pool, if not the folder's own."""

    folder: Path
    store: Path | str
    pool: str | None = None

    @classmethod
    def of(cls, folder: Path, store: Path | str, pool: str | None = None) -> "ServedFolder":
        """Resolve symbolic links, so that every path to a folder gives the same name."""
        return cls(folder.resolve(), store.resolve() if isinstance(store, Path) else store, pool)

    @cached_property
    def name(self) -> str:
        """The deployment's name: the folder's, and digits that tell folders of the same name apart."""
        word = re.sub(r"[^a-z0-9]+", "-", self.folder.name.lower()).strip("-") or "folder"
        both = f"{self.folder}\0{self.store}".encode("utf-8", "surrogateescape")
        return f"{word}-{hashlib.blake2b(both).hexdigest()[:_DIGITS]}"

    @property
    def work_pool(self) -> str:
        """The work pool's name."""
        return self.pool or f"tokmill-{self.name}"
