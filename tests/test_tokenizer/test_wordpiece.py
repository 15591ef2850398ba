"""WordPiece: the kernels against the reference and Hugging Face's library, files, and what is refused."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from tests.test_tokenizer.conftest import TRAINING_TEXTS, corpus, ntrex
from tokmill import tokenizer
from tokmill.tokenizer import FormatError, Tokenizer, TrainingError, VocabularyError, attestation
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.reference import wordpiece as reference
from tokmill.tokenizer.wordpiece.model import WordPieceModel

PIECES = [
    "a",
    "b",
    "ab",
    "aba",
    "é",
    "##a",
    "##b",
    "##ab",
    "##é",
    "##aab",
    "ba",
    "##",
    "日",
    "##本",
    "un",
    "run",
    "##ing",
]
WHITE = " \t\n\r\v\f\x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000"
texts = st.one_of(
    st.text(st.sampled_from("abé日本#c" + WHITE), max_size=40),
    st.lists(
        st.sampled_from(["un", "run", "ing", "ab", "[UNK]", "x", " ", "\u200b", "\U0001f600"]), max_size=12
    ).map("".join),
    st.text(max_size=20),
)


def made(pieces: list[str] = PIECES, pattern: str = r"\s+|\S+", **rules: object) -> Tokenizer:
    """A tokenizer of these pieces."""
    vocabulary = Vocabulary.build({i: p.encode() for i, p in enumerate(pieces, 1)}, {"[UNK]": 0, "[SEP]": 90})
    model = WordPieceModel(vocabulary, **rules)  # type: ignore[arg-type]
    return Tokenizer(Definition.compose(model, split_pattern=pattern, decoder="wordpiece"))


def words_of(text: str) -> list[str]:
    """The words of a text, by Unicode's White_Space."""
    for space in WHITE:
        text = text.replace(space, " ")
    return [word for word in text.split(" ") if word]


def pieces_of(tok: Tokenizer, text: str) -> list[str]:
    """The pieces that a tokenizer gives, by kernel."""
    ids = tok.encode_batch([text], as_text=True).ids
    return [tok.token_bytes(i).decode() for i in ids.tolist()]


@pytest.mark.parametrize("by_part", [False, True])
@given(text=texts, most=st.sampled_from([1, 3, 100]))
@settings(max_examples=300)
def test_pieces_are_those_of_the_reference(by_part: bool, text: str, most: int) -> None:
    tok = made(unknown="part" if by_part else "word", max_input_chars_per_word=most)
    text = text.encode("utf-8", "replace").decode()
    expected = [
        piece
        for word in words_of(text)
        for piece in reference.encode(word, {*PIECES}, by_part=by_part, max_chars=most)
    ]

    assert pieces_of(tok, text) == expected


@given(text=texts, most=st.sampled_from([1, 3, 100]))
@settings(max_examples=300)
def test_ids_are_those_of_the_library(text: str, most: int) -> None:
    vocab = {piece: i for i, piece in enumerate(PIECES, 1)} | {"[UNK]": 0}
    other = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=most))
    other.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    other.decoder = decoders.WordPiece(cleanup=False)
    tok = made(max_input_chars_per_word=most)
    text = text.encode("utf-8", "replace").decode().replace("##", "#")

    ids = tok.encode_batch([text], as_text=True).ids.tolist()  # ## in a text: see the next test

    if "[UNK]" not in text:  # there a word, here text that is unknown
        assert ids == other.encode(text).ids
    assert tok.decode(ids) == other.decode(ids, skip_special_tokens=False)


def test_text_that_reads_as_a_continuing_piece_is_unknown() -> None:
    """Decoding would take its ## away; the library takes it for the piece."""
    assert pieces_of(made(["un", "##ing"]), "##ing un") == ["[UNK]", "un"]
    assert pieces_of(made(), "##ing") == ["##", "##ing"]


@pytest.mark.parametrize("by_part", [False, True])
@pytest.mark.parametrize("length", [1, 15, 16, 31, 32, 33, 99, 100, 101, 5000, 300_000])
def test_words_of_any_length(by_part: bool, length: int) -> None:
    tok = made(unknown="part" if by_part else "word", max_input_chars_per_word=1 << 20)
    word = ("ab" * length)[:length]
    text = f"{word} {word}c {word}\u3000x{word}"
    expected = [p for w in words_of(text) for p in pieces_by_hand(w, by_part)]

    assert pieces_of(tok, text) == expected


