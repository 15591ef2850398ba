r"""Split expressions in JavaScript, with the cuts that they make in Python.

Each character class is spelled out as the code points that the `regex` package finds in it, so the cuts do
not depend on the browser's edition of Unicode. Structure comes from our own parser, which has expanded
possessive repetitions; what it does not read is refused.
"""

from functools import lru_cache

import numpy as np

from tokmill.tokenizer.core.errors import PatternError
from tokmill.tokenizer.splitting.fallback import dialect_flags
from tokmill.tokenizer.splitting.parsing import parse
from tokmill.tokenizer.splitting.patterns import groups_of
from tokmill.tokenizer.splitting.syntax import (
    Choice,
    End,
    Look,
    Node,
    OneOf,
    Sequence,
    Star,
    UnsupportedError,
    code_points,
)

_END = r"(?![\s\S])"
Classes = list[list[list[int]]]
"""Character classes; each is a list of ranges of code points, both ends included."""


def to_javascript(expression: str) -> tuple[str, Classes]:
    """Return an expression for JavaScript's flag `u`, and its classes.

    Returns:
        The source, in which `<N>` stands for class N, and the classes.

    Raises:
        PatternError: our parser does not read it.
    """
    try:
        return _translated(expression)
    except UnsupportedError as error:
        raise PatternError(
            f"split_pattern={expression!r:.300} has no form for JavaScript: {error}"
        ) from error


@lru_cache(maxsize=64)
def _translated(expression: str) -> tuple[str, Classes]:
    flags = dialect_flags(expression)
    if flags and expression.startswith("(?i"):
        raise UnsupportedError("flags at its beginning")
    classes: Classes = []
    groups = groups_of(expression)
    tree = parse(expression if groups is None else groups.runs)
    source = _source(tree, classes, flags)
    if groups is not None:
        one = "<0>"  # the runs are of one class
        source = f"{one}{{1,{groups.size}}}(?=(?:{one}{{{groups.size}}})*(?!{one}))"
    return source, classes


def _source(node: Node, classes: Classes, flags: int) -> str:
    match node:
        case OneOf(atoms):
            return _class(atoms, classes, flags)
        case Sequence(items):
            return "".join(_source(item, classes, flags) for item in items)
        case Choice(options):
            return f"(?:{'|'.join(_source(option, classes, flags) for option in options)})"
        case Star(item, mode):
            return f"(?:{_source(item, classes, flags)})*{'?' * (mode == 'lazy')}"
        case Look(at, negated):
            return f"(?{'!' if negated else '='}{_source(at, classes, flags)})"
        case End(or_newline):
            return f"(?=\\n?{_END})" if or_newline else _END


def _class(atoms: tuple[str, ...], classes: Classes, flags: int) -> str:
    inside = np.zeros(0x110000, np.bool_)
    for atom in atoms:
        for first, end in code_points(atom, flags).tolist():
            inside[first:end] = True
    edges = np.flatnonzero(np.diff(np.concatenate([[False], inside, [False]]).astype(np.int8)))
    ranges = [[first, end - 1] for first, end in edges.reshape(-1, 2).tolist()]
    if ranges not in classes:
        classes.append(ranges)
    return f"<{classes.index(ranges)}>"
