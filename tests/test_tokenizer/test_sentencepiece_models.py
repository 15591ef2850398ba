"""SentencePiece's models: read, encoded, decoded and written as sentencepiece itself does, and its rules."""

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import TRAINING_TEXTS, listed, trained_by_sentencepiece
from tokmill import tokenizer
from tokmill.tokenizer import FormatError, Tokenizer, TokenizerError, attestation
from tokmill.tokenizer.components.charsmap import compile_rules
from tokmill.tokenizer.components.sentences import SentenceNormalizer
from tokmill.tokenizer.formats.model_file import (
    ModelFile,
    Piece,
    PieceKind,
    field_of,
    read_model,
    write_model,
)

MODELS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "bytes": {"byte_fallback": True, "character_coverage": 0.98},
    "as it is": {
        "normalization_rule_name": "identity",
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
    },
    "folded": {"normalization_rule_name": "nmt_nfkc_cf", "remove_extra_whitespaces": False},
    "across words": {"split_by_whitespace": False, "normalization_rule_name": "nfkc"},
    "defined": {"user_defined_symbols": ["the lazy", "fox", "▁x"], "control_symbols": ["<sep>", "<cls>"]},
    "other ids": {"pad_id": 0, "unk_id": 3, "bos_id": -1, "eos_id": 1, "unk_piece": "⁇"},
    "suffixes": {"treat_whitespace_as_suffix": True, "remove_extra_whitespaces": False},
    "suffixes, across words": {"treat_whitespace_as_suffix": True, "split_by_whitespace": False},
    "blanks": {"allow_whitespace_only_pieces": True, "remove_extra_whitespaces": False, "split_digits": True},
}
MODELS |= {f"bpe, {name}": {"model_type": "bpe", **options} for name, options in MODELS.items()}
TEXTS = [
    *TRAINING_TEXTS[:3],
    *listed("| |   |a| a|a |  a  b  |▁|▁▁a| ▁ |\u3000x\u3000|\ta\r\n b\0c|\u00a0|ﷺ ① ½ ﬁ Ⅷ", "|"),
]
TEXTS += listed(
    "e\u0301e\u0301\u0323 한국어|ABC Ａｂｃ ǅ|\u200b\ufeff\u00ad|....----====|aaaaaaaaaaaaa|🙂👨‍👩‍👧", "|"
)
TEXTS += ["the lazy fox <sep> <s> </s> <unk>", "\ufffd\U0010ffff", "x" * 5000, "the lazy dog  " * 900]


@cache
def both(name: str) -> tuple[sentencepiece.SentencePieceProcessor, Tokenizer]:
    model = trained_by_sentencepiece([*TRAINING_TEXTS, "A ﬁne café"], vocab_size=360, **MODELS[name])
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.model").write_bytes(model)
        return sentencepiece.SentencePieceProcessor(model_proto=model), tokenizer.load(folder)


@pytest.mark.parametrize("name", MODELS)
def test_ids_files_and_normalized_text_are_those_of_sentencepiece(name, tmp_path):
    theirs, ours = both(name)
    ids = [theirs.encode(text) for text in TEXTS]
    assert ours.encode_batch(TEXTS, as_text=True).to_lists() == ids
    with_names = [*TEXTS, "<unk>", "x <unk><s> y</s>"]  # which are text in a text
    assert [ours.normalize(text) for text in with_names] == [theirs.normalize(text) for text in with_names]
    for format_name in ("sentencepiece", "tokmill"):
        ours.save(tmp_path / format_name, format_name)
        assert tokenizer.load(tmp_path / format_name) == ours
    written = sentencepiece.SentencePieceProcessor(model_file=f"{tmp_path}/sentencepiece/tokenizer.model")
    assert [written.encode(text) for text in TEXTS] == ids
    assert written.id_to_piece(written.unk_id()) == ours.definition.model.unknown_token
    attestation.check(ours, attestation.make(ours))


@pytest.mark.parametrize("name", MODELS)
@given(
    text=st.text(
        alphabet=st.one_of(st.sampled_from(" ▁\t\u3000.-aefhtx①Aﬁé今"), st.characters(codec="utf-8"))
    )
)
def test_ids_of_any_text(name, text):
    theirs, ours = both(name)
    ids = theirs.encode(text)
    assert ours.encode(text, as_text=True) == ids
    assert list(ours.encode_iterable([text], as_text=True)) == ids
    if theirs.unk_id() not in ids:
        assert ours.decode(ids) == theirs.decode(ids)


@given(
    rules=st.dictionaries(
        st.text("ab é今\u0301", min_size=1, max_size=3),
        st.text("abc \u0301", max_size=3),
        max_size=4,
    ),
    kept=st.lists(st.text("abcé▁", min_size=1, max_size=3), max_size=2, unique=True),
    flags=st.tuples(st.booleans(), st.booleans()),
    texts=st.lists(st.text("abc éèb今\u0301▁"), min_size=1, max_size=5),
)
@example(rules={" a": "c", "a\u0301": "b"}, kept=[], flags=(False, False), texts=["b a", "aa\u0301"])
@settings(max_examples=40)
def test_text_normalized_by_own_rules(tmp_path_factory, rules, kept, flags, texts):
    rules = {source: text for source, text in rules.items() if source != text}
    path = tmp_path_factory.mktemp("rules") / "rules.tsv"
    sides = ([" ".join(f"{ord(c):X}" for c in side) for side in rule] for rule in rules.items())
    path.write_text("".join(f"{source}\t{text}\n" for source, text in sides))
    names = {"add_dummy_prefix": flags[0], "remove_extra_whitespaces": flags[1]}
    table = {"normalization_rule_tsv": str(path)} if rules else {"normalization_rule_name": "identity"}
    model = trained_by_sentencepiece(["x y"] * 3, vocab_size=20, user_defined_symbols=kept, **names, **table)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours = SentenceNormalizer("own", compile_rules(rules), **names, kept=tuple(kept))

    assert [ours.text(text) for text in texts] == [theirs.normalize(text) for text in texts]


