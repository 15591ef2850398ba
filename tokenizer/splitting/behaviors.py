r"""What becomes of the matches of a split expression and the stretches between them, spelled as expressions.

A chain isolates: matches and stretches are pre-tokens each. Hugging Face's `Split` and `Punctuation` know
other behaviors, each of which an expression has by itself, where P is the one to split by:

| behavior | `a--b-c` by `-` | expression |
| --- | --- | --- |
| `isolated` | a - - b - c | `P` |
| `contiguous` | a -- b - c | `(?:P)+` |
| `merged_with_previous` | a- - b- c | `[\s\S]*?(?:P)\|[\s\S]+` |
| `merged_with_next` | a - -b -c | `(?:P)(?:(?!P)[\s\S])*` |

`reference.splits` does the same without such an expression. `removed` leaves text out, which no chain does.
"""

import re
from types import MappingProxyType
from typing import Literal, TypeAlias

from tokmill.tokenizer.core.errors import PatternError

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
    """Return an expression whose isolated matches are the pre-tokens of another one's behavior.

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
