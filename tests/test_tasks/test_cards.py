"""Cards: accounts that add up, figures that are the artifacts', a layout for odd text, code that runs."""

import importlib.util
import json
import random
import re
from pathlib import Path

import pytest
import yaml

from tests.test_tasks.whole_line import Line, LineParams
from tokmill.tasks.audit.summary import read_summary
from tokmill.tasks.balance.stage import BalanceParams
from tokmill.tasks.card.accounts import StageAccounts, account_table
from tokmill.tasks.card.data import Upstream, facts_of
from tokmill.tasks.card.data_text import size_category, to_markdown
from tokmill.tasks.card.stage import CARD, TOKENIZER_CARD, CardParams, TokenizerCardParams
from tokmill.tasks.card.tokenizer_text import HERE, TEXT, blocks
from tokmill.tasks.card.words import without_front_matter
from tokmill.tasks.core.errors import AccountError
from tokmill.tasks.core.stage import Account, External
from tokmill.tasks.encode.stage import EncodeParams
from tokmill.tasks.formats.counts import Balance
from tokmill.tasks.formats.encoded import Encoded
from tokmill.tasks.formats.mixture import Mixture
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tasks.mixing.stage import MixParams
from tokmill.tasks.packing.stage import PackParams
from tokmill.tasks.store import Store, read_record
from tokmill.tasks.train.adopt import ADOPT, AdoptParams
from tokmill.tasks.train.stage import TrainParams
from tokmill.tokenizer.pipeline.families import find_family


def write_texts(folder):
    """Three sources: one large, one with a broken line, one so small that it is read twice."""
    rng = random.Random(2)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(2, 9))) for _ in range(200)]
    words += ["Hello", "world", "quick", "fox"]
    for source, num_documents in (("english", 120), ("code", 40), ("tiny", 4)):
        (folder / source).mkdir(parents=True)
        texts = [" ".join(rng.choices(words, k=rng.randint(1, 40))) for _ in range(num_documents)]
        lines = [json.dumps({"text": text}) for text in texts] + (["{broken"] if source == "code" else [])
        (folder / source / "all.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


PARAMS = LineParams(
    balance=BalanceParams(temperature=2, max_repetition=2),
    encode=EncodeParams(min_tokens=3),
    mix=MixParams(weights={"english": 2, "code": 1, "tiny": 0.2}, max_repetition=2),
    pack=PackParams(
        sequence_length=32, strategy="greedy", sequences_per_shard=20, formats=["memmap", "parquet"]
    ),
    card=CardParams(title="Small | sure", license="CC0", source_notes={"tiny": "four lines"}),
)


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    folder = tmp_path_factory.mktemp("line")
    write_texts(folder / "texts")
    return Line(Store.open(folder / "store"), folder / "texts")


@pytest.fixture(scope="module")
def made(line):
    return {kind: line.store.path(ref) for kind, ref in line.run(PARAMS).items()}


def card_of(path):
    """The facts and the text of a card."""
    return json.loads((path / "card.json").read_bytes()), (path / "card.md").read_text("utf-8")


@pytest.fixture(scope="module")
def facts(made):
    return card_of(made["card"])[0]


@pytest.fixture(scope="module")
def text(made):
    return card_of(made["card"])[1]


def test_the_ledgers_add_up_and_lead_from_the_files_to_the_sequences(facts, made):
    for found in facts["ledgers"]:
        for amounts in [*found["rows"].values(), found["total"]]:
            running = 0
            for column, amount in zip(found["columns"], amounts, strict=True):
                running += {"in": amount, "+": amount, "-": -amount, "=": 0}[column["sign"]]
                assert column["sign"] != "=" or running == amount
    documents, tokens = facts["ledgers"]
    handed_on = [column["name"] for column in documents["columns"] if column["sign"] == "="]
    assert handed_on == ["read", "encoded", "mixed", "packed"]
    assert documents["rows"]["code"][:3] == [41, 1, 40]
    assert documents["columns"][1]["name"].startswith("quarantined:")
    reader = PackedReader.open(made["packed"])
    assert tokens["total"][-1] == sum(sequence.num_tokens for sequence in reader)


def test_shares_and_digests_are_the_artifacts(facts, made):
    mixed = {entry.source: entry for entry in Mixture.open(made["mixture"]).manifest.sources}
    trained = read_record(made["tokenizer"]).metrics
    for source in facts["sources"]:
        its = mixed[source["source"]]
        assert (source["mixed_share"], source["epochs"]) == (its.share, its.epochs)
        assert source["training_share"] == trained[f"share.{source['source']}"]
        assert source["training_share"] == pytest.approx(source["balanced_share"], abs=0.02)
    tiny = next(source for source in facts["sources"] if source["source"] == "tiny")
    assert (tiny["note"], tiny["epochs"], tiny["limits"]) == ("four lines", 2.0, True)
    for name in ("text_share", "training_share", "token_share", "mixed_share", "requested_share"):
        assert sum(source[name] for source in facts["sources"]) == pytest.approx(1)
    kinds = ["corpus", "counts", "balance", "tokenizer", "audit", "encoded", "usage", "mixture", "packed"]
    assert [(one["kind"], one["content_digest"]) for one in facts["artifacts"]] == [
        (kind, read_record(made[kind]).content_digest) for kind in kinds
    ]


def test_tables_have_as_many_cells_as_heads(text):
    widths = [len(re.findall(r"(?<!\\)\|", row)) for row in text.splitlines() if row.startswith("|")]
    tables = [len(table.splitlines()) for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)]
    assert min(tables) > 3
    start = 0
    for height in tables:
        assert len(set(widths[start : start + height])) == 1
        start += height


