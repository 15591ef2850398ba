"""Examples of textbooks, lectures and papers, worked out by hand: training, probabilities and tokens.

Those that need no library are also in the docstrings of `tokenizer/reference/`.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from tests.test_tokenizer.conftest import trained_by_sentencepiece
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.reference import unigram as slow
from tokmill.tokenizer.unigram.model import UnigramModel, n_best
from tokmill.tokenizer.wordpiece.model import WordPieceModel

HUGS = {b"hug": 10, b"pug": 5, b"pun": 12, b"bun": 4, b"hugs": 5}
MUGS = {b"hug": 10, b"pug": 12, b"lug": 5, b"bug": 4, b"dug": 5}


def spelled(tok: Tokenizer, ids: list[int]) -> list[str]:
    """The tokens of ids, as text."""
    return [tok.token_bytes(token).decode() for token in ids]


def unigram(scores: dict[bytes, float]) -> Tokenizer:
    """A tokenizer of these pieces; [UNK] is 0."""
    vocabulary = Vocabulary.build(dict(enumerate(scores, 1)), {"[UNK]": 0})
    model = UnigramModel(vocabulary, np.array([0.0, *scores.values()]))
    return Tokenizer(Definition.compose(model, split_pattern=r"[\s\S]+"))


def test_bpe_joins_the_most_frequent_pair() -> None:
    tok = tokenizer.train_from_counts(HUGS, vocab_size=256 + 3)
    assert tok.merges == [(b"u", b"g"), (b"u", b"n"), (b"h", b"ug")]
    assert spelled(tok, tok.encode("bug")) == ["b", "ug"]
    assert spelled(tok, tok.encode("hugs")) == ["hug", "s"]


def test_wordpiece_joins_the_most_likely_pair() -> None:
    tok = tokenizer.train_from_counts(HUGS, family="wordpiece", vocab_size=9, special_tokens=[])
    pieces = {token.decode() for token in tok.vocab} - {"[UNK]"}
    # seven characters: b, h, p begin words, ##g, ##n, ##s, ##u continue them; (##g, ##s): 5 / (20 · 5) = 0.05
    assert pieces == {"b", "h", "p", "##g", "##n", "##s", "##u", "##gs"}


def test_unigram_probabilities_and_loss_of_five_words() -> None:
    pieces = {p: n for p, n in slow.substrings(MUGS).items() if len(p) < 3}
    assert sum(pieces.values()) == 180  # 36 words have three characters and two pairs each
    scores = {piece: math.log(number / 180) for piece, number in pieces.items()}
    tok = unigram(scores)

    found = {word: math.exp(n_best(tok.definition, word, 1)[0][1]) for word in MUGS}
    assert {word: f"{probability:.2e}" for word, probability in found.items()} == {
        b"hug": "1.11e-02",  # h ug: 10/180 · 36/180
        b"pug": "1.33e-02",
        b"lug": "5.56e-03",
        b"bug": "4.44e-03",
        b"dug": "5.56e-03",
    }
    assert f"{slow.loss(MUGS, scores):.1f}" == "170.4"
    # hu g is as probable as h ug, so that removing ug loses nothing
    without = {piece: score for piece, score in scores.items() if piece != b"ug"}
    assert slow.loss(MUGS, without) == pytest.approx(slow.loss(MUGS, scores), abs=1e-12)
    fewer = unigram(without)
    assert spelled(tok, tok.encode("hug")) == ["h", "ug"]
    assert spelled(fewer, fewer.encode("hug")) == ["hu", "g"]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ("我 喜 欢 学 习 人 工 智 能", "我 喜 欢 学 习 人 工 智 能"),
        ("我 喜 欢 学 习 人 工 智 能 喜欢 学习 人工 智能", "我 喜欢 学习 人工 智能"),
        ("我 喜 欢 学 习 人 工 智 能 喜欢 学习 人工 智能 人工智能 我喜欢", "我喜欢 学习 人工智能"),
    ],
)
def test_a_sentence_without_spaces_under_three_vocabularies(pieces: str, expected: str) -> None:
    text, known = "我喜欢学习人工智能", [piece.encode() for piece in pieces.split()]
    # every piece is equally probable, so the fewest pieces are the most probable way
    tok = unigram(dict.fromkeys(known, math.log(1 / len(known))))
    assert spelled(tok, tok.encode(text)) == expected.split()

    begin = {piece.decode(): number for number, piece in enumerate(known, 1)}
    after = {f"##{piece}": number + len(begin) for piece, number in begin.items()}
    vocabulary = Vocabulary.build({n: p.encode() for p, n in (begin | after).items()}, {"[UNK]": 0})
    longest = Tokenizer(
        Definition.compose(WordPieceModel(vocabulary), split_pattern=r"\s+|\S+", decoder="wordpiece")
    )
    first, *rest = expected.split()
    assert spelled(longest, longest.encode(text)) == [first, *(f"##{piece}" for piece in rest)]


def test_characters_that_are_not_known_become_bytes(tmp_path: Path) -> None:
    sentences = ["hello hello hollow hole lo he", "hello low hell hello"]
    for model_type in ("bpe", "unigram"):
        model = trained_by_sentencepiece(sentences, vocab_size=275, model_type=model_type, byte_fallback=True)
        file = tmp_path / f"{model_type}.model"
        file.write_bytes(model)
        ours, theirs = tokenizer.load(file), sentencepiece.SentencePieceProcessor(model_proto=model)

        ids = ours.encode("hello 안녕하세요")
        assert ids == theirs.encode("hello 안녕하세요")
        known, unknown = ids[:-15], ids[-15:]  # five characters of three bytes each
        assert ours.decode(known).rstrip() == "hello"
        assert [theirs.id_to_piece(token) for token in unknown] == [
            f"<0x{byte:02X}>" for byte in "안녕하세요".encode()
        ]
        assert ours.decode(ids) == "hello 안녕하세요"


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "expected", "tokens"),
    [
        ("gpt2_merges.txt", [220, 220, 220, 23748, 995, 10185], [" ", " ", " ", " hello", " world", "!!!"]),
        ("cl100k_base.tiktoken", [262, 24748, 1917, 12340], ["   ", " hello", " world", "!!!"]),
    ],
)
def test_leading_spaces_in_gpt2_and_cl100k(
    shared_data: Path, tmp_path: Path, name: str, expected: list[int], tokens: list[str]
) -> None:
    where = shared_data / "vocabs" / name
    if name.startswith("gpt2"):
        for part in ("vocab.json", "merges.txt"):
            (tmp_path / part).symlink_to(shared_data / "vocabs" / f"gpt2_{part}")
        where = tmp_path
    tok = tokenizer.load(where, split_pattern=None if where == tmp_path else "cl100k")
    assert tok.encode("    hello world!!!") == expected
    assert spelled(tok, expected) == tokens
