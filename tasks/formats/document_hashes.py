"""Hashes and sizes of a shard's documents on disk: one row per document, in their order.

    documents.parquet   ordinal int64, hash uint64, num_bytes int64, num_chars int64, num_words int64

The hash depends on the document's bytes alone (`tasks.kernels.document_hashes`); it is fast and not
cryptographic. Ordinals increase.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.files.manifests import readable
from tokmill.tasks.formats.files.parquet import read_parquet
from tokmill.tasks.formats.text.documents import Ints

FILE = "documents.parquet"
_SIZES = ("num_bytes", "num_chars", "num_words")
_SCHEMA = pa.schema({"ordinal": pa.int64(), "hash": pa.uint64(), **dict.fromkeys(_SIZES, pa.int64())})


class DocumentHashes(NamedTuple):
    """The documents of a shard.

    Attributes:
        ordinals: int64 [d], increasing.
        hashes: uint64 [d].
        sizes: int64 [d, 3], bytes, characters and words.
    """

    ordinals: Ints
    hashes: NDArray[np.uint64]
    sizes: Ints


def write_hashes(folder: Path, parts: Iterable[DocumentHashes]) -> int:
    """Write the documents of a shard, a part at a time; return their number."""
    number = 0
    with pq.ParquetWriter(folder / FILE, _SCHEMA, compression="zstd") as writer:
        for part in parts:
            columns = [part.ordinals, part.hashes, *part.sizes.T]
            arrays = [pa.array(np.ascontiguousarray(column)) for column in columns]
            writer.write_table(pa.Table.from_arrays(arrays, schema=_SCHEMA))
            number += len(part.ordinals)
    return number


def read_hashes(folder: Path) -> DocumentHashes:
    """Read the documents of a shard.

    Raises:
        StoreError: the file is missing or broken.
    """
    file = folder / FILE
    with readable(file, "list of document hashes"):
        table = read_parquet(file)
    if not table.schema.equals(_SCHEMA):
        raise StoreError(
            f"{file}: has the columns {table.schema.names}, not {_SCHEMA.names}; verify the store"
        )
    columns = {name: table[name].to_numpy() for name in _SCHEMA.names}
    sizes = np.stack([columns[name] for name in _SIZES], axis=1)
    return DocumentHashes(columns["ordinal"], columns["hash"], sizes)
