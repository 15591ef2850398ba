"""The page's encoder gives the ids of `Tokenizer.encode`, for every family, or none."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.test_tasks.page_encoder import ids_in_page, needs_node
from tokmill import tokenizer
from tokmill.tasks.audit.report.encoding import FAMILIES, encoder_of
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.components.normalizers import Normalizer
from tokmill.tokenizer.components.pre_tokenizers import PreTokenizer
from tokmill.tokenizer.pipeline.families import FAMILIES as ALL_FAMILIES
from tokmill.tokenizer.splitting.patterns import SPLIT_CHAINS, SPLIT_PATTERNS

pytestmark = [needs_node, pytest.mark.browser]

CORPUS = [
    *(
        "the cat sat on the mat; the cats SAT.",
        "Don't we'll I'M: 1234567 numbers, 12 and 3.14\r\n\r\n\tdef f(x):",
    ),
    *(
        "Die Straße, größer und weiß. Ωμέγα ΟΔΟΣ Σ",
        "хорошо, сегодня — вчера",
        "日本語のテキスト、漢字かな",
        "안녕하세요 세계",
    ),
    *(
        "naïve café e\u0301 \u1e9b\u0323 ﬁ Ａｂｃ ½",
        "नमस्ते दुनिया",
        "שלום עולם",
        "สวัสดีชาวโลก",
        "👩‍👩‍👧 👍🏽 🇩🇪",
    ),
]
TEXTS = [
    *CORPUS,
    *(
        "",
        " ",
        "  \n \t ",
        "a",
        "aaaaaaaaaaaaaa",
        " leading",
        "trailing  ",
        "tabs\tand\u00a0no\u2003breaks\u200b",
    ),
    *("<|end|> in text <|end|>", "▁marks▁ of ▁▁spaces", "</w> ##ing </w>", "x\u0000y\ufffdz", "\ud800 alone"),
    *(
        "\U000f0000\U000f0001 \U000f0002a",
        "Aa" * 60,
        "don'T WE'LL 'ſ 'K",
        "12345678901 1,234",
        "https://a.b/c?d=e_f#g",
    ),
    *("ab" * 2000, "漢字かな" * 500),
    *("\u0345\u0301a\u0323\u0307", "한글 각", "İstanbul ı", "camelCaseHTTPServer snake_case"),
]


def train(family: str = "byte_bpe", vocab_size: int = 400, **options) -> Tokenizer:
    return tokenizer.train(
        CORPUS * 3,
        family=family,
        vocab_size=vocab_size,
        **{"special_tokens": ["<|end|>"], "allow_smaller": True, **options},
    )


BYTES = train()


def with_parts(**parts) -> Tokenizer:
    return Tokenizer(replace(BYTES.definition, **parts))


def check(tok: Tokenizer, texts: list[str] = TEXTS) -> None:
    wanted = [tok.encode(text, as_text=True) for text in texts]
    found = ids_in_page(tok, texts)
    assert {texts[i]: one for i, one in enumerate(found) if one != wanted[i]} == {}


def test_every_family_is_in_the_page() -> None:
    assert {*ALL_FAMILIES} == FAMILIES


UNKNOWN = {"special_tokens": ["[UNK]", "<|end|>"]}
OPTIONS = {
    "byte_bpe": {},
    "char_bpe": UNKNOWN,
    "char_bpe, bytes": {"family": "char_bpe", "byte_fallback": True, **UNKNOWN},
    "char_bpe, sentences": {"family": "char_bpe", "mode": "sentencepiece"},
    "word_bpe": UNKNOWN,
    "word_bpe, apart": {"family": "word_bpe", "end_of_word": "apart", **UNKNOWN},
    "word_bpe, bytes": {"family": "word_bpe", "letters": "bytes", "vocab_size": 700},
    "word_bpe, longest first": {"family": "word_bpe", "segmentation": "longest_first", **UNKNOWN},
    "wordpiece": UNKNOWN,
    "wordpiece, part": {"family": "wordpiece", "unknown": "part", **UNKNOWN},
    "unigram": {"vocab_size": 200, **UNKNOWN},
    "unigram, bytes": {"family": "unigram", "byte_fallback": True, **UNKNOWN},
    "unigram, sentences": {"family": "unigram", "mode": "sentencepiece", "vocab_size": 250},
    "longest_match": {},
    "word_level": UNKNOWN,
    "character_level": {"vocab_size": 100, **UNKNOWN},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_ids_of_families(name: str) -> None:
    check(train(**{"family": name, **OPTIONS[name]}))


@pytest.mark.parametrize(
    "pattern", [*SPLIT_PATTERNS, *SPLIT_CHAINS, r"\p{L}++|(?>\s+)|[^\s\p{L}]{2,3}+", r".$|(?s:.)"]
)
def test_ids_of_split_patterns(pattern: str) -> None:
    check(with_parts(pre_tokenizer=PreTokenizer(pattern)))


@pytest.mark.parametrize("digits", ["single", "groups_of_three", "groups_of_three_from_right"])
def test_ids_of_digits(digits: str) -> None:
    check(with_parts(pre_tokenizer=PreTokenizer("gpt2", digits)))


NORMALIZERS = [
    *(
        "nfc",
        "nfd",
        "nfkc",
        "nfkd",
        "lowercase",
        "nfd+strip_accents",
        "nmt",
        "strip_left+lowercase",
        "strip_right",
    ),
    *("bert_clean+cjk_spaces+strip_nonspacing+lowercase", 'replace("the","$&")+prepend(" ")', "strip"),
    r'replace_pattern("\\s+"," ")',
]


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_ids_of_normalizers(normalizer: str) -> None:
    check(with_parts(normalizer=Normalizer(normalizer)))


def test_characters_of_another_edition_of_unicode_are_refused_where_they_matter() -> None:
    (found,) = ids_in_page(with_parts(normalizer=Normalizer("nfkc")), ["a\u0378"])
    assert "U+378" in found
    assert ids_in_page(BYTES, ["a\u0378"]) == [BYTES.encode("a\u0378")]


def test_special_tokens_become_ids_if_they_may() -> None:
    tok = train(special_tokens=["<|end|>", "<|end|>er", "$^"], normalizer='prepend(" ")')
    texts = ["a<|end|>b<|end|>erc$^", "<|end|>", "", "$^<|end|><|end|>e"]
    assert ids_in_page(tok, texts, special=True) == [
        tok.encode(text, allowed_special="all") for text in texts
    ]


def test_a_pattern_that_javascript_does_not_have_is_refused() -> None:
    tok = with_parts(pre_tokenizer=PreTokenizer(r"(?<=a)b|\w+"))
    assert "JavaScript" in encoder_of(tok)["refused"]


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("cl100k_base.tiktoken", {"split_pattern": "cl100k"}),
        ("o200k_base.tiktoken", {"split_pattern": "o200k"}),
        ("gpt2_vocab.json", {}),
        ("bert_vocab.txt", {}),
        ("seqio_sp.model", {}),
    ],
)
def test_ids_of_published_vocabularies(shared_data: Path, file: str, options: dict) -> None:
    tok = tokenizer.load(shared_data / "vocabs" / file, **options)
    lines = [
        line
        for path in sorted((shared_data / "ntrex").glob("*.txt"))
        for line in path.read_text("utf-8").splitlines()[:20]
    ]
    check(tok, [*TEXTS, *lines])
