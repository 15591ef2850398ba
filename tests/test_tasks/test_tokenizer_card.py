"""A tokenizer's card: its figures are the audit's, its reasons the profile's, and its code runs."""

import importlib.util
import json
import random
import re
from pathlib import Path

import pytest

from tests.test_tasks.whole_line import Line, LineParams
from tokmill.tasks.audit.summary import read_summary
from tokmill.tasks.core.stage import External
from tokmill.tasks.formats.balance import Balance
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tasks.store import Store
from tokmill.tasks.tokenizer_card.facts import TokenizerCard
from tokmill.tasks.tokenizer_card.stage import TOKENIZER_CARD, TokenizerCardParams
from tokmill.tasks.tokenizer_card.text import HERE, TEXT, blocks
from tokmill.tasks.train.adopt import ADOPT, AdoptParams
from tokmill.tasks.train.stage import TrainParams
from tokmill.tokenizer.pipeline.families import find_family

WORDS = ("Hello", "world", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "rain")
FAMILIES = {
    "byte_bpe": TrainParams(vocab_size=400, special_tokens=["<|endoftext|>"], num_reserved=2),
    "unigram": TrainParams(
        vocab_size=60, family="unigram", mode="sentencepiece", special_tokens=["<|endoftext|>"]
    ),
    "wordpiece": TrainParams(
        vocab_size=80,
        family="wordpiece",
        split_pattern="bert",
        normalizer="bert_clean+cjk_spaces",
        special_tokens=["<|endoftext|>"],
    ),
}
MODULES = {"mistral-common": "mistral_common"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cards")
    rng = random.Random(2)
    words = [*WORDS, *("".join(rng.choices("abcdefgh", k=rng.randint(2, 9))) for _ in range(200))]
    for source, number in (("code", 30), ("english", 90)):
        (folder / "texts" / source).mkdir(parents=True)
        texts = [" ".join(rng.choices(words, k=rng.randint(3, 40))) for _ in range(number)]
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (folder / "texts" / source / "all.jsonl").write_text(lines, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def line(folder: Path) -> Line:
    return Line(Store.open(folder / "store"), folder / "texts")


@pytest.fixture(scope="module", params=FAMILIES)
def made(request: pytest.FixtureRequest, line: Line) -> dict[str, Path]:
    why = TokenizerCardParams(
        title=f"A {request.param} | tokenizer",
        license="CC0",
        reasons={"vocab_size": "small | enough", "method": "rare sources count more"},
    )
    refs = line.run(LineParams(train=FAMILIES[request.param], tokenizer_card=why))
    return {kind: line.store.path(ref) for kind, ref in refs.items()}


def card_of(path: Path) -> tuple[TokenizerCard, str]:
    facts = TokenizerCard.model_validate_json((path / "card.json").read_bytes())
    return facts, (path / "card.md").read_text("utf-8")


def test_figures_are_those_of_the_tokenizer_its_audit_and_its_balance(made: dict[str, Path]) -> None:
    card, text = card_of(made["tokenizer_card"])
    definition = open_tokenizer(made["tokenizer"]).definition
    audit, balance = read_summary(made["audit"]), Balance.open(made["balance"])

    assert (card.family, card.vocab_size) == (definition.family, definition.vocab_size)
    assert card.figures == definition.model.figures()
    assert find_family(card.family).title in text
    assert card.sources == audit.sources
    assert card.num_probes == audit.num_probes
    assert card.gate == audit.gate
    assert [(one.source, one.share, one.factor) for one in card.trained_on] == [
        (entry.source, entry.share, entry.factor) for entry in balance.sources
    ]
    assert sum(one.measured_share for one in card.trained_on) == pytest.approx(1, abs=1e-9)
    assert f"{card.sources[-1]['bytes_per_token']:.3f} bytes per token" in text


def test_a_reason_stands_beside_its_setting(made: dict[str, Path]) -> None:
    card, text = card_of(made["tokenizer_card"])
    reasons = {one.name: (one.value, one.reason) for one in card.decisions}

    assert reasons["vocab_size"] == (str(FAMILIES[card.family].vocab_size), "small | enough")
    assert reasons["method"][1] == "rare sources count more"
    assert "max_input_chars_per_word" not in reasons or card.family == "wordpiece"
    assert re.search(r"^\| vocab_size \| `\d+` \| small \\\| enough \|$", text, re.MULTILINE)
    assert reasons.get("split_pattern", ("", ""))[1] == ""


def test_settings_of_other_families_are_left_out(made: dict[str, Path]) -> None:
    card, _ = card_of(made["tokenizer_card"])
    names = {one.name for one in card.decisions}

    assert ("shrinking_factor" in names) == (card.family == "unigram")
    assert ("max_input_chars_per_word" in names) == (card.family == "wordpiece")
    assert ("tie_break" in names) == (card.family == "byte_bpe")
    on_sentences = FAMILIES[card.family].mode == "sentencepiece"
    assert names.isdisjoint({"split_pattern", "digits"}) == on_sentences


def test_its_tables_have_as_many_cells_as_their_heads(made: dict[str, Path]) -> None:
    _, text = card_of(made["tokenizer_card"])
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}
        assert len(widths) == 1, block


def test_its_code_gives_our_ids(made: dict[str, Path]) -> None:
    card, text = card_of(made["tokenizer_card"])
    ids = open_tokenizer(made["tokenizer"]).encode(TEXT)
    ran = []
    for library, code in blocks(card.exports).items():
        assert code in text
        if importlib.util.find_spec(MODULES.get(library, library)) is not None:
            space: dict[str, object] = {}
            exec(code.replace(HERE, str(made["tokenizer"])), space)
            assert space["ids"] == ids, library
            ran.append(library)
    assert "tokmill" in ran
    assert len(ran) > 1


def test_a_reason_for_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'vocab_sise' is not a setting .* did you mean 'vocab_size'"):
        TokenizerCardParams(reasons={"vocab_sise": "?"})


def test_an_existing_tokenizer_has_a_card_without_training(
    line: Line, made: dict[str, Path], tmp_path: Path
) -> None:
    file = External(digest="2" * 64, value=str(made["tokenizer"] / "tokmill.json"))
    adopted = line.store.path(line.make(ADOPT, AdoptParams(), file=file))

    TOKENIZER_CARD.run(
        TokenizerCardParams(), out=tmp_path, tokenizer=adopted, audit=made["audit"], usage=made["usage"]
    )

    card, text = card_of(tmp_path)
    assert card.origin == "adopted"
    assert card.balance is None
    assert not card.trained_on
    assert "an existing tokenizer" in text
    assert "## Trained on" not in text