def test_the_tokens_around_texts_are_those_of_llama_or_of_the_settings_beside_it(tmp_path):
    theirs, ours = both("bpe, bytes")
    ids = theirs.encode("fox")
    assert ours.encode("fox", add_special_tokens=True) == theirs.encode("fox", add_bos=True)
    assert ours.encode("fox", "fox", add_special_tokens=True) == [1, *ids, 1, *ids]
    unigram, own = both("bytes")
    assert own.encode("fox", add_special_tokens=True) == unigram.encode("fox")
    for single, added in ((None, {}), ("<s> $A </s>", {"add_bos": True, "add_eos": True})):
        other = ours.with_template(single, None if single is None else "<s> $A </s> <s> $B </s>")
        other.save(tmp_path / "other", "sentencepiece")
        read = tokenizer.load(tmp_path / "other")
        assert read == other
        assert read.encode("fox", add_special_tokens=True) == theirs.encode("fox", **added)
    with pytest.raises(FormatError, match="no template but"):
        ours.with_template("</s> $A").save(tmp_path, "sentencepiece")


def pieces(*more: Piece) -> list[Piece]:
    return [Piece("<unk>", 0.0, PieceKind.UNKNOWN), Piece("▁", -1.0), Piece("a", -2.0), *more]


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (ModelFile(pieces(Piece("a", -3.0))), r"b'a' is a token under two ids"),
        (ModelFile(pieces(Piece("", -3.0))), "no token empty"),
        (ModelFile(pieces(Piece("b", 1.5))), "a score is the logarithm"),
        (ModelFile(pieces(Piece("b", float("nan")))), "is nan"),
        (ModelFile(pieces(Piece("<unk>", 0.0, PieceKind.CONTROL))), "have one name"),
        (ModelFile(pieces(Piece("u", 0.0, PieceKind.UNKNOWN))), "2 pieces are of type UNKNOWN"),
        (ModelFile(pieces()[1:]), "0 pieces are of type UNKNOWN"),
        (ModelFile(pieces(Piece("b", 0.0, PieceKind.UNUSED))), "piece 3 is of type UNUSED"),
        (ModelFile(pieces(Piece("<0x41>", 0.0, PieceKind.BYTE))), "1 pieces are of type BYTE"),
        (ModelFile(pieces(), {"model_type": 3}), "model_type is 'word'; only bpe, unigram"),
        (ModelFile(pieces(), {"model_type": 9}), "model_type is 9"),
        (ModelFile(pieces(), {"byte_fallback": True}), "byte_fallback=True, but 0 pieces"),
        (ModelFile(pieces(), {}, {"escape_whitespaces": False}), "escape_whitespaces=false"),
        (ModelFile(pieces(), {}, {"precompiled_charsmap": b"abc"}), "claim a table of"),
        (
            ModelFile(pieces(), {}, {"precompiled_charsmap": b"\xff\xff\xff\xff"}),
            "claim a table of 4294967295",
        ),
        (ModelFile([]), "holds no pieces"),
    ],
)
def test_what_cannot_be_done_is_named(file, says, tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(write_model(file))
    with pytest.raises(TokenizerError, match=says):
        tokenizer.load(path)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x0a\x80\x80\x80\x80\x08", "claims 2147483648 bytes, but 0 are left"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a number of more than 10 bytes"),
        (b"\x08\x01", "a message is the number 1"),
        (b"\x0a\x03\x0a\x01\xff", "text is 'utf-8' codec"),
        (b"\x0a\x02\x10\x01", "score is bytes|score is the number 1"),
        (b"\x0a\x02\x18\x09", "type=9 is not one of"),
        (field_of(1, field_of(1, "a")) + field_of(5, field_of(2, b"x")), "denormalizer_spec"),
    ],
)
def test_damaged_files_are_refused(data, says):
    with pytest.raises(FormatError, match=says):
        read_model(data, "it")


def test_a_model_is_known_by_its_first_piece_and_text_is_none(tmp_path):
    for name in ("tokenizer.model.v3", "vocab", "x.bin"):
        (tmp_path / name).write_bytes(trained_by_sentencepiece(vocab_size=90))
        assert tokenizer.load(tmp_path / name).family == "unigram"
    tokenizer.train(TRAINING_TEXTS, vocab_size=300).save(tmp_path)
    compact = (tmp_path / "tokmill.json").read_text()
    spread = tmp_path / "tokenizer.json"
    spread.write_text("\n{\n" + compact[1:])  # as a field of 123 bytes with one of 34 would begin
    assert tokenizer.load(spread).family == "byte_bpe"
