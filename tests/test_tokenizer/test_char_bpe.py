"""BPE over characters: trained and encoded as the slow model does, law by law."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.char_bpe.model import CharacterPairModel
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.reference import char_bpe as reference

LETTERS = "aé今🙂"


def made(scores: dict[str, float], frozen: tuple[str, ...] = (), *, byte_fallback: bool = False) -> Tokenizer:
    """A tokenizer of pieces with scores; frozen ones have none."""
    texts = ["<unk>", *scores, *frozen]
    tokens = {i: text.encode() for i, text in enumerate(texts) if i}
    standing_in = range(len(texts), len(texts) + 256 * byte_fallback)
    tokens |= {i: bytes([i - len(texts)]) for i in standing_in}
    vocabulary = Vocabulary.build(tokens, {"<unk>": 0}, byte_ids=standing_in)
    values = np.array([0.0, *scores.values(), *[0.0] * (len(frozen) + len(standing_in))])
    ids = tuple(range(1 + len(scores), len(texts)))
    model = CharacterPairModel(vocabulary, values, "<unk>", ids)
    return Tokenizer(Definition.compose(model, split_pattern=r"[\s\S]+"))


def expected(text: str, scores: dict[str, float], frozen: tuple[str, ...], tok: Tokenizer) -> list[int]:
    ids: list[int] = []
    unknown = False
    for piece in reference.encode(text, scores, frozen):
        known = piece in scores or piece in frozen
        standing_in = sorted(tok.definition.vocabulary.byte_ids)
        if known:
            ids.append(tok.vocab[piece.encode()])
        elif standing_in:
            ids += [standing_in[byte] for byte in piece.encode()]
        elif not unknown:
            ids.append(0)
        unknown = not known
    return ids


pieces = st.dictionaries(
    st.text(LETTERS, min_size=1, max_size=5), st.integers(-4, 0).map(float), min_size=1, max_size=25
)


@given(
    scores=pieces,
    frozen=st.lists(st.text(LETTERS, min_size=2, max_size=3), max_size=2, unique=True),
    data=st.data(),
)
def test_ids_are_those_of_the_slow_model(scores, frozen, data):
    given_frozen = tuple(piece for piece in frozen if piece not in scores)
    tok = made(scores, given_frozen, byte_fallback=data.draw(st.booleans()))
    texts = data.draw(st.lists(st.text(LETTERS + "x", max_size=60), max_size=4))
    wanted = [expected(text, scores, given_frozen, tok) for text in texts]
    assert tok.encode_batch(texts, as_text=True).to_lists() == wanted
    assert tok.encode_batch(texts[::-1], as_text=True).to_lists() == wanted[::-1]  # from the cache
    if tok.definition.vocabulary.byte_ids:
        assert [tok.decode(ids) for ids in wanted] == texts


@given(
    words=st.dictionaries(
        st.text("abcé", min_size=1, max_size=7), st.integers(1, 9), min_size=1, max_size=12
    ),
    number=st.integers(1, 12),
)
def test_training_is_that_of_the_slow_model(words, number):
    counts = {word.encode(): count for word, count in words.items()}
    joined = reference.learn(words, number)
    alphabet = len(set("".join(words)))
    size = 1 + alphabet + len(joined)
    tok = tokenizer.train_from_counts(counts, family="char_bpe", vocab_size=size)
    assert [token.decode() for token in tok.definition.tokens[1 + alphabet :]] == joined
    if joined:
        smaller = tokenizer.train_from_counts(counts, family="char_bpe", vocab_size=size - 1)
        assert smaller.definition.tokens == tok.definition.tokens[:-1]


def test_pretokens_that_are_not_utf8_are_left_out():
    tok = tokenizer.train_from_counts({b"\xffab": 9, b"ab": 2}, family="char_bpe", vocab_size=4)
    assert tok.definition.tokens[1:] == [b"a", b"b", b"ab"]
    assert tok.encode(b"ab\xffab", as_text=True) == [3, 0, 3]
