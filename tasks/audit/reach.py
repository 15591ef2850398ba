r"""Which tokens an encoding can hold, and what the text of the others becomes.

A token is reachable if some text gives it. That is shown by a text: its own, or its own with a letter before
or after it, as a piece inside a word needs (`##ing`, or the `es` of a word that goes on).

For BPE and Unigram the rest follows from the model and the split pattern, one by one. Every part of an
encoding is the encoding of its text there, so a token that its own bytes do not give the model is given by no
text. One that they do give is taken for reachable if normalizer and split pattern leave it whole between some
neighbours (o200k cuts `\n//` in two, but not after a semicolon), or if it is a part of characters.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.buffers import pack_bytes

_LONGEST_CHARACTER = 4
_NUM_NEIGHBOURS = 6
_BY_MODEL = ("byte_bpe", "char_bpe", "unigram")
_SURROUNDINGS = (b"", b"a", b"A", b"1", b".", b";", b"{", b'"', b"'", b" ", b"\n", b"\t", b"s", b"m")


def reachable_tokens(
    tok: Tokenizer, surfaces: Sequence[bytes], seen: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], dict[int, list[int]]]:
    """Find out which tokens an encoding can hold.

    Args:
        tok: the tokenizer.
        surfaces: what each token adds to a text, by id; empty for ids that stand for no text.
        seen: bool [vocab_size], tokens that are known from encodings.

    Returns:
        bool [vocab_size], and for each unreachable token whose bytes are a text the ids of that text.
    """
    reached = seen.copy()
    asked = np.array([i for i, text in enumerate(surfaces) if text and not reached[i]], np.int64)
    own: dict[int, list[int]] = {}
    for before, after in [(b"", b""), *_neighbours(tok)]:
        texts = [before + surfaces[i] + after for i in asked.tolist()]
        for token, ids in zip(asked.tolist(), _encode(tok, texts), strict=True):
            reached[token] |= token in ids
            if not before and not after and ids:
                own[token] = ids
        asked = asked[~reached[asked]]
    if tok.family in _BY_MODEL:
        given = [i for i in asked.tolist() if tok.encode_pretoken(tok.definition.tokens[i]) == [i]]
        reached[[i for i in given if _is_part(surfaces[i]) or _stays_whole(tok, surfaces[i])]] = True
    return reached, {token: ids for token, ids in own.items() if not reached[token]}


def _encode(tok: Tokenizer, texts: list[bytes]) -> list[list[int]]:
    """Return the ids of texts; none for bytes that are no text."""
    valid = [text if _is_text(text) else b"" for text in texts]
    return tok.encode_buffers(*pack_bytes(valid), as_text=True).to_lists()


def _neighbours(tok: Tokenizer) -> list[tuple[bytes, bytes]]:
    """Return what may stand before and after a token: letters that begin, or end, the fewest others."""
    tokens = [token for _, token in tok.definition.vocabulary.ordinary()]
    letters = [bytes([letter]) for letter in range(ord("a"), ord("z") + 1)]
    first, last = ([0] * 256 for _ in range(2))
    for token in tokens:
        first[token[0]] += 1
        last[token[-1]] += 1
    before = sorted(letters, key=lambda letter: first[letter[0]])[:_NUM_NEIGHBOURS]
    after = sorted(letters, key=lambda letter: last[letter[0]])[:_NUM_NEIGHBOURS]
    return [
        *((letter, b"") for letter in before),
        *((b"", letter) for letter in after),
        (before[0], after[0]),
    ]


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_part(data: bytes) -> bool:
    """Whether bytes that are no text can be a part of one: cut characters at one end or both."""
    if _is_text(data):
        return False
    text = data.lstrip(bytes(range(0x80, 0xC0)))
    if len(data) - len(text) >= _LONGEST_CHARACTER:
        return False
    cut = text.decode("utf-8", "ignore").encode()
    rest = text[len(cut) :]
    return text.startswith(cut) and len(rest) < _LONGEST_CHARACTER and (not rest or 0xC2 <= rest[0] <= 0xF4)


def _stays_whole(tok: Tokenizer, surface: bytes) -> bool:
    """Whether normalizer and split pattern leave a text whole between some neighbours."""
    if not _is_text(surface):
        return False
    for before, after in product(_SURROUNDINGS, repeat=2):
        data, bounds = tok.normalize_buffers(*pack_bytes([before + surface + after]))
        start = data.tobytes().find(surface)
        parts = tok.splitter.split(data, bounds)
        if start >= 0 and ((parts.starts <= start) & (parts.ends >= start + len(surface))).any():
            return True
    return False
