"""The named split patterns, and the chain of expressions of a name, an expression or a chain.

A pre-tokenizer is a *chain* of regular expressions: the first cuts the text into its matches and the
stretches between them, and every part is cut by the next one, which sees nothing around it. `digits` puts one
more in front. The expressions are equivalent to the published ones, in a form that `regex`, Oniguruma and
Rust's engines read alike; tests compare them. Sources: openai/gpt-2, tiktoken and CLIP; `tokenizer.json`
files of Llama 3, Qwen 2 and DeepSeek V3; Stanford CS336, assignment 1; google-research/bert.
"""

import difflib
import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import PatternError
from tokmill.tokenizer.kernels.split import SplitTables, count_groups, write_groups

_FORM = re.compile(
    r"(?P<one>\\[pP]\{\w+\}|\\d|\[[^\[\]\\^&~|-]-[^\[\]\\^&~|-]\])"
    r"\{1,(?P<size>[1-9]\d?)\}\(\?=\(\?:(?P=one)\{(?P=size)\}\)\*\(\?!(?P=one)\)\)"
)


class Groups(NamedTuple):
    """What an expression of this form cuts.

    Attributes:
        runs: the expression of the runs.
        size: characters per group; the first group of a run may have fewer.
    """

    runs: str
    size: int


def from_right(one: str, size: int) -> str:
    r"""Return the expression that cuts runs of characters into groups from the right: 1|234|567.

    Engines match `\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))` in quadratic time, so the form is recognized
    (`groups_of`), the automaton finds the runs, and a kernel cuts them, in linear time.
    """
    return f"{one}{{1,{size}}}(?=(?:{one}{{{size}}})*(?!{one}))"


def groups_of(expression: str) -> Groups | None:
    """Return what an expression of this form cuts; None for any other one."""
    found = _FORM.fullmatch(expression)
    return None if found is None else Groups(f"{found['one']}+", int(found["size"]))


def cut_groups(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    tables: SplitTables,
    size: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Cut the runs among parts of a text into groups; return starts, ends, and each part's offsets."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    count_groups(data, starts, ends, tables, size, offsets[1:])
    np.cumsum(offsets, out=offsets)
    cuts = np.empty((2, int(offsets[-1])), np.int64)
    write_groups(data, starts, ends, offsets, size, cuts[0], cuts[1])
    return cuts[0], cuts[1], offsets


Digits: TypeAlias = Literal["pattern", "single", "groups_of_three", "groups_of_three_from_right"]
r"""How digits (`\p{N}`) are cut: by the pattern, each alone, or up to three together, from either side."""

PatternLike: TypeAlias = str | Sequence[str]
"""A name, a regular expression, or a chain of regular expressions."""

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_PUNCTUATION = r"!-/:-@\[-`{-~\p{P}"  # of BERT: ASCII's symbols, too
WORD_CHARACTER = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}"  # what Rust's \w is
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

_SCRIPT_NAMES = (
    "Latn Cyrl Hani Zyyy Zinh Hira Kana Hang Arab Deva Grek Hebr Thai Beng Taml Ethi Geor Armn Adlm "
    "Aghb Ahom Armi Avst Bali Bamu Bass Batk Bhks Bopo Brah Brai Bugi Buhd Cakm Cans Cari Cham Cher "
    "Chrs Copt Cpmn Cprt Diak Dogr Dsrt Dupl Egyp Elba Elym Gara Glag Gong Gonm Goth Gran Gujr Gukh "
    "Guru Hano Hatr Hluw Hmng Hmnp Hung Ital Java Kali Kawi Khar Khmr Khoj Kits Knda Krai Kthi Lana "
    "Laoo Lepc Limb Lina Linb Lisu Lyci Lydi Mahj Maka Mand Mani Marc Medf Mend Merc Mero Mlym Modi "
    "Mong Mroo Mtei Mult Mymr Nagm Nand Narb Nbat Newa Nkoo Nshu Ogam Olck Onao Orkh Orya Osge Osma "
    "Ougr Palm Pauc Perm Phag Phli Phlp Phnx Plrd Prti Rjng Rohg Runr Samr Sarb Saur Sgnw Shaw Shrd "
    "Sidd Sind Sinh Sogd Sogo Sora Soyo Sund Sunu Sylo Syrc Tagb Takr Tale Talu Tang Tavt Telu Tfng "
    "Tglg Thaa Tibt Tirh Tnsa Todr Toto Tutg Ugar Vaii Vith Wara Wcho Xpeo Xsux Yezi Yiii Zanb"
)

