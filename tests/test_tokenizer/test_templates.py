"""Templates: special tokens around one text and two, as Hugging Face's post-processors put them there."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import processors

from tests.test_tokenizer.conftest import TRAINING_TEXTS
from tokmill import tokenizer
from tokmill.tokenizer import FormatError, Tokenizer, TokenizerError, VocabularyError, attestation
from tokmill.tokenizer.components.post_processors import Template
from tokmill.tokenizer.formats import files

NAMES = ["<s>", "</s>", "[CLS]", "[SEP]", "<|begin|>"]
IDS = {name: 300 - len(NAMES) + i for i, name in enumerate(NAMES)}
TEXT, PAIR = "the foxes' 1234", " there, then<s>"
POST_PROCESSORS = {
    "bos": processors.TemplateProcessing(
        single="<|begin|> $A",
        pair="<|begin|> $A <|begin|>:1 $B:1",
        special_tokens=[("<|begin|>", IDS["<|begin|>"])],
    ),
    "bert": processors.BertProcessing(("[SEP]", IDS["[SEP]"]), ("[CLS]", IDS["[CLS]"])),
    "roberta": processors.RobertaProcessing(("</s>", IDS["</s>"]), ("<s>", IDS["<s>"]), False, False),
    "swapped": processors.TemplateProcessing(
        single="[CLS] [CLS] $A:3 [SEP]",
        pair="$B:1 [SEP]:1 $A",
        special_tokens=[("[CLS]", IDS["[CLS]"]), ("[SEP]", IDS["[SEP]"])],
    ),
    "llama3": processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin|> $A",
                pair="<|begin|> $A $B",
                special_tokens=[("<|begin|>", IDS["<|begin|>"])],
            ),
        ]
    ),
}


@pytest.fixture(scope="module")
def plain() -> Tokenizer:
    return tokenizer.train(TRAINING_TEXTS, vocab_size=300, special_tokens=NAMES)


@pytest.fixture(params=POST_PROCESSORS)
def both(
    request: pytest.FixtureRequest, plain: Tokenizer, tmp_path: Path
) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    """A tokenizer with a template, and the tokenizers library's of the same file."""
    file, _ = plain.save(tmp_path, "huggingface")
    other = tokenizers.Tokenizer.from_file(str(file))
    other.post_processor = POST_PROCESSORS[request.param]
    other.save(str(file))
    return tokenizer.load(file), other


def test_ids_are_those_of_the_tokenizers_library(both):
    tok, other = both
    for texts in ((TEXT,), ("a<s>",), ("",), (TEXT, PAIR), ("", PAIR), (TEXT, "")):
        for adding in (True, False):
            how: dict[str, Any] = {"add_special_tokens": adding, "allowed_special": "all"}
            theirs = other.encode(*texts, add_special_tokens=adding)
            assert tok.encode(*texts, **how) == theirs.ids
            assert tok.encode_with_types(*texts, **how) == (theirs.ids, theirs.type_ids)


def test_batches_are_what_single_texts_are(both):
    tok, _ = both
    texts = [TEXT, "", "x", TEXT * 30]
    batch = tok.encode_batch(texts, add_special_tokens=True, num_threads=2)
    assert batch.to_lists() == [tok.encode(text, add_special_tokens=True) for text in texts]
    assert batch.ids.dtype == tok.encode_batch(texts).ids.dtype
    assert tok.encode_batch([], add_special_tokens=True).to_lists() == []


def test_a_tokenizer_without_a_template_adds_nothing(plain):
    assert plain.encode(TEXT, add_special_tokens=True) == plain.encode(TEXT)
    assert plain.encode(TEXT, "x", add_special_tokens=True) == plain.encode(TEXT) + plain.encode("x")
    assert plain.encode_with_types("x", "yz")[1] == [0, 1, 1]
    assert "template" not in plain.spec()
    assert plain.spec()["version"] == 1


