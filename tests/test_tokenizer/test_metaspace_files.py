"""`tokenizer.json` of SentencePiece's models: read, encoded, decoded and written as tokenizers does."""

import base64
import json
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Theirs

from tests.test_tokenizer.conftest import TRAINING_TEXTS, edited, listed, trained_by_sentencepiece
from tokmill import tokenizer
from tokmill.tokenizer import FormatError, Tokenizer, TokenizerError, attestation
from tokmill.tokenizer.char_bpe.formats import pattern_of, with_merges
from tokmill.tokenizer.char_bpe.model import CharacterPairModel
from tokmill.tokenizer.components.charsmap import compile_rules
from tokmill.tokenizer.components.sentences import SentenceNormalizer
from tokmill.tokenizer.components.steps import Charsmap, StepNormalizer
from tokmill.tokenizer.core.buffers import pack_bytes, unpack
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.formats.model_file import ModelFile, read_model
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.splitting.splitter import PreTokenizer

TEXTS = [
    *TRAINING_TEXTS[:3],
    *listed(
        "| |   |a| a|a |  a  b  |▁|▁▁a| ▁ |a▁b|\u3000x\u3000|\ta\r\n b\0c|e\u0301e\u0301\u0323 한국어", "|"
    ),
]
TEXTS += listed(
    "ﷺ ① ½ ﬁ Ⅷ|ﬁ\u0301|ABC Ａｂｃ ǅ|\u200b\ufeff\u00ad|....----====|aaaaaa|🙂👨‍👩‍👧🇩🇪|\ufffd\U0010ffff", "|"
)
TEXTS += ["क्षत्रिय\u0301", "x" * 5000, "the lazy dog  " * 900, "\n\nfoo\n  bar"]
ALPHABET = " \t\n▁.-aefhtxABÀé①Ａﬁ今天국ก็\u0301\u0323\u200d🙂\u3000\r़क्ष\u0600ß\u00ad"


@lru_cache(maxsize=4)
def model_file(**options: Any) -> ModelFile:
    made = trained_by_sentencepiece([*TRAINING_TEXTS, "A ﬁne café"], vocab_size=330, **options)
    return read_model(made, "test")


def unigram(steps: list[Any], before: Any, decoder: Any, **options: Any) -> Theirs:
    """The model as transformers converts it, between these parts."""
    file = model_file(**options)
    bytes_too = bool(options.get("byte_fallback"))
    vocab = [(piece.text, piece.score) for piece in file.pieces]
    made = Theirs(models.Unigram(vocab, unk_id=0, byte_fallback=bytes_too))
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    rules = normalizers.Precompiled(file.normalizer["precompiled_charsmap"])
    made.normalizer = normalizers.Sequence([rules, *steps])
    made.pre_tokenizer, made.decoder = before, decoder
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)]
    )
    return made


def replace(pattern: Any, content: str) -> Any:
    return normalizers.Replace(pattern, content)


def metaspace(scheme: str = "always", **more: Any) -> Any:
    return pre_tokenizers.Metaspace("▁", scheme, **more)


BLANKS = replace(Regex(" {2,}"), " ")
FUSED = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]


def pairs_of(file: ModelFile, ids: dict[str, int]) -> list[tuple[str, str]]:
    """The merges that transformers derives from the scores of pieces: the best first, then the shortest."""
    found = [
        (-piece.score, cut, piece.text[:cut], piece.text[cut:])
        for piece in file.pieces
        for cut in range(1, len(piece.text))
        if piece.text[:cut] in ids and piece.text[cut:] in ids
    ]
    return [(left, right) for _, _, left, right in sorted(found)]


def bpe(normalizer: Any, before: Any, decoder: Any, *, fuse: bool = True, **options: Any) -> Theirs:
    """A BPE model as transformers converts it, between these parts."""
    file = model_file(model_type="bpe", normalization_rule_name="identity", **options)
    ids = {piece.text: i for i, piece in enumerate(file.pieces)}
    how = {"unk_token": "<unk>", "fuse_unk": fuse, "byte_fallback": bool(options.get("byte_fallback"))}
    made = Theirs(models.BPE(vocab=ids, merges=pairs_of(file, ids), **how))
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    made.normalizer, made.pre_tokenizer, made.decoder = normalizer, before, decoder
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    return made


