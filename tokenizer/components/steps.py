"""A normalizer made of steps, as in a `tokenizer.json` of a model that SentencePiece made.

Steps are plain ones, tables of rules by grapheme clusters, and, as the last, marks for spaces (`Metaspace`).
A text between two special tokens is a text of its own. Law: equal to what Hugging Face's tokenizers make of a
text; clusters are those of Unicode 17, as there.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal, Self, get_args

import numpy as np
import regex
from numpy.typing import NDArray

from tokmill.tokenizer.components.character_maps import Buffers
from tokmill.tokenizer.components.normalizer_steps import WHITE_SPACE
from tokmill.tokenizer.components.normalizers import Normalizer
from tokmill.tokenizer.components.sentences import split_charsmap
from tokmill.tokenizer.core.buffers import pack_bytes, unpack
from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.kernels import graphemes
from tokmill.tokenizer.kernels.graphemes import ClusterRules, normalize_clusters

_POINTS = 0x110000
_CLASSES = {
    "CR": graphemes.CR,
    "LF": graphemes.LF,
    "Control": graphemes.CONTROL,
    "Extend": graphemes.EXTEND,
    "ZWJ": graphemes.ZWJ,
    "RI": graphemes.FLAG,
    "Prepend": graphemes.PREPEND,
    "SpacingMark": graphemes.SPACING,
    **{name: getattr(graphemes, name) for name in ("L", "V", "T", "LV", "LVT")},
}
_IN_CONJUNCTS = {
    "Consonant": graphemes.CONSONANT,
    "Linker": graphemes.LINKER,
    "Extend": graphemes.LINKED,
}
_LATER = (
    *((0x5C8, 0x5C9), (0xB53, 0xB54), (0x1ADE, 0x1ADF), (0x1AEC, 0x1AF0), (0x10ECB, 0x10ECF)),
    *((0x10EF0, 0x10EF9), (0x11DF0, 0x11DF0), (0x1D127, 0x1D128), (0x1D250, 0x1D252)),
    *((0x1D25B, 0x1D25C), (0x1D25F, 0x1D25F), (0x1D280, 0x1D281)),
)
"""First and last of the marks that newer tables of `regex` have."""

_LATER_LINKERS = (0x1CF5, 0x1CF6, 0x11A3A)
"""Characters that are linkers in newer tables alone."""


@cache
def cluster_classes() -> NDArray[np.uint8]:
    """Return an entry for each character by code point, shape (0x110000,)."""
    text = "".join(map(chr, (point for point in range(_POINTS) if not 0xD800 <= point < 0xE000)))
    table = np.zeros(_POINTS, np.uint8)
    table[0xD800:0xE000] = graphemes.CONTROL
    _mark(table, text, r"\p{Extended_Pictographic}", graphemes.PICTURE)
    for name, number in _CLASSES.items():
        _mark(table, text, rf"\p{{GCB={name}}}", number)
    for name, number in _IN_CONJUNCTS.items():
        _mark(table, text, rf"\p{{InCB={name}}}", number)
    for first, last in _LATER:
        table[first : last + 1] = graphemes.OTHER
    table[[*_LATER_LINKERS]] &= ~np.uint8(graphemes.LINKER)
    return table


def _mark(table: NDArray[np.uint8], text: str, expression: str, number: int) -> None:
    for match in regex.finditer(f"(?:{expression})+", text):
        first, last = ord(text[match.start()]), ord(text[match.end() - 1])
        for point in range(first, last + 1):
            table[point] |= number if not 0xD800 <= point < 0xE000 else 0


MARK = "\u2581"
Prepend = Literal["always", "first", "never"]
Flags = NDArray[np.bool_]
_MARK = MARK.encode()
_WORD = regex.compile(f"[^{WHITE_SPACE}]+")
_ASCII = 0x80
_MAX_ASCII_TEXTS = 1 << 16


@dataclass(frozen=True)
class Charsmap:
    """Rules that SentencePiece compiled, applied by clusters; see `kernels.graphemes`.

    Raises:
        FormatError: the rules are damaged.
    """

    charsmap: bytes

    def __post_init__(self) -> None:
        split_charsmap(self.charsmap)

    def buffers(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], keep: Flags, first: Flags
    ) -> Buffers:
        """Change each document of a buffer by itself."""
        room, bounds = int(offsets[-1] - offsets[0]) * 5 // 4 + 64, np.empty(offsets.shape[0], np.int64)
        while True:
            out = np.empty(room, np.uint8)
            size = normalize_clusters(data, offsets, keep.astype(np.uint8), self._rules, out, bounds)
            if size <= room:
                return out[:size], bounds
            room = size

    def spec(self) -> dict[str, Any]:
        """Return the step as JSON-able data."""
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
        """Change each document of a buffer by itself."""
        parts = unpack(data, offsets)
        for i in np.flatnonzero(~keep).tolist():
            parts[i] = self._in_words(parts[i]) if self.words else self._marked(parts[i], bool(first[i]))
        return pack_bytes(parts)

    def spec(self) -> dict[str, Any]:
        """Return the step as JSON-able data."""
        return {"kind": "marks", "prepend": self.prepend, "words": self.words}

    def _in_words(self, text: bytes) -> bytes:
        words = _WORD.findall(text.decode("utf-8", "surrogateescape"))
        marked = "".join(word if word.startswith(MARK) else MARK + word for word in words)
        return marked.encode("utf-8", "surrogateescape")

    def _marked(self, text: bytes, begins: bool) -> bytes:
        text = text.replace(b" ", _MARK)
        wanted = self.prepend == "always" or (self.prepend == "first" and begins)
        return _MARK + text if wanted and text and not text.startswith(_MARK) else text


TextStep = Normalizer | Charsmap | Marks
"""A step, of which `buffers` changes each document by itself."""


def step_from_spec(spec: Mapping[str, Any]) -> TextStep:
    """Build a step from the data that `StepNormalizer.spec` has of it."""
    match spec["kind"]:
        case "plain":
            return Normalizer(spec["name"])
        case "charsmap":
            return Charsmap(base64.b64decode(spec["charsmap"], validate=True))
        case "marks" if isinstance(spec["words"], bool):
            return Marks(spec["prepend"], spec["words"])
        case other:
            raise FormatError(f"normalizer: step {other!r:.80} is not known; a newer tokmill may have it")


MAX_STEPS = 32


@dataclass(frozen=True)
class StepNormalizer:
    """A normalizer that runs steps one after another; see `pipeline.model.TextNormalizer`.

    Attributes:
        steps: the steps, in order.

    Raises:
        FormatError: there is none, or more than `MAX_STEPS`.
    """

    steps: tuple[TextStep, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.steps) <= MAX_STEPS:
            raise FormatError(f"normalizer: {len(self.steps)} steps; there must be 1 to {MAX_STEPS}")

    @property
    def name(self) -> str:
        """Its name, for people: the names or kinds of its steps."""
        return "+".join(spec.get("name", spec["kind"]) for spec in self.spec()["steps"])

    def spec(self) -> dict[str, Any]:
        """Return the normalizer as JSON-able data."""
        return {
            "steps": [
                {"kind": "plain", "name": step.name} if isinstance(step, Normalizer) else step.spec()
                for step in self.steps
            ]
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Build it from the result of `spec`."""
        return cls(tuple(step_from_spec(step) for step in spec["steps"]))

    def text(self, text: str, *, first: bool = True) -> str:
        """Normalize one text."""
        data, offsets = pack_bytes([text.encode("utf-8", "surrogateescape")])
        normalized, _ = self.buffers(data, offsets, first=np.array([first]))
        return normalized.tobytes().decode("utf-8", "surrogateescape")

    def buffers(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        keep: NDArray[np.bool_] | None = None,
        first: NDArray[np.bool_] | None = None,
    ) -> Buffers:
        """Normalize each document of a buffer separately; bytes that are not UTF-8 stay as they are."""
        number = offsets.shape[0] - 1
        keep = np.zeros(number, np.bool_) if keep is None else keep
        first = np.ones(number, np.bool_) if first is None else first
        for step in self.steps:
            data, offsets = step.buffers(data, offsets, keep, first)
        return data, offsets

    def final_boundary(self, data: bytes) -> int:
        """Return the last place at which a text can be cut: 0, since most steps look at the whole text."""
        return 0
