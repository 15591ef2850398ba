r"""The steps of normalizers, and how they are spelled.

A normalizer is spelled as its steps joined with `+`: `nfkc+lowercase`. Some steps take arguments, which are
written as JSON's strings: `replace("``","\"")+prepend(" ")`.

| step | meaning |
| --- | --- |
| `nfc`, `nfd`, `nfkc`, `nfkd` | Unicode's normalization forms |
| `lowercase` | each character by itself (a capital sigma always becomes σ), as in Hugging Face's tokenizers |
| `strip_accents` | removes marks (category M); meant to follow `nfd` or `nfkd` |
| `strip_nonspacing` | decomposes (NFD), and removes nonspacing marks (Mn) alone, as BERT does |
| `bert_clean` | makes a space of white space; removes controls and the like (Cc, Cf, Co) and U+FFFD |
| `nmt` | removes controls, and makes a space of line ends, tabs and characters without width |
| `cjk_spaces` | puts a space on either side of each ideograph |
| `replace("old","new")` | puts `new` in the place of each `old`, from left to right |
| `replace_pattern("old","new")` | the same for each match of a regular expression; `new` is taken as it is |
| `prepend("text")` | puts a text before a text that is not empty |
| `strip`, `strip_left`, `strip_right` | removes white space (White_Space) at both ends, or at one |

Unicode tables are those of `unicodedata2`, equal on every Python, and for expressions those of `regex`.
"""

import functools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import regex
import unicodedata2 as unicodedata

from tokmill.tokenizer.core.errors import PatternError, TokenizerError
from tokmill.tokenizer.splitting.fallback import (
    budget_of,
    compile_regex,
    empty_match,
)

Normalize = Callable[[str], str]

MAX_STEPS = 16
MAX_CHARS = 10_000
WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
)
"""The characters of Unicode's property White_Space; `str.isspace` has four controls more."""

_SPELLED = re.compile(r'([a-z_]+)(?:\(((?:"(?:[^"\\]|\\.)*"(?:, ?(?="))?)+)\))?(?:\+(?=.)|\Z)', re.DOTALL)


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
    decomposed: str = unicodedata.normalize("NFD", text)
    return decomposed.translate(_NONSPACING)


_NMT_REMOVED = (*range(1, 9), 0xB, *range(0xE, 0x20), 0x7F, 0x8F, 0x9F)
_NMT_SPACES = (9, 0xA, 0xC, 0xD, 0x1680, *range(0x200B, 0x2010), 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD)
_NMT: dict[int, str | None] = {**dict.fromkeys(_NMT_REMOVED), **dict.fromkeys(_NMT_SPACES, " ")}


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
        "nmt": lambda text: text.translate(_NMT),
        "strip": lambda text: text.strip(WHITE_SPACE),
        "strip_left": lambda text: text.lstrip(WHITE_SPACE),
        "strip_right": lambda text: text.rstrip(WHITE_SPACE),
    }
)
"""The steps without arguments by name."""


def _replace(old: str, new: str) -> Normalize:
    if not old:
        raise TokenizerError('normalizer: replace("", …) would put text between all characters; name a text')
    return lambda text: text.replace(old, new)


def _replace_pattern(old: str, new: str) -> Normalize:
    try:
        compiled = compile_regex(old)
    except PatternError as error:
        raise TokenizerError(f"normalizer: replace_pattern({old!r:.200}, …): {error}") from error

    def found(match: regex.Match[str]) -> str:
        if match.start() == match.end():
            raise empty_match(old)
        return new

    def change(text: str) -> str:
        try:
            with budget_of(old).spending(text) as seconds:
                changed: str = compiled.sub(found, text, timeout=seconds)
        except TimeoutError:
            raise TokenizerError(
                f"normalizer: replace_pattern({old!r:.200}, …) takes a hundred times as long as others, last "
                f"for {len(text)} characters; write it so that there is one way to match a text"
            ) from None
        return changed

    return change


def _prepend(added: str) -> Normalize:
    return lambda text: added + text if text else text


_WITH_ARGUMENTS: MappingProxyType[str, tuple[int, Callable[..., Normalize]]] = MappingProxyType(
    {"replace": (2, _replace), "replace_pattern": (2, _replace_pattern), "prepend": (1, _prepend)}
)
"""For each step with arguments their number, and what makes the step of them."""

KNOWN = (*STEPS, 'replace("old","new")', 'replace_pattern("old","new")', 'prepend("text")')


@dataclass(frozen=True)
class Step:
    """One step of a normalizer.

    Attributes:
        name: which one.
        arguments: texts.
    """

    name: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        texts = ",".join(json.dumps(text, ensure_ascii=False) for text in self.arguments)
        return f"{self.name}({texts})" if texts else self.name

    @property
    def change(self) -> Normalize:
        """What it does to a text."""
        return _change_of(self)


@functools.lru_cache(maxsize=128)
def _change_of(step: Step) -> Normalize:
    if step.name in STEPS and not step.arguments:
        return STEPS[step.name]
    number, make = _WITH_ARGUMENTS.get(step.name, (-1, _prepend))
    if len(step.arguments) != number:
        raise TokenizerError(f"{str(step)!r:.200} is not known; use None, or, joined with +, {_KNOWN_STEPS}")
    return make(*step.arguments)


_KNOWN_STEPS = f"steps from {', '.join(KNOWN)}"


@functools.lru_cache(maxsize=128)
def _parsed(name: str) -> tuple[Step, ...]:
    steps, position = list[Step](), 0
    while position < len(name) or not steps:
        found = _SPELLED.match(name, position)
        if found is None:
            raise TokenizerError(
                f"normalizer={name!r:.200}: {name[position : position + 80]!r} is not known; use None, or, "
                f"joined with +, {_KNOWN_STEPS}"
            )
        position = found.end()
        steps.append(Step(found[1], _texts(found[2] or "", name)))
    return tuple(steps)


def _texts(written: str, name: str) -> tuple[str, ...]:
    try:
        texts = tuple(json.loads(f"[{written}]"))
        "".join(texts).encode()
    except ValueError as error:  # no JSON, or a lone surrogate
        raise TokenizerError(
            f"normalizer={name!r:.200}: {written!r:.200} must be texts as in JSON, with a comma between two "
            f"({error})"
        ) from None
    return texts


def steps_of(name: str | None) -> tuple[Step, ...]:
    """Return the steps that a normalizer's name stands for."""
    if name is None:
        return ()
    steps = _parsed(name) if isinstance(name, str) and len(name) <= MAX_CHARS else ()
    if not 0 < len(steps) <= MAX_STEPS:
        raise TokenizerError(
            f"normalizer={name!r:.200} must be None or at most {MAX_STEPS} steps joined with +, "
            f"{_KNOWN_STEPS}, in at most {MAX_CHARS} characters"
        )
    for step in steps:
        try:
            _change_of(step)
        except TokenizerError as error:
            raise TokenizerError(f"normalizer={name!r:.200}: {error}") from error
    return steps


def spelled(steps: tuple[Step, ...]) -> str | None:
    """Return the name of a normalizer of these steps; None for none."""
    return "+".join(map(str, steps)) or None