ALWAYS, IN_FRONT = decoders.Metaspace("▁", "always"), [normalizers.Prepend("▁"), replace(" ", "▁")]
QUOTES = [replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), BLANKS]
BY_WORDS = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace()])
AT_SPACES = pre_tokenizers.Split(" ", "merged_with_previous")
FIRST, FUSE, BYTES = metaspace("first", split=False), decoders.Sequence(FUSED), {"byte_fallback": True}
MADE: dict[str, Callable[[], Theirs]] = {
    "xlm_roberta": lambda: unigram([normalizers.Strip(left=False, right=True), BLANKS], metaspace(), ALWAYS),
    "pegasus": lambda: unigram([BLANKS], BY_WORDS, ALWAYS),
    "albert": lambda: unigram(QUOTES, metaspace(), ALWAYS),
    "llama": lambda: unigram([], FIRST, FUSE, **BYTES),
    "never": lambda: unigram([normalizers.Nmt()], metaspace("never"), decoders.Metaspace("▁", "never")),
    "whole": lambda: unigram(IN_FRONT, None, FUSE, **BYTES),
    "llama_2": lambda: bpe(
        normalizers.Sequence(IN_FRONT), None, FUSE, allow_whitespace_only_pieces=True, **BYTES
    ),
    "llama_2_new": lambda: bpe(None, FIRST, FUSE, **BYTES),
    "gemma": lambda: bpe(
        replace(" ", "▁"), AT_SPACES, decoders.Sequence(FUSED[:3]), split_digits=True, **BYTES
    ),
    "words": lambda: bpe(None, metaspace(), ALWAYS, fuse=False),
    "across": lambda: bpe(None, metaspace(split=False), decoders.Metaspace(), split_by_whitespace=False),
}


def by_rules(rules: bytes, texts: list[str]) -> list[str]:
    made = StepNormalizer((Charsmap(rules),)).buffers(*pack_bytes([text.encode() for text in texts]))
    return [text.decode() for text in unpack(*made)]


def content_of(theirs: Theirs) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(theirs.to_str())
    return made


def both(theirs: Theirs, folder: Path | str) -> tuple[Theirs, Tokenizer]:
    """A tokenizer as both libraries read it from its file."""
    file = f"{folder}/tokenizer.json"
    theirs.save(file)
    return Theirs.from_file(file), tokenizer.load(file)


@lru_cache(maxsize=len(MADE))
def kept(name: str) -> tuple[Theirs, Tokenizer]:
    with tempfile.TemporaryDirectory() as folder:
        return both(MADE[name](), folder)


def check(theirs: Theirs, ours: Tokenizer, text: str) -> list[int]:
    """Compare the ids of a text with special tokens, in every way to encode it."""
    expected = theirs.encode(text, add_special_tokens=False).ids
    assert ours.encode(text, allowed_special="all") == expected
    assert list(ours.encode_iterable([text[:3], text[3:5], text[5:]], allowed_special="all")) == expected
    assert ours.encode_with_offsets(text, allowed_special="all")[0] == expected
    return expected


@pytest.mark.parametrize("name", MADE)
def test_ids_texts_and_files_are_those_of_tokenizers(name, tmp_path):
    theirs, ours = both(MADE[name](), tmp_path)
    expected = [found.ids for found in theirs.encode_batch(TEXTS, add_special_tokens=False)]
    assert ours.encode_batch(TEXTS).to_lists() == expected
    for ids in expected:
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)
    assert ours.encode(*TEXTS[:2], add_special_tokens=True) == theirs.encode(*TEXTS[:2]).ids
    attestation.check(ours, attestation.make(ours))
    ours.save(tmp_path / "own")
    ours.save(tmp_path / "theirs", format="huggingface")
    assert tokenizer.load(tmp_path / "own") == tokenizer.load(tmp_path / "theirs") == ours
    again = Theirs.from_file(str(tmp_path / "theirs" / "tokenizer.json"))
    assert [found.ids for found in again.encode_batch(TEXTS, add_special_tokens=False)] == expected
    if name == "xlm_roberta":
        older = {"type": "Metaspace", "replacement": "▁", "str_rep": "▁", "add_prefix_space": True}
        content = content_of(theirs) | {"pre_tokenizer": older, "decoder": older}
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        assert tokenizer.load(tmp_path / "tokenizer.json") == ours


