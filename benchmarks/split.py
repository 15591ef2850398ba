"""The scanner alone: our automaton against the `regex` package, in one process, alternating.

    python benchmarks/split.py                          # the corpora of ../shared/data
    python benchmarks/split.py --pattern o200k README.md
    python benchmarks/split.py --repeat 9 --megabytes 32

CPU time of one thread, best of `--repeat`; the cuts are checked to be the same before any time counts. Each
side gets the text as it likes it: we take UTF-8 and offsets and give int64 starts and ends; `regex` takes
`str` and gives a list of `str`, document by document. Compiling the kernels is not in the figures.
"""

import argparse
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import regex
import zstandard

from tokenizer.buffers import pack_bytes
from tokenizer.splitting import SPLIT_CHAINS, SPLIT_PATTERNS, Splitter, compile_pattern
from tokenizer.splitting.fallback import compile_regex, isolate

SHARED = Path(os.environ.get("TOKMILL_SHARED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def documents_of(path: Path) -> Iterator[bytes]:
    """Yield the texts of a `.jsonl.zst` file, or a whole file of text."""
    if not path.name.endswith(".jsonl.zst"):
        yield path.read_bytes()
        return
    with zstandard.open(path, "rb") as lines:
        for line in io.BufferedReader(lines):
            yield json.loads(line)["text"].encode()


def load(path: Path, most_bytes: int) -> list[bytes]:
    """Read documents until there are enough bytes."""
    documents: list[bytes] = []
    num_bytes = 0
    for document in documents_of(path):
        if num_bytes >= most_bytes:
            break
        documents.append(document)
        num_bytes += len(document)
    return documents


def through_regex(chain: list["regex.Pattern[str]"], texts: list[str]) -> list[list[str]]:
    """Cut documents as a user of `regex` would; what is left unmatched is kept, as a chain needs it."""
    if len(chain) == 1:
        return [chain[0].findall(text) for text in texts]
    pieces = [[text] for text in texts]
    for compiled in chain:
        pieces = [[part for piece in parts for part in isolate(compiled, piece)] for parts in pieces]
    return pieces


def check(splitter: Splitter, data: np.ndarray, offsets: np.ndarray, expected: list[list[str]]) -> int:
    """Stop the program unless both sides cut alike; give the number of pre-tokens."""
    found = splitter.split(data, offsets)
    lengths = [len(piece.encode()) for document in expected for piece in document]
    if not np.array_equal(found.ends - found.starts, lengths):
        sys.exit(f"split: {splitter!r} does not cut as regex does; nothing was measured")
    return len(lengths)


def best_seconds(sides: list[Callable[[], object]], repeat: int) -> list[float]:
    """Run the sides in turn; give the least CPU time of each."""
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(repeat):
        for side, seconds in zip(sides, times, strict=True):
            started = time.process_time()
            side()
            seconds.append(time.process_time() - started)
    return [min(seconds) for seconds in times]


def measure(path: Path, pattern: str, options: argparse.Namespace) -> str:
    """Measure one pattern on one text; give a row of the table."""
    documents = load(path, options.megabytes * 1_000_000)
    data, offsets = pack_bytes(documents)
    texts = [document.decode() for document in documents]
    splitter = compile_pattern(pattern)
    chain = [compile_regex(expression) for expression in splitter.chain]
    num_pretokens = check(splitter, data, offsets, through_regex(chain, texts))
    ours, theirs = best_seconds(
        [lambda: splitter.split(data, offsets), lambda: through_regex(chain, texts)], options.repeat
    )
    megabytes = len(data) / 1e6
    speeds = f"{megabytes / ours:.0f} | {megabytes / theirs:.1f} | {theirs / ours:.0f}×"
    return f"| {path.name.split('.')[0]} | {pattern} | {megabytes:.1f} | {num_pretokens:,} | {speeds} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "files", nargs="*", type=Path, help="text or .jsonl.zst; the shared corpora by default"
    )
    parser.add_argument("--pattern", action="append", choices=[*SPLIT_PATTERNS, *SPLIT_CHAINS])
    parser.add_argument("--megabytes", type=int, default=8, help="of each file, at most")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    files = options.files or sorted((SHARED / "corpora").glob("*.jsonl.zst"))
    if not files:
        parser.error(f"no shared corpora in {SHARED}; name files of text, or set TOKMILL_SHARED_DATA")
    print("| text | pattern | MB | pre-tokens | automaton, MB/s | regex, MB/s | ratio |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for path in files:
        for pattern in options.pattern or ["gpt2", "cl100k", "o200k", "deepseek_v3"]:
            print(measure(path, pattern, options), flush=True)


if __name__ == "__main__":
    main()
