"""The store's files are reached through one interface, `tasks.store.storage`, and through nothing else."""

import ast
from pathlib import Path

import pytest

from tests.test_tasks.store_stages import ask
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import Store
from tokmill.tasks.store.local import LocalStorage
from tokmill.tasks.store.locks import ProcessLock
from tokmill.tasks.store.mirrored import MirroredStorage
from tokmill.tasks.store.storage import STORAGE, Storage

ALLOWED = {
    "local": "the local implementation",
    "mirrored": "the implementation on object storage: its local mirror",
    "mirror_names": "likewise",
    "mirrors": "likewise: where mirrors are",
    "arriving": "likewise: paths whose files come into it when they are opened",
    "transfers": "likewise: what comes into a mirror, and what goes from it",
    "uses": "likewise: what a mirror keeps",
    "durable": "the local implementation: writing",
    "regular": "the local implementation: reading",
    "locks": "the local implementation: locks",
    "connection": "the catalog's DuckDB file, which is local whatever the store is",
    "digest": "digests source files, and what a stage wrote before it is published",
    "integrity": "compares files that readers open by their local paths with the record beside them",
    "files": "looks at source files, and keeps its cache in a local SQLite file",
    "liveness": "asks the system for processes, in /proc",
    "environment": "asks the system for its cores and the distributions that are installed",
    "moving": "writes copies into the temporary folder of an artifact, as stages do",
    "naming": "a path that a person typed, which need not be in a store",
    "provenance": "asks the checkout that the code runs from for its commit",
}
"""Modules that touch files themselves, and why."""

LOCAL_PARTS = {
    "sync_path",
    "write_atomically",
    "write_new",
    "opened_regular",
    "read_regular",
    "digest_regular",
    "ProcessLock",
}
"""What only the local implementation may import."""

OF_PATHS = {
    "exists",
    "glob",
    "hardlink_to",
    "is_dir",
    "is_file",
    "is_symlink",
    "iterdir",
    "lstat",
    "mkdir",
    "open",
    "read_bytes",
    "read_text",
    "readlink",
    "rename",
    "rglob",
    "rmdir",
    "stat",
    "symlink_to",
    "touch",
    "unlink",
    "write_bytes",
    "write_text",
}
"""Methods of `Path` that ask the file system; `replace` and `resolve` are told from others' by their use."""

MODULES = {"fcntl", "glob", "os", "pathlib", "shutil", "tempfile"}
HARMLESS = {"os.getpid", "os.getuid", "os.fsencode", "os.environ", "os.strerror", "os.environ.get"}


def direct_uses(source: str) -> list[str]:
    """Calls of file operations in a module that do not go through `STORAGE`."""
    tree = ast.parse(source)
    called = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    imported = [
        alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    return [name for name in called if _is_direct(name)] + sorted(LOCAL_PARTS & set(imported))


def _is_direct(name: str) -> bool:
    owner, _, method = name.rpartition(".")
    if owner in ("STORAGE", "Store", "entry", "self", "remote") or owner.startswith("self._at("):
        return False
    if owner.partition(".")[0] in MODULES:
        return name not in HARMLESS
    of_a_path = method in OF_PATHS or (method == "replace" and owner.endswith(("path", "temporary")))
    return name == "open" or (bool(owner) and of_a_path)


def modules() -> dict[str, str]:
    """The modules of `tasks/store` by name."""
    folder = Path(__file__).parents[2] / "tasks" / "store"
    return {path.stem: path.read_text("utf-8") for path in folder.glob("*.py")}


@pytest.mark.parametrize("name", sorted(set(modules()) - set(ALLOWED)))
def test_files_are_reached_through_the_storage_alone(name: str) -> None:
    uses = direct_uses(modules()[name])

    assert not uses, f"tasks/store/{name}.py: {uses}; use STORAGE, or say in ALLOWED why not"


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_who_is_allowed_to_needs_to(name: str) -> None:
    assert direct_uses(modules()[name])


@pytest.mark.parametrize(
    "line", ["path.unlink()", "os.replace(a, b)", "shutil.rmtree(a)", "open(a)", "(a / b).is_file()"]
)
def test_a_direct_use_is_found(line: str) -> None:
    assert direct_uses(f"import os\n{line}\n")


def test_implementations_keep_the_interface() -> None:
    both: list[type[Storage]] = [LocalStorage, MirroredStorage]  # mypy compares them

    assert not STORAGE.exists(Path("/no/such/place"))
    assert both


def test_a_name_can_be_created_once(tmp_path: Path) -> None:
    STORAGE.create(tmp_path / "folder" / "name", b"first")

    with pytest.raises(FileExistsError):
        STORAGE.create(tmp_path / "folder" / "name", b"second")
    STORAGE.replace(tmp_path / "folder" / "name", b"third")

    assert STORAGE.read(tmp_path / "folder" / "name", 10) == b"third"
    assert [entry.name for entry in STORAGE.entries(tmp_path / "folder")] == ["name"]


def test_a_folder_is_published_whole_under_a_kind_that_is_new(tmp_path: Path) -> None:
    STORAGE.create(tmp_path / ".tmp" / "out" / "record.json", b"{}")

    STORAGE.publish(tmp_path / ".tmp" / "out", tmp_path / "kind" / "place")

    assert STORAGE.is_file(tmp_path / "kind" / "place" / "record.json")
    assert not STORAGE.is_taken(tmp_path / ".tmp" / "out")


def test_states_tell_links_from_what_they_lead_to(tmp_path: Path) -> None:
    STORAGE.create(tmp_path / "file", b"four")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "lost").symlink_to(tmp_path / "nothing")

    assert STORAGE.state(tmp_path / "file")[:2] == ("file", 4)
    assert STORAGE.state(tmp_path).kind == "folder"
    assert STORAGE.state(tmp_path / "link").kind == "other"
    assert STORAGE.is_taken(tmp_path / "lost")
    assert not STORAGE.exists(tmp_path / "lost")
    with pytest.raises(OSError, match="is a link"):
        STORAGE.read(tmp_path / "link", 10)


def test_a_missing_folder_has_no_entries(tmp_path: Path) -> None:
    assert STORAGE.entries(tmp_path / "missing") == []
    assert list(STORAGE.tree(tmp_path / "missing")) == []


@pytest.mark.parametrize(
    "name", ["text", ".tmp", ".locks", ".prefect/telling", "labels/text", ".up/server.log"]
)
def test_a_link_in_place_of_a_folder_of_the_store_is_refused(tmp_path, name):
    """What is written or swept there would be elsewhere. The store itself may be behind a link."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "store").symlink_to(tmp_path / "disk")
    store = Store.open(tmp_path / "store")
    store.realize(ask("web/0", text="ab"))
    place = store.root / name
    place.parent.mkdir(exist_ok=True)
    if place.exists():
        place.rename(tmp_path / "away")
    place.symlink_to(tmp_path / "away")
    with pytest.raises(StoreError, match=f"{name} is a link"):
        Store.open(tmp_path / "store")


def test_the_place_of_a_lock_is_never_a_link(tmp_path):
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreError, match="cannot be taken"):
        ProcessLock(tmp_path / "lock").try_acquire()
    assert (tmp_path / "victim").read_text() == "kept"
