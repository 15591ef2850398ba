"""Training on whole sentences: BPE's pieces are sentencepiece's, which reads the files of both families."""

from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import TRAINING_TEXTS, trained_by_sentencepiece
from tokmill import tokenizer
from tokmill.tokenizer import PretokenCounts, Tokenizer, attestation
from tokmill.tokenizer.components.charsmap import RULE_NAMES, compile_rules, named_charsmap, read_rules
from tokmill.tokenizer.formats.model_file import read_model
from tokmill.tokenizer.sentences.words import PieceRules, cut_words
from tokmill.tokenizer.unigram.seeding import SeedRules, find_seeds, prepare

TEXTS = [
    *(text.rstrip() for text in TRAINING_TEXTS),  # as sentencepiece's Python interface does
    "In 2024 the 3 foxes  ran 10km; Ａｂｃ １２３ — the lazy, lazy dogs.",
    "Привет, мир! Привет, лиса. Größen e\u0301e\u0301 и́ и́ ー ラーメン ラーメン 今天天气",
    "a\u0301б a1б a1б ﬁne ﬁnd ½ x\ty the the the  end ",
]
OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "bytes": {"byte_fallback": True, "character_coverage": 0.98, "vocab_size": 440},
    "no rules": {"normalizer": "identity"},
    "as it is": {"normalizer": "identity", "add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "folded": {"normalizer": "nmt_nfkc_cf"},
    "own rules": {"normalization_rules": {"ﬁ": "fi", "Ｂ": "", "е": "e", "e\u0301": "é", " x": "ks"}},
    "across words": {"split_by_whitespace": False},
    "blanks": {"allow_whitespace_only_pieces": True, "remove_extra_whitespaces": False},
    "suffixes": {"treat_whitespace_as_suffix": True},
    "suffixes, across words": {"treat_whitespace_as_suffix": True, "split_by_whitespace": False},
    "suffixes, blanks": {"treat_whitespace_as_suffix": True, "allow_whitespace_only_pieces": True}
    | {"remove_extra_whitespaces": False},
    "digits": {"split_digits": True},
    "numbers": {"split_by_number": False},
    "scripts": {"split_by_unicode_script": False},
    "short": {"max_piece_length": 3, "vocab_size": 160},
    "symbols": {"user_defined_symbols": ["lazy", "▁x", "1"], "special_tokens": ["<sep>", "<cls>"]},
    "other ids": {"pad_id": 0, "unk_id": 3, "bos_id": -1, "eos_id": 1},
}
_THEIR_NAMES = {
    "normalizer": "normalization_rule_name",
    "normalization_rules": "normalization_rule_tsv",
    "max_piece_length": "max_sentencepiece_length",
    "special_tokens": "control_symbols",
}


def trained(name: str, family: str = "char_bpe", **more: Any) -> Tokenizer:
    options = {"vocab_size": 200, **OPTIONS[name], **more}
    options |= (
        {} if "normalization_rules" in options else {"normalizer": options.get("normalizer", "nmt_nfkc")}
    )
    smaller = family == "unigram"
    return tokenizer.train(TEXTS, family=family, mode="sentencepiece", allow_smaller=smaller, **options)


def table_of(rules: dict[str, str], path: Path) -> str:
    """Write rules as sentencepiece's TSV."""
    sides = ([" ".join(f"{ord(c):X}" for c in side) for side in rule] for rule in rules.items())
    path.write_text("".join(f"{source}\t{text}\n" for source, text in sides))
    assert read_rules(path) == rules
    return str(path)


def pieces(model: sentencepiece.SentencePieceProcessor) -> list[tuple[str, float]]:
    return [(model.id_to_piece(i), model.get_score(i)) for i in range(model.get_piece_size())]


def in_sentencepiece(tok: Tokenizer, folder: Path) -> sentencepiece.SentencePieceProcessor:
    tok.save(folder, format="sentencepiece")
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))


@pytest.mark.parametrize("name", OPTIONS)
def test_bpe_has_the_pieces_scores_and_ids_of_sentencepiece(name, tmp_path):
    options = {"vocab_size": 200, "character_coverage": 1.0, **OPTIONS[name]}
    if "normalization_rules" in options:
        options["normalization_rules"] = table_of(options["normalization_rules"], tmp_path / "rules.tsv")
    named = {_THEIR_NAMES.get(key, key): value for key, value in options.items()}
    model = trained_by_sentencepiece(TEXTS, model_type="bpe", **named)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)

    assert pieces(in_sentencepiece(trained(name), tmp_path)) == pieces(theirs)


@pytest.mark.parametrize("family", ["char_bpe", "unigram"])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_trained_tokenizer_is_the_same_in_its_file(name, family, tmp_path):
    tok = trained(name, family, seed_size=2000)
    theirs = in_sentencepiece(tok, tmp_path)

    assert tokenizer.load(tmp_path) == tok
    for text in [*TEXTS, "", "  ", "the ㍿ 🙂 lazy\u3000x", "▁▁a<sep>"]:
        ids = tok.encode(text, as_text=True)
        assert ids == theirs.encode(text)
        assert tok.decode(ids) == theirs.decode(ids) or theirs.unk_id() in ids
    attestation.check(tok, attestation.make(tok))


