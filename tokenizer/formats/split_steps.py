"""The pre-tokenizer steps of a `tokenizer.json`: expressions checked as they are written, and read back.

Other libraries recognize the splits of published models by their text, so a chain is written in that text:
GPT-2's as `use_regex` of `ByteLevel`, digits one by one as `Digits`. Every other expression is a `Split` that
isolates its matches. Files of cl100k cut white space at the end of a text after its last line break, as
tiktoken once did; `exact` does not, for tokenizers 0.2x. For pieces of words, steps leave white space out:
`bert`, `whitespace` and `whitespace_split` by name, any other pattern with a `WhitespaceSplit` after it.
`BertPreTokenizer` has the tables of Unicode 8, so it cuts newer punctuation otherwise.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import regex

from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.splitting import SPLIT_CHAINS, SPLIT_PATTERNS
from tokmill.tokenizer.splitting.patterns import WORD_CHARACTER, Behavior, with_behavior

Json = dict[str, Any]

SINGLE_DIGITS = r"\p{N}"
_LAST_OF_DEEPSEEK = SPLIT_CHAINS["deepseek_v3"][-1]

_SPELLINGS = MappingProxyType(
    {_LAST_OF_DEEPSEEK: _LAST_OF_DEEPSEEK.replace(r"\r", "\r").replace(r"\n", "\n")}
)
_NEAR_SPELLINGS = MappingProxyType({SPLIT_PATTERNS["cl100k"]: SPLIT_PATTERNS["llama3"]})
_READ = MappingProxyType({spelling: expression for expression, spelling in _SPELLINGS.items()})


def difference(chain: Sequence[str]) -> str | None:
    """Describe how the published spelling of a chain cuts differently from the chain itself, if it does."""
    if not any(expression in _NEAR_SPELLINGS for expression in chain):
        return None
    return (
        "text that ends in a line break and then blanks is cut after the line break, as published files of "
        "cl100k have it; format='huggingface_exact' takes it whole, as tiktoken does, for tokenizers 0.2x"
    )


def write_chain(chain: Sequence[str], *, exact: bool) -> list[Json]:
    """Spell a chain of expressions as pre-tokenizer steps, `ByteLevel` last."""
    by_bytes = chain[-1] == SPLIT_PATTERNS["gpt2"]
    steps = split_steps(chain[: len(chain) - by_bytes], exact=exact)
    return [*steps, byte_level(use_regex=by_bytes)]


def split_steps(chain: Sequence[str], *, exact: bool) -> list[Json]:
    """Spell a chain of expressions as steps that isolate matches; see `write_chain`."""
    known = _SPELLINGS if exact else _SPELLINGS | _NEAR_SPELLINGS
    return [_step(expression, known.get(expression, expression)) for expression in chain]


def _step(expression: str, spelling: str) -> Json:
    if expression == SINGLE_DIGITS:
        return {"type": "Digits", "individual_digits": True}
    return {"type": "Split", "pattern": {"Regex": spelling}, "behavior": "Isolated", "invert": False}


def byte_level(*, use_regex: bool) -> Json:
    """Return the step that writes text in GPT-2's byte alphabet, after GPT-2's split if requested."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def read_expression(spelling: str) -> str:
    """Return our text of an expression that published files spell differently."""
    return _READ.get(spelling, spelling)


# What Oniguruma, the engine of `tokenizers`, reads in another way than `regex` does, or refuses. Outside of
# escapes and classes: `{1,3}+` is not possessive there, `$` and `^` match at every line, and these escapes
# mean other sets of characters. Options other than `i` and `x` are unknown, or mean something else; one that
# does not come first ends elsewhere; and some kinds of groups are unknown.
_OTHERWISE = regex.compile(
    r"\}\+|(?<!\[)\^|\$|\\[dDwWbBhHRXAZzG]|(?!\A)\(\?[ix-]+\)|\(\?(?!<?[=!]|[:>#]|<\w|[ix-]+[:)])"
)
_NOT_SYNTAX = regex.compile(r"\\[pP]\{[^}]*\}|\\[^dDwWbBhHRXAZzG]|\[\^?\]?(?:\\.|[^\]\\])*\]", regex.DOTALL)
# In classes, too: escapes that mean another set or the letter itself, properties that have no braces or are
# unknown there, and `~~` and `--`, which are not operations there.
_OTHERWISE_EVERYWHERE = regex.compile(
    r"\\\\(*SKIP)(*FAIL)|\\[wWhHNULMmRX]|\\[pP](?!\{)|\\[pP]\{\^?(?:Is\w+|LC|[^}]*[=:&][^}]*)\}"
    r"|\[:\^?punct:\]|\[[^\]]*?\K(?:~~|--)"
)
# Files of others may have them: a line break that could make a difference is mostly cut off by a step before.
_MOSTLY_ALIKE = frozenset({"^", "$", r"\d", r"\D", r"\b", r"\B"})


