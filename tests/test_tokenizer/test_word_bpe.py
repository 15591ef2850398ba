"""BPE over words against its slow model, subword-nmt and Hugging Face's tokenizers, law by law."""

import io
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from subword_nmt import apply_bpe, learn_bpe

from tests.test_tokenizer.conftest import BERT, TRAINING_TEXTS, ntrex
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer, TokenizerError, TrainingError, VocabularyError
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.reference import word_bpe as reference
from tokmill.tokenizer.word_bpe.model import WordPairModel

RULES = ["lexicographic_max", "lowest_ids", "first_seen"]
WORDS = r"\s+|[^\s]+"
LETTERS = "aé今🙂"
Pair = tuple[bytes, bytes]


def made(pairs: list[Pair], letters: str = LETTERS, *, fuse: bool = False, **rules: str) -> Tokenizer:
    """A tokenizer of these merges; the unknown token is 0."""
    single = [letter.encode() for letter in letters]
    ends = [b"</w>"] if rules.get("end_of_word") == "apart" else [letter + b"</w>" for letter in single]
    tokens = dict.fromkeys([*single, *ends, *(left + right for left, right in pairs)])
    vocabulary = Vocabulary.build(dict(enumerate(tokens, start=1)), {"<unk>": 0})
    model = WordPairModel.build(vocabulary, pairs, unknown_token="<unk>", fuse_unknown=fuse, **rules)
    return Tokenizer(Definition.compose(model, split_pattern=WORDS, decoder="end_of_word"))


def pieces_of(tok: Tokenizer, text: str) -> list[bytes]:
    return [tok.token_bytes(i) for i in tok.encode_batch([text], as_text=True)[0].tolist()]


@st.composite
def merges(draw: st.DrawFn, apart: bool) -> list[Pair]:
    """Merges that are possible, in any order of their making."""
    letters = [letter.encode() for letter in LETTERS]
    inner = list(letters)
    final = [b"</w>"] if apart else [letter + b"</w>" for letter in letters]
    pairs: list[Pair] = []
    for _ in range(draw(st.integers(0, 12))):
        left, right = draw(st.sampled_from(inner)), draw(st.sampled_from(inner + final))
        if (left, right) not in pairs:
            pairs.append((left, right))
            (final if right.endswith(b"</w>") else inner).append(left + right)
    return draw(st.permutations(pairs))


def expected(tok: Tokenizer, text: str) -> list[bytes]:
    model = tok.definition.model
    ranks = {pair: rank for rank, pair in enumerate(tok.merges)}
    found: list[bytes] = []
    for word in text.split():
        letters = reference.letters_of(word.encode(), apart=model.is_apart)
        known = set(tok.vocab)
        pieces = reference.encode_longest_first(letters, known)
        if not model.by_length:
            pieces = reference.merge(letters, ranks)
        spelled = [piece if piece in known else b"<unk>" for piece in pieces]
        fused = model.fuse_unknown
        found += [p for i, p in enumerate(spelled) if not (fused and i and p == b"<unk>" == spelled[i - 1])]
    return found


@pytest.mark.parametrize("segmentation", ["merges", "longest_first"])
@pytest.mark.parametrize("end_of_word", ["attached", "apart"])
@given(data=st.data(), fuse=st.booleans())
def test_pieces_are_those_of_the_slow_model(segmentation, end_of_word, data, fuse):
    pairs = data.draw(merges(apart=end_of_word == "apart"))
    tok = made(pairs, fuse=fuse, segmentation=segmentation, end_of_word=end_of_word)
    texts = data.draw(st.lists(st.text(LETTERS + "x \n</w>", max_size=40), max_size=4))

    wanted = [expected(tok, text) for text in texts]
    assert [pieces_of(tok, text) for text in texts] == wanted
    assert [pieces_of(tok, text) for text in texts[::-1]] == wanted[::-1]  # from the cache
    for text, pieces in zip(texts, wanted, strict=True):
        if b"<unk>" not in pieces:
            assert tok.decode(tok.encode(text)) == " ".join(text.split())


