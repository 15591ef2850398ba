"""Read the tables of a published audit."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tokmill.tasks.formats.files.indices import check_within
from tokmill.tasks.formats.files.manifests import readable
from tokmill.tasks.formats.files.parquet import read_parquet


def read_table(audit: Path, name: str, vocab_size: int) -> pa.Table:
    """Read a table whose column `token_id` becomes an index.

    Args:
        audit: the audit artifact's directory.
        name: the table's name.
        vocab_size: ids are below it.

    Raises:
        StoreError: the file is missing or broken, or has another id.
    """
    file = audit / "catalog" / f"{name}.parquet"
    with readable(file, "table of an audit"):
        table = read_parquet(file)
    check_within(file, "token_id", table["token_id"].to_numpy(), least=0, below=vocab_size)
    return table


def read_tokens(audit: Path) -> pa.Table:
    """Read `vocab_tokens`, which has a row per id.

    Raises:
        StoreError: the file is missing or broken, or has an id beyond its rows.
    """
    file = audit / "catalog" / "vocab_tokens.parquet"
    with readable(file, "table of an audit"):
        rows = pq.read_metadata(file).num_rows
    return read_table(audit, "vocab_tokens", rows)