SCRIPTS = (*_SCRIPT_NAMES.split(),)
"""The scripts of Unicode 16 by their ISO 15924 names, frequent ones first."""

_HAN = r"[\p{sc=Hani}\p{sc=Hira}\p{sc=Kana}ー]"
_ANY = r"[ \p{sc=Zzzz}]"
_COMMON = rf"(?![ ー])\p{{sc=Zyyy}}(?:(?!ー)\p{{sc=Zyyy}}|{_ANY})*"
_MERGED = frozenset({"Hani", "Hira", "Kana", "Zyyy"})


def runs_of_scripts() -> str:
    """Return the expression of `unicode_scripts`: runs of characters of one script.

    Hiragana, Katakana and the long vowel mark count as Han; spaces and characters of no script belong to the
    run before them, and the rest without a script of its own (digits, punctuation, tabs) is Common.
    Source: `UnicodeScripts` of Hugging Face's tokenizers, which leaves out the spaces at the start of a text.
    """
    alone = [rf"\p{{sc={name}}}" for name in SCRIPTS if name not in _MERGED]
    runs = [f"{one}(?:{one}|{_ANY})*" for one in (alone[0], _HAN, *alone[1:])]
    return "|".join([runs[0], _COMMON, *runs[1:]])


_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"

SPLIT_PATTERNS: MappingProxyType[str, str] = MappingProxyType(
    {
        "gpt2": _GPT2,
        "cs336": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        # tiktoken takes white space that ends the text whole, where Llama 3's version cuts it after a newline
        "cl100k": rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
        rf"|\s+(?![\s\S])|{_SPACES}",
        "o200k": rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
        rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}",
        "llama3": _LLAMA3,
        "qwen2": _LLAMA3.replace("{1,3}", ""),
        "clip": r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+|\s+",
        "bert": rf"\s+|[{_PUNCTUATION}]|[^\s{_PUNCTUATION}]+",
        # as the pre-tokenizers of these names in Hugging Face's tokenizers, with white space kept
        "whitespace": rf"\s+|[{WORD_CHARACTER}]+|[^\s{WORD_CHARACTER}]+",
        "whitespace_split": r"\s+|[^\s]+",
        "punctuation": f"[{_PUNCTUATION}]",
        "unicode_scripts": runs_of_scripts(),
    }
)
"""Named patterns that are one regular expression."""

SPLIT_CHAINS: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "starcoder": (r"\p{N}", _GPT2),
        "deepseek_v3": (
            r"\p{N}{1,3}",
            "[一-龥\u3040-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
            r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
        ),
    }
)
"""Named patterns that are a chain of regular expressions."""

MAX_PATTERN_CHARS = 10_000
MAX_CHAIN = 64
_DIGITS = {
    "pattern": (),
    "single": (r"\p{N}",),
    "groups_of_three": (r"\p{N}{1,3}",),
    "groups_of_three_from_right": (from_right(r"\p{N}", 3),),
}
_NAME_LIKE = re.compile(r"[A-Za-z][A-Za-z0-9_-]+")


