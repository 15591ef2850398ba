"""The database of a new home of Prefect, made from a template: its 110 migrations take longer than a run.

The template is what the migrations of the oldest supported Prefect make, which the server's own migrations
continue. `python -m tokmill.flows.prefect.database` writes it anew.
"""

import gzip
import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

TEMPLATE: Final = Path(__file__).with_suffix(".sql.gz")
_REVISION: Final = "a3b9c7d2e5f1"  # the last migration of Prefect 3.8.8


def make_database(url: str) -> None:
    """Make the database of a URL of SQLAlchemy from the template, if it is a file that does not exist yet.

    What fails is left to Prefect's migrations, which say why.
    """
    kind, _, name = url.partition(":///")
    file = Path(name)
    if (
        not kind.startswith("sqlite")
        or not name
        or name.startswith((":", "file:"))
        or "?" in name
        or file.exists()
    ):
        return
    with suppress(OSError, sqlite3.Error), tempfile.TemporaryDirectory(dir=file.parent) as folder:
        whole = Path(folder) / file.name
        restore(whole)
        os.link(whole, file)  # unless another server was quicker


def restore(file: Path) -> None:
    """Write the template's database to a file."""
    with closing(sqlite3.connect(file)) as database:
        database.executescript(gzip.decompress(TEMPLATE.read_bytes()).decode())


def migrate(home: Path, revision: str = "head") -> Path:
    """Migrate the database in a home by Prefect's own command; return its file."""
    command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y", "-r", revision]
    subprocess.run(command, env={**os.environ, "PREFECT_HOME": str(home)}, check=True, capture_output=True)
    return home / "prefect.db"


def main() -> None:
    """Write the template."""
    with (
        tempfile.TemporaryDirectory() as home,
        closing(sqlite3.connect(migrate(Path(home), _REVISION))) as database,
    ):
        script = "\n".join(database.iterdump())
    TEMPLATE.write_bytes(gzip.compress(script.encode(), mtime=0))


if __name__ == "__main__":
    main()