@pytest.mark.parametrize("name", MADE)
@given(
    parts=st.lists(
        st.one_of(
            st.text(alphabet=ALPHABET, max_size=8),
            st.text(alphabet=st.characters(codec="utf-8", max_codepoint=0x3FF), max_size=4),
            st.sampled_from(["<s>", "</s>", "<unk>", "the lazy"]),
        ),
        max_size=6,
    )
)
def test_any_text_with_special_tokens_has_their_ids(name, parts):
    theirs, ours = kept(name)
    text = "".join(parts)
    if name == "albert":  # whose decompositions are those of each library's Unicode tables
        text = "".join(character for character in text if character < "\u0250" or character in ALPHABET)
    check(theirs, ours, text)


def test_rules_apply_to_grapheme_clusters_as_there():
    sources = ["a", "e\u0301", "\r", "\u0915", "\U0001f1e9", "\u1100", "\u0600", "\u00a9", "\u200d", "\u0301"]
    rules = compile_rules({source: f"<{i}>" for i, source in enumerate(sources)})
    marks = ["\u0301", "\u094d", "\u0903", "\u200d", "\n", "\u1161", "\U0001f1ea", "\U0001f467", "b"]
    texts = [x + y + z for x in (*sources, *marks) for y in (*sources, *marks) for z in (*sources, *marks)]
    theirs = normalizers.Precompiled(rules)
    assert by_rules(rules, texts) == list(map(theirs.normalize_str, texts))
    # by hand: the accent is lost with the rest of a cluster of five bytes, and stays in a longer one
    ligature = compile_rules({"ﬁ": "fi"})
    assert by_rules(ligature, ["ﬁ\u0301", "ﬁ\u0301\u0301\u0301"]) == ["fi", "fi\u0301\u0301\u0301"]


def test_equal_sums_are_decided_as_there(tmp_path):
    scores = {"▁": -2.2331151962280273, "f": -6.834107398986816, "ff": -9.649773597717285}  # sentencepiece's
    theirs = Theirs(models.Unigram([("<unk>", 0.0), *scores.items()], unk_id=0))
    theirs.add_special_tokens(["<unk>"])
    theirs.pre_tokenizer, theirs.decoder = metaspace(), decoders.Metaspace()
    theirs, ours = both(theirs, tmp_path)
    texts = ["f" * number for number in range(40)]
    assert ours.encode_batch(texts).to_lists() == [theirs.encode(text).ids for text in texts]


SPACED = st.lists(st.sampled_from(["<s>", "</s>", *" \u3000\na▁", "fox"]), max_size=9).map("".join)


@pytest.mark.parametrize("sides", [(True, False), (False, True), (True, True)])
@given(text=SPACED)
def test_special_tokens_take_white_space_as_there(sides, text):
    theirs, ours = taking(*sides)
    expected = check(theirs, ours, text)
    several = ours.encode_batch([text, " a ", text], allowed_special="all").to_lists()
    assert several == [expected, theirs.encode(" a ", add_special_tokens=False).ids, expected]


@lru_cache(maxsize=3)
def taking(left: bool, right: bool) -> tuple[Theirs, Tokenizer]:
    """A tokenizer in which `<s>` takes white space on some sides, in both libraries."""
    content = content_of(MADE["llama"]())
    content["added_tokens"][1] |= {"lstrip": left, "rstrip": right}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        file.write_text(json.dumps(content))
        ours = tokenizer.load(file)
        attestation.check(ours, attestation.make(ours))
        for name in ("huggingface", "tokmill"):
            assert tokenizer.load(ours.save(Path(folder) / name, name)[0]) == ours
        with pytest.raises(FormatError, match="takes the white space beside it"):
            ours.save(folder, "sentencepiece")
        assert ours.rename({"<s>": "<mask>"}).encode("a <mask> b", allowed_special="all") == ours.encode(
            "a <s> b", allowed_special="all"
        )
        return Theirs.from_file(str(file)), ours