# Oniguruma's `\w` is Rust's without joiners; outside of classes, six numbers of Latin-1 are in it, too.
_WORD_IN_CLASSES = WORD_CHARACTER.replace(r"\p{Join_Control}", "")
_ONIGURUMA_WORD = f"{_WORD_IN_CLASSES}²³¹¼½¾"
_AFTER, _BEFORE = f"(?<=[{_ONIGURUMA_WORD}])", f"(?=[{_ONIGURUMA_WORD}])"
_NOT_AFTER, _NOT_BEFORE = f"(?<![{_ONIGURUMA_WORD}])", f"(?![{_ONIGURUMA_WORD}])"
_BOUNDARIES = {
    r"\b": f"(?:{_AFTER}{_NOT_BEFORE}|{_NOT_AFTER}{_BEFORE})",
    r"\B": f"(?:{_AFTER}{_BEFORE}|{_NOT_AFTER}{_NOT_BEFORE})",
}
_BOUNDARY = regex.compile(r"(?:\\\\|\[\^?\]?(?:\\.|[^\]\\])*\])(*SKIP)(*FAIL)|\\[bB]", regex.DOTALL)


def refusal(where: str, key: str, value: object, rule: str) -> FormatError:
    """Return the error for a value that cannot be read."""
    return FormatError(f"{where}: {key}={value!r:.200}, but {rule}")


def check_chain(chain: Sequence[str]) -> None:
    """Check that `tokenizers` reads a chain of expressions as we do."""
    for expression in chain:
        otherwise = read_otherwise(expression)
        if otherwise:
            raise FormatError(
                f"format='huggingface' cannot express split_pattern={expression!r}: the tokenizers library "
                f"reads {otherwise[0]!r} in another way; write it otherwise, or use format='tokmill'"
            )


def read_otherwise(expression: str) -> list[str]:
    """Return the parts of an expression that `tokenizers` reads differently, or not at all."""
    bare = _NOT_SYNTAX.sub("", expression)
    found = [*_OTHERWISE_EVERYWHERE.finditer(expression), *_OTHERWISE.finditer(bare)]
    return [match[0] for match in found]


