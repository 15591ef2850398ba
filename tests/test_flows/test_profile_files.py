"""Profile files: found by name or path, merged, and read with messages that have the place."""

import textwrap

import pytest

from tokmill.flows.errors import ProfileError
from tokmill.flows.profile.files import Layered, dotted, find_profile, read_layers, with_absolute_paths
from tokmill.flows.profile.load import overrides_table, parse_override


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def message(call, *arguments):
    with pytest.raises(ProfileError) as caught:
        call(*arguments)
    return str(caught.value)


class TestFinding:
    def test_a_bare_name_is_a_profile_that_ships(self):
        assert find_profile("smoke").name == "smoke.toml"

    def test_a_path_is_a_file(self, folder):
        write(folder / "own.toml", "")
        assert find_profile("own.toml") == folder / "own.toml"

    def test_an_unknown_name_names_the_nearest(self):
        assert "did you mean smoke?" in message(find_profile, "smoek")

    def test_a_name_that_is_a_file_here_says_how_to_mean_it(self, folder):
        write(folder / "own.toml", "")
        assert "write own.toml" in message(find_profile, "own")

    def test_a_missing_file_names_the_nearest_beside_it(self, folder):
        write(folder / "own.toml", "")
        text = message(find_profile, "onw.toml")
        assert str(folder / "onw.toml") in text
        assert "did you mean own.toml?" in text


class TestLayers:
    def test_tables_merge_and_values_and_lists_replace(self, folder):
        write(folder / "base.toml", "[pack]\na = 1\nb = [1, 2]\n[pack.deep]\nx = 1\ny = 1")
        write(folder / "own.toml", "extends = 'base.toml'\n[pack]\nb = [3]\n[pack.deep]\ny = 2")
        layered = read_layers(folder / "own.toml")
        assert layered.table == {"pack": {"a": 1, "b": [3], "deep": {"x": 1, "y": 2}}}

    def test_every_value_knows_the_file_it_came_from(self, folder):
        write(folder / "base.toml", "[pack]\na = 1\nb = 1")
        write(folder / "own.toml", "extends = 'base.toml'\n[pack]\nb = 2")
        layered = read_layers(folder / "own.toml")
        assert layered.origin(("pack", "a")) == "base.toml"
        assert layered.origin(("pack", "b")) == "own.toml"

    def test_name_and_description_are_not_inherited(self, folder):
        write(folder / "base.toml", "name = 'base'\ndescription = 'the base'\n[pack]\na = 1")
        write(folder / "own.toml", "extends = 'base.toml'")
        assert read_layers(folder / "own.toml").table == {"pack": {"a": 1}}

    def test_a_source_of_the_same_name_keeps_what_is_not_written_again_and_says_so(self, folder):
        write(folder / "base.toml", "[sources.web]\nfiles = ['/a/*']\nformat = 'lines'")
        write(folder / "own.toml", "extends = 'base.toml'\n[sources.web]\nfiles = ['/b/*']")
        layered = read_layers(folder / "own.toml")
        assert layered.table["sources"]["web"] == {"files": ["/b/*"], "format": "lines"}
        assert layered.notes == ["sources.web.files in own.toml replaces the value in base.toml"]

    def test_extends_is_relative_to_the_file_that_says_it_and_goes_over_several_files(self, folder):
        write(folder / "deep" / "er" / "c.toml", "[pack]\na = 1")
        write(folder / "deep" / "b.toml", "extends = 'er/c.toml'\n[pack]\nb = 2")
        write(folder / "own.toml", "extends = 'deep/b.toml'\n[pack]\nc = 3")
        assert read_layers(folder / "own.toml").table == {"pack": {"a": 1, "b": 2, "c": 3}}

    def test_a_shipped_profile_can_be_extended_by_its_name(self, folder):
        write(folder / "own.toml", "extends = 'smoke'\n[pack]\nsequence_length = 64")
        table = read_layers(folder / "own.toml").table
        assert table["pack"]["sequence_length"] == 64
        assert "latin" in table["sources"]

    def test_a_circle_is_shown_whole(self, folder):
        write(folder / "a.toml", "extends = 'b.toml'")
        write(folder / "b.toml", "extends = 'a.toml'")
        assert "a.toml → b.toml → a.toml" in message(read_layers, folder / "a.toml")

    def test_a_missing_base_says_who_extends_it(self, folder):
        write(folder / "own.toml", "extends = 'bsae.toml'")
        text = message(read_layers, folder / "own.toml")
        assert text.startswith("profile 'own': own.toml: extends:")

    def test_tokenizer_takes_the_place_of_a_base_s_train(self, folder):
        write(folder / "base.toml", "[train]\nvocab_size = 300")
        write(folder / "own.toml", "extends = 'base.toml'\n[tokenizer]\nuse = 'x'")
        assert read_layers(folder / "own.toml").table == {"tokenizer": {"use": "x"}}

    def test_an_override_does_not_quietly_take_the_place_of_a_tokenizer(self):
        layered = Layered()
        layered.merge({"tokenizer": {"use": "x"}}, "own.toml")
        layered.merge({"train": {"vocab_size": 300}}, "--set")
        assert layered.table.keys() == {"tokenizer", "train"}