@pytest.mark.parametrize("end_of_word", ["attached", "apart"])
@pytest.mark.parametrize("rule", RULES)
@given(
    words=st.dictionaries(
        st.text("abcé</w>", min_size=1, max_size=7), st.integers(1, 9), min_size=1, max_size=12
    ),
    number=st.integers(1, 12),
)
@settings(max_examples=40)
def test_training_is_that_of_the_slow_model(rule, end_of_word, words, number):
    counts, apart = {word.encode(): count for word, count in words.items()}, end_of_word == "apart"
    letters = Counter[bytes]()
    for word, count in counts.items():
        for letter in reference.letters_of(word, apart=apart):
            letters[letter] += count
    always = [b"</w>"] if apart else []
    ids = [*always, *sorted(set(letters) - {*always}, key=lambda letter: (-letters[letter], letter))]
    pairs = reference.learn(counts, number, tie_break=rule, apart=apart, ids=ids)
    if any((left + right).endswith(b"</w>") != right.endswith(b"</w>") for left, right in pairs):
        return  # the text </w>: see below
    size = 1 + len({*ids, *(left + right for left, right in pairs)})
    how = {"family": "word_bpe", "split_pattern": WORDS, "tie_break": rule, "end_of_word": end_of_word}
    if size > 1 + len(ids):
        tok = tokenizer.train_from_counts(counts, vocab_size=size, **how)
        assert tok.merges == pairs[: len(tok.merges)]
        assert {left + right for left, right in pairs[len(tok.merges) :]} <= set(tok.vocab)
        assert tok.definition.tokens[1 : 1 + len(ids)] == ids


def by_subword_nmt(counts: Mapping[str, int], number: int) -> tuple[list[Pair], apply_bpe.BPE]:
    """The merges that subword-nmt learns, and its encoder."""
    written = io.StringIO()
    lines = io.StringIO("".join(f"{word} {count}\n" for word, count in counts.items()))
    learn_bpe.learn_bpe(lines, written, number, min_frequency=2, is_dict=True)
    pairs = [tuple(line.encode().split(b" ")) for line in written.getvalue().splitlines()[1:]]
    return pairs, apply_bpe.BPE(io.StringIO(written.getvalue()))  # type: ignore[return-value]  # two each


def as_subword_nmt(tok: Tokenizer, text: str) -> str:
    pieces = [piece.decode() for piece in pieces_of(tok, text)]
    return " ".join(piece.removesuffix("</w>") + "@@" * (not piece.endswith("</w>")) for piece in pieces)


@pytest.mark.shared_data
@pytest.mark.parametrize("number", [50, pytest.param(1500, marks=pytest.mark.slow)])
def test_merges_and_pieces_are_those_of_subword_nmt(shared_data, number):
    texts = [text for name, text in ntrex(shared_data).items() if name[:3] in {"eng", "deu", "rus", "jpn"}]
    lines = [" ".join(line.split()) for text in texts for line in text.splitlines()[:400]]
    counts = Counter(" ".join(lines).split(" "))
    pairs, theirs = by_subword_nmt(counts, number)
    letters = {letter for word in counts for letter in reference.letters_of(word.encode())}
    size = 1 + len(letters | {left + right for left, right in pairs})
    how = {"family": "word_bpe", "split_pattern": WORDS, "min_frequency": 2}
    tok = tokenizer.train_from_counts({w.encode(): n for w, n in counts.items()}, vocab_size=size, **how)

    assert tok.merges == pairs
    assert [as_subword_nmt(tok, line) for line in lines] == [theirs.process_line(line) for line in lines]


def test_codes_are_exchanged_with_subword_nmt(tmp_path):
    counts = Counter(" ".join(TRAINING_TEXTS).split())
    pairs, theirs = by_subword_nmt(counts, 60)
    lines = [f"{left.decode()} {right.decode()}" for left, right in pairs]
    codes = tmp_path / "bpe.codes"
    codes.write_text("\n".join(["#version: 0.2", *lines, ""]), encoding="utf-8")
    tok = tokenizer.load(codes, special_tokens=["<s>"])
    text = " ".join(word for word in counts if set(word) <= {*"".join(lines)} - {*"</>"})

    assert tok.merges == pairs
    assert tok.special_tokens == {"<unk>": 0, "<s>": tok.vocab_size - 1}
    assert len(text.split()) > 12
    assert as_subword_nmt(tok, text) == theirs.process_line(text)
    tok.save(tmp_path, "gpt2")
    with (tmp_path / "merges.txt").open(encoding="utf-8") as written:
        assert apply_bpe.BPE(written).process_line(text) == theirs.process_line(text)
    assert tokenizer.load(tmp_path) == tok


def test_codes_of_the_first_version_have_the_mark_apart(tmp_path):
    codes = tmp_path / "codes"
    codes.write_text("#version: 0.1\ne s\nes t\nest </w>\nl o\nlo w\n")
    tok = tokenizer.load(codes)

    assert pieces_of(tok, "lowest low") == [b"low", b"est</w>", b"low", b"</w>"]
    for content, says in (
        (b"#version: 0.3\na b</w>\n", "only 0.1 and 0.2 are known"),
        (b"#version: 0.2\na</w>\n", "must be two tokens"),
        (b"#version: 0.2\n\xff b</w>\n", "broken"),
        (b"#version: 0.2\na</w> b\n", "cannot be told from the mark"),
    ):
        codes.write_bytes(content)
        with pytest.raises(TokenizerError, match=says):
            tokenizer.load(codes)


