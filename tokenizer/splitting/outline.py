r"""A quick look at a regular expression before it is compiled: its size, and whether it must take text.

Engines expand counted repetitions, so that `(?:(?:a{1000}){1000}){1000}` fills the memory while it is
compiled; the size shows this. And an expression that only the `regex` package can run must not match the
empty string. The automaton knows this of every expression that it runs; for the others it is decided here,
cautiously: an expression passes if each of its alternatives has a part that takes a character and is not
optional. Look-arounds, anchors, back-references, calls, conditions and `\K` count as taking nothing, so that
an accepted expression never matches the empty string, but a few that never would are rejected, too.
"""

from dataclasses import dataclass

import regex

# The tokens of an expression; anything else is one literal character.
_TOKEN = regex.compile(
    r"""
    (?P<none> \(\?\#[^)]*\)                             # comments
            | \(\?[a-zA-Z0-9-]+\)                       # flags for the rest
            | \(\?(?:P=|P>|&|[+-]?\d|R)[^)]*\)          # back-references and calls
            | \(\*[^)]*\)                               # verbs
            | \\(?: [bBAZzGmMK] | [1-9]\d* | g<[^>]*> ) | [\^$] )
  | (?P<aside> \( \? (?: = | ! | <= | <! | \([^)]*\) ) )
  | (?P<open> \( (?: \? (?: P?<[^>]+> | [:>|] | [a-zA-Z0-9-]*: ) )? )
  | (?P<close> \) )
  | (?P<bar> \| )
  | (?P<repeat> (?: [*+?] | \{[^{}]*\} ) [?+]? )
  | (?P<class> \[ )
  | (?P<one> \\[pP]\{[^}]*\} | \\N\{[^}]*\} | \\. | . )
    """,
    regex.VERBOSE | regex.DOTALL,
)
_COUNTED = regex.compile(r"\{(\d*)(?:(,)(\d*))?\}")
_VERBOSE = regex.compile(r"\(\?[a-zA-Z0-9]*x")
_BLANKS = regex.compile(r"(?P<blank>(?:\s|#[^\n]*)+)")
_UNCOUNTABLE = 18  # digits; more is as good as without end


@dataclass(frozen=True, slots=True)
class Outline:
    """An expression, or a part of it.

    Attributes:
        size: its number of parts, with counted repetitions expanded.
        depth: the depth of nested groups.
        takes_text: whether every match has a character; False if that is not certain.
    """

    size: int = 0
    depth: int = 0
    takes_text: bool = False


def outline(pattern: str) -> Outline:
    """Read an expression without parsing it fully.

    Args:
        pattern: an expression; the outline of an invalid one is meaningless.
    """
    verbose = _VERBOSE.search(pattern) is not None
    groups = [_Group(aside=r"\K" in pattern)]
    position = 0
    while position < len(pattern):
        blank = _BLANKS.match(pattern, position) if verbose else None
        found = blank or _TOKEN.match(pattern, position)
        assert found is not None  # the last alternative takes anything
        position = found.end()
        match found.lastgroup:
            case "open" | "aside" as kind:
                groups.append(_Group(aside=kind == "aside"))
            case "close" if len(groups) > 1:
                closed = groups.pop().close()
                groups[-1].add(closed)
            case "bar":
                groups[-1].bar()
            case "repeat":
                groups[-1].repeat(*_counts(found[0]))
            case "class":
                position = _class_end(pattern, found.start())
                groups[-1].add(Outline(1, 0, takes_text=True))
            case "one" | "none" as kind:
                groups[-1].add(Outline(1, 0, takes_text=kind == "one"))
    while len(groups) > 1:  # an invalid expression; compiling it will report that
        groups[-2].add(groups.pop().close())
    whole = groups[0].close()
    return Outline(whole.size, whole.depth - 1, whole.takes_text)


class _Group:
    """A group that is being read; `last` is the part that a quantifier would repeat."""

    def __init__(self, *, aside: bool) -> None:
        self.aside = aside
        self.size = self.depth = 0
        self.all_take = True
        self.this_takes = False
        self.last = Outline()

    def add(self, part: Outline) -> None:
        self.size += self.last.size
        self.this_takes = self.this_takes or self.last.takes_text
        self.depth = max(self.depth, part.depth)
        self.last = part

    def repeat(self, least: int, most: int) -> None:
        last = self.last
        self.last = Outline(last.size * max(most, 1), last.depth, last.takes_text and least > 0)

    def bar(self) -> None:
        self.add(Outline())
        self.all_take = self.all_take and self.this_takes
        self.this_takes = False

    def close(self) -> Outline:
        self.bar()
        return Outline(self.size, self.depth + 1, self.all_take and not self.aside)


def _counts(quantifier: str) -> tuple[int, int]:
    """Return the least number of repetitions of an item, and the number of its copies when expanded."""
    counted = _COUNTED.match(quantifier)
    if counted is None:
        return int(quantifier.startswith("+")), 1
    least, most = (int(number[:_UNCOUNTABLE] or 0) for number in (counted[1], counted[3] or ""))
    return least, max(least, most)


def _class_end(pattern: str, position: int) -> int:
    """Find the end of the class that starts here, or the end of the pattern if it is not closed."""
    depth = 0
    while position < len(pattern):
        if pattern[position] == "\\":
            position += 1
        elif pattern.startswith("[:", position) and depth:
            position = max(pattern.find(":]", position), position) + 1
        elif pattern[position] == "[":
            depth += 1
            position += pattern.startswith("^", position + 1)
            position += pattern.startswith("]", position + 1)
        elif pattern[position] == "]":
            depth -= 1
        position += 1
        if not depth:
            return position
    return position
