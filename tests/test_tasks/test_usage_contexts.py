"""Where a suspect occurs first: in the first shard and document that has it, between marks, on one line."""

from tests.test_tasks.fabricated import encoded_corpus
from tokmill import tokenizer
from tokmill.tasks.usage.contexts import find_contexts, sequences_of


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