def library(tok: Tokenizer, folder: Path) -> tokenizers.Tokenizer:
    tok.save(folder, "huggingface")
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.fixture(
    scope="module",
    params=[
        {"split_pattern": "bert", "normalizer": BERT},
        {"split_pattern": "clip", "normalizer": "nfc+lowercase", "letters": "bytes", "vocab_size": 600},
        {"split_pattern": "gpt2", "letters": "bytes", "vocab_size": 600, "num_reserved": 2},
        {"split_pattern": WORDS, "tie_break": "lowest_ids"},
    ],
)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    """A tokenizer of the common texts as files of others have it, and the library's of its file."""
    how = {"vocab_size": 115, "special_tokens": ["<|startoftext|>", "<|endoftext|>"], **request.param}
    tok = tokenizer.train(TRAINING_TEXTS, family="word_bpe", **how)
    return tok, library(tok, tmp_path_factory.mktemp("library"))


# characters of Unicode 8, whose tables the library has
@given(text=st.text(st.sampled_from("the fox. </w>ÀGröße今天'🙂ن\u0301\xa0\u3000\t\n9٣"), max_size=30))
def test_ids_are_those_of_the_library(both, text):
    tok, other = both
    if tok.definition.pre_tokenizer.split_pattern == "bert":
        text = text.encode("ascii", "ignore").decode()  # its tables are those of Unicode 8
    ids = tok.encode(text, as_text=True)
    assert ids == other.encode(text).ids
    assert tok.decode(ids) == other.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("length", [1, 15, 16, 31, 32, 4_094, 4_095, 4_096, 70_000])
@pytest.mark.parametrize("segmentation", ["merges", "longest_first"])
@pytest.mark.parametrize("end_of_word", ["attached", "apart"])
def test_words_of_any_length(length, segmentation, end_of_word):
    final = (b"a", b"</w>") if end_of_word == "apart" else (b"a", b"a</w>")
    pairs = [(b"a", b"a"), (b"aa", b"aa"), final]
    tok = made(pairs, segmentation=segmentation, end_of_word=end_of_word)
    texts = ["a" * length, "é" * length + "x " + "aa" * length]

    batch = tok.encode_batch(texts)
    assert batch.to_lists() == [tok.encode(text) for text in texts]
    assert tok.decode(batch[0]) == texts[0]
    assert batch[0].shape[0] < length // 3 + 5


def test_the_text_of_the_mark_is_no_mark():
    counts = {b"x</w>y": 50, b"x": 3}
    how = {"family": "word_bpe", "split_pattern": WORDS, "max_token_bytes": 90}
    with pytest.raises(TrainingError, match="lower vocab_size to") as refused:
        tokenizer.train_from_counts(counts, vocab_size=90, **how)
    most = int(str(refused.value).split("lower vocab_size to ")[1].split(",")[0])
    tok = tokenizer.train_from_counts(counts, vocab_size=most, **how)

    assert tok.decode(tok.encode("x</w>y x")) == "x</w>y x"
    with pytest.raises(VocabularyError, match="cannot be told from the mark"):
        made([(b"/", b"w"), (b"/w", b">"), (b"<", b"/w>")], "a</w>")


def test_what_files_cannot_hold_is_refused(tmp_path):
    for rule in ({"end_of_word": "apart"}, {"segmentation": "longest_first"}):
        name, value = next(iter(rule.items()))
        tok = made([], **rule)
        with pytest.raises(TokenizerError, match=f"cannot express {name}='{value}'"):
            tok.save(tmp_path, "huggingface")
        tok.save(tmp_path, "gpt2")
        assert tokenizer.load(tmp_path) == tok


def test_a_step_that_makes_one_space_of_white_space_is_left_out(tmp_path):
    how = {"split_pattern": "clip", "letters": "bytes", "vocab_size": 600, "normalizer": "nfc+lowercase"}
    tok = tokenizer.train(TRAINING_TEXTS, family="word_bpe", **how)
    file = tok.save(tmp_path, "huggingface")[0]
    content = json.loads(file.read_bytes())
    spaces = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}  # as CLIP's files have it
    content["normalizer"]["normalizers"].insert(1, spaces)
    file.write_text(json.dumps(content))
    assert tokenizer.load(file).definition.normalizer == tok.definition.normalizer
