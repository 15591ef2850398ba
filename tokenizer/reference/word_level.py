"""Word-level tokenization, slow and obvious: the textbook's first tokenizer.

- *training*: count the words, and keep the most frequent ones; of words that are equally frequent the one
  whose bytes are smaller comes first.
- *encoding*: a word that was kept is its token, any other is `[UNK]`.
- *decoding*: the tokens' words, end to end; what became `[UNK]` is lost.

A word is a pre-token, so with GPT-2's split pattern ` dog` and `dog` are two words.

    >>> vocab = train({b"the": 3, b" cat": 2, b" dog": 2, b" ant": 1}, num_words=3)
    >>> vocab
    [b'the', b' cat', b' dog']
    >>> encode([b"the", b" dog", b" ant"], vocab)
    [b'the', b' dog', b'[UNK]']
"""

from collections.abc import Container, Mapping, Sequence

UNKNOWN = b"[UNK]"


def train(
    counts: Mapping[bytes, int],
    num_words: int,
    *,
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    forbidden: Sequence[bytes] = (),
) -> list[bytes]:
    """Return the most frequent words, the most frequent first; fewer where there are no more."""
    possible = [
        word
        for word, count in counts.items()
        if word
        and count >= max(min_frequency, 1)
        and (max_token_bytes is None or len(word) <= max_token_bytes)
        and word not in forbidden
    ]
    return sorted(possible, key=lambda word: (-counts[word], word))[:num_words]


def encode(words: Sequence[bytes], vocab: Container[bytes]) -> list[bytes]:
    """Return the token of each word."""
    return [word if word in vocab else UNKNOWN for word in words]
