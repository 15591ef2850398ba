"""Profiles: found, merged, overridden, checked with place and fix, and written again."""

import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.flows.errors import ProfileError
from tokmill.flows.profile import Profile, load_profile, shipped_names
from tokmill.flows.profile.drafting import to_toml
from tokmill.flows.profile.fields import profile_keys
from tokmill.flows.profile.files import find_profile, read_layers, with_absolute_paths
from tokmill.flows.profile.load import overrides_table, parse_override

MINIMAL = """
[sources.web]
files = ["web/*.txt"]
[sources.books]
files = ["books/*.txt"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def load(folder: Path):
    """Write a profile with two sources and load it."""

    def written(text="", overrides=(), name="own.toml"):
        return load_profile(write(folder / name, MINIMAL + textwrap.dedent(text)), overrides)

    return written


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def refusal(call, *arguments) -> str:
    """The message of what is refused."""
    with pytest.raises(ProfileError) as caught:
        call(*arguments)
    return str(caught.value)


def test_a_profile_is_a_shipped_name_or_a_path_and_a_wrong_one_names_the_nearest(folder: Path) -> None:
    own = write(folder / "own.toml", "")
    assert find_profile("smoke").name == "smoke.toml"
    assert find_profile("own.toml") == own
    for name, said in {
        "smoek": "did you mean smoke?",
        "own": "write own.toml",
        "onw.toml": f"{folder / 'onw.toml'}",
        "./onw.toml": "did you mean own.toml?",
    }.items():
        assert said in refusal(find_profile, name)


EXTENDS = "extends = 'base.toml'\n"


@pytest.mark.parametrize(
    ("base", "own", "table"),
    [
        (  # tables merge, values and lists replace
            "[pack]\na = 1\nb = [1, 2]\n[pack.deep]\nx = 1\ny = 1",
            "[pack]\nb = [3]\n[pack.deep]\ny = 2",
            {"pack": {"a": 1, "b": [3], "deep": {"x": 1, "y": 2}}},
        ),
        ("name = 'base'\ndescription = 'the base'\n[pack]\na = 1", "", {"pack": {"a": 1}}),
        ("[train]\nvocab_size = 300", "[tokenizer]\nuse = 'x'", {"tokenizer": {"use": "x"}}),
    ],
)
def test_what_a_profile_takes_from_those_it_extends(folder: Path, base: str, own: str, table) -> None:
    write(folder / "base.toml", base)
    assert read_layers(write(folder / "own.toml", EXTENDS + own)).table == table


def test_every_value_knows_its_file_and_extends_is_relative_to_its_own(folder: Path) -> None:
    write(folder / "base.toml", "[sources.web]\nfiles = ['/a/*']\nformat = 'lines'\n[pack]\na = 1\nb = 1")
    own = "[sources.web]\nfiles = ['/b/*']\n[pack]\nb = 2"
    layered = read_layers(write(folder / "own.toml", EXTENDS + own))
    assert layered.table["sources"]["web"] == {"files": ["/b/*"], "format": "lines"}
    assert [layered.origin(("pack", key)) for key in "ab"] == ["base.toml", "own.toml"]
    assert layered.notes == ["sources.web.files in own.toml replaces the value in base.toml"]
    write(folder / "deep" / "er" / "c.toml", "[pack]\na = 1")
    write(folder / "deep" / "b.toml", "extends = 'er/c.toml'\n[pack]\nb = 2")
    own = write(folder / "own.toml", "extends = 'deep/b.toml'\n[pack]\nc = 3")
    assert read_layers(own).table == {"pack": {"a": 1, "b": 2, "c": 3}}
    smoke = read_layers(write(folder / "own.toml", "extends = 'smoke'\n[pack]\nsequence_length = 64")).table
    assert smoke["pack"]["sequence_length"] == 64
    assert "latin" in smoke["sources"]
    write(folder / "a.toml", "extends = 'b.toml'")
    write(folder / "b.toml", "extends = 'a.toml'")
    assert "a.toml → b.toml → a.toml" in refusal(read_layers, folder / "a.toml")
    missing = write(folder / "own.toml", "extends = 'bsae.toml'")
    assert refusal(read_layers, missing).startswith("profile 'own': own.toml: extends:")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[pack]\nsequence_length = = 3", "profile 'own': own.toml: line 2, column 19: not TOML:"),
        (b"[sources.web]\nfiles = ['a']\n[sources.web]", "line 3, .*two sources are named 'web'"),
        (b"[pack]\nsequence_length = 8\nsequence_length = 9\n", "line 3, column 20: a key is set twice"),
        (b"name = '\xff'", "own.toml is not UTF-8 at byte 8"),
    ],
)
def test_a_file_that_is_not_toml_has_the_place(folder: Path, data: bytes, said: str) -> None:
    (folder / "own.toml").write_bytes(data)
    with pytest.raises(ProfileError, match=said):
        read_layers(folder / "own.toml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=2048", 2048),
        ("a.b = 0.5", 0.5),
        ('a.b=["x", "y"]', ["x", "y"]),
        ("a.b={x = 1.0}", {"x": 1.0}),
        ("a.b=gpt2", "gpt2"),
        ("a.b=", ""),
        ("a.b='2048'", "2048"),
        (r"a.b=\p{L}+| ?=", r"\p{L}+| ?="),
        ("a.b=1\nc=2", "1\nc=2"),
        ("a.b=1 # one", "1 # one"),
    ],
)
def test_the_value_of_an_override_is_toml_or_else_text(text: str, value: Any) -> None:
    assert parse_override(text) == ("a.b", value)


def test_overrides_go_into_tables_and_the_last_wins(load) -> None:
    assert overrides_table(["a.b=1", "a.c=2", "a.b=3"]) == {"a": {"b": 3, "c": 2}}
    quoted = overrides_table(['sources."zh.hans".format=lines'])
    assert quoted == {"sources": {"zh.hans": {"format": "lines"}}}
    assert overrides_table({"a.b": 8, "c": {"d": 1}}) == {"a": {"b": 8}, "c": {"d": 1}}
    for text in ("pack", "=3", "pack sequence=3", "pack..x=3"):
        assert "--set" in refusal(overrides_table, [text])
    assert "set either a or keys in it" in refusal(overrides_table, ["a=1", "a.b=2"])
    profile = load("[pack]\nsequence_length = 64", ["pack.sequence_length=128", "pack.sequence_length=256"])
    assert profile.pack.sequence_length == 256
    assert load(overrides=["encode.end_of_document="]).encode.end_of_document is None
    assert load(overrides={"encode.end_of_document": None}).encode.end_of_document is None
    assert load("[train]\nspecial_tokens = []").encode.end_of_document is None
    for path in ("train.special_tokens", "sources.web.files"):
        assert f"{path}.0=None must be" in refusal(load, "", {path: [None]})


def test_a_profile_that_says_sources_only_has_defaults_and_loads_back(load, folder: Path) -> None:
    profile = load()
    assert (profile.name, profile.sources["web"].files) == ("own", [f"{folder}/web/*.txt"])
    assert profile.pack == Profile.model_fields["pack"].default
    assert Profile.model_validate(load("[mix.weights]\nweb = 1\nbooks = 2").resolved()).mix.weights == {
        "web": 1.0,
        "books": 2.0,
    }
    elsewhere = load(overrides=['sources.web.files=["elsewhere/*"]'])
    assert elsewhere.sources["web"].files == [f"{folder}/elsewhere/*"]


@pytest.mark.parametrize(
    ("text", "override", "key", "reason"),
    [
        ("[mix.weights]\nweb = 1\nbooks = 2", "mix.temperature=3", "mix.temperature", "'weights'"),
        ("[mix]\nmethod = 'temperature'", "mix.weights={web=3, books=1}", "mix.weights", "'temperature'"),
        ("[mix]\nschedule = [[0, {web=1, books=1}]]", "mix.temperature=3", "mix.temperature", "schedule"),
        ("", "mix.change='linear'", "mix.change", "no schedule"),
        ("", "mix.global_batch_size=8", "mix.global_batch_size", "steps"),
        ("[mix.curriculum]\ndifficulty='length'", "mix.curriculum.stairs=3", "curriculum.stairs", "'step'"),
        ("", "score.seed=1", "score.seed", "perplexity"),
        ("[tokenizer]\nuse='tokenizer/a@v1'", "balance.temperature=2", "balance.temperature", "[tokenizer]"),
        ("", "pack.window=9", "pack.window", "'concat'"),
        ("[pack]\nstrategy='best_fit'", "pack.last_sequence='drop'", "pack.last_sequence", "'best_fit'"),
        ("", "pack.fim_seed=9", "pack.fim_seed", "fim_rate"),
        ("", "encode.fim_seed=9", "encode.fim_seed", "fim_rate"),
        ("", "schedule.interval=1d", "schedule.interval", ""),
    ],
)
def test_an_override_without_effect_is_noted_with_the_reason(load, text, override, key, reason) -> None:
    (note,) = load(text, [override]).notes
    assert f"{key} has no effect" in note
    assert reason in note


def test_what_has_an_effect_or_stands_in_a_file_is_not_noted(load) -> None:
    # weights imply their method
    assert load("[mix]\ntemperature = 2", ["mix.weights.web=3", "mix.weights.books=1"]).notes == ()
    assert load("[pack]\nstrategy = 'best_fit'", ["pack.window=9", "train.vocab_size=300"]).notes == ()
    assert load("[mix]\nmethod = 'proportional'\ntemperature = 3").notes == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[pack]\nsequence_length = 0", "sequence_length=0 must be at least 8; use e.g. 2048 (own.toml)"),
        ("[pack]\nsequence_lenght = 8", "unknown key pack.sequence_lenght; did you mean pack.sequence_l"),
        ("[pack]\nvocab_size = 300", "did you mean train.vocab_size?"),
        ("[tarin]\nvocab_size = 300", "unknown key tarin; did you mean train?"),
        ("[sources.c]\nfiles = ['x']\ntext_colum = 'a'", "did you mean sources.c.text_column?"),
        ("[pack]\nstrategy = 'concatt'", "did you mean 'concat'?"),
        ("[train]\nvocab_size = 'many'", 'train.vocab_size="many" must be a whole number'),
        ("[sources.code]\nformat = 'lines'", "sources.code.files is missing"),
        ("[mix.max_repetition]\nwbe = 2.0", "mix.max_repetition.wbe: no such source; did you mean web?"),
        ("[mix.min_epochs]\nweb = 1\nwbe = 1", "mix.min_epochs.wbe: no such source; did you mean web?"),
        ("[mix.proportions]\nweb = 0.5\nwbe = 0.5", "mix.proportions.wbe: no such source"),
        ("[mix.warmup]\nwbe = {stop = 0.5}", "mix.warmup.wbe: no such source"),
        ("[mix.curriculum]\ndifficulty = 'length'\nsources = ['wbe']", "sources.wbe: no such source"),
        ("[mix]\nschedule = [[0, {web=1, books=1}], [0.5, {web=1, boks=1}]]", "mix.schedule.1.boks: no such"),
        ("[mix]\nschedule = [[0, {web=1, books=1}], [0.5, {web=1}]]", "mix.schedule.1.books is missing"),
        ("[pack]\nstrategy='best_fit'\nfim_token_ids=[1,2,3]\nfim_rate={wbe=0.5}", "fim_rate.wbe: no such"),
        *((f"[{name}.weights]\nweb = 1\nbook = 1\nbooks = 1", f"{name}.weights.book: no such source; did you")
          for name in ("balance", "mix")),
        *((f"[{name}.weights]\nweb = 1", f"add {name}.weights.books = 0") for name in ("balance", "mix")),
        ("[balance]\nmethod = 'weights'", "profile 'own': balance: method='weights' needs a positive weight"),
        ("[encode]\nbegin_of_document = '<s>'", '_document="<s>" is not in train.special_tokens'),
        ("[encode]\nend_of_document = '<eos>'", '_document="<eos>" is not in train.special_tokens'),
        ("[train]\nvocab_size = 300\n[tokenizer]\nuse = 'x'", "exclude each other"),
        ("[train]\nspecial_tokens = ['<|endoftext|>', 'x']", "two bytes or more"),
        ("[train]\nsplit_pattern = 'gtp2'", "did you mean gpt2?"),
        *((f"[train]\nsplit_pattern = '{each}'", f"pattern='{each}'") for each in ("a*", "(ab", "(?:a")),
        ("[train]\nnormalizer = 'nfx'", "use None, or, joined with +"),
        *((f"[train]\ntie_break = 'lowest_ids'\nfamily = '{each}'", "tie_break='lowest_ids' is for")
          for each in ("word_level", "character_level", "unigram", "char_bpe", "wordpiece")),
        ("[ingest.sources.web]\nformat = 'lines'", "write [sources.NAME] instead"),
        ("[train]\nspecial_tokens = ['<|endoftext|>', '<p>', '<s>', '<m>']\n"
         "[encode]\nfim_rate = 0.5\nfim_tokens = ['<p>', '<s>', '<m>']\n"
         "[pack]\nstrategy = 'best_fit'\nfim_rate = 0.5\nfim_token_ids = [1, 2, 3]",
         "encode.fim_rate and pack.fim_rate exclude each other"),
    ],
)  # fmt: skip
def test_a_problem_is_told_with_place_value_rule_and_fix(load, text: str, said: str) -> None:
    message = refusal(load, text)
    assert message.startswith("profile 'own': ")
    assert said in message


def test_several_problems_are_told_at_once_and_each_names_where_its_value_is_from(load, folder: Path) -> None:
    text = refusal(load, "[pack]\nsequence_length = 0\nstrategy = 'x'\n[mix]\nsed = 1")
    assert text.startswith("profile 'own': 3 problems\n")
    assert text.count("\n  - ") == 3
    assert refusal(load, "", ["pack.sequence_length=2"]).endswith("(--set)")
    assert "exclude each other" in refusal(load, "[tokenizer]\nuse = 'x'", ["train.vocab_size=300"])
    write(folder / "base.toml", "[pack]\nsequence_length = 2")
    assert "(base.toml)" in refusal(load_profile, write(folder / "own.toml", EXTENDS + MINIMAL))
    named = write(folder / "own.toml", "name = 'a b'\n" + MINIMAL)
    assert 'name="a b" must be of the form' in refusal(load_profile, named)
    assert "sources is missing" in refusal(load_profile, write(folder / "own.toml", "[pack]\n"))


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("special_tokens = ['<|endoftext|>']", 257),
        ("num_reserved = 9", 266),
        ("family = 'word_level'", 3),
        ("family = 'character_level'\nnum_reserved = 5", 8),
    ],
)
def test_the_smallest_vocabulary_follows_from_family_and_special_tokens(load, text: str, least: int) -> None:
    assert f"at least {least}" in refusal(load, f"[train]\nvocab_size = {least - 1}\n{text}")
    assert load(f"[train]\nvocab_size = {least}\n{text}").training().vocab_size == least


def test_stages_get_their_parameters_and_nothing_that_would_change_what_they_do_not_do(load, folder) -> None:
    ingest = load("[sources.code]\nfiles = ['x']\nformat = 'lines'").ingest_params()
    assert ingest.sources["code"].format == "lines"
    assert "files" not in ingest.model_dump_json()
    steps = "[mix]\nschedule = [[0, {web=1, books=1}]]\nschedule_unit = 'steps'\nglobal_batch_size = 4"
    assert load(f"{steps}\n[pack]\nsequence_length = 512").mix_params().sequence_length == 512
    assert load("[pack]\nsequence_length = 512").mix_params().sequence_length is None
    count = load("[train]\ndigits = 'single'\nsplit_pattern = 'cl100k'").training().count_params()
    assert (count.digits, count.split_pattern) == ("single", "cl100k")
    assert load("[train]\nvocab_size = 300").training().count_params() == load().training().count_params()
    adopted = load("[tokenizer]\nuse = 'tokenizer/base@v1'\nsplit_pattern = 'gpt2'")
    assert adopted.training() is None
    assert adopted.tokenizer.params().split_pattern == "gpt2"
    assert "use" not in adopted.tokenizer.params().model_dump()
    vocab = write(folder / "vocab.json", "{}")
    assert load("[tokenizer]\nuse = 'vocab.json'").tokenizer.use == str(vocab)


@pytest.mark.parametrize("name", shipped_names())
def test_what_ships_says_what_it_is_for_and_is_the_same_when_written(name: str, tmp_path: Path) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert profile.description.endswith(".")
    again = write(tmp_path / "again.toml", to_toml(profile.resolved()))
    assert load_profile(again).resolved() == profile.resolved()


def test_every_key_is_documented_with_meaning_kind_and_default() -> None:
    keys = {(key.section, key.name): key for key in profile_keys(Profile)}
    assert all(key.description for key in keys.values())
    assert (keys["sources.NAME", "files"].default, ("ingest", "sources") in keys) == ("required", False)
    frequency = keys["train", "min_frequency"]
    assert (frequency.kind, frequency.default) == ("whole number ≥ 1", "1")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PLAIN = TEXTS | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
TABLES = st.recursive(
    PLAIN, lambda each: st.lists(each, max_size=3) | st.dictionaries(TEXTS, each, max_size=3), max_leaves=12
)


@given(st.dictionaries(TEXTS, TABLES, max_size=4))
def test_what_is_written_is_read_again(table: dict[str, Any]) -> None:
    written = to_toml(table)
    assert tomllib.loads(written) == table
    assert written.replace("\n", "").isprintable()
    assert to_toml({"a": None, "b": {"c": None, "d": 1.0}}) == "[b]\nd = 1.0\n"


def test_relative_paths_start_at_the_file_that_they_are_written_in_and_others_stay(folder: Path) -> None:
    write(folder / "deep" / "gpt2" / "vocab.json", "{}")
    audit = "[audit]\nparallel = { eng = '../eng.txt', deu = '/abs/deu.txt' }"
    base = f"[sources.a]\nfiles = ['../x/*.txt']\nexclude = ['y/*']\n{audit}"
    own = "extends = 'base.toml'\n[audit.compare_with]\nuse = 'gpt2/vocab.json'"
    write(folder / "deep" / "base.toml", base)
    table = read_layers(write(folder / "deep" / "own.toml", own)).table
    assert table["sources"]["a"] == {
        "files": [f"{folder}/deep/../x/*.txt"],
        "exclude": [f"{folder}/deep/y/*"],
    }
    assert table["audit"] == {
        "parallel": {"eng": f"{folder}/deep/../eng.txt", "deu": "/abs/deu.txt"},
        "compare_with": {"use": f"{folder}/deep/gpt2/vocab.json"},
    }
    old = with_absolute_paths({"sources": {"a": {"files": ["x*"]}}}, folder / "[old]")
    assert old["sources"]["a"]["files"] == [f"{folder}/[[]old]/x*"]
    files = ["/abs/*", "~/x", "{stdlib}/*.py", "s3://b/x"]
    for other in (
        {"sources": {"a": {"files": files, "exclude": ["*.js"]}}},
        {"audit": {"compare_with": {"use": "tokenizer/own@prod"}}},
        # odd shapes are left to the model
        {"sources": {"a": 3, "b": {"files": "x", "exclude": [1]}}, "tokenizer": 3, "audit": 3},
        {"audit": {"parallel": {"a": 3, "b": ""}, "compare_with": {"use": 3}}},
    ):
        assert with_absolute_paths(other, folder) == other