def test_the_card_says_how_closely_shares_keep_to_plan_and_request(facts, text):
    share = facts["packed"]["shares"][0]
    asked, came = (share["farthest"][f"{name}_share"] for name in ("requested", "packed"))
    deviations = f"{100 * share['deviation']:.2f} | {100 * abs(came - asked):.2f}"
    row = f"| {share['source']} | {share['packed_share']:.2%} | {deviations} | {asked:.2%} | {came:.2%} |"
    assert row in text
    assert "all along the way" in text
    unknown = {**facts["packed"], "shares": [{**share, "farthest": None}]}
    assert "off the request" not in to_markdown({**facts, "packed": unknown})


def test_the_card_of_a_mixture_that_goes_on_says_so(facts):
    assert "goes on" not in to_markdown(facts)
    mixture = {**facts["mixture"], "first_position": 1000, "warnings": ["'tiny' gives too much"]}
    first, *others = facts["sources"]
    read = {**first, "read_before_tokens": 2 * first["num_tokens"]}
    text = to_markdown({**facts, "mixture": mixture, "sources": [read, *others]})
    assert "**It goes on from token 1,000 of a run**" in text
    assert "| times read | times read before | at most in the whole run |" in text
    assert f"| {first['epochs']:.3f} | 2.000 | {first['max_repetition']:g} |" in text
    assert "- **Warning**: 'tiny' gives too much" in text


def test_a_file_name_is_shown_and_not_rendered(facts):
    file = {**facts["files"][0], "name": "<img src=x>__a__|`b`.txt"}
    source = {**facts["sources"][0], "source": "a|b", "note": "x\ny"}
    text = to_markdown({**facts, "files": [file], "sources": [source]})
    assert f"| {file['source']} | `` <img src=x>__a__\\|`b`.txt `` |" in text
    assert next(row for row in text.splitlines() if "a\\|b" in row).startswith("| a\\|b |")


def test_hubs_find_license_languages_and_size_in_the_front_matter(facts, text):
    front, body = text.split("---\n")[1:3]
    found = yaml.safe_load(front)
    assert (found["license"], found["pretty_name"]) == ("cc0-1.0", "Small | sure")
    assert (found["size_categories"], found["tags"][0]) == (["n<1K"], "tokmill")
    assert body.startswith("\n# Small")
    assert without_front_matter(text).startswith("# Small | sure")
    unstated = {"license": "", "languages": ["no", "zh-CN"], "title": 'a: "b" \u2028 \x85 [1'}
    unstated |= {"tags": ["1e3"]}
    odd = to_markdown({**facts, **unstated})
    found = yaml.safe_load(odd.split("---\n")[1])
    assert (found["license"], found["language"]) == ("unknown", ["no", "zh-CN"])
    assert (found["pretty_name"], found["tags"][-1]) == (unstated["title"], "1e3")
    assert "License: **not stated**; `card.license`" in odd
    named = to_markdown({**facts, "license": "web: CC BY 4.0, books: ask us"})
    assert 'license: "other"\nlicense_name: "web-cc-by-4.0-books-ask-us"\n' in named
    sizes = {999: "n<1K", 1000: "1K<n<10K", 10**9: "1B<n<10B", 10**12: "n>1T"}
    assert {number: size_category(number) for number in sizes} == sizes


