r"""A parser for the regular expressions that split patterns are written in.

    choice   := sequence ("|" sequence)*
    sequence := (item quantifier?)*
    item     := character | escape | class | "." | "$" | \z | group
    group    := "(" choice ")", also (?:…) (?<name>…) (?i:…) (?s:…) (?-i:…) (?>…) (?=…) (?!…)
    quantifier := ("*" | "+" | "?" | {m} | {m,} | {,n} | {m,n}) ("?" | "+")?

It is called on expressions that the `regex` package has accepted, so it need not find mistakes; anything that
it does not know for certain raises `UnsupportedError`. Classes and properties are not read but passed on as
atoms.
"""

import re
from typing import Literal, NamedTuple

from tokmill.tokenizer.splitting.fallback import class_end
from tokmill.tokenizer.splitting.syntax import (
    Choice,
    End,
    Look,
    Node,
    OneOf,
    Sequence,
    Star,
    UnsupportedError,
    choice,
    repeat,
    sequence,
)

MAX_REPEAT = 100
MAX_DEPTH = 60  # of groups in groups
MAX_NODES = 4000  # of an expanded repetition

_QUANTIFIER = re.compile(r"(?:([*+?])|\{(\d*)(?:(,)(\d*))?\})([+?]?)")
_ONE_CHARACTER_ESCAPE = re.compile(
    r"\\(?:[sSdDwW]|[pP]\{[^}]+\}|[pP][A-Za-z]|[nrtfva]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[^A-Za-z0-9])",
    re.DOTALL,
)
_GROUP = re.compile(
    r"\((?:\?(?:(?P<kind>[:>=!])|(?P<name>P?<[A-Za-z_]\w*>)|(?P<on>[is]*)(?:-(?P<off>[is]+))?:))?"
)
_LEADING_FLAGS = re.compile(r"\(\?([is]+)\)")
_SPECIAL = frozenset("()[{*+?|^")


class _Flags(NamedTuple):
    """The inline flags in force: case does not matter; `.` matches a newline too."""

    ignore_case: bool = False
    dot_all: bool = False


def parse(pattern: str) -> Node:
    """Parse a split expression to a tree."""
    leading = _LEADING_FLAGS.match(pattern)
    flags = _Flags("i" in leading[1], "s" in leading[1]) if leading else _Flags()
    parser = _Parser(pattern, leading.end() if leading else 0)
    tree = parser.choice(flags)
    if parser.position < len(pattern):
        raise UnsupportedError(f"{pattern[parser.position :]!r} is not understood")
    return tree


class _Parser:
    """Recursive descent over one expression; `position` is where the unread rest begins."""

    def __init__(self, pattern: str, position: int) -> None:
        self.pattern = pattern
        self.position = position
        self.depth = 0

    def choice(self, flags: _Flags) -> Node:
        options = [self.sequence(flags)]
        while self.pattern.startswith("|", self.position):
            self.position += 1
            options.append(self.sequence(flags))
        return choice(options)

    def sequence(self, flags: _Flags) -> Node:
        items: list[Node] = []
        while self.position < len(self.pattern) and self.pattern[self.position] not in "|)":
            items.append(self.quantified(self.item(flags)))
        return sequence(items)

    def quantified(self, item: Node) -> Node:
        found = _QUANTIFIER.match(self.pattern, self.position)
        if found is None:
            return item
        self.position = found.end()
        least, most = _bounds(found)
        if _size(item) * max(least, most or 1) > MAX_NODES:
            raise UnsupportedError(f"a repetition of more than {MAX_NODES} parts")
        mode: Literal["greedy", "lazy", "possessive"] = "greedy"
        if found[5]:
            mode = "possessive" if found[5] == "+" else "lazy"
        return repeat(item, least, most, mode)

    def item(self, flags: _Flags) -> Node:
        character = self.pattern[self.position]
        if character == "(":
            return self.group(flags)
        if character == "[":
            return self.atom(class_end(self.pattern, self.position), flags)
        if character == "\\":
            return self.escape(flags)
        if character == "$":
            self.position += 1
            return End(or_newline=True)
        if character in _SPECIAL:
            raise UnsupportedError(f"{character!r} at position {self.position}")
        return self.atom(self.position + 1, flags)

    def atom(self, end: int, flags: _Flags) -> OneOf:
        source = self.pattern[self.position : end]
        self.position = end
        on = "i" * flags.ignore_case + "s" * (flags.dot_all and source == ".")
        return OneOf((f"(?{on}:{source})" if on else source,))

    def escape(self, flags: _Flags) -> Node:
        if self.pattern[self.position + 1] in "zZ":
            self.position += 2
            return End(or_newline=False)
        found = _ONE_CHARACTER_ESCAPE.match(self.pattern, self.position)
        if found is None:
            raise UnsupportedError(f"{self.pattern[self.position : self.position + 2]!r}")
        return self.atom(found.end(), flags)

    def group(self, flags: _Flags) -> Node:
        found = _GROUP.match(self.pattern, self.position)
        if found is None or self.pattern.startswith(("?", "*"), found.end()):
            raise UnsupportedError(f"the group {self.pattern[self.position : self.position + 4]!r}")
        if self.depth == MAX_DEPTH:
            raise UnsupportedError(f"more than {MAX_DEPTH} groups in each other")
        self.position = found.end()
        self.depth += 1
        inner = self.choice(_changed(flags, found["on"] or "", found["off"] or ""))
        self.depth -= 1
        self.position += 1
        if found["kind"] in ("=", "!"):
            return _look(inner, negated=found["kind"] == "!")
        return _atomic(inner) if found["kind"] == ">" else inner


def _changed(flags: _Flags, on: str, off: str) -> _Flags:
    for letters, value in ((on, True), (off, False)):
        flags = _Flags(
            value if "i" in letters else flags.ignore_case,
            value if "s" in letters else flags.dot_all,
        )
    return flags


def _size(node: Node) -> int:
    """Count the parts of a tree; no part of it that is repeated has more than `MAX_NODES`."""
    match node:
        case Sequence(inner) | Choice(inner):
            return sum(map(_size, inner))
        case Star(item):
            return _size(item)
    return 1


def _bounds(found: "re.Match[str]") -> tuple[int, int | None]:
    """Read a quantifier's bounds."""
    if found[1]:
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[found[1]]
    if not found[2] and not found[3]:
        raise UnsupportedError("the quantifier {}")
    least = int(found[2] or 0)
    most = least if not found[3] else (int(found[4]) if found[4] else None)
    if max(least, most or 0) > MAX_REPEAT:
        raise UnsupportedError(f"a repetition of more than {MAX_REPEAT}")
    return least, most


def _look(inner: Node, *, negated: bool) -> Node:
    if not isinstance(inner, OneOf):
        raise UnsupportedError("a lookahead of other than one character")
    return Look(inner, negated)


def _atomic(inner: Node) -> Node:
    """Return the node of `(?>…)` around one character, or a greedy run of one: a possessive repetition."""
    match inner:
        case OneOf():
            return inner
        case Star(OneOf() as item, "greedy"):
            return repeat(item, 0, None, "possessive")
        case Sequence((*head, Star(OneOf() as item, "greedy"))) if set(head) == {item}:
            return repeat(item, len(head), None, "possessive")
    raise UnsupportedError("an atomic group of other than a run of one character")
