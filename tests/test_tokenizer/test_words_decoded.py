"""Decoders that put spaces between words, against those of Hugging Face's tokenizers."""

import random

import pytest
from tokenizers import decoders

from tokmill.tokenizer import VocabularyError
from tokmill.tokenizer.components.decoders import Decoder
from tokmill.tokenizer.core.vocabulary import Vocabulary

TOKENS = [
    "un",
    "##run",
    "##ning",
    ".",
    "?",
    "!",
    ",",
    "'",
    "n't",
    "'m",
    "'s",
    "'ve",
    "'re",
    "do",
    "not",
    "##",
    "日",
    "##本",
    "é",
]
VOCABULARY = Vocabulary.build({i: text.encode() for i, text in enumerate(TOKENS)}, {"[CLS]": 30})
NAMES = {"wordpiece": False, "wordpiece_cleanup": True}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 50, 5000])
def test_words_are_joined_as_the_library_joins_them(name: str, size: int) -> None:
    dice = random.Random(size)
    ids = [dice.randrange(len(TOKENS)) for _ in range(size)]
    expected = decoders.WordPiece(prefix="##", cleanup=NAMES[name]).decode([TOKENS[i] for i in ids])
    decoder = Decoder(name).of(VOCABULARY)

    assert decoder.decode(ids).decode() == expected
    assert "".join(decoder.stream(iter(ids), "strict")) == expected
    assert Decoder(name).join([TOKENS[i].encode() for i in ids]).decode() == expected


def test_the_first_token_stays_as_it_is() -> None:
    decoder = Decoder("wordpiece").of(VOCABULARY)

    assert decoder.decode([2, 2]) == b"##ningning"
    assert decoder.decode([30, 0, 2]) == b"[CLS] unning"


@pytest.mark.parametrize("ids", [[0, 19], [-1], [0] * 5000 + [31]])
def test_an_id_without_a_token_is_named(ids: list[int]) -> None:
    with pytest.raises(VocabularyError, match=f"id {ids[-1]} at position {len(ids) - 1}"):
        Decoder("wordpiece").of(VOCABULARY).decode(ids)
