"""Which tokens an encoding can hold, and what the text of the others becomes.

A token is reachable if some text gives it. That is shown by a text: its own, or its own with a letter before
or after it, as a piece inside a word needs (`##ing`, or the `es` of a word that goes on). Where no such text
gives the token, the model alone is asked, without normalizer and split pattern. In BPE and Unigram every part
of an encoding is the encoding of its text, so a token that its own bytes do not give there is made by no
text; one that they do give, and that is a part of characters only, is taken for reachable. Any other is not.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.errors import TokenizerError

_LONGEST_CHARACTER = 4
_NUM_NEIGHBOURS = 6


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
    reached[[i for i in asked.tolist() if _is_part(surfaces[i]) and _by_model(tok, i)]] = True
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


def _by_model(tok: Tokenizer, token: int) -> bool:
    """Whether the model makes one token of a token's own bytes."""
    try:
        return tok.encode_pretoken(tok.definition.tokens[token]) == [token]
    except TokenizerError:  # a family that takes text alone
        return False