@pytest.mark.parametrize("unit", [1, 7])
def test_seeds_of_bpe_count_as_often_as_they_occur(unit):
    words = {"ababab": 3, "xab": 2, "今今": 4, "é": 9}
    counts = PretokenCounts.from_dict({word.encode(): unit * count for word, count in words.items()})
    text = prepare(counts, unit, 1.0, ())

    seeds = find_seeds(text, SeedRules("bpe", 100, 1, 4, 100, unit=unit))

    def occurs(piece: str) -> int:
        places = (
            (word.startswith(piece, i), count) for word, count in words.items() for i in range(len(word))
        )
        return sum(found * count for found, count in places)

    learned = {piece.decode(): score for piece, score in zip(seeds.strings, seeds.scores, strict=True)}
    assert learned == {piece: occurs(piece) * len(piece) for piece in learned}
    assert {piece for piece in learned if len(piece) > 1} == {"ab", "abab", "xab", "今今"}


RULES = st.builds(
    PieceRules,
    longest=st.integers(2, 6),
    split_by_unicode_script=st.booleans(),
    split_by_number=st.booleans(),
    split_by_whitespace=st.booleans(),
    split_digits=st.booleans(),
    allow_whitespace_only_pieces=st.booleans(),
    treat_whitespace_as_suffix=st.booleans(),
)


@given(rules=RULES, text=st.text("ab▁бカー今1１\u0301\t\u2585.", min_size=1, max_size=9))
def test_no_allowed_piece_lies_across_a_cut(rules, text):
    words = cut_words(PretokenCounts.from_dict({text.encode(): 3}), rules, 1.0, ())
    parts = [part.decode() for part in words.counts.to_dict()]
    inside = {part[i:j] for part in parts for i in range(len(part)) for j in range(i + 1, len(part) + 1)}
    whole = {text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1)}

    assert {piece for piece in whole if rules.allows(piece)} == {p for p in inside if rules.allows(p)}


@pytest.mark.parametrize("name", RULE_NAMES)
def test_the_tables_of_named_rules_are_those_of_sentencepiece(name):
    model = trained_by_sentencepiece(["a b"] * 3, vocab_size=10, normalization_rule_name=name)
    assert read_model(model, "theirs").normalizer["precompiled_charsmap"] == named_charsmap(name)


@given(
    rules=st.dictionaries(
        st.text("abé今🙂\u0301", min_size=1, max_size=4), st.text("abc \u0301", max_size=3), min_size=1
    )
)
@settings(max_examples=40)
def test_own_rules_are_compiled_as_sentencepiece_does(tmp_path_factory, rules):
    rules = {source: text for source, text in rules.items() if source != text} or {"a": "b"}
    table = table_of(rules, tmp_path_factory.mktemp("rules") / "rules.tsv")
    model = trained_by_sentencepiece(["x y"] * 3, vocab_size=10, normalization_rule_tsv=table)
    assert read_model(model, "theirs").normalizer["precompiled_charsmap"] == compile_rules(rules)


@pytest.mark.parametrize(
    "rules", [{"": "a"}, {"a": "a"}, {"a" * 65: ""}, {"a": "\0"}, {"a" * i: "" for i in range(1, 34)}]
)
def test_rules_that_cannot_be_used_are_refused(rules):
    with pytest.raises(tokenizer.TokenizerError, match="normalization_rules"):
        compile_rules(rules)


@pytest.mark.parametrize("line", ["zz\t41", "110000\t41", "\t41", "41 -5\t"])
def test_a_damaged_table_of_rules_is_refused(line, tmp_path):
    (tmp_path / "rules.tsv").write_text(f"42\t43\n{line}\n")
    with pytest.raises(tokenizer.TokenizerError):
        compile_rules(read_rules(tmp_path / "rules.tsv"))


@pytest.mark.parametrize("family", ["char_bpe", "unigram"])
@pytest.mark.parametrize(
    ("texts", "options", "says"),
    [
        ([], {}, "the text is empty"),
        (["\0"], {"normalizer": "identity", "add_dummy_prefix": False}, "the text is empty"),
        (["abcdefgh"], {"vocab_size": 8}, "vocab_size=8 is too small for 9 characters"),
        (TEXTS, {"unk_id": -1}, "unk_id=-1"),
        (TEXTS, {"bos_id": 0}, "must differ"),
        (TEXTS, {"pad_id": 900}, "the id 900"),
        (TEXTS, {"normalizer": "lowercase"}, "use one of identity, nfkc"),
        (TEXTS, {"normalizer": "nfkc", "normalization_rules": {"a": "b"}}, "exclude each other"),
        (TEXTS, {"user_defined_symbols": ["a", "a"]}, "user_defined_symbols"),
        (TEXTS, {"user_defined_symbols": "ab"}, "must be a list"),
        (TEXTS, {"user_defined_symbols": ["<s>"]}, "special token"),
    ],
)
def test_what_cannot_be_trained_is_refused(family, texts, options, says):
    with pytest.raises(tokenizer.TokenizerError, match=says):
        tokenizer.train(texts, family=family, mode="sentencepiece", **{"vocab_size": 120, **options})
