"""Write an encoded shard batch by batch; memory holds one batch and the token counts."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.encoded import STATISTICS_FILE, EncodedStatistics, token_dtype
from tokmill.tasks.formats.files.manifests import write_model
from tokmill.tasks.formats.files.npy import NpyAppender
from tokmill.tasks.kernels.tokens import count_narrow, count_wide


class EncodedShardWriter:
    """Appends documents to the files of one encoded shard.

    Created by `write_shard`, which closes the files. The bytes written do not depend on how documents are
    divided into batches.
    """

    def __init__(self, out: Path, vocab_size: int, files: ExitStack) -> None:
        self._out = out
        self._counts = np.zeros(vocab_size, dtype=np.uint64)
        dtypes = {"tokens": token_dtype(vocab_size), "offsets": "int64", "ordinals": "int64"}
        self._files = {
            name: files.enter_context(NpyAppender(out / f"{name}.npy", np.dtype(dtype)))
            for name, dtype in dtypes.items()
        }
        self._files["offsets"].append(np.zeros(1, dtype=np.int64))
        self.statistics = EncodedStatistics()

    def append(
        self,
        tokens: NDArray[Any],
        offsets: NDArray[np.int64],
        ordinals: NDArray[np.int64],
        statistics: EncodedStatistics,
    ) -> None:
        """Append n documents.

        Args:
            tokens: shape (t,), ids in [0, vocab_size).
            offsets: shape (n + 1,), from 0 to t: document k is tokens[offsets[k]:offsets[k + 1]].
            ordinals: shape (n,), increasing across all calls.
            statistics: statistics of these documents, and of those dropped between them.
        """
        self._files["offsets"].append(offsets[1:] + self._files["tokens"].length)
        self._files["tokens"].append(tokens)
        self._files["ordinals"].append(ordinals)
        self._count(tokens)
        self.statistics += statistics

    def _count(self, tokens: NDArray[Any]) -> None:
        """Count how often each id occurs.

        Raises:
            StoreError: an id is not below vocab_size.
        """
        counted = (count_narrow if tokens.dtype == np.uint16 else count_wide)(tokens, self._counts)
        if counted < len(tokens):
            raise StoreError(
                f"{self._out}: id {tokens[counted]} must be less than vocab_size={len(self._counts)}; "
                "encode with the tokenizer that has this vocab_size"
            )

    def finish(self) -> None:
        """Write the files that are known only at the end: offsets, statistics and token counts."""
        np.save(self._out / "token_counts.npy", self._counts)
        write_model(self._out / STATISTICS_FILE, self.statistics)


@contextmanager
def write_shard(out: Path, vocab_size: int) -> Iterator[EncodedShardWriter]:
    """Yield a writer of an encoded shard into the directory `out`; leaving the block completes it."""
    with ExitStack() as files:
        writer = EncodedShardWriter(out, vocab_size, files)
        yield writer
        writer.finish()
