"""Pre-tokenizer steps of a `tokenizer.json` that leave white space out, for pieces that make up words.

The split pattern `bert` is written as `BertPreTokenizer`, any other as `Split` steps with a `WhitespaceSplit`
after them. The tables of the `tokenizers` library are those of Unicode 8: its `BertPreTokenizer` cuts newer
punctuation otherwise.
"""

from collections.abc import Sequence
from typing import Any

from tokmill.tokenizer.formats.spellings import split_steps
from tokmill.tokenizer.formats.split_steps import check_chain, read_split, refusal
from tokmill.tokenizer.splitting import SPLIT_PATTERNS

Step = dict[str, Any]

BERT = (SPLIT_PATTERNS["bert"],)
WORDS = r"\s+|[^\s]+"
"""The expression of words alone."""

_STEPS = "Split, Digits, BertPreTokenizer and WhitespaceSplit"


def write_steps(chain: tuple[str, ...], *, exact: bool) -> list[Step]:
    """Spell a chain of expressions as steps, the last of which leaves white space out.

    Args:
        chain: the expressions.
        exact: see `formats.spellings.write_chain`.

    Raises:
        FormatError: `tokenizers` would read the split pattern differently.
    """
    if chain == BERT:
        return [{"type": "BertPreTokenizer"}]
    if chain == (WORDS,):
        return [{"type": "WhitespaceSplit"}]
    check_chain(chain)
    return [*split_steps(chain, exact=exact), {"type": "WhitespaceSplit"}]


def read_steps(steps: Sequence[Step], family: str, where: str) -> tuple[str, ...]:
    """Return the chain of expressions of steps; white space is left out by the model.

    Args:
        steps: the pre-tokenizer.
        family: for messages.
        where: the file's path, for messages.

    Raises:
        FormatError: there is no step that leaves white space out, or one that is not supported.
    """
    if not steps:
        raise refusal(where, "pre_tokenizer", None, f"a {family} model needs one that leaves white space out")
    last = steps[-1].get("type")
    if last not in {"BertPreTokenizer", "WhitespaceSplit"}:
        raise refusal(where, "pre_tokenizer.type", last, "the last step must leave white space out")
    chain = tuple(read_split(step, where, _STEPS) for step in steps[:-1])
    return (*chain, *BERT) if last == "BertPreTokenizer" else chain or (WORDS,)