def test_the_headline_is_the_compression_of_the_mixture(facts, made, text):
    encoded, num_bytes, num_tokens = Encoded.open(made["encoded"]), 0.0, 0.0
    for entry in Mixture.open(made["mixture"]).manifest.sources:
        found = encoded.source(entry.source).statistics
        num_bytes += entry.epochs * found.num_bytes
        num_tokens += entry.epochs * (found.num_tokens - found.num_end_tokens)
    mixed, tokenizer = facts["mixture"]["bytes_per_token"], facts["tokenizer"]
    assert mixed == pytest.approx(num_bytes / num_tokens, abs=1e-6)
    assert mixed != tokenizer["bytes_per_token"]
    audited = f"({tokenizer['audited_bytes_per_token']:.3f} of a sample of the corpus)"
    assert f"at **{mixed:.3f} bytes per token** at the mixture's shares {audited}" in text


def test_the_loading_example_runs(text, made):
    code = text.split("```python\n")[1].split("```")[0].replace("path/to/packed", str(made["packed"]))
    scope = {}
    exec(code, scope)
    assert f"len(reader)  # {len(scope['reader']):,}" in code
    assert scope["sequence"].input_ids.shape == (32,)


def account(num_in, source="a", added=None, **became):
    return Account(source=source, unit="tokens", num_in=num_in, added=added or {}, became=became)


def stages(*accounts):
    return [StageAccounts(f"s{k}", f"h{k}", frozenset({"kept"}), given) for k, given in enumerate(accounts)]


def test_a_ledger_by_hand():
    first = [account(10, kept=7, lost=3, cut=0), account(5, source="b", kept=5, lost=0, cut=0)]
    second = [account(7, added={"extra": 2}, kept=9), account(5, source="b", added={"extra": 0}, kept=5)]
    found = account_table("tokens", ["a", "b"], stages(first, second))
    assert [tuple(column.values()) for column in found["columns"]] == [
        ("s0", "in", "in"),
        ("s0", "-", "lost"),
        ("s0", "=", "h0"),
        ("s1", "+", "extra"),
        ("s1", "=", "h1"),
    ]
    assert found["rows"] == {"a": [10, 3, 7, 2, 9], "b": [5, 0, 5, 0, 5]}
    assert found["total"] == [15, 3, 12, 2, 14]


@pytest.mark.parametrize(
    ("accounts", "message"),
    [
        (([account(10, kept=7, lost=3)], [account(8, kept=8)]), "s1 was handed 7 tokens, .* 8 coming in"),
        (([account(10, kept=7, lost=2)],), "s0 was handed 10 tokens"),
        (([account(10, kept=10)], []), "record of s1 has no account of tokens for source 'a'"),
    ],
)
def test_accounts_that_do_not_join_are_refused(accounts, message):
    with pytest.raises(AccountError, match=message):
        account_table("tokens", ["a"], stages(*accounts))


@pytest.mark.parametrize("name", ["num_tokens", "num_padding_tokens"])
def test_accounts_that_lead_to_other_amounts_than_the_sequences_are_refused(made, monkeypatch, name):
    packed = PackedManifest.open(made["packed"])
    other = packed.model_copy(update={name: getattr(packed, name) - 1})
    monkeypatch.setattr(PackedManifest, "open", lambda path: other)
    with pytest.raises(AccountError, match=f"hold .*{getattr(other, name)}.*; pack again"):
        facts_of(Upstream(made, {}), PARAMS.card.model_dump())


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


