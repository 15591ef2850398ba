"""Normalizers: changes to text before it is cut into pre-tokens, named by their steps joined with `+`.

Decoding gives the normalized text back. Special tokens are cut out of the text *before* it is normalized, and
the text between two of them is a text of its own. Steps are functions of a text, slow and plain; over
buffers, kernels run those that change each character by itself (`character_maps`), and Unicode's forms
(`forms`).
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import unicodedata2 as unicodedata
from numpy.typing import NDArray

from tokmill.tokenizer.components.character_maps import Buffers, CharacterMap
from tokmill.tokenizer.components.forms import Form, FormMap
from tokmill.tokenizer.components.normalizer_steps import MAX_STEPS, STEPS, Step, spelled, steps_of
from tokmill.tokenizer.core.buffers import pack_bytes

__all__ = ["MAX_STEPS", "STEPS", "Normalizer", "Step", "normalize", "normalize_buffers", "steps_of"]

_COMPOSING = frozenset({"nfc", "nfd", "nfkc", "nfkd", "strip_nonspacing"})
_FORMS: Mapping[str, Form] = {"nfc": "NFC", "nfd": "NFD", "nfkc": "NFKC", "nfkd": "NFKD"}
_PER_CHARACTER = frozenset(
    {"lowercase", "strip_accents", "strip_nonspacing", "cjk_spaces", "bert_clean", "nmt"}
)
_OF_WHOLE_TEXTS = frozenset({"strip", "strip_left", "strip_right", "prepend", "replace", "replace_pattern"})
_VOWEL_JAMO, _LAST_JAMO = "\u1160", "\u11ff"  # Hangul vowels and finals, which join the letter before


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
        object.__setattr__(self, "name", spelled(steps_of(self.name)))

    def spec(self) -> str | None:
        """Return the normalizer as JSON-able data: its name."""
        return self.name

    def text(self, text: str, *, first: bool = True) -> str:
        """Normalize one text."""
        return normalize(self.name, text)

    def buffers(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        keep: NDArray[np.bool_] | None = None,
        first: NDArray[np.bool_] | None = None,
    ) -> Buffers:
        """Normalize each document of a buffer separately; see `normalize_buffers`."""
        return normalize_buffers(self.name, data, offsets, keep)

    @property
    def characters(self) -> CharacterMap | None:
        """What becomes of each character, if all steps together change each by itself; else None."""
        runs = _runs_of(self.name)
        return runs[0] if len(runs) == 1 and isinstance(runs[0], CharacterMap) else None

    def final_boundary(self, data: bytes) -> int:
        """Return the last place at which a text can be cut; see the function `final_boundary`."""
        return final_boundary(self.name, data)


def normalize(name: str | None, text: str) -> str:
    """Normalize one text."""
    return _changed(steps_of(name), text)


def _changed(steps: Sequence[Step], text: str) -> str:
    for step in steps:
        text = step.change(text)
    return text


def normalize_buffers(
    name: str | None,
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    keep: NDArray[np.bool_] | None = None,
) -> Buffers:
    """Normalize each document of a buffer separately.

    Args:
        name: the normalizer; None changes nothing.
        data: uint8, shape (num_bytes,); UTF-8.
        offsets: int64, shape (n + 1,).
        keep: shape (n,); True where a document is left as it is (a special token).

    Returns:
        The new buffer and its offsets. Bytes that are not UTF-8 stay as they are.
    """
    for run in _runs_of(name):
        if isinstance(run, tuple):
            data, offsets = _changed_buffers(run, data, offsets, keep)
        else:
            data, offsets = run.buffers(data, offsets, keep)
    return data, offsets


@functools.lru_cache(maxsize=32)
def _runs_of(name: str | None) -> tuple[CharacterMap | FormMap | tuple[Step, ...], ...]:
    """Return what runs the steps of a normalizer, neighbouring ones of a kind together where that helps."""
    runs = itertools.groupby(steps_of(name), lambda step: (_is_alone(step), step.name in _FORMS and step))
    return tuple(_run_of(tuple(run)) for _, run in runs)


def _run_of(steps: tuple[Step, ...]) -> CharacterMap | FormMap | tuple[Step, ...]:
    if _is_alone(steps[0]):
        return CharacterMap(functools.partial(_changed, steps), functools.partial(_changes_order, steps))
    return _form_map(_FORMS[steps[0].name]) if steps[0].name in _FORMS else steps


@functools.lru_cache(maxsize=4)
def _form_map(form: Form) -> FormMap:
    return FormMap(form)


def _is_alone(step: Step) -> bool:
    """Whether a step changes each character by itself."""
    return step.name in _PER_CHARACTER or (step.name == "replace" and len(step.arguments[0]) == 1)


def _changes_order(steps: tuple[Step, ...], character: str) -> bool:
    """Whether a mark is left of a character that decomposition may put elsewhere."""
    for step in steps:
        if step.name == "strip_nonspacing" and any(
            unicodedata.combining(part) and unicodedata.category(part) != "Mn"
            for part in unicodedata.normalize("NFD", character)
        ):
            return True
        character = step.change(character)
    return False


def _changed_buffers(
    steps: tuple[Step, ...],
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    keep: NDArray[np.bool_] | None,
) -> Buffers:
    """Normalize document by document; see `normalize_buffers`."""
    whole, cuts = data[offsets[0] : offsets[-1]].tobytes(), (offsets - offsets[0]).tolist()
    texts = []
    for i in range(len(cuts) - 1):
        text = whole[cuts[i] : cuts[i + 1]]
        if keep is None or not keep[i]:
            changed = _changed(steps, text.decode("utf-8", "surrogateescape"))
            text = changed.encode("utf-8", "surrogateescape")
        texts.append(text)
    return pack_bytes(texts)


def final_boundary(name: str | None, data: bytes) -> int:
    """Return the last place at which a text can be cut without changing its normalized form.

    Args:
        name: the normalizer.
        data: UTF-8 that ends between characters; more text may follow.

    Returns:
        `b`, such that normalizing `data[:b]` and `data[b:] + more` separately gives the normalized whole, for
        any `more`. It is safe to cut before a character that neither joins nor moves before another one; with
        a step that looks at the whole text there is no such place but 0.
    """
    steps = steps_of(name)
    composes = any(step.name in _COMPOSING for step in steps)
    if any(step.name in _OF_WHOLE_TEXTS and (composes or not _is_alone(step)) for step in steps):
        return 0
    if not composes:
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
