"""Splits with behaviors, in their slowest and plainest form: find the matches, then look at neighbours.

    >>> [split("-", "the--final-countdown", how) for how in ("isolated", "contiguous")]
    [['the', '-', '-', 'final', '-', 'countdown'], ['the', '--', 'final', '-', 'countdown']]
    >>> split("-", "the--final-countdown", "merged_with_previous")
    ['the-', '-', 'final-', 'countdown']
    >>> split("-", "the--final-countdown", "merged_with_next")
    ['the', '-', '-final', '-countdown']

Source: `SplitDelimiterBehavior` of Hugging Face's tokenizers.
"""

from itertools import pairwise

import regex


def pieces_of(expression: str, text: str) -> list[tuple[str, bool]]:
    """Return the matches of an expression and the stretches between them, and which are matches."""
    spans = [found.span() for found in regex.finditer(expression, text)]
    cuts = [0, *(place for span in spans for place in span), len(text)]
    pieces = [(text[start:end], (start, end) in spans) for start, end in pairwise(cuts)]
    return [(piece, is_match) for piece, is_match in pieces if piece]


def split(expression: str, text: str, behavior: str) -> list[str]:
    """Cut a text by an expression; `behavior` says which neighbours stay together."""
    made = list[str]()
    before = False
    for k, (piece, is_match) in enumerate(pieces_of(expression, text)):
        joins = {
            "isolated": False,
            "contiguous": k > 0 and is_match and before,
            "merged_with_previous": k > 0 and is_match and not before,
            "merged_with_next": k > 0 and before and not is_match,
        }[behavior]
        if joins:
            made[-1] += piece
        else:
            made.append(piece)
        before = is_match
    return made
