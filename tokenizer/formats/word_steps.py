"""Pre-tokenizer steps of a `tokenizer.json` that leave white space out, for pieces that make up words.

The split patterns `bert`, `whitespace` and `whitespace_split` are written as the steps of these names, any
other one as `Split` steps with a `WhitespaceSplit` after them. The tables of `BertPreTokenizer` are those of
Unicode 8, so it cuts newer punctuation otherwise.
"""

from collections.abc import Sequence
from typing import Any

from tokmill.tokenizer.formats.split_steps import check_chain, read_split, refusal, split_steps
from tokmill.tokenizer.splitting import SPLIT_PATTERNS

Json = dict[str, Any]

BERT = (SPLIT_PATTERNS["bert"],)
WORDS = SPLIT_PATTERNS["whitespace_split"]
"""The expression of words alone."""

WHOLE_STEPS = {
    BERT: {"type": "BertPreTokenizer"},
    (WORDS,): {"type": "WhitespaceSplit"},
    (SPLIT_PATTERNS["whitespace"],): {"type": "Whitespace"},
}
"""Steps that leave white space out, and the chains that they stand for."""

_CHAINS = {step["type"]: chain for chain, step in WHOLE_STEPS.items()}
_SCRIPTS = SPLIT_PATTERNS["unicode_scripts"]
_SPACES = frozenset({r"\s", r"\s+"})
_NOT_SPACES = frozenset({r"\S+", r"[^\s]+"})
_RUST_WORDS = r"\w+|[^\w\s]+"
_STEPS = ", UnicodeScripts, BertPreTokenizer, Whitespace and WhitespaceSplit"


def write_steps(chain: tuple[str, ...], *, exact: bool) -> list[Json]:
    """Spell a chain of expressions as steps, the last of which leaves white space out."""
    if chain in WHOLE_STEPS:
        return [WHOLE_STEPS[chain]]
    check_chain([expression for expression in chain if expression != _SCRIPTS])
    steps = [_step(expression, exact=exact) for expression in chain]
    return [*steps, {"type": "WhitespaceSplit"}]


def _step(expression: str, *, exact: bool) -> Json:
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
        known = _CHAINS.get(_without_spaces(step))
        by_scripts = step["type"] == "UnicodeScripts"
        chain += known or (_SCRIPTS if by_scripts else read_split(step, where, _STEPS),)
        loses_spaces = loses_spaces or known is not None
    if not loses_spaces:
        types = [step["type"] for step in steps]
        raise refusal(
            where, "pre_tokenizer", types, "a step must leave white space out, e.g. WhitespaceSplit"
        )
    return tuple(chain[:-1] if len(chain) > 1 and chain[-1] == WORDS else chain)


def _without_spaces(step: Json) -> str:
    """Return which step that leaves white space, and nothing else, out a step is; "" if it is none."""
    if step["type"] != "Split" or step["behavior"] != "Removed":
        return str(step["type"])
    expression = step["pattern"].get("Regex")
    if step.get("invert") and expression == _RUST_WORDS:
        return "Whitespace"
    return "WhitespaceSplit" if expression in (_NOT_SPACES if step.get("invert") else _SPACES) else ""