def resolve(pattern: PatternLike, digits: Digits = "pattern") -> tuple[str, ...]:
    """Return the chain of expressions for a name or an expression, with its digit handling.

    Args:
        pattern: a key of `SPLIT_PATTERNS` or `SPLIT_CHAINS`, a regular expression, or a chain of them.
        digits: see `Digits`.

    Raises:
        PatternError: an unknown name (letters, digits, `_` and `-` only is taken for a name), an empty
            expression or chain, one of more than `MAX_PATTERN_CHARS` or `MAX_CHAIN`, or an unknown digit
            handling.
    """
    if not isinstance(digits, str) or digits not in _DIGITS:
        known = ", ".join(get_args(Digits))
        raise PatternError(f"split_pattern: digits={digits!r} is not known; use one of {known}")
    chain = _named(pattern) if isinstance(pattern, str) else _checked_chain(pattern)
    for expression in chain:
        if not 0 < len(expression) <= MAX_PATTERN_CHARS:
            raise PatternError(
                f"split_pattern={shown(expression)} must hold a regular expression of 1 to "
                f"{MAX_PATTERN_CHARS} characters, not of {len(expression)}; use e.g. 'gpt2'"
            )
    return (*_DIGITS[digits], *chain)


def shown(pattern: object) -> str:
    """Return a pattern for messages: only the beginning, if it is long."""
    text = repr(pattern)
    return text if len(text) <= 300 else f"{text[:300]}…"


def _checked_chain(pattern: Sequence[str]) -> tuple[str, ...]:
    expressions = tuple(pattern) if isinstance(pattern, Sequence) else ()
    if not 0 < len(expressions) <= MAX_CHAIN or not all(isinstance(part, str) for part in expressions):
        raise PatternError(
            f"split_pattern={shown(pattern)} must hold a regular expression, or a list of 1 to {MAX_CHAIN} "
            "of them; use e.g. 'gpt2'"
        )
    return expressions


def _named(pattern: str) -> tuple[str, ...]:
    if pattern in SPLIT_CHAINS:
        return SPLIT_CHAINS[pattern]
    if pattern in SPLIT_PATTERNS:
        return (SPLIT_PATTERNS[pattern],)
    if _NAME_LIKE.fullmatch(pattern):
        names = [*SPLIT_PATTERNS, *SPLIT_CHAINS]
        near = difflib.get_close_matches(pattern, names, n=1, cutoff=0.4) or names
        raise PatternError(
            f"split_pattern={shown(pattern)} is not a known name; did you mean {' or '.join(near)}? "
            f"A regular expression without metacharacters is written (?:{pattern[:300]})"
        )
    return (pattern,)


Behavior: TypeAlias = Literal["isolated", "contiguous", "merged_with_previous", "merged_with_next"]

_FORMS: MappingProxyType[str, str] = MappingProxyType(
    {
        "isolated": "{0}",
        "contiguous": "(?:{0})+",
        "merged_with_previous": r"[\s\S]*?(?:{0})|[\s\S]+",
        "merged_with_next": r"(?:{0})(?:(?!{0})[\s\S])*",
    }
)
_FLAGS = re.compile(r"\(\?[a-zA-Z]+\)")


def with_behavior(expression: str, behavior: Behavior) -> str:
    r"""Return an expression whose isolated matches are the pre-tokens of another one's behavior.

    | behavior | `a--b-c` by `-` | expression |
    | --- | --- | --- |
    | `isolated` | a - - b - c | `P` |
    | `contiguous` | a -- b - c | `(?:P)+` |
    | `merged_with_previous` | a- - b- c | `[\s\S]*?(?:P)\|[\s\S]+` |
    | `merged_with_next` | a - -b -c | `(?:P)(?:(?!P)[\s\S])*` |

    Args:
        expression: what to split by; it matches the same after any text before it.
        behavior: what becomes of its matches.

    Raises:
        PatternError: flags at its beginning would hold for the rest of the new expression, too.
    """
    if behavior != "isolated" and _FLAGS.match(expression):
        raise PatternError(
            f"split_pattern={expression!r:.300} begins with flags, which cannot be combined with "
            f"{behavior}; write them as a group, e.g. (?i:…)"
        )
    return _FORMS[behavior].replace("{0}", expression)
