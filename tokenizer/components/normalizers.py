"""Normalizers: changes to text before it is cut into pre-tokens.

They lose information: decoding gives the normalized text back. A normalizer is named by its steps,
joined with `+`: `nfc`, `nfd`, `nfkc`, `nfkd`, `lowercase`, `strip_accents`, e.g. `nfkc+lowercase`, and
those of BERT, whose uncased models have `bert_clean+cjk_spaces+strip_nonspacing+lowercase`. None changes
nothing. Special tokens are cut out of the text *before* it is normalized, so that no ordinary text can become
a special token on the way.

`lowercase` takes each character by itself (a capital sigma always becomes σ), as Hugging Face does.
`strip_accents` removes marks (category M) and is meant to follow `nfd` or `nfkd`; `strip_nonspacing`
decomposes the text itself (NFD), and removes nonspacing marks (Mn) alone. `bert_clean` makes a space of every
white space, and removes controls, format and private-use characters (Cc, Cf, Co) and U+FFFD. `cjk_spaces`
puts a space on either side of each ideograph.
Unicode tables are those of Python's `unicodedata` (`unicodedata.unidata_version`).
"""

import functools
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import regex
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.errors import TokenizerError

Normalize = Callable[[str], str]


def _lowercase(text: str) -> str:
    return text.lower() if "Σ" not in text else "".join(map(str.lower, text))


def _strip_accents(text: str) -> str:
    return "".join(character for character in text if unicodedata.category(character)[0] != "M")


class _PerCharacter(dict[int, str | None]):
    """What becomes of each character, by code point, for `str.translate`; found out when it is first met."""

    def __init__(self, change: Callable[[str], str | None]) -> None:
        super().__init__()
        self._change = change

    def __missing__(self, point: int) -> str | None:
        found = self[point] = self._change(chr(point))
        return found


def _cleaned(character: str) -> str | None:
    if character in "\t\n\r" or unicodedata.category(character) == "Zs" or character in "\u2028\u2029":
        return " "
    removed = character == "\ufffd" or unicodedata.category(character) in {"Cc", "Cf", "Co"}
    return None if removed else character


_CLEAN = _PerCharacter(_cleaned)
_NONSPACING = _PerCharacter(lambda character: None if unicodedata.category(character) == "Mn" else character)
_IDEOGRAPH = regex.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf"
    "\uf900-\ufaff\U0002f800-\U0002fa1f]"
)


def _cjk_spaces(text: str) -> str:
    spaced: str = _IDEOGRAPH.sub(r" \g<0> ", text)
    return spaced


def _strip_nonspacing(text: str) -> str:
    return unicodedata.normalize("NFD", text).translate(_NONSPACING)


STEPS: MappingProxyType[str, Normalize] = MappingProxyType(
    {
        "nfc": functools.partial(unicodedata.normalize, "NFC"),
        "nfd": functools.partial(unicodedata.normalize, "NFD"),
        "nfkc": functools.partial(unicodedata.normalize, "NFKC"),
        "nfkd": functools.partial(unicodedata.normalize, "NFKD"),
        "lowercase": _lowercase,
        "strip_accents": _strip_accents,
        "strip_nonspacing": _strip_nonspacing,
        "cjk_spaces": _cjk_spaces,
        "bert_clean": lambda text: text.translate(_CLEAN),
    }
)
"""The steps by name."""

_COMPOSING = frozenset({"nfc", "nfd", "nfkc", "nfkd", "strip_nonspacing"})
_VOWEL_JAMO, _LAST_JAMO = "\u1160", "\u11ff"  # Hangul vowels and finals, which join the letter before
MAX_STEPS = 16
_CHANGES_ASCII = frozenset({"lowercase", "bert_clean"})
_ASCII_BYTES = 128


def steps_of(name: str | None) -> tuple[str, ...]:
    """Return the steps that a normalizer's name stands for.

    Raises:
        TokenizerError: a step that is not known, or more than `MAX_STEPS`.
    """
    if name is not None and (not isinstance(name, str) or name.count("+") >= MAX_STEPS):
        raise TokenizerError(
            f"normalizer={name!r:.200} must be None or at most {MAX_STEPS} steps joined with +, from "
            f"{', '.join(STEPS)}"
        )
    steps = tuple(name.split("+")) if name is not None else ()
    for step in steps:
        if step not in STEPS:
            raise TokenizerError(
                f"normalizer={name!r}: {step!r} is not known; use None, or, joined with +, "
                f"steps from {', '.join(STEPS)}"
            )
    return steps