@pytest.fixture(scope="module", params=FAMILIES)
def by_family(request: pytest.FixtureRequest, line) -> dict[str, Path]:
    why = TokenizerCardParams(
        title=f"A {request.param} | tokenizer",
        license="CC0",
        reasons={"vocab_size": "small | enough", "method": "rare sources count more"},
    )
    refs = line.run(LineParams(train=FAMILIES[request.param], tokenizer_card=why))
    return {kind: line.store.path(ref) for kind, ref in refs.items()}


def test_figures_are_those_of_the_tokenizer_its_audit_and_its_balance(by_family: dict[str, Path]) -> None:
    card, text = card_of(by_family["tokenizer_card"])
    definition = open_tokenizer(by_family["tokenizer"]).definition
    audit, balance = read_summary(by_family["audit"]), Balance.open(by_family["balance"])
    assert (card["family"], card["vocab_size"]) == (definition.family, definition.vocab_size)
    assert card["figures"] == definition.model.figures()
    assert find_family(card["family"]).title in text
    for name in ("sources", "num_probes", "gate"):
        assert card[name] == getattr(audit, name)
    for one, entry in zip(card["trained_on"], balance.sources, strict=True):
        assert (one["source"], one["share"], one["factor"]) == (entry.source, entry.share, entry.factor)
    assert sum(one["measured_share"] for one in card["trained_on"]) == pytest.approx(1, abs=1e-9)
    assert f"{card['sources'][-1]['bytes_per_token']:.3f} bytes per token" in text


def test_settings_that_have_an_effect_stand_beside_their_reasons(by_family: dict[str, Path]) -> None:
    card, text = card_of(by_family["tokenizer_card"])
    reasons = {one["name"]: (one["value"], one["reason"]) for one in card["decisions"]}
    family = card["family"]
    assert reasons["vocab_size"] == (str(FAMILIES[family].vocab_size), "small | enough")
    assert reasons["method"][1] == "rare sources count more"
    assert re.search(r"^\| vocab_size \| `\d+` \| small \\\| enough \|$", text, re.MULTILINE)
    assert ("shrinking_factor" in reasons) == (family == "unigram")
    assert ("max_input_chars_per_word" in reasons) == (family == "wordpiece")
    assert ("tie_break" in reasons) == (family == "byte_bpe")
    on_sentences = FAMILIES[family].mode == "sentencepiece"
    assert reasons.keys().isdisjoint({"split_pattern", "digits"}) == on_sentences


def test_its_code_gives_our_ids(by_family: dict[str, Path]) -> None:
    card, text = card_of(by_family["tokenizer_card"])
    ids = open_tokenizer(by_family["tokenizer"]).encode(TEXT)
    ran = []
    for library, code in blocks(card["exports"]).items():
        assert code in text
        if importlib.util.find_spec(MODULES.get(library, library)) is not None:
            space: dict[str, object] = {}
            exec(code.replace(HERE, str(by_family["tokenizer"])), space)
            assert space["ids"] == ids, library
            ran.append(library)
    assert "tokmill" in ran
    assert len(ran) > 1


def test_an_existing_tokenizer_has_cards_without_training(
    line, made, by_family: dict[str, Path], tmp_path: Path
) -> None:
    given = {kind: path for kind, path in made.items() if kind not in {"counts", "balance", "card"}}
    CARD.run(CardParams(), out=tmp_path, **given)
    card, text = card_of(tmp_path)
    assert (card["balance"], card["tokenizer"]["origin"]) == (None, "existing")
    assert "share in training" not in text

    file = External(digest="2" * 64, value=str(by_family["tokenizer"] / "tokmill.json"))
    adopted = line.store.path(line.make(ADOPT, AdoptParams(), file=file))
    about = {kind: by_family[kind] for kind in ("audit", "usage")}
    TOKENIZER_CARD.run(TokenizerCardParams(), out=tmp_path, tokenizer=adopted, **about)
    card, text = card_of(tmp_path)
    assert (card["origin"], card["balance"], card["trained_on"]) == ("adopted", None, [])
    assert "an existing tokenizer" in text
    assert "## Trained on" not in text
