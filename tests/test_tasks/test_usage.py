"""The tables and summary of a vocabulary's use, on a vocabulary of six tokens and counts that can be worked
out by hand."""

import math

import numpy as np

from tests.test_tasks.fabricated import encoded_corpus
from tokmill import tokenizer
from tokmill.tasks.formats.encoded import EncodedStatistics
from tokmill.tasks.usage.stage import find_contexts, sequences_of
from tokmill.tasks.usage.summary import Summary, summarize, to_markdown
from tokmill.tasks.usage.tables import SourceUse, Vocabulary, usage_tables

TOKENS = [b"a", b"\xe4", b"ab", b"abc", b"<|end|>", b"<|reserved_0|>"]
VOCABULARY = Vocabulary(
    tokens=TOKENS,
    kinds=["byte", "byte", "merge", "merge", "special", "reserved"],
)


def use(counts, **statistics):
    return SourceUse(
        EncodedStatistics(num_tokens=sum(counts), **statistics), np.array(counts, dtype=np.uint64)
    )


SOURCES = {
    "zwei": use(
        [4, 0, 3, 0, 2, 0], num_documents=2, num_end_tokens=2, num_bytes=10, num_chars=10, num_words=5
    ),
    "eins": use([1, 0, 0, 0, 1, 0], num_documents=1, num_end_tokens=1, num_bytes=1, num_chars=1, num_words=0),
    "leer": use([0, 0, 0, 0, 0, 0]),
}


def summary_of(sources, vocabulary=VOCABULARY) -> Summary:
    summary = summarize(usage_tables(vocabulary, sources), vocabulary, sources)
    assert Summary.model_validate_json(summary.model_dump_json()) == summary
    return summary


def test_unknown_tokens_are_counted_and_are_not_ordinary():
    tokens = [b"[UNK]", b"the", b" cat", b"<|end|>"]
    kinds = ["unknown", "word", "word", "special"]
    vocabulary = Vocabulary(tokens, kinds)
    sources = {"one": use([2, 1, 0, 1], num_documents=1, num_end_tokens=1, num_bytes=30)}
    summary = summary_of(sources, vocabulary)
    assert (summary.num_ordinary_tokens, summary.num_never_encoded_tokens) == (2, 1)
    assert (summary.num_unknown_tokens, summary.unknown_share) == (2, round(2 / 3, 6))
    assert "- Unknown tokens, whose text is lost: 2 (66.67%)" in to_markdown(summary)


def test_marks_that_no_token_joins_to_their_letters_are_named():
    tokens = [text.encode() for text in ("கட", "க", "ி", "the", "x")]
    vocabulary = Vocabulary(tokens, ["merge"] * 5)
    summary = summary_of({"one": use([20, 10, 30, 7, 0], num_documents=1, num_bytes=30)}, vocabulary)
    assert summary.marks_apart == {"Tamil": 0.5}
    assert "apart from their letters in Tamil (50% of tokens)" in to_markdown(summary)
    assert "marks" not in summary_of(SOURCES).model_dump_json()


def test_sources_are_in_order_with_ratios_by_hand():
    found = usage_tables(VOCABULARY, SOURCES)["usage_sources"].to_pylist()
    assert [row["source"] for row in found] == ["zwei", "eins", "leer"]
    # zwei: 9 tokens, 2 of them end tokens: 7 of text for 10 bytes; uses 2 of 4 ordinary tokens.
    assert (found[0]["bytes_per_token"], found[0]["chars_per_token"]) == (10 / 7, 10 / 7)
    assert (found[0]["num_used_tokens"], found[0]["used_share"]) == (2, 0.5)
    assert found[1]["bytes_per_token"] == 1.0
    assert not {"num_words", "fertility"} & {*found[0]}  # words are the audit's alone, by one definition
    names = ("bytes_per_token", "num_used_tokens", "used_share")
    assert [found[2][name] for name in names] == [None, 0, 0.0]


def test_occurrences_and_lengths_by_hand():
    tables = usage_tables(VOCABULARY, SOURCES)
    rows = [tuple(row.values()) for row in tables["vocab_occurrences"].to_pylist()]
    assert rows == [("eins", 0, 1), ("zwei", 0, 4), ("zwei", 2, 3), ("eins", 4, 1), ("zwei", 4, 2)]
    # ordinary tokens: a and a part of a character, ab, abc
    lengths = [tuple(row.values()) for row in tables["usage_lengths"].to_pylist()]
    assert lengths == [(1, 2, 1, 5), (2, 1, 0, 3), (3, 1, 1, 0)]
    assert tables["usage_tokens"]["num_sources"].to_pylist() == [2, 0, 1, 0, 2, 0]