def test_templates_are_attested(both, plain):
    tok, _ = both
    made = json.loads(json.dumps(attestation.make(tok)))
    attestation.check(tok, made)
    assert tok.definition.post_processor is not None
    assert [*made["policy"]["begin"], *made["policy"]["end"]]
    with pytest.raises(TokenizerError, match="its template has changed"):
        attestation.check(plain, made)
    with pytest.raises(TokenizerError, match="its template has changed"):
        attestation.check(tok, attestation.make(plain))


A, B, X = (
    {"Sequence": {"id": "A", "type_id": 0}},
    {"Sequence": {"id": "B", "type_id": 1}},
    {"SpecialToken": {"id": "<x>", "type_id": 0}},
)


def stands(*ids: int) -> dict[str, object]:
    return {"<s>": {"id": "<s>", "ids": [*ids], "tokens": ["<s>"]}}


def template(**changes: object) -> dict[str, object]:
    """A post-processor that puts `<s>` before a text, with other values under some keys."""
    special = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [special, A],
        "pair": [special, A, B],
        "special_tokens": stands(IDS["<s>"]),
    } | changes


@pytest.mark.parametrize(
    ("post_processor", "says"),
    [
        ({"type": "Unknown"}, "post_processor.type='Unknown'"),
        ({"type": "Sequence", "processors": [template(), template()]}, "in a row; only one"),
        ({"type": "Sequence", "processors": [{"type": "Sequence"}]}, "a Sequence in a Sequence"),
        (template(single=[]), "must have at most 64 with"),
        (template(single=[A, A]), "each once"),
        (template(pair=[A]), "each once"),
        (template(special_tokens=stands(7)), r"stands for \[7\]"),
        (template(special_tokens=stands(1, 2)), r"stands for \[1, 2\]"),
        (template(single=[X, A]), "'<x>' is not a special token"),
        (template(single=[{"Sequence": {"id": "A", "type_id": -1}}]), "type id -1"),
        ({"type": "BertProcessing", "sep": ["[SEP]", 5], "cls": ["<s>", IDS["<s>"]]}, "processor.sep"),
        ({"type": "BertProcessing", "sep": 7, "cls": 8}, "broken: a value is of another type"),
        (7, "broken: a value is of another type"),
    ],
)
def test_what_cannot_be_represented_is_refused_by_name(plain, tmp_path, post_processor, says):
    file, _ = plain.save(tmp_path, "huggingface")
    files.write_json(file, json.loads(file.read_bytes()) | {"post_processor": post_processor})
    with pytest.raises((FormatError, VocabularyError), match=says):
        tokenizer.load(file)


SINGLE, BERT_PAIR = "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"


@pytest.mark.parametrize(
    ("single", "pair", "spelled"),
    [
        ("<s> $A", None, ("<s> $A", "<s> $A $B:1")),
        ("$A </s>", None, ("$A </s>", "$A </s> $B:1 </s>:1")),
        (SINGLE, None, (SINGLE, BERT_PAIR)),
        ("<s>:2 <s> $A:3", "$B <s>:1 $A", ("<s>:2 <s> $A:3", "$B <s>:1 $A")),
        ("<|a:b|> $A x:y:7", "$A  $B", ("<|a:b|> $A x:y:7", "$A $B")),
    ],
)
def test_templates_are_spelled(single, pair, spelled):
    made = Template.parse(single, pair)
    assert made.spelling == spelled
    assert Template.parse(*spelled) == made


@pytest.mark.parametrize(
    ("single", "pair", "says"),
    [
        ("", None, "must have at most 64"),
        ("[CLS]", None, "must have at most 64"),
        ("$A $A", None, "each once"),
        ("$A $B", None, "each once"),
        ("$A", "$A", "each once"),
        ("$A:9999999999", None, "type id 9999999999"),
        ("<nowhere> $A", None, "'<nowhere>' is not a special token"),
        (None, "$A $B", "needs a template for one text"),
    ],
)
def test_templates_that_cannot_be_are_refused(single, pair, says):
    with pytest.raises(VocabularyError, match=says):
        tokenizer.train(TRAINING_TEXTS, vocab_size=300, template=single, pair_template=pair)
