"""BPE over words, slow and obvious: the most frequent pair of symbols is merged, and again.

A word is its characters with the mark `</w>` at its end, apart or attached to the last one (Sennrich et al.
2016). The example of the paper is low 5, lower 2, newest 6, widest 3, with the mark apart:

    >>> words = {b"low": 5, b"lower": 2, b"newest": 6, b"widest": 3}
    >>> pairs = learn(words, 5, apart=True, tie_break="first_seen")
    >>> show(pairs)
    'e+s es+t est+</w> l+o lo+w'

(e, s), (s, t) and (t, </w>) occur nine times each, so the tie rule decides; with the greatest pair first, as
in subword-nmt, the merges are others, but `est</w>` and `low` are made, too. Attached, `t</w>` is one symbol
from the start:

    >>> show(learn(words, 5, apart=True))
    't+</w> s+t</w> e+st</w> o+w l+ow'
    >>> show(learn(words, 5))
    's+t</w> e+st</w> l+o w+est</w> n+e'
    >>> ranks = {pair: rank for rank, pair in enumerate(pairs)}
    >>> merge(letters_of(b"lowest", apart=True), ranks)
    [b'low', b'est</w>']

In `aaabdaaabac`, aa is merged first; then (aa, a) and (a, b) occur twice each, and either way the third merge
makes the same piece, so that the word becomes XdXac (with `</w>` at its end):

    >>> for rule in ("lexicographic_max", "first_seen", "lowest_ids"):
    ...     pairs = learn({b"aaabdaaabac": 1}, 3, tie_break=rule)
    ...     found = merge(letters_of(b"aaabdaaabac"), {pair: rank for rank, pair in enumerate(pairs)})
    ...     print(show(pairs), b" ".join(found).decode())
    a+a aa+a aaa+b aaab d aaab a c</w>
    a+a aa+a aaa+b aaab d aaab a c</w>
    a+a a+b aa+ab aaab d aaab a c</w>

The longest piece first is another way to encode, which needs no merges: from the pieces of a textbook,

    >>> pieces = {b"errrr</w>", b"tain</w>", b"moun", b"est</w>", b"high", b"the</w>", b"a</w>"}
    >>> [encode_longest_first(letters_of(word), pieces) for word in (b"the", b"highest", b"mountain")]
    [[b'the</w>'], [b'high', b'est</w>'], [b'moun', b'tain</w>']]
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from tokmill.tokenizer.reference.byte_bpe import Pair, count_pairs, first_pair, join, merge

__all__ = ["encode_longest_first", "learn", "letters_of", "merge", "show"]


def letters_of(
    word: bytes, *, ends: bytes = b"</w>", apart: bool = False, by_bytes: bool = False
) -> list[bytes]:
    """Return the letters of a word: its characters or bytes, with the mark of its end."""
    cuts = [i for i, byte in enumerate(word) if by_bytes or byte & 0xC0 != 0x80 or i == 0]
    letters = [word[start:end] for start, end in pairwise([*cuts, len(word)])]
    return [*letters, ends] if apart else [*letters[:-1], *(letter + ends for letter in letters[-1:])]


def learn(
    words: Mapping[bytes, int],
    number: int,
    *,
    tie_break: str = "lexicographic_max",
    apart: bool = False,
    ids: Sequence[bytes] = (),
) -> list[Pair]:
    """Return the first merges.

    Args:
        words: how often each occurs; `first_seen` goes by their order.
        number: of merges.
        tie_break: which of equally frequent pairs comes first; see ADR 5.
        apart: whether the mark is a symbol of its own.
        ids: the letters in the order of their ids, for `lowest_ids`; else the most frequent first.
    """
    symbols = [(letters_of(word, apart=apart), count) for word, count in words.items()]
    totals = Counter[bytes]()
    for letters, count in symbols:
        for letter in letters:
            totals[letter] += count
    known = list(ids) or sorted(totals, key=lambda letter: (-totals[letter], letter))
    merges: list[Pair] = []
    while len(merges) < number and (found := count_pairs(symbols)):
        best = first_pair(found, tie_break, known)
        merges.append(best)
        known += [best[0] + best[1]] if best[0] + best[1] not in known else []
        symbols = [(join(letters, best), count) for letters, count in symbols]
    return merges


def encode_longest_first(symbols: Sequence[bytes], pieces: Collection[bytes]) -> list[bytes]:
    """Cut a word: the longest piece by letters, the leftmost of equal ones, then what is before and after it.

    The mark counts as a letter, whether it is attached or not.

    Letters that no piece covers stay as they are.
    """
    for length in range(len(symbols), 0, -1):
        for start in range(len(symbols) - length + 1):
            if _is_piece(symbols[start : start + length], pieces):
                before, after = symbols[:start], symbols[start + length :]
                piece = b"".join(symbols[start : start + length])
                sides = encode_longest_first(before, pieces), encode_longest_first(after, pieces)
                return [*sides[0], piece, *sides[1]]
    return list(symbols)


def _is_piece(symbols: Sequence[bytes], pieces: Collection[bytes]) -> bool:
    """Whether letters make a piece; the text `</w>` inside of a word is not a mark."""
    joined = b"".join(symbols)
    return joined in pieces and joined.endswith(b"</w>") == symbols[-1].endswith(b"</w>")


def show(pairs: Sequence[Pair]) -> str:
    """Return pairs as text, for examples."""
    return " ".join(f"{left.decode()}+{right.decode()}" for left, right in pairs)