def test_a_list_of_merges_joins_no_other_pair(tmp_path):
    vocab = {"<unk>": 0, "▁": 1, "a": 2, "b": 3, "c": 4, "ab": 5, "bc": 6, "abc": 7}
    merges = [("b", "c"), ("a", "b"), ("ab", "c")]  # not ("a", "bc"), which makes a piece, too
    theirs = Theirs(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>"))
    theirs.add_special_tokens(["<unk>"])
    theirs.pre_tokenizer, theirs.decoder = metaspace("never"), decoders.Metaspace("▁", "never")
    _, tok = both(theirs, tmp_path)
    assert tok.encode("abc abx") == theirs.encode("abc abx").ids == [2, 6, 1, 5, 0]
    assert tok.merges == [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")]


WRITTEN: dict[str, dict[str, Any]] = {
    "plain": {},
    "bytes": {"byte_fallback": True, "character_coverage": 0.98, "remove_extra_whitespaces": False},
    "no prefix": {"add_dummy_prefix": False, "allow_whitespace_only_pieces": True, "split_digits": True},
    "across words": {"split_by_whitespace": False},
}
RUNS = ["a" * 3, "-" * 40, "=" * 30, " " * 50, "ha" * 20, "...", "▁▁"]


@lru_cache(maxsize=len(WRITTEN))
def exported(name: str) -> tuple[Theirs, Tokenizer, Tokenizer]:
    """A BPE model of sentencepiece as tokenizers reads what we write, as we read it, and as it was."""
    texts = [*TRAINING_TEXTS, "-" * 16, "==== ======", "haha hahaha hahahaha", "a    b        c"] * 3
    model = trained_by_sentencepiece(
        texts, vocab_size=330, model_type="bpe", normalization_rule_name="identity", **WRITTEN[name]
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.model").write_bytes(model)
        tok = tokenizer.load(Path(folder) / "tokenizer.model")
        file, *_ = tok.save(Path(folder) / "written", "huggingface")
        return Theirs.from_file(str(file)), tokenizer.load(file), tok


@pytest.mark.parametrize("name", WRITTEN)
@given(
    parts=st.lists(
        st.one_of(
            st.sampled_from([*RUNS, "<s>", "</s>", " ", "the "]), st.text(alphabet=ALPHABET, max_size=6)
        ),
        max_size=8,
    )
)
def test_a_bpe_model_file_is_written_with_the_same_ids(name, parts):
    theirs, again, tok = exported(name)
    text = "".join(parts)
    ids = tok.encode(text, allowed_special="all")
    assert theirs.encode(text, add_special_tokens=False).ids == ids
    assert again.encode(text, allowed_special="all") == ids
    assert theirs.decode(ids, skip_special_tokens=False) == tok.decode(ids) == again.decode(ids)


def by_scores(scores: dict[str, float], **more: Any) -> Tokenizer:
    """A BPE model as sentencepiece would make it, with these scores."""
    tokens = {i: piece.encode() for i, piece in enumerate(scores, start=1)}
    vocabulary = Vocabulary.build(tokens, {"<unk>": 0})
    model = CharacterPairModel(vocabulary, np.array([0.0, *scores.values()]), "<unk>", **more)
    normalizer = SentenceNormalizer("identity", add_dummy_prefix=False)
    return Tokenizer(Definition(model, PreTokenizer(pattern_of(model)), normalizer))


def test_of_overlapping_places_the_leftmost_is_joined_in_what_is_written(tmp_path):
    # by hand: "ababa" is "ab" + "aba" and "aba" + "ba"; in ab|aba|ba both overlap, and the first is joined
    scores = {"a": -9.0, "b": -9.0, "ab": -3.0, "aba": -2.0, "ba": -1.5, "ababa": -1.0}
    made = with_merges(by_scores(scores).definition.model)
    pairs = [pair for pair in made.pairs or [] if b"".join(pair) == b"ababa"]
    assert pairs == [(b"ab", b"aba"), (b"aba", b"ba")]


def test_model_files_that_no_file_can_hold_are_refused_with_the_reason(tmp_path):
    identity = {"normalization_rule_name": "identity"}
    cannot = {
        "tokenizers adds with 64": identity,
        "by grapheme clusters": {"normalization_rule_name": "nfkc"},
        "not after it": {**identity, "treat_whitespace_as_suffix": True, "model_type": "bpe"},
        "symbols such as 'fox'": {**identity, "user_defined_symbols": ["fox"], "model_type": "bpe"},
    }
    for reason, options in cannot.items():
        model = trained_by_sentencepiece(TRAINING_TEXTS, vocab_size=200, **options)
        (tmp_path / "tokenizer.model").write_bytes(model)
        with pytest.raises(FormatError, match=reason):
            tokenizer.load(tmp_path / "tokenizer.model").save(tmp_path / "written", "huggingface")
    with pytest.raises(FormatError, match="'ab' and 'bc' have one score"):
        with_merges(by_scores({"a": -9.0, "b": -9.0, "c": -9.0, "ab": -1.0, "bc": -1.0}).definition.model)
    with pytest.raises(FormatError, match="the character 'b' is in pieces"):
        with_merges(by_scores({"a": -9.0, "ab": -1.0}).definition.model)


@given(at=st.integers(0, 400), byte=st.integers(0, 255))
def test_damaged_rules_are_refused_or_end(at, byte):
    rules = bytearray(compile_rules({"a": "b", "e\u0301": "é", "ﬁ": "fi"}))
    rules[at % len(rules)] = byte
    try:
        made = Charsmap(bytes(rules))
    except FormatError:
        return
    assert StepNormalizer((made,)).buffers(*pack_bytes(["aéﬁ".encode() * 20]))[1].shape == (2,)


ONE = "normalizer.normalizers.1"
RULES = "normalizer.normalizers.0.precompiled_charsmap"
CUT, NO_TEXT = b"\xff\xff\x00\x00abc", compile_rules({"a": "b"}) + b"\xff\0"
PUNCTUATION = {"type": "Sequence", "pretokenizers": [{"type": "Punctuation"}, {"type": "Metaspace"}]}
CANNOT: dict[str, list[tuple[dict[str, Any], str]]] = {
    "xlm_roberta": [
        ({RULES: "%%%"}, "precompiled_charsmap"),
        ({RULES: ""}, "it must hold rules"),
        ({RULES: base64.b64encode(CUT).decode()}, "claim a table of 65535"),
        ({RULES: base64.b64encode(NO_TEXT).decode()}, "precompiled_charsmap"),
        ({ONE: {"type": "ByteLevel"}}, "normalizer.type='ByteLevel'"),
        (
            {ONE: {"type": "Replace", "pattern": {"Regex": r"\Ax"}, "content": ""}},
            r"reads '\\\\A' in another way",
        ),
        ({"pre_tokenizer.replacement": "_"}, "pre_tokenizer.replacement='_'"),
        ({"pre_tokenizer.prepend_scheme": "last"}, "prepend='last'"),
        ({"pre_tokenizer": PUNCTUATION}, "pre_tokenizer='Punctuation, Metaspace'"),
        ({"decoder": None}, "decoder=None"),
        (
            {"model.byte_fallback": True, "model.vocab.-": ["<0x41>", -3.0]},
            "1 of the tokens <0x00> to <0xFF>",
        ),
        ({"model.vocab.-": ["a", -3.0]}, "under two ids"),
        *(({"model.vocab.9.1": score}, "the score of id 9") for score in ("much", 0.5)),
        ({"added_tokens.0.single_word": True}, "single_word=True"),
    ],
    "gemma": [
        ({"model.dropout": 0.1}, "model.dropout=0.1"),
        ({"model.ignore_merges": True}, "model.ignore_merges=True"),
        ({"model.continuing_subword_prefix": "##"}, "continuing_subword_prefix='##'"),
        ({"model.unk_token": None}, "model.unk_token=None"),
        ({"model.merges.3": ["t", "☃"]}, r"merges\[3\]=\['t', '☃'\]"),
        ({"model.merges.3": ["▁", "e", "x"]}, "broken|malformed|merges"),
        ({"model.merges.3": ["<0x41>", "e"]}, "must be in the vocabulary"),
        ({"model.merges.-": ["t", "h"]}, "again"),
        ({"normalizer": None}, "only be done where the normalizer leaves none"),
    ],
}


@pytest.mark.parametrize(
    ("name", "changes", "says"), [(name, *row) for name, rows in CANNOT.items() for row in rows]
)
def test_files_that_cannot_be_read_are_refused_by_name(name, changes, says, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(edited(content_of(MADE[name]()), changes)))
    with pytest.raises(TokenizerError, match=says):
        tokenizer.load(tmp_path)
