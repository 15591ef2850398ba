r"""Regular expressions as trees: the node types that the parser makes and the automaton is built from.

An *atom* is the source text of something that matches exactly one character: `x`, `[^\s\p{L}]`, `(?i:s)`.
The `regex` package decides what it matches (see `charsets`), so a tree holds structure only.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["greedy", "lazy"]


class UnsupportedError(Exception):
    """The automaton cannot run the expression exactly; `regex` has to run it."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """One character that any of the atoms matches."""

    atoms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """One item after the other; without items it matches the empty string."""

    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The first option that lets the whole expression match (leftmost-first)."""

    options: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Star:
    """Zero or more of an item that never matches the empty string."""

    item: "Node"
    mode: Mode


@dataclass(frozen=True, slots=True)
class Look:
    """A look at the next character: is it one of a set, or (`negated`) none of it; the text's end is none."""

    at: OneOf
    negated: bool


@dataclass(frozen=True, slots=True)
class End:
    """The end of the text; `or_newline` is the `$` that also holds before a newline that ends the text."""

    or_newline: bool


Node: TypeAlias = OneOf | Sequence | Choice | Star | Look | End

EMPTY = Sequence(())


def is_nullable(node: Node) -> bool:
    """Whether a node can match without taking a character."""
    match node:
        case OneOf():
            return False
        case Sequence(items):
            return all(is_nullable(item) for item in items)
        case Choice(options):
            return any(is_nullable(option) for option in options)
    return True


def sequence(items: list[Node]) -> Node:
    """Join items; empty ones are left out, and a single one needs no wrapper."""
    items = [item for item in items if item != EMPTY]
    return items[0] if len(items) == 1 else Sequence(tuple(items))


def choice(options: list[Node]) -> Node:
    """Join options; options that are one character each become one set."""
    if len(options) == 1:
        return options[0]
    sets = [option for option in options if isinstance(option, OneOf)]
    if len(sets) == len(options):
        return OneOf(tuple(atom for one in sets for atom in one.atoms))
    return Choice(tuple(options))


def repeat(item: Node, least: int, most: int | None, mode: Literal["greedy", "lazy", "possessive"]) -> Node:
    """Expand a repetition to sequences, choices and `Star`.

    A possessive repetition of one character never gives characters back, which is the same as taking
    as many as there are and then looking that no further one follows.
    """
    if is_nullable(item):
        raise UnsupportedError("a repetition of something that can be empty")
    stop: Node = EMPTY
    if mode == "possessive":
        if not isinstance(item, OneOf):
            raise UnsupportedError("a possessive repetition of more than one character")
        stop, mode = Look(item, negated=True), "greedy"
    head = [item] * least
    if most is None:
        return sequence([*head, Star(item, mode), stop])
    tail: Node = EMPTY
    for _ in range(most - least):
        more, enough = sequence([item, tail]), stop
        tail = Choice((more, enough) if mode == "greedy" else (enough, more))
    return sequence([*head, tail])