def test_the_summary_adds_up():
    summary = summary_of(SOURCES)
    assert (summary.vocab_size, summary.num_ordinary_tokens, summary.num_never_encoded_tokens) == (6, 4, 2)
    assert summary.unused_examples == ["abc", "\\xe4"]
    assert summary.never_encoded_share == 0.5
    overall = summary.overall
    assert (overall.num_documents, overall.num_tokens, overall.num_bytes) == (3, 11, 11)
    assert (overall.source, overall.bytes_per_token, overall.used_share) == ("all", 1.375, 0.5)


def test_renyi_efficiency_is_of_ordinary_tokens_for_each_source():
    summary = summary_of(SOURCES)
    # zwei has 4 and 3 of four ordinary tokens; its two end tokens do not count
    power = (4 / 7) ** 2.5 + (3 / 7) ** 2.5
    by_hand = math.log(power) / -1.5 / math.log(4)
    assert [part.renyi_efficiency for part in summary.sources] == [round(by_hand, 6), 0.0, None]
    power = (5 / 8) ** 2.5 + (3 / 8) ** 2.5
    assert summary.renyi_efficiency == round(math.log(power) / -1.5 / math.log(4), 6)
    assert summary.overall.renyi_efficiency == summary.renyi_efficiency


def test_the_first_place_of_each_by_hand(tmp_path):
    tok = tokenizer.train(["ab ab ab"], vocab_size=257)
    (ab,) = tok.encode("ab")
    ids = {name: tok.vocab[name.encode()] for name in "xyz\r\n"}
    documents = [[ids["x"]], [ids["y"], ids["\r"], ids["\n"], ab, ids["z"], ab]], [[ab, ids["z"]]]
    corpus = encoded_corpus(tmp_path, {"one": documents}, vocab_size=tok.vocab_size)
    wanted = {token: [token] for token in (ab, ids["z"], ids["x"], tok.vocab[b"q"])}
    found = find_contexts(tok, wanted, corpus.shards)
    assert found == {ab: "y ⟦ab⟧zab", ids["z"]: "y ab⟦z⟧ab", ids["x"]: "⟦x⟧"}
    backwards = find_contexts(tok, {ab: [ab]}, corpus.shards[::-1])
    assert backwards == {ab: "⟦ab⟧z"}


def test_a_part_of_a_character_is_shown_as_bytes(tmp_path):
    tok = tokenizer.train(["ab"], vocab_size=256)
    first, second = tok.encode("é")
    corpus = encoded_corpus(tmp_path, {"one": [[[first, second]]]})
    assert find_contexts(tok, {second: [second]}, corpus.shards) == {second: "\\xc3⟦\\xa9⟧"}


def test_a_token_that_does_not_occur_is_shown_by_its_example(tmp_path):
    tok = tokenizer.train(["abc abc abc ab"], vocab_size=258)
    ab, abc = (tok.vocab[text] for text in (b"ab", b"abc"))
    sequences = sequences_of(tok, [(ab, 0, "abcd"), (abc, 3, "abcd"), (0, 0, None)])
    d, x = (tok.vocab[text] for text in (b"d", b"x"))
    assert sequences == {ab: [abc, d], abc: [abc]}
    # `abc` ends one document and `d` begins the next: the pre-token does not stand there
    corpus = encoded_corpus(
        tmp_path, {"one": [[[x, abc], [d, abc, x, abc, d, d]]]}, vocab_size=tok.vocab_size
    )
    assert find_contexts(tok, sequences, corpus.shards) == {ab: "dabcx⟦abcd⟧d", abc: "x⟦abc⟧"}


def test_no_part_of_a_character_stands_where_the_text_was_cut(tmp_path):
    tok = tokenizer.train(["ab"], vocab_size=256)
    (b,) = tok.encode("b")
    words = tok.encode("ééééééééééa")
    corpus = encoded_corpus(tmp_path, {"one": [[[*words, b, *words[-1:], *words]]]})
    assert find_contexts(tok, {b: [b]}, corpus.shards) == {b: "éééééa⟦b⟧aééééé"}