def pieces_by_hand(word: str, by_part: bool) -> list[str]:
    """Pieces of `ababab…`, with an x before or a c after: aba, then ##b, then ##ab again and again, ##a."""
    if word[0] == "x":
        return ["[UNK]", *by_continuing(word[1:])] if by_part else ["[UNK]"]
    if word[-1] == "c":
        return [*pieces_by_hand(word[:-1], by_part), "[UNK]"] if by_part else ["[UNK]"]
    head = next(p for p in ("aba", "ab", "a") if word.startswith(p))
    return [head, *by_continuing(word[len(head) :])]


def by_continuing(rest: str) -> list[str]:
    """The continuing pieces of b, ab, ab, …"""
    found = ["##b"] if rest.startswith("b") else []
    rest = rest[len(found) :]
    return [*found, *["##ab"] * (len(rest) // 2), *["##a"] * (len(rest) % 2)]


def test_every_way_of_encoding_gives_the_same() -> None:
    tok = tokenizer.train(TRAINING_TEXTS, family="wordpiece", vocab_size=120, split_pattern="bert")
    dice = random.Random(0)
    documents = [
        " ".join(dice.choices([*TRAINING_TEXTS[:3], "[UNK]", "zzz", "\u200b日"], k=dice.randrange(6)))
        for _ in range(40)
    ]
    expected = [tok.encode(text, allowed_special="all") for text in documents]

    for threads in (1, 3):
        assert tok.encode_batch(documents, allowed_special="all", num_threads=threads).to_lists() == expected
    for text, ids in zip(documents, expected, strict=True):
        at = dice.randrange(len(text) + 1)
        assert list(tok.encode_iterable([text[:at], text[at:]], allowed_special="all")) == ids
        assert tok.count_tokens(text, allowed_special="all") == len(ids)
        found, spans = tok.encode_with_offsets(text, allowed_special="all")
        assert found == ids
        for token, (start, end) in zip(found, spans, strict=True):
            piece = tok.token_bytes(token).decode().removeprefix("##")
            assert text[start:end] == piece or token == 0


def test_bytes_that_are_not_utf8_are_accounted_for() -> None:
    tok = made(unknown="part")
    data = np.frombuffer(b"ab\xffab \xe3\x80 a\xc2", np.uint8)

    ids = tok.encode_buffers(data, np.array([0, len(data)]), as_text=True).ids.tolist()

    assert [tok.token_bytes(i) for i in ids] == [b"ab", b"[UNK]", b"##ab", b"[UNK]", b"a", b"[UNK]"]


@pytest.mark.parametrize("unknown", ["word", "part"])
def test_an_attestation_holds(unknown: str) -> None:
    tok = tokenizer.train(
        TRAINING_TEXTS,
        family="wordpiece",
        vocab_size=120,
        split_pattern="o200k",
        unknown=unknown,
        special_tokens=["<s>"],
    )

    attestation.check(Tokenizer.from_spec(json.loads(json.dumps(tok.spec()))), attestation.make(tok))


@pytest.mark.parametrize("pattern", ["bert", "gpt2", "deepseek_v3", r"\s+|[^\s]+"])
@pytest.mark.parametrize(
    "normalizer",
    [None, "nfkc", "bert_clean+cjk_spaces", "bert_clean+cjk_spaces+strip_nonspacing+lowercase", "lowercase"],
)
def test_a_file_of_hugging_face_comes_back_and_is_read_alike(
    pattern: str, normalizer: str | None, tmp_path: Path
) -> None:
    tok = tokenizer.train(
        TRAINING_TEXTS,
        family="wordpiece",
        vocab_size=120,
        split_pattern=pattern,
        normalizer=normalizer,
        special_tokens=["<s>"],
    )
    tok.save(tmp_path, "huggingface")
    back, other = tokenizer.load(tmp_path), tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "The Größe,  dogs' naïve 日本 12 zzz\t<s>."

    ids = tok.encode(text, allowed_special="all")
    assert back.encode(text, allowed_special="all") == ids == other.encode(text).ids
    assert back.decode(ids) == tok.decode(ids) == other.decode(ids, skip_special_tokens=False)


def test_what_files_cannot_express_is_refused_by_name(tmp_path: Path) -> None:
    part = tokenizer.train(TRAINING_TEXTS, family="wordpiece", vocab_size=120, unknown="part")
    with pytest.raises(FormatError, match="unknown='part'"):
        part.save(tmp_path, "huggingface")
    with pytest.raises(FormatError, match="format='bert' cannot express"):
        part.save(tmp_path, "bert")
    with pytest.raises(FormatError, match="gpt2"):
        part.save(tmp_path, "gpt2")


def test_normalizers_in_another_order_than_berts_are_written_one_by_one(tmp_path: Path) -> None:
    tok = tokenizer.train(
        TRAINING_TEXTS, family="wordpiece", vocab_size=120, normalizer="lowercase+bert_clean"
    )
    tok.save(tmp_path, "huggingface")
    other = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))

    text = "The QUICK\0 brown\tFox\u200d É 今天"
    assert tok.encode(text) == other.encode(text, add_special_tokens=False).ids


BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "fox", "##es", ",", "é", "E", "[unused0]"]


def vocab_txt(folder: Path, lines: list[str]) -> Path:
    """A vocab.txt of these lines."""
    (folder / "vocab.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder / "vocab.txt"


def test_a_vocabulary_of_bert_is_read_with_its_settings(tmp_path: Path) -> None:
    tok = tokenizer.load(vocab_txt(tmp_path, BERT))

    assert tok.special_tokens == {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    assert tok.definition.normalizer.name == "bert_clean+cjk_spaces"  # it has a capital letter
    assert tok.encode("the foxes, é", "the", add_special_tokens=True) == [2, 5, 6, 7, 8, 9, 3, 5, 3]
    assert tok.decode([5, 6, 7, 8, 5]) == "the foxes, the"
    assert tokenizer.load(tmp_path) == tok
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert tokenizer.load(tmp_path).encode("THE é") == [5, 1]
    assert tokenizer.load(tmp_path, normalizer="lowercase").encode("É") == [9]
    tok.save(tmp_path / "again", "bert")
    assert (tmp_path / "again" / "vocab.txt").read_text(encoding="utf-8").split() == BERT


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["a", "b"], r"none of them \[UNK\]"),
        (["[UNK]", "a", "b", "a"], "line 2: 'a' must not be empty, nor stand there twice"),
        (["[UNK]", "", "b"], "line 2: '' must not be empty"),
        ([], "none of them"),
    ],
)
def test_a_broken_vocabulary_is_refused(tmp_path: Path, lines: list[str], says: str) -> None:
    with pytest.raises(FormatError, match=says):
        tokenizer.load(vocab_txt(tmp_path, lines))
    with pytest.raises(FormatError, match="nothing but normalizer"):
        tokenizer.load(vocab_txt(tmp_path, BERT), split_pattern="gpt2")


def test_rules_out_of_range_are_refused() -> None:
    with pytest.raises(VocabularyError, match="max_input_chars_per_word=0"):
        made(max_input_chars_per_word=0)
    with pytest.raises(VocabularyError, match="unknown='both'"):
        made(unknown="both")
    with pytest.raises(TrainingError, match="score='chance'"):
        tokenizer.train(TRAINING_TEXTS, family="wordpiece", vocab_size=120, score="chance")
    with pytest.raises(TrainingError, match="tie_break='lowest_ids'"):
        tokenizer.train(TRAINING_TEXTS, family="wordpiece", vocab_size=120, tie_break="lowest_ids")
    with pytest.raises(TrainingError, match="vocab_size=1 is too small"):
        tokenizer.train(TRAINING_TEXTS, family="wordpiece", vocab_size=1)


@pytest.mark.shared_data
@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [True, False])
def test_bert_gives_the_library_s_ids_on_real_text(shared_data: Path, lowercase: bool) -> None:
    file = shared_data / "vocabs" / "bert_vocab.txt"
    steps = "bert_clean+cjk_spaces" + "+strip_nonspacing+lowercase" * lowercase
    tok = tokenizer.load(file, normalizer=steps)
    other = tokenizers.BertWordPieceTokenizer(str(file), lowercase=lowercase, strip_accents=lowercase)
    names = sorted(path.name.split(".")[0] for path in (shared_data / "corpora").glob("*.jsonl.zst"))
    documents = [
        *ntrex(shared_data).values(),
        *(text for name in names for text in corpus(shared_data, name, 200_000)),
    ]

    ours = tok.encode_batch(documents, as_text=True).to_lists()
    theirs = [each.ids for each in other.encode_batch(documents, add_special_tokens=False)]

    differ = [text[:200] for text, a, b in zip(documents, ours, theirs, strict=True) if a != b]
    assert differ == []
