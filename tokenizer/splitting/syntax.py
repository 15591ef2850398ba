r"""Regular expressions as trees of atoms, and the classes of characters that a pattern treats alike.

An *atom* is the source text of something that matches exactly one character: `x`, `[^\s\p{L}]`, `(?i:s)`.
The `regex` package is asked for every code point, so the classes follow its Unicode version and its reading
of every property; a tree holds structure only.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
import regex
from numpy.typing import NDArray

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


NUM_CODE_POINTS = 0x110000
SURROGATES = slice(0xD800, 0xE000)
MAX_CLASSES = 200
MAX_SETS = 200  # in one expression; all of Unicode is looked through for each, some thousandths of a second

# Common in patterns (`(?i:'s|'t)`), and slow to look for in all of Unicode.
_ASCII_OF_ANY_CASE = regex.compile(r"\(\?i:[a-z']\)")

# Sets of parts that are looked for one by one, which is faster, and many are in several sets.
_ONE = r"\\[^A-Za-z0-9]|[^\\\[\]-]"
_PART = re.compile(rf"(?P<first>{_ONE})(?:-(?P<last>{_ONE}))?|\\[sSdDwWnrt]|\\[pP]\{{[\w^=]+\}}", re.S)
_UNION = re.compile(rf"\[\^?(?:{_PART.pattern})+\]", re.S)

_ASSIGNED_IN_NEWEST = 312_389  # code points, of private use and surrogates too

# One character of each Unicode version, newest first: the first that is assigned gives the version.
_FIRST_ASSIGNED_IN = {
    "18.0": "\U0003d000",
    "17.0": "\U00010940",
    "16.0": "\U000105c0",
    "15.1": "\U0002ebf0",
    "15.0": "\U0001e4d0",
    "14.0": "\U00010570",
}


@dataclass(frozen=True, slots=True)
class Alphabet:
    """Characters in classes, such that an expression treats all characters of a class alike.

    Attributes:
        class_of: uint8, shape (0x110000,), the class of each code point; classes count from 0 in the order of
            their first code points.
        num_classes: their number.
        members: for each atom, the classes that it consists of.
    """

    class_of: NDArray[np.uint8]
    num_classes: int
    members: dict[str, frozenset[int]]

    def classes_of(self, one: OneOf) -> frozenset[int]:
        """Give the classes that a set of atoms is made of."""
        return frozenset[int]().union(*(self.members[atom] for atom in one.atoms))


@lru_cache(maxsize=1)
def unicode_version() -> str:
    """Return the Unicode version of the `regex` package, or "newer than" the newest one known here."""
    newest = next(iter(_FIRST_ASSIGNED_IN))
    if sum(end - first for first, end in _runs(r"\P{Cn}", 0, 0)) > _ASSIGNED_IN_NEWEST:
        return f"newer than {newest}"
    for version, character in _FIRST_ASSIGNED_IN.items():
        if regex.match(r"\P{Cn}", character):
            return version
    return "13.0 or older"


@lru_cache(maxsize=1)
def _every_character() -> str:
    return str(np.arange(NUM_CODE_POINTS, dtype=np.uint32).view(f"U{NUM_CODE_POINTS}").item())


@lru_cache(maxsize=256)
def code_points(atom: str, flags: int) -> NDArray[np.int64]:
    r"""Find an atom's characters: int64, shape (num_ranges, 2), half-open, ascending, with gaps."""
    if (len(atom) == 1 and atom != ".") or _ASCII_OF_ANY_CASE.fullmatch(atom):
        forms = regex.findall(atom, _cased(), flags) if len(atom) > 1 else atom
        return np.array([[ord(one), ord(one) + 1] for one in forms], dtype=np.int64)
    if not flags and _UNION.fullmatch(atom) and len(union := _union(atom)):
        return union  # for a set of nothing, as `[^\s\S]`, `regex` finds everything
    try:
        runs = _runs(atom, flags, 0)
    except regex.error as error:
        raise UnsupportedError(f"{atom!r}") from error
    if atom.startswith("(?i") and _runs(atom, flags, 1) != _runs(rf"{atom}|\0", flags, 1):
        raise UnsupportedError(f"{atom!r}")
    return np.array(runs, dtype=np.int64).reshape(-1, 2)


def _union(atom: str) -> NDArray[np.int64]:
    negated, found = atom[1] == "^", list[Any]()
    for part in _PART.finditer(atom, 1 + negated, len(atom) - 1):
        first, last = part["first"], part["last"] or part["first"]
        found.append([[ord(first[-1]), ord(last[-1]) + 1]] if first else code_points(part[0], 0))
    starts, ends = np.sort(np.concatenate(found), axis=0).T
    apart = starts[1:] > ends[:-1]
    edges = np.append(starts[np.append(True, apart)], ends[np.append(apart, True)])
    return np.setxor1d(edges, np.array([0, NUM_CODE_POINTS] * negated, np.int64)).reshape(-1, 2)


@lru_cache(maxsize=1)
def _cased() -> str:
    return "'" + "".join(regex.findall(r"\p{Cased}++", _every_character()))


def _runs(atom: str, flags: int, first: int) -> list[tuple[int, int]]:
    """Find the ranges of code points, from `first` on, that an atom matches."""
    return [run.span() for run in regex.finditer(f"(?:{atom})++", _every_character(), flags, first)]


def partition(atoms: set[str], flags: int) -> Alphabet:
    """Find the classes of characters that all atoms treat alike."""
    ordered = sorted(atoms)
    num_sets = sum(len(atom) > 1 and not _ASCII_OF_ANY_CASE.fullmatch(atom) for atom in ordered)
    if num_sets > MAX_SETS or len(ordered) - num_sets > MAX_CLASSES:
        raise UnsupportedError(f"more than {MAX_CLASSES} classes of characters, or {MAX_SETS} sets of them")
    ranges = [code_points(atom, flags) for atom in ordered]
    edges = np.unique(np.concatenate([np.array([0, NUM_CODE_POINTS]), *(r.ravel() for r in ranges)]))
    starts = edges[:-1]
    inside = np.zeros((len(starts), len(ordered)), dtype=bool)
    for k, r in enumerate(ranges):
        inside[:, k] = np.searchsorted(r[:, 0], starts, "right") > np.searchsorted(r[:, 1], starts, "right")
    signatures, first, which = np.unique(inside, axis=0, return_index=True, return_inverse=True)
    if len(signatures) > MAX_CLASSES:
        raise UnsupportedError(f"more than {MAX_CLASSES} classes of characters")
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.uint8)
    rank[order] = np.arange(len(order), dtype=np.uint8)
    class_of = np.repeat(rank[which.ravel()], np.diff(edges))
    if (class_of[SURROGATES] != class_of[SURROGATES.start]).any():
        raise UnsupportedError("surrogates that are not all treated alike")
    members = {
        atom: frozenset(rank[np.flatnonzero(signatures[:, k])].tolist()) for k, atom in enumerate(ordered)
    }
    return Alphabet(class_of, len(signatures), members)
