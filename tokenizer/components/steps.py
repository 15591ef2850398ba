"""The steps of a `StepNormalizer`: plain ones, tables of rules by grapheme clusters, and marks for spaces.

Law: equal to what Hugging Face's tokenizers make of a text.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, get_args

import numpy as np
import regex
from numpy.typing import NDArray

from tokmill.tokenizer.components.character_maps import Buffers
from tokmill.tokenizer.components.graphemes import cluster_classes
from tokmill.tokenizer.components.normalizer_steps import WHITE_SPACE
from tokmill.tokenizer.components.normalizers import normalize_buffers, steps_of
from tokmill.tokenizer.components.sentences import split_charsmap
from tokmill.tokenizer.core.buffers import pack_bytes, unpack
from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.kernels.clusters import ClusterRules, normalize_clusters

MARK = "\u2581"
Prepend = Literal["always", "first", "never"]
Flags = NDArray[np.bool_]
_MARK = MARK.encode()
_WORD = regex.compile(f"[^{WHITE_SPACE}]+")
_ASCII = 0x80
_MAX_ASCII_TEXTS = 1 << 16


class Step(Protocol):
    """A step; a frozen value."""

    def buffers(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], keep: Flags, first: Flags
    ) -> Buffers:
        """Change each document of a buffer by itself; see `pipeline.model.TextNormalizer`."""
        ...

    def spec(self) -> dict[str, Any]:
        """Return the step as JSON-able data; equal steps give equal data."""
        ...


@dataclass(frozen=True)
class Plain:
    """Steps that `components.normalizers` has.

    Attributes:
        name: their names, joined with `+`.

    Raises:
        TokenizerError: there is none of a name.
    """

    name: str

    def __post_init__(self) -> None:
        steps_of(self.name)

    def buffers(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], keep: Flags, first: Flags
    ) -> Buffers:
        """See `Step`."""
        return normalize_buffers(self.name, data, offsets, keep)

    def spec(self) -> dict[str, Any]:
        """See `Step`."""
        return {"kind": "plain", "name": self.name}


@dataclass(frozen=True)
class Charsmap:
    """Rules that SentencePiece compiled, applied by clusters; see `kernels.clusters`.

    Raises:
        FormatError: the rules are damaged.
    """

    charsmap: bytes

    def __post_init__(self) -> None:
        split_charsmap(self.charsmap)

    def buffers(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], keep: Flags, first: Flags
    ) -> Buffers:
        """See `Step`."""
        room, bounds = int(offsets[-1] - offsets[0]) * 5 // 4 + 64, np.empty(offsets.shape[0], np.int64)
        while True:
            out = np.empty(room, np.uint8)
            size = normalize_clusters(data, offsets, keep.astype(np.uint8), self._rules, out, bounds)
            if size <= room:
                return out[:size], bounds
            room = size

    def spec(self) -> dict[str, Any]:
        """See `Step`."""
        return {"kind": "charsmap", "charsmap": base64.b64encode(self.charsmap).decode()}

    @cached_property
    def _rules(self) -> ClusterRules:
        units, texts = split_charsmap(self.charsmap)
        rules = ClusterRules(units, texts, cluster_classes(), np.zeros(_ASCII, np.uint8))
        characters, offsets = np.arange(_ASCII, dtype=np.uint8), np.arange(_ASCII + 1, dtype=np.int64)
        out, bounds = np.empty(_MAX_ASCII_TEXTS, np.uint8), np.empty(_ASCII + 1, np.int64)
        normalize_clusters(characters, offsets, np.zeros(_ASCII, np.uint8), rules, out, bounds)
        becomes = unpack(out, bounds)  # texts that have no room are no character's own
        plain = [becomes[i] == bytes([i]) for i in range(_ASCII)]
        return rules._replace(plain=np.array(plain, np.uint8))


@dataclass(frozen=True)
class Marks:
    """`▁` in the place of every space, and before a text that does not begin with it.

    Attributes:
        prepend: which texts get the mark in front: `first` for those that begin a document.
        words: whether each word is such a text, and the white space between words is removed.

    Raises:
        FormatError: `prepend` has another value, or is not `always` with words.
    """

    prepend: Prepend = "always"
    words: bool = False

    def __post_init__(self) -> None:
        if self.prepend not in get_args(Prepend) or (self.words and self.prepend != "always"):
            raise FormatError(
                f"normalizer: prepend={self.prepend!r:.80} cannot be done; use 'always' or, if text is not "
                "cut into words, 'first' or 'never'"
            )

    def buffers(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], keep: Flags, first: Flags
    ) -> Buffers:
        """See `Step`."""
        parts = unpack(data, offsets)
        for i in np.flatnonzero(~keep).tolist():
            parts[i] = self._in_words(parts[i]) if self.words else self._marked(parts[i], bool(first[i]))
        return pack_bytes(parts)

    def spec(self) -> dict[str, Any]:
        """See `Step`."""
        return {"kind": "marks", "prepend": self.prepend, "words": self.words}

    def _in_words(self, text: bytes) -> bytes:
        words = _WORD.findall(text.decode("utf-8", "surrogateescape"))
        marked = "".join(word if word.startswith(MARK) else MARK + word for word in words)
        return marked.encode("utf-8", "surrogateescape")

    def _marked(self, text: bytes, begins: bool) -> bytes:
        text = text.replace(b" ", _MARK)
        wanted = self.prepend == "always" or (self.prepend == "first" and begins)
        return _MARK + text if wanted and text and not text.startswith(_MARK) else text


def step_from_spec(spec: Mapping[str, Any]) -> Step:
    """Build a step from the result of `spec`.

    Raises:
        FormatError, KeyError, TypeError, ValueError: it is not of this form.
    """
    match spec["kind"]:
        case "plain":
            return Plain(spec["name"])
        case "charsmap":
            return Charsmap(base64.b64decode(spec["charsmap"], validate=True))
        case "marks" if isinstance(spec["words"], bool):
            return Marks(spec["prepend"], spec["words"])
        case other:
            raise FormatError(f"normalizer: step {other!r:.80} is not known; a newer tokmill may have it")
