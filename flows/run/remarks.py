"""Remarks on a plan that a look at the text allows, before anything runs.

The beginning of each source's first file is read as the run would read it. A file that cannot be read makes
no remark here; the run says so.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import regex

from tokmill.flows.profile import Profile
from tokmill.flows.run.sources import Sources
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.count.stage import CountParams
from tokmill.tasks.formats.text.detection import format_of
from tokmill.tasks.formats.text.documents import Bytes, FileBatch, Ints
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.sources import ReadOptions
from tokmill.tasks.remote.location import Location, located
from tokmill.tokenizer.splitting import compile_pattern
from tokmill.tokenizer.splitting.marks import describe, firsts_of_counts

_LOOK_BYTES = 256 << 10
_MARK = regex.compile(r"\p{M}")


def remarks_on(profile: Profile, sources: Sources) -> list[str]:
    """Return a sentence for each source of which the profile's split pattern cuts marks from their letters.

    Args:
        profile: the profile.
        sources: its files.
    """
    training = profile.training()
    if training is None or training.mode == "sentencepiece":
        return []
    first = {file.value["source"]: file.value for file in reversed(sources.files)}
    found = []
    for source, file in sorted(first.items()):
        options = profile.sources[source].read_options()
        firsts = _firsts(located(file["path"]), options, training)
        if remark := describe(training.split_pattern, firsts):
            found.append(f"source {source}: {remark}")
    return found


def _firsts(path: Location, options: ReadOptions, cut: CountParams) -> Counter[str]:
    """Count the characters that the pre-tokens at the beginning of a file begin with; none without marks."""
    try:
        texts = [_looked_at(batch) for batch in _beginning(path, options)]
    except (TaskError, OSError):
        return Counter()
    if not any(_MARK.search(data.tobytes().decode()) for data, _ in texts):
        return Counter()  # which is quick: compiled patterns need numba
    splitter, firsts = compile_pattern(cut.split_pattern, cut.digits), Counter[str]()
    for data, offsets in texts:
        pretokens = splitter.split(data, offsets)
        bounds = np.append(pretokens.starts, pretokens.ends[-1:])  # they follow each other
        firsts += firsts_of_counts(data, bounds, np.ones(len(bounds) - 1, dtype=np.uint64))
    return firsts


def _looked_at(batch: FileBatch) -> tuple[Bytes, Ints]:
    """Return the text that is looked at: all of it, or the beginning of a single long document."""
    if len(batch.data) <= _LOOK_BYTES:
        return batch.data, batch.offsets
    data = _first_characters(batch.data, _LOOK_BYTES)
    return data, np.array([0, len(data)])


def _beginning(path: Location, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the first documents of a file, and no more of a batch than is looked at."""
    left = _LOOK_BYTES
    for batch in read_file_batches(path, format_of(path, options), options):
        stop = int(np.searchsorted(batch.offsets, left, side="right")) - 1
        part = batch.cut(0, min(max(stop, 1), len(batch)))
        if len(part):
            yield part
        left -= len(part.data)
        if left <= 0 or len(part) < len(batch):
            return


def _first_characters(data: Bytes, size: int) -> Bytes:
    """Return at most `size` bytes of UTF-8, and no part of a character."""
    while data[size] & 0xC0 == 0x80:
        size -= 1
    return data[:size]