class TestPatterns:
    def test_relative_ones_start_at_the_file_that_they_are_written_in(self, folder):
        write(folder / "deep" / "base.toml", "[sources.a]\nfiles = ['../x/*.txt']\nexclude = ['y/*']")
        write(folder / "own.toml", "extends = 'deep/base.toml'")
        source = read_layers(folder / "own.toml").table["sources"]["a"]
        assert source == {"files": [f"{folder}/deep/../x/*.txt"], "exclude": [f"{folder}/deep/y/*"]}

    def test_others_stay_as_they_are(self, tmp_path):
        files = ["/abs/*.txt", "~/x", "{stdlib}/**/*.py", "s3://bucket/x"]
        table = {"sources": {"a": {"files": files, "exclude": ["test", "*.min.js"]}}}
        assert with_absolute_paths(table, tmp_path) == table

    def test_wildcards_in_the_folder_s_own_name_are_no_wildcards(self, tmp_path):
        table = with_absolute_paths({"sources": {"a": {"files": ["x*"]}}}, tmp_path / "[old]")
        assert table["sources"]["a"]["files"] == [f"{tmp_path}/[[]old]/x*"]

    def test_what_the_audit_names_starts_at_the_same_file(self, folder):
        write(folder / "deep" / "gpt2" / "vocab.json", "{}")
        base = "[audit]\nparallel = { eng = '../eng.txt', deu = '/abs/deu.txt' }"
        own = "extends = 'base.toml'\n[audit.compare_with]\nuse = 'gpt2/vocab.json'"
        write(folder / "deep" / "base.toml", base)
        write(folder / "deep" / "own.toml", own)
        audit = read_layers(folder / "deep" / "own.toml").table["audit"]
        assert audit["parallel"] == {"eng": f"{folder}/deep/../eng.txt", "deu": "/abs/deu.txt"}
        assert audit["compare_with"] == {"use": f"{folder}/deep/gpt2/vocab.json"}
        artifact = {"audit": {"compare_with": {"use": "tokenizer/own@prod"}}}
        assert with_absolute_paths(artifact, folder) == artifact

    @pytest.mark.parametrize(
        "audit", [3, {"parallel": 3}, {"parallel": {"a": 3, "b": ""}}, {"compare_with": {"use": 3}}]
    )
    def test_odd_shapes_are_left_to_the_model(self, tmp_path, audit):
        table = {"sources": {"a": 3, "b": {"files": "x", "exclude": [1]}}, "tokenizer": 3, "audit": audit}
        assert with_absolute_paths(table, tmp_path) == table


class TestSyntax:
    def test_a_syntax_error_has_its_line_and_column(self, folder):
        write(folder / "own.toml", "[pack]\nsequence_length = = 3")
        text = message(read_layers, folder / "own.toml")
        assert text.startswith("profile 'own': own.toml: line 2, column 19: not TOML:")

    def test_two_sources_of_one_name(self, folder):
        write(folder / "own.toml", "[sources.web]\nfiles = ['a']\n[sources.web]\nfiles = ['b']")
        text = message(read_layers, folder / "own.toml")
        assert "line 3" in text
        assert "two sources are named 'web'" in text

    def test_a_key_that_stands_twice(self, folder):
        write(folder / "own.toml", "[pack]\nsequence_length = 8\nsequence_length = 9\n")
        assert "line 3, column 20: a key is set twice" in message(read_layers, folder / "own.toml")

    def test_not_utf8(self, folder):
        (folder / "own.toml").write_bytes(b"name = '\xff'")
        assert "own.toml is not UTF-8 at byte 8" in message(read_layers, folder / "own.toml")


class TestOverrides:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("a.b=2048", 2048),
            ("a.b = 0.5", 0.5),
            ("a.b=true", True),
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
    def test_a_value_is_toml_or_else_text(self, text, value):
        assert parse_override(text) == ("a.b", value)

    def test_keys_go_into_tables_and_later_ones_win(self):
        assert overrides_table(["a.b=1", "a.c=2", "a.b=3"]) == {"a": {"b": 3, "c": 2}}

    def test_a_key_with_a_dot_in_a_name_is_quoted(self):
        assert overrides_table(['sources."zh.hans".format=lines']) == {
            "sources": {"zh.hans": {"format": "lines"}}
        }

    def test_a_mapping_does_as_well(self):
        assert overrides_table({"pack.sequence_length": 8, "mix": {"seed": 1}}) == {
            "pack": {"sequence_length": 8},
            "mix": {"seed": 1},
        }

    @pytest.mark.parametrize("text", ["pack", "=3", "pack sequence=3", "pack..x=3"])
    def test_what_is_no_assignment_is_said(self, text):
        assert "--set" in message(overrides_table, [text])

    def test_a_value_and_keys_below_it_contradict(self):
        assert "set either a or keys in it" in message(overrides_table, ["a=1", "a.b=2"])


def test_dotted_quotes_what_toml_would_quote():
    assert dotted(("sources", "zh.hans", "files")) == 'sources."zh.hans".files'
