r"""The spellings of splits in published `tokenizer.json` files, which some readers recognize by spelling.

Hugging Face's tokenizers 1.0, gigatoken and fastokens do not run arbitrary regular expressions: they have
code for the splits of published models, and recognize them by the text in those models' files. So a chain is
written in that text: GPT-2's split as the `use_regex` of `ByteLevel`, digits one by one as `Digits`, DeepSeek
V3's with line breaks that are not escaped. Every other expression is a `Split` that isolates its matches.

One spelling differs: `tokenizer.json` files of cl100k cut white space at the end of a text after its last
line break, as tiktoken did at first. Today's tiktoken, and `cl100k` here, keep it whole. Only text that ends
in a line break and then blanks differs; `exact` keeps the difference, for tokenizers 0.2x.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from tokmill.tokenizer.splitting import SPLIT_CHAINS, SPLIT_PATTERNS

Step = dict[str, Any]

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


def write_chain(chain: Sequence[str], *, exact: bool) -> list[Step]:
    """Spell a chain of expressions as pre-tokenizer steps, `ByteLevel` last.

    Args:
        chain: the expressions.
        exact: whether to write the exact split instead of its published spelling.
    """
    by_bytes = chain[-1] == SPLIT_PATTERNS["gpt2"]
    steps = split_steps(chain[: len(chain) - by_bytes], exact=exact)
    return [*steps, byte_level(use_regex=by_bytes)]


def split_steps(chain: Sequence[str], *, exact: bool) -> list[Step]:
    """Spell a chain of expressions as steps that isolate matches; see `write_chain`."""
    known = _SPELLINGS if exact else _SPELLINGS | _NEAR_SPELLINGS
    return [_step(expression, known.get(expression, expression)) for expression in chain]


def _step(expression: str, spelling: str) -> Step:
    if expression == SINGLE_DIGITS:
        return {"type": "Digits", "individual_digits": True}
    return {"type": "Split", "pattern": {"Regex": spelling}, "behavior": "Isolated", "invert": False}


def byte_level(*, use_regex: bool) -> Step:
    """Return the step that writes text in GPT-2's byte alphabet, after GPT-2's split if requested."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def read_expression(spelling: str) -> str:
    """Return our text of an expression that published files spell differently."""
    return _READ.get(spelling, spelling)