@dataclass(frozen=True)
class Normalizer:
    """A normalizer that is chosen by the names of its steps; see `pipeline.model.TextNormalizer`.

    Attributes:
        name: its steps, joined with `+`; None changes nothing.

    Raises:
        TokenizerError: an unknown step.
    """

    name: str | None = None

    def __post_init__(self) -> None:
        steps_of(self.name)

    def spec(self) -> str | None:
        """Return the normalizer as JSON-able data: its name."""
        return self.name

    def text(self, text: str) -> str:
        """Normalize one text."""
        return normalize(self.name, text)

    def buffers(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        keep: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Normalize each document of a buffer separately; see `normalize_buffers`."""
        return normalize_buffers(self.name, data, offsets, keep)

    def final_boundary(self, data: bytes) -> int:
        """Return the last place at which a text can be cut; see the function `final_boundary`."""
        return final_boundary(self.name, data)


def normalize(name: str | None, text: str) -> str:
    """Normalize one text."""
    for step in steps_of(name):
        text = STEPS[step](text)
    return text


def normalize_buffers(
    name: str | None,
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    keep: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Normalize each document of a buffer separately.

    Args:
        name: the normalizer; None changes nothing.
        data: uint8, shape (num_bytes,); UTF-8.
        offsets: int64, shape (n + 1,).
        keep: shape (n,); True where a document is left as it is (a special token).

    Returns:
        The new buffer and its offsets. Bytes that are not UTF-8 stay as they are.
    """
    steps = steps_of(name)
    part = data[offsets[0] : offsets[-1]]
    if not steps:
        return data, offsets
    if not (part >= _ASCII_BYTES).any():
        if not _CHANGES_ASCII.intersection(steps):
            return data, offsets
        return _normalize_ascii(name, part, offsets - offsets[0], keep)
    whole, cuts = part.tobytes(), (offsets - offsets[0]).tolist()
    texts = []
    for i in range(len(cuts) - 1):
        text = whole[cuts[i] : cuts[i + 1]]
        texts.append(text if keep is not None and keep[i] else _normalized(steps, text))
    return pack_bytes(texts)


def _normalize_ascii(
    name: str | None,
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    keep: NDArray[np.bool_] | None,
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Normalize documents of ASCII alone: all bytes at a time; see `normalize_buffers`."""
    becomes, stays = _ascii_table(name)
    normalized, remains = becomes[data], stays[data]
    for i in np.flatnonzero(keep) if keep is not None else ():
        normalized[offsets[i] : offsets[i + 1]] = data[offsets[i] : offsets[i + 1]]
        remains[offsets[i] : offsets[i + 1]] = True
    if remains.all():
        return normalized, offsets
    left = np.concatenate([np.zeros(1, np.int64), np.cumsum(remains)])
    return normalized[remains], left[offsets]


@functools.cache
def _ascii_table(name: str | None) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return what becomes of each ASCII character, and whether it stays, each of shape (128,)."""
    found = [normalize(name, chr(byte)) for byte in range(_ASCII_BYTES)]
    becomes = np.array([ord(text or "\0") for text in found], np.uint8)
    return becomes, np.array([bool(text) for text in found])


def _normalized(steps: tuple[str, ...], data: bytes) -> bytes:
    text = data.decode("utf-8", "surrogateescape")
    for step in steps:
        text = STEPS[step](text)
    return text.encode("utf-8", "surrogateescape")


def final_boundary(name: str | None, data: bytes) -> int:
    """Return the last place at which a text can be cut without changing its normalized form.

    Args:
        name: the normalizer.
        data: UTF-8 that ends between characters; more text may follow.

    Returns:
        `b`, such that normalizing `data[:b]` and `data[b:] + more` separately gives the normalized whole, for
        any `more`. It is safe to cut before a character that neither joins nor moves before another one.
    """
    if not _COMPOSING.intersection(steps_of(name)):
        return len(data)
    place = len(data)
    for character in reversed(data.decode("utf-8", "surrogateescape")):
        place -= len(character.encode("utf-8", "surrogateescape"))
        if begins_anew(character):
            return place
    return 0


def begins_anew(character: str) -> bool:
    """Whether no normalization form joins this character to the one before it, or moves it before that one.

    It errs on the safe side: characters beyond the Basic Multilingual Plane and all marks count as joining.
    Source: Unicode Standard Annex 15, "Concatenation of normalized strings".
    """
    first = unicodedata.normalize("NFKD", character)[0]
    return (
        first <= "\uffff"
        and unicodedata.combining(first) == 0
        and unicodedata.category(first)[0] != "M"
        and not _VOWEL_JAMO <= first <= _LAST_JAMO
    )