def in_sequence(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Return several steps as one."""
    return {"type": "Sequence", "pretokenizers": steps} if len(steps) > 1 else steps[0]


def steps_of(value: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the steps of a pre-tokenizer, those of sequences in sequences, too; none without one."""
    if not value:
        return []
    if "pretokenizers" not in value:
        return [value]
    return [step for part in value["pretokenizers"] for step in steps_of(part)]


def read_split(step: dict[str, Any], where: str) -> str:
    """Read the expression of one step."""
    if step["type"] == "Digits":
        return SINGLE_DIGITS if step["individual_digits"] else r"\p{N}+"
    if step["type"] == "Punctuation":
        return _behaving(SPLIT_PATTERNS["punctuation"], step.get("behavior", "Isolated"), where)
    if step["type"] != "Split":
        reason = _REFUSED.get(step["type"], _CAN_BE_READ)
        raise refusal(where, "pre_tokenizer.type", step["type"], reason)
    pattern, behavior, invert = step["pattern"], step["behavior"], bool(step.get("invert"))
    expression: str = pattern["Regex"] if "Regex" in pattern else regex.escape(pattern["String"])
    # Taking the matches and dropping the rest is the same where nothing is left over.
    if behavior == "Removed" and invert and expression in _MATCH_EVERYTHING:
        behavior = "Isolated"
    for part in read_otherwise(expression):
        if part not in _MOSTLY_ALIKE:
            rule = f"the tokenizers library reads {part!r} in another way than tokmill"
            raise refusal(where, "pre_tokenizer: Split.pattern", expression, rule)
    if invert and behavior not in {"Isolated", "Removed"}:
        raise refusal(where, "pre_tokenizer: Split.invert", True, f"{behavior} can be done without it only")
    expression = _BOUNDARY.sub(lambda found: _BOUNDARIES[found[0]], read_expression(expression))
    return _behaving(expression, behavior, where)


_CAN_BE_READ = (
    "only Split, Punctuation, Digits, ByteLevel at the end of byte-level ones, and for words UnicodeScripts, "
    "BertPreTokenizer, Whitespace and WhitespaceSplit can be read"
)
_LEAVE_STRETCHES = {"punctuation", "unicode_scripts"}
_MATCH_EVERYTHING = {SPLIT_PATTERNS[name] for name in SPLIT_PATTERNS if name not in _LEAVE_STRETCHES}
_REFUSED = {
    "UnicodeScripts": "it leaves out the spaces that a text begins with, which only the families wordpiece "
    "and word_bpe have no use for",
    "CharDelimiterSplit": "it leaves its delimiter out of the text, which cannot be done here",
    **dict.fromkeys(
        ("Whitespace", "WhitespaceSplit", "BertPreTokenizer"),
        "it leaves white space out, which only the families wordpiece and word_bpe do",
    ),
}


def _behaving(expression: str, behavior: str, where: str) -> str:
    """Return the expression for the behavior of a step."""
    if behavior not in _BEHAVIORS:
        rule = "it leaves text out, which cannot be done here; only " + ", ".join(_BEHAVIORS) + " can be"
        raise refusal(where, "pre_tokenizer: behavior", behavior, rule)
    return with_behavior(expression, _BEHAVIORS[behavior])


_BEHAVIORS: Mapping[str, Behavior] = {
    "Isolated": "isolated",
    "Contiguous": "contiguous",
    "MergedWithPrevious": "merged_with_previous",
    "MergedWithNext": "merged_with_next",
}


def named(chain: tuple[str, ...]) -> str | tuple[str, ...]:
    """Return the name of a chain that has one; words had none at first, and stay as they were."""
    for name, expression in SPLIT_PATTERNS.items():
        if chain == (expression,) and name != "whitespace_split":
            return name
    return chain[0] if len(chain) == 1 else chain


BERT = (SPLIT_PATTERNS["bert"],)
WORDS = SPLIT_PATTERNS["whitespace_split"]
"""The expression of words alone."""

_ONIGURUMA_WORDS = (rf"\s+|[{_ONIGURUMA_WORD}]+|[^\s{_WORD_IN_CLASSES}]+",)
_SPLIT = {"type": "Split", "pattern": {"Regex": r"\w+|[^\w\s]+"}, "behavior": "Removed", "invert": True}

WHOLE_STEPS: Mapping[tuple[str, ...], Json] = {
    BERT: {"type": "BertPreTokenizer"},
    (WORDS,): {"type": "WhitespaceSplit"},
    (SPLIT_PATTERNS["whitespace"],): {"type": "Whitespace"},
    _ONIGURUMA_WORDS: _SPLIT,
}
"""Steps that leave white space out, and the chains that they stand for."""

_CHAINS = {step["type"]: chain for chain, step in WHOLE_STEPS.items() if step is not _SPLIT}
_SCRIPTS = SPLIT_PATTERNS["unicode_scripts"]
_SPACES = frozenset({r"\s", r"\s+"})
_NOT_SPACES = frozenset({r"\S+", r"[^\s]+"})


def write_steps(chain: tuple[str, ...], *, exact: bool) -> list[Json]:
    """Spell a chain of expressions as steps, the last of which leaves white space out."""
    if chain in WHOLE_STEPS:
        return [WHOLE_STEPS[chain]]
    check_chain([expression for expression in chain if expression != _SCRIPTS])
    steps = [_word_step(expression, exact=exact) for expression in chain]
    return [*steps, {"type": "WhitespaceSplit"}]


def _word_step(expression: str, *, exact: bool) -> Json:
    if expression == _SCRIPTS:
        return {"type": "UnicodeScripts"}
    (step,) = split_steps([expression], exact=exact)
    return step


def read_steps(steps: Sequence[Json], family: str, where: str) -> tuple[str, ...]:
    """Return the chain of expressions of steps; white space is left out by the model."""
    if not steps:
        raise refusal(where, "pre_tokenizer", None, f"a {family} model needs one that leaves white space out")
    chain = list[str]()
    loses_spaces = False
    for step in steps:
        known = _whole_chain(step)
        by_scripts = step["type"] == "UnicodeScripts"
        chain += known or (_SCRIPTS if by_scripts else read_split(step, where),)
        loses_spaces = loses_spaces or known is not None
    if not loses_spaces:
        types = [step["type"] for step in steps]
        raise refusal(
            where, "pre_tokenizer", types, "a step must leave white space out, e.g. WhitespaceSplit"
        )
    return tuple(chain[:-1] if len(chain) > 1 and chain[-1] == WORDS else chain)


def _whole_chain(step: Json) -> tuple[str, ...] | None:
    """Return the chain of a step that leaves white space, and nothing else, out; None for another step."""
    if step["type"] != "Split" or step["behavior"] != "Removed":
        return _CHAINS.get(step["type"])
    expression, invert = step["pattern"].get("Regex"), bool(step.get("invert"))
    if invert and step["pattern"] == _SPLIT["pattern"]:
        return _ONIGURUMA_WORDS
    return (WORDS,) if expression in (_NOT_SPACES if invert else _SPACES) else None
