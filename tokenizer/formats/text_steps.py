"""The normalizers of a `tokenizer.json` that have a table of rules, or a `Metaspace` after them.

Others have the names of `components.normalizers`, which `formats.normalizers` reads and writes.
"""

import base64
import binascii
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from tokmill.tokenizer.components.normalizers import Normalizer
from tokmill.tokenizer.components.sentences import split_charsmap
from tokmill.tokenizer.components.step_normalizer import StepNormalizer
from tokmill.tokenizer.components.steps import Charsmap, Marks, Plain, Step
from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.formats import normalizers
from tokmill.tokenizer.formats.split_steps import refusal
from tokmill.tokenizer.pipeline.model import TextNormalizer

Json = dict[str, Any]

_RULES = "Precompiled"


def read(value: Json | None, where: str, *, loses_spaces: bool) -> list[Step]:
    """Read a normalizer; see `formats.normalizers.read`.

    Raises:
        FormatError: a step cannot be done here, or is damaged; the message names it.
    """
    steps = list[Step]()
    for kind, given in groupby(normalizers.flat(value), key=lambda step: step["type"] == _RULES):
        if kind:
            steps += [_read_charsmap(step["precompiled_charsmap"], where) for step in given]
            continue
        name = normalizers.read({"type": "Sequence", "normalizers": list(given)}, where, loses_spaces)
        steps += [Plain(name)] if name else []
    return steps


def _read_charsmap(encoded: str, where: str) -> Charsmap:
    try:
        charsmap = base64.b64decode(encoded, validate=True)
        split_charsmap(charsmap)[1].tobytes().decode()
    except (binascii.Error, UnicodeDecodeError, FormatError) as error:
        raise FormatError(f"{where}: normalizer: Precompiled.precompiled_charsmap: {error}") from error
    if not charsmap:
        raise refusal(where, "normalizer: Precompiled.precompiled_charsmap", encoded, "it must hold rules")
    return Charsmap(charsmap)


def normalizer_of(steps: Sequence[Step], marks: Marks | None = None) -> TextNormalizer:
    """Put steps together, with what a `Metaspace` does after them.

    Raises:
        FormatError: there are too many.
    """
    every = (*steps, *([marks] if marks else []))
    if not every:
        return Normalizer()
    only = every[0] if len(every) == 1 else None
    return Normalizer(only.name) if isinstance(only, Plain) else StepNormalizer(every)


def write(normalizer: TextNormalizer) -> Json | None:
    """Write a normalizer; `Marks` is left to `metaspace.write`.

    Raises:
        FormatError: it treats white space as SentencePiece does, or `tokenizers` reads a step otherwise.
    """
    if isinstance(normalizer, Normalizer):
        return normalizers.write(normalizer.name)
    if not isinstance(normalizer, StepNormalizer):
        raise FormatError(
            f"format='huggingface' cannot express normalizer={normalizer.name!r}, which treats white space "
            "in a way of its own; use format='sentencepiece' or 'tokmill'"
        )
    steps = [written for step in normalizer.steps for written in _write(step)]
    return {"type": "Sequence", "normalizers": steps} if len(steps) > 1 else steps[0] if steps else None


def _write(step: Step) -> list[Json]:
    match step:
        case Plain(name):
            return normalizers.flat(normalizers.write(name))
        case Charsmap(charsmap):
            return [{"type": _RULES, "precompiled_charsmap": base64.b64encode(charsmap).decode()}]
    return []
