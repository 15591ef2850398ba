"""DuckDB, as tokmill opens it, loads no extension, whatever the query or setting."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

from tokmill.tasks.core.database import connect, scratch_database

EXTENSION_SETTINGS = """
    SELECT name FROM duckdb_settings()
    WHERE name LIKE '%extension%' OR name IN ('lock_configuration', 'enable_external_access') ORDER BY name
"""


@pytest.fixture
def connection():
    with connect() as opened:
        yield opened


def test_no_setting_allows_an_extension(connection):
    values = dict(connection.execute("SELECT name, value FROM duckdb_settings()").fetchall())
    switches = ("autoinstall_known", "autoload_known", "allow_community", "allow_unsigned")
    assert [values[f"{switch}_extensions"] for switch in switches] == ["false"] * 4
    assert values["lock_configuration"] == "true"


def test_no_setting_can_be_changed_so_that_one_is_allowed(connection):
    names = [name for (name,) in connection.execute(EXTENSION_SETTINGS).fetchall()]
    assert "autoload_known_extensions" in names
    for name in names:
        with pytest.raises(duckdb.InvalidInputException, match="has been locked"):
            connection.execute(f"SET {name} = true")


@pytest.mark.parametrize(
    "statement",
    [
        "INSTALL httpfs",
        "FORCE INSTALL sqlite",
        "INSTALL quack FROM community",
        "INSTALL httpfs FROM 'http://127.0.0.1:9'",
        "LOAD httpfs",
        "LOAD sqlite_scanner",
        "SELECT * FROM 'https://127.0.0.1:9/x.parquet'",
        "SELECT * FROM sqlite_scan('x', 'y')",
        "ATTACH 'postgres://127.0.0.1:9/x' AS x (TYPE POSTGRES)",
    ],
)
def test_a_query_that_needs_an_extension_is_refused(connection, statement):
    with pytest.raises(duckdb.Error):
        connection.execute(statement)
    loaded = (
        "SELECT extension_name FROM duckdb_extensions() WHERE loaded AND install_mode <> 'STATICALLY_LINKED'"
    )
    assert connection.execute(loaded).fetchall() == []


OPEN = "SELECT database_name FROM duckdb_databases() WHERE NOT internal ORDER BY ALL"
FORKING = """
import os, sys
from pathlib import Path
from tokmill.tasks.core.database import scratch_database

def answer():
    with scratch_database(Path.cwd()) as connection:
        return connection.execute("SELECT count(*) FROM range(1000000) AS r(n) GROUP BY n % 2").fetchall()

asked = answer()
child = os.fork()
if child == 0:
    sys.exit(answer() != asked)  # with all that an interpreter does at its end
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status) or answer() != asked)
"""


def filled_with_a_table(connection, tmp_path):
    connection.execute(f"ATTACH '{tmp_path / 'other.duckdb'}' AS other")
    connection.execute("CREATE TABLE left_over AS SELECT 1 AS n")


class TestScratch:
    def test_nothing_of_a_block_that_fails_is_left(self, tmp_path):
        def failing():
            with scratch_database(tmp_path) as connection:
                filled_with_a_table(connection, tmp_path)
                connection.execute("BEGIN")
                connection.execute("FROM nothing")

        with pytest.raises(duckdb.CatalogException):
            failing()
        with scratch_database(tmp_path) as connection:
            assert connection.execute("SELECT table_name FROM duckdb_tables()").fetchall() == []
            assert connection.execute(OPEN).fetchall() == [("memory",), ("scratch",)]

    def test_threads_do_not_see_each_other_s(self, tmp_path):
        def counted(number):
            with scratch_database(tmp_path) as connection:
                connection.execute(f"CREATE TABLE mine AS SELECT {number} AS n")
                return connection.execute("FROM mine").fetchall()

        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(counted, range(40))) == [[(number,)] for number in range(40)]

    @pytest.mark.skipif(duckdb.__version__ < "2", reason="DuckDB 1 ends a fork whose parent has asked before")
    def test_a_fork_asks_as_its_parent_does(self):
        """DuckDB's threads are not in a fork, where a connection of the parent would wait for them."""
        command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING]
        assert subprocess.run(command, check=False, timeout=120).returncode == 0
