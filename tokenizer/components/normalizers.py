"""Normalizers: changes to text before it is cut into pre-tokens.

They lose information: decoding gives the normalized text back. A normalizer is named by its steps,
joined with `+`: `nfc`, `nfd`, `nfkc`, `nfkd`, `lowercase`, `strip_accents`, e.g. `nfkc+lowercase`. None
changes nothing. Special tokens are cut out of the text *before* it is normalized, so that no ordinary text
can become a special token on the way.

`lowercase` takes each character by itself (a capital sigma always becomes σ), as Hugging Face does.
`strip_accents` removes marks (category M) and is meant to follow `nfd` or `nfkd`.
Unicode tables are those of Python's `unicodedata` (`unicodedata.unidata_version`).
"""

import functools
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.errors import TokenizerError

Normalize = Callable[[str], str]


def _lowercase(text: str) -> str:
    return text.lower() if "Σ" not in text else "".join(map(str.lower, text))


def _strip_accents(text: str) -> str:
    return "".join(character for character in text if unicodedata.category(character)[0] != "M")


STEPS: MappingProxyType[str, Normalize] = MappingProxyType(
    {
        "nfc": functools.partial(unicodedata.normalize, "NFC"),
        "nfd": functools.partial(unicodedata.normalize, "NFD"),
        "nfkc": functools.partial(unicodedata.normalize, "NFKC"),
        "nfkd": functools.partial(unicodedata.normalize, "NFKD"),
        "lowercase": _lowercase,
        "strip_accents": _strip_accents,
    }
)
"""The steps by name."""

_COMPOSING = frozenset({"nfc", "nfd", "nfkc", "nfkd"})
_VOWEL_JAMO, _LAST_JAMO = "\u1160", "\u11ff"  # Hangul vowels and finals, which join the letter before
MAX_STEPS = 16
_CHANGES_ASCII = frozenset({"lowercase"})


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
    """A normalizer, as a part of a tokenizer.

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
    if not steps or (not _CHANGES_ASCII.intersection(steps) and not (part >= 0x80).any()):
        return data, offsets
    whole, cuts = part.tobytes(), (offsets - offsets[0]).tolist()
    texts = []
    for i in range(len(cuts) - 1):
        text = whole[cuts[i] : cuts[i + 1]]
        texts.append(text if keep is not None and keep[i] else _normalized(steps, text))
    return pack_bytes(texts)


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
