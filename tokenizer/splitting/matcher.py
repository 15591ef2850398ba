"""Compile a tree to a deterministic matcher with Perl's leftmost-first semantics.

A tree becomes a program that threads walk, as in Pike's machine; as soon as one matches, those of lower
priority are dropped. Lists of threads are the states. A list is kept as it is *before* the instructions that
take no character are followed, which makes lookahead by one character free: a match is noticed on the
character after it, or on the end of the text. Source: Russ Cox, "Regular Expression Matching: the Virtual
Machine Approach" (2009).
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.splitting.syntax import (
    Alphabet,
    Choice,
    End,
    Look,
    Node,
    OneOf,
    Sequence,
    Star,
    UnsupportedError,
)

MAX_INSTRUCTIONS = 4000
MAX_STEPS = 1_000_000  # of following instructions, a second or two; published patterns take some thousands
MAX_ENTRIES = 1 << 16  # of a table of states and symbols: the range of a 16-bit index
DEAD = -1
START = 0


@dataclass(frozen=True, slots=True)
class Take:
    """Take one character of the classes, and continue at `then`."""

    classes: frozenset[int]
    then: int


@dataclass(frozen=True, slots=True)
class Check:
    """Continue at `then` if the next symbol is one of these; take nothing."""

    symbols: frozenset[int]
    then: int
    unsure: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Fork:
    """Continue at each of these, in order of priority."""

    targets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Accept:
    """The expression matches here."""


Instruction: TypeAlias = Take | Check | Fork | Accept


@dataclass(frozen=True, slots=True)
class Matcher:
    """A deterministic automaton that finds the end of the match which starts at a given place.

    Attributes:
        next_state: int32, shape (num_states, num_classes + 1); the state after a symbol, or `DEAD`. The last
            column is the end of the text. State 0 is the start.
        match_before: bool, same shape; whether a match ends before the symbol, which is better than any
            found earlier in the same walk.
    """

    next_state: NDArray[np.int32]
    match_before: NDArray[np.bool_]


class _Program:
    """Instructions, written from the end of the expression to its start."""

    def __init__(self, alphabet: Alphabet) -> None:
        self.alphabet = alphabet
        self.end_symbol = alphabet.num_classes
        self.instructions: list[Instruction] = [Accept()]
        self.steps = 0

    def add(self, instruction: Instruction) -> int:
        if len(self.instructions) >= MAX_INSTRUCTIONS:
            raise UnsupportedError(f"more than {MAX_INSTRUCTIONS} instructions")
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def write(self, node: Node, then: int) -> int:
        """Write a node that continues at `then`; return its first instruction."""
        match node:
            case OneOf():
                return self.add(Take(self.alphabet.classes_of(node), then))
            case Sequence(items):
                for item in reversed(items):
                    then = self.write(item, then)
                return then
            case Choice(options):
                return self.add(Fork(tuple(self.write(option, then) for option in options)))
            case Star(item, mode):
                fork = self.add(Fork(()))
                body = self.write(item, fork)
                self.instructions[fork] = Fork((body, then) if mode == "greedy" else (then, body))
                return fork
            case Look(at, negated):
                return self.add(Check(self.looked_for(at, negated=negated), then))
            case End(or_newline):
                newline = {int(self.alphabet.class_of[ord("\n")])} if or_newline else set()
                return self.add(Check(frozenset({self.end_symbol}), then, frozenset(newline)))

    def looked_for(self, at: OneOf, *, negated: bool) -> frozenset[int]:
        found = self.alphabet.classes_of(at)
        return frozenset(range(self.end_symbol + 1)) - found if negated else found

    def follow(self, threads: tuple[int, ...], symbol: int) -> tuple[list[Take], bool]:
        """Follow the instructions that take no character, given the next symbol; stop at the first match."""
        takes: list[Take] = []
        seen: set[int] = set()
        stack = list(reversed(threads))
        while stack:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            self.steps += 1
            match self.instructions[at]:
                case Take() as take:
                    takes.append(take)
                case Fork(targets):
                    stack.extend(reversed(targets))
                case Check(symbols, then, unsure):
                    if symbol in unsure:
                        raise UnsupportedError("$ where a newline may follow")
                    if symbol in symbols:
                        stack.append(then)
                case Accept():
                    return takes, True
        if self.steps > MAX_STEPS:
            raise UnsupportedError(f"more than {MAX_STEPS} steps to compile")
        return takes, False


def build_matcher(tree: Node, alphabet: Alphabet) -> Matcher:
    """Build the matcher for a tree over an alphabet."""
    program = _Program(alphabet)
    start: tuple[int, ...] = (program.write(tree, 0),)
    numbers = {start: START}
    rows: list[list[int]] = []
    matches: list[list[bool]] = []
    todo = [start]
    for threads in todo:  # grows while it is walked
        row, match = [], []
        for symbol in range(program.end_symbol + 1):
            takes, matched = program.follow(threads, symbol)
            after = tuple(dict.fromkeys(take.then for take in takes if symbol in take.classes))
            if after and after not in numbers:
                numbers[after] = len(numbers)
                todo.append(after)
            row.append(numbers[after] if after else DEAD)
            match.append(matched)
        if len(numbers) * (program.end_symbol + 1) > MAX_ENTRIES:
            raise UnsupportedError(f"tables of more than {MAX_ENTRIES} entries")
        rows.append(row)
        matches.append(match)
    return Matcher(np.array(rows, dtype=np.int32), np.array(matches, dtype=np.bool_))
