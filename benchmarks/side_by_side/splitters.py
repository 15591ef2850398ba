"""The scanners alone: our automaton, and the `regex` package. Each takes text as it likes it."""

import hashlib
from itertools import pairwise
from typing import Any

import numpy as np

from side_by_side.texts import Text


class Automaton:
    """`Splitter.split`: UTF-8 and offsets in, int64 starts and ends out."""

    def __init__(self, *, pattern: str) -> None:
        self._pattern = pattern

    def prepare(self, text: Text) -> None:
        self._text = np.frombuffer(text.data, np.uint8), text.offsets

    def fresh(self) -> None:
        from tokmill.tokenizer.splitting import compile_pattern

        self._splitter = compile_pattern(self._pattern)
        self._splitter.split(np.frombuffer(b"ab 0", np.uint8), np.array([0, 4]))

    def work(self) -> Any:
        return self._splitter.split(*self._text)

    def evidence(self, result: Any) -> dict[str, Any]:
        lengths = result.ends - result.starts
        offsets = result.offsets.tolist()
        return _evidence([lengths[i:j] for i, j in pairwise(offsets)])


class Regex:
    """`findall`: a list of str in, lists of str out; a chain cuts what the pattern before it gave."""

    def __init__(self, *, pattern: str) -> None:
        self._pattern = pattern

    def prepare(self, text: Text) -> None:
        self._text = list(text.strings())

    def fresh(self) -> None:
        from tokmill.tokenizer.splitting import compile_pattern
        from tokmill.tokenizer.splitting.fallback import compile_regex

        self._chain = [compile_regex(expression) for expression in compile_pattern(self._pattern).chain]

    def work(self) -> Any:
        from tokmill.tokenizer.splitting.fallback import isolate

        if len(self._chain) == 1:
            return [self._chain[0].findall(text) for text in self._text]
        pieces = [[text] for text in self._text]
        for compiled in self._chain:  # what a pattern leaves unmatched stays, as the next one needs it
            pieces = [[part for piece in parts for part in isolate(compiled, piece)] for parts in pieces]
        return pieces

    def evidence(self, result: Any) -> dict[str, Any]:
        return _evidence([np.array([len(piece.encode()) for piece in pieces], np.int64) for pieces in result])


def _evidence(lengths: list[np.ndarray]) -> dict[str, Any]:
    digests = [
        hashlib.blake2b(np.ascontiguousarray(each, "<i8"), digest_size=8).hexdigest() for each in lengths
    ]
    return {"documents": digests, "num_pretokens": sum(map(len, lengths))}


SIDES: dict[str, type[Automaton] | type[Regex]] = {"tokmill": Automaton, "regex": Regex}
