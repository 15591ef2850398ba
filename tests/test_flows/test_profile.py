"""Whole profiles: checks, messages, and the parameters of stages."""

import textwrap

import pytest
from pydantic import ValidationError

from tokmill.flows.errors import ProfileError
from tokmill.flows.profile import Profile, load_profile, shipped_names
from tokmill.flows.profile.reference import profile_keys

MINIMAL = """
[sources.web]
files = ["web/*.txt"]
[sources.books]
files = ["books/*.txt"]
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Write a profile and load it."""
    monkeypatch.chdir(tmp_path)

    def write_and_load(text="", overrides=(), name="own.toml"):
        (tmp_path / name).write_text(MINIMAL + textwrap.dedent(text), encoding="utf-8")
        return load_profile(name, overrides)

    return write_and_load


@pytest.fixture
def complaint(load):
    """Load an invalid profile and return the message."""

    def load_and_read(text="", overrides=()):
        with pytest.raises(ProfileError) as caught:
            load(text, overrides)
        return str(caught.value)

    return load_and_read


class TestLoading:
    def test_a_profile_that_says_sources_only_has_defaults_everywhere_else(self, load, tmp_path):
        profile = load()
        assert profile.name == "own"
        assert profile.sources["web"].files == [f"{tmp_path}/web/*.txt"]
        assert profile.pack == Profile.model_fields["pack"].default
        assert profile.training() is not None

    def test_it_is_frozen(self, load):
        with pytest.raises(ValidationError):
            load().name = "other"

    def test_overrides_win_in_order(self, load):
        profile = load(
            "[pack]\nsequence_length = 64", ["pack.sequence_length=128", "pack.sequence_length=256"]
        )
        assert profile.pack.sequence_length == 256

    def test_relative_patterns_of_overrides_start_at_the_working_directory(self, load, tmp_path):
        profile = load(overrides=['sources.web.files=["elsewhere/*"]'])
        assert profile.sources["web"].files == [f"{tmp_path}/elsewhere/*"]

    def test_an_empty_text_unsets_what_may_be_unset(self, load):
        assert load("[encode]\nend_of_document = ''").encode.end_of_document is None
        assert load(overrides=["encode.end_of_document="]).encode.end_of_document is None

    def test_what_files_replaced_of_each_other_s_sources_is_noted(self, load, tmp_path):
        assert load().notes == ()
        (tmp_path / "other.toml").write_text("extends = 'own.toml'\n[sources.web]\nfiles = ['x']")
        assert load_profile("other.toml").notes == (
            "sources.web.files in other.toml replaces the value in own.toml",
        )

    @pytest.mark.parametrize(
        ("text", "override", "key", "reason"),
        [
            ("[mix.weights]\nweb = 1\nbooks = 2", "mix.temperature=3", "mix.temperature", "'weights'"),
            ("[mix]\ntemperature = 2", "mix.weights.web=3", None, ""),  # the weights imply their method
            ("[mix]\nmethod = 'temperature'", "mix.weights.web=3", "mix.weights", "'temperature'"),
            (
                "[mix]\nschedule = [[0, {web = 1, books = 1}]]",
                "mix.temperature=3",
                "mix.temperature",
                "schedule",
            ),
            ("", "mix.change='linear'", "mix.change", "no schedule"),
            ("", "mix.global_batch_size=8", "mix.global_batch_size", "steps"),
            (
                "[mix.curriculum]\ndifficulty = 'length'",
                "mix.curriculum.stairs=3",
                "mix.curriculum.stairs",
                "'step'",
            ),
            ("", "score.seed=1", "score.seed", "perplexity"),
            (
                "[tokenizer]\nuse = 'tokenizer/a@v1'",
                "balance.temperature=2",
                "balance.temperature",
                "[tokenizer]",
            ),
            ("", "pack.window=9", "pack.window", "'concat'"),
            (
                "[pack]\nstrategy = 'best_fit'",
                "pack.last_sequence='drop'",
                "pack.last_sequence",
                "'best_fit'",
            ),
            ("", "pack.fim_seed=9", "pack.fim_seed", "fim_rate"),
            ("", "encode.fim_seed=9", "encode.fim_seed", "fim_rate"),
            ("[pack]\nstrategy = 'best_fit'", "pack.window=9", None, ""),
            ("", "pack.sequence_length=64", None, ""),
            ("", "train.vocab_size=300", None, ""),
        ],
    )
    def test_an_override_without_effect_is_noted_with_the_reason(self, load, text, override, key, reason):
        notes = load(
            text, [override] if "weights.web" not in override else [override, "mix.weights.books=1"]
        ).notes
        assert len(notes) == (key is not None)
        assert all(f"--set {key} has no effect" in note and reason in note for note in notes)

    def test_a_setting_without_effect_in_a_file_is_not_noted(self, load):
        assert load("[mix]\nmethod = 'proportional'\ntemperature = 3").notes == ()

    def test_resolved_holds_every_parameter_and_loads_back(self, load):
        profile = load("[mix.weights]\nweb = 1\nbooks = 2")
        resolved = profile.resolved()
        assert resolved["mix"]["weights"] == {"web": 1.0, "books": 2.0}
        assert resolved["pack"]["sequence_length"] == profile.pack.sequence_length
        assert Profile.model_validate(resolved) == profile


class TestComplaints:
    def test_the_form_of_the_house(self, complaint):
        text = complaint("[pack]\nsequence_length = 0")
        assert text == "profile 'own': pack.sequence_length=0 must be at least 8; use e.g. 2048 (own.toml)"

    def test_an_unknown_key_names_the_file_the_key_and_the_nearest(self, complaint):
        text = complaint("[pack]\nsequence_lenght = 8")
        assert "unknown key pack.sequence_lenght; did you mean pack.sequence_length? (own.toml)" in text

    def test_a_key_in_the_wrong_table_is_sent_to_the_right_one(self, complaint):
        assert "did you mean train.vocab_size?" in complaint("[pack]\nvocab_size = 300")

    def test_an_unknown_section(self, complaint):
        assert "unknown key tarin; did you mean train?" in complaint("[tarin]\nvocab_size = 300")

    def test_an_unknown_key_of_a_source(self, complaint):
        assert "did you mean sources.code.text_column?" in complaint(
            "[sources.code]\nfiles = ['x']\ntext_colum = 'a'"
        )

    def test_a_wrong_choice_names_the_choices_and_the_nearest(self, complaint):
        text = complaint("[pack]\nstrategy = 'concatt'")
        assert 'pack.strategy="concatt" must be' in text
        assert "did you mean 'concat'?" in text

    def test_a_wrong_type(self, complaint):
        assert 'train.vocab_size="many" must be a whole number' in complaint(
            overrides=["train.vocab_size=many"]
        )

    def test_a_value_from_an_override_says_so(self, complaint):
        assert complaint(overrides=["pack.sequence_length=2"]).endswith("(--set)")

    def test_a_value_from_a_base_names_the_base(self, load, tmp_path):
        (tmp_path / "base.toml").write_text("[pack]\nsequence_length = 2")
        (tmp_path / "own.toml").write_text("extends = 'base.toml'\n" + MINIMAL)
        with pytest.raises(ProfileError, match=r"\(base\.toml\)"):
            load_profile("own.toml")

    def test_a_missing_key(self, complaint):
        text = complaint("[sources.code]\nformat = 'lines'")
        assert "sources.code.files is missing" in text

    def test_several_problems_are_told_at_once(self, complaint):
        text = complaint("[pack]\nsequence_length = 0\nstrategy = 'x'\n[mix]\nsed = 1")
        assert text.startswith("profile 'own': 3 problems\n")
        assert text.count("\n  - ") == 3

    def test_no_sources(self, tmp_path):
        (tmp_path / "empty.toml").write_text("[pack]\nsequence_length = 8")
        with pytest.raises(ProfileError, match="sources is missing"):
            load_profile(tmp_path / "empty.toml")

    def test_a_name_that_artifacts_cannot_have(self, tmp_path):
        (tmp_path / "own.toml").write_text("name = 'a b'\n" + MINIMAL)
        with pytest.raises(ProfileError, match='name="a b" must be of the form'):
            load_profile(tmp_path / "own.toml")

    @pytest.mark.parametrize("section", ["balance", "mix"])
    def test_a_weight_for_an_unknown_source_names_the_nearest(self, complaint, section):
        text = complaint(f"[{section}.weights]\nweb = 1\nbook = 1\nbooks = 1")
        assert f"{section}.weights.book: no such source; did you mean books?" in text

    @pytest.mark.parametrize("section", ["balance", "mix"])
    def test_a_source_without_a_weight(self, complaint, section):
        text = complaint(f"[{section}.weights]\nweb = 1")
        assert f"{section}.weights.books is missing" in text
        assert f"add {section}.weights.books = 0" in text

    @pytest.mark.parametrize("table", ["max_repetition", "min_epochs", "proportions", "warmup"])
    def test_every_table_by_source_of_a_mixture_names_sources_that_exist(self, complaint, table):
        value = {"warmup": "{stop = 0.5}", "proportions": "0.5"}.get(table, "1")
        text = complaint(f"[mix.{table}]\nweb = {value}\nwbe = {value}")
        assert f"mix.{table}.wbe: no such source; did you mean web?" in text

    def test_a_curriculum_is_of_sources_that_exist(self, complaint):
        text = complaint("[mix.curriculum]\ndifficulty = 'length'\nsources = ['wbe']")
        assert "mix.curriculum.sources.wbe: no such source; did you mean web?" in text

    def test_a_schedule_names_every_source_at_every_point(self, complaint):
        text = complaint("[mix]\nschedule = [[0, {web = 1, books = 1}], [0.5, {web = 1, boks = 1}]]")
        assert "mix.schedule.1.boks: no such source; did you mean books?" in text
        assert "mix.schedule.1.books is missing" in text

    def test_a_repetition_limit_for_an_unknown_source(self, complaint):
        assert "mix.max_repetition.wbe: no such source" in complaint("[mix.max_repetition]\nwbe = 2.0")
        rates = "[pack]\nstrategy = 'best_fit'\nfim_token_ids = [1, 2, 3]\n[pack.fim_rate]\nwbe = 0.5"
        assert "pack.fim_rate.wbe: no such source" in complaint(rates)

    def test_what_is_put_into_documents_must_be_special_tokens(self, complaint):
        text = complaint("[encode]\nbegin_of_document = '<s>'")
        assert 'encode.begin_of_document="<s>" is not in train.special_tokens' in text

    def test_documents_are_rearranged_in_one_place(self, complaint):
        train = "[train]\nspecial_tokens = ['<|endoftext|>', '<p>', '<s>', '<m>']"
        encode = "[encode]\nfim_rate = 0.5\nfim_tokens = ['<p>', '<s>', '<m>']"
        pack = "[pack]\nstrategy = 'best_fit'\nfim_rate = 0.5\nfim_token_ids = [1, 2, 3]"
        text = complaint(f"{train}\n{encode}\n{pack}")
        assert "encode.fim_rate and pack.fim_rate exclude each other" in text

    def test_a_rule_of_a_section_s_own_is_told_with_its_key(self, complaint):
        text = complaint("[balance]\nmethod = 'weights'")
        assert text.startswith("profile 'own': balance: method='weights' needs a positive weight")

    def test_train_and_tokenizer_exclude_each_other(self, complaint):
        assert "exclude each other" in complaint("[train]\nvocab_size = 300\n[tokenizer]\nuse = 'x'")

    def test_setting_a_parameter_of_training_excludes_an_existing_tokenizer(self, complaint):
        assert "exclude each other" in complaint("[tokenizer]\nuse = 'x'", ["train.vocab_size=300"])

    @pytest.mark.parametrize(
        ("text", "size", "least"),
        [
            ("special_tokens = ['<|endoftext|>']", 256, 257),
            ("num_reserved = 9", 265, 266),
            ("family = 'word_level'", 2, 3),
            ("family = 'character_level'\nnum_reserved = 5", 7, 8),
        ],
    )
    def test_the_smallest_vocabulary_follows_from_family_and_special_tokens(
        self, load, complaint, text, size, least
    ):
        wrong = complaint(f"[train]\nvocab_size = {size}\n{text}")
        assert f"vocab_size={size}" in wrong
        assert f"at least {least}" in wrong
        assert load(f"[train]\nvocab_size = {least}\n{text}").training().vocab_size == least

    @pytest.mark.parametrize("family", ["word_level", "character_level", "unigram", "char_bpe", "wordpiece"])
    def test_options_of_merges_are_for_families_that_merge(self, load, complaint, family):
        ties = "[train]\ntie_break = 'lowest_ids'"
        assert "tie_break='lowest_ids' is for" in complaint(f"{ties}\nfamily = '{family}'")
        assert load(ties).training().tie_break == "lowest_ids"

    def test_names_that_cannot_be_special_tokens(self, complaint):
        assert "two bytes or more" in complaint("[train]\nspecial_tokens = ['<|endoftext|>', 'x']")

    @pytest.mark.parametrize("pattern", ["a*", "(ab", "(?:a"])
    def test_a_split_pattern_that_cannot_be_used(self, complaint, pattern):
        assert f"train.split_pattern='{pattern}'" in complaint(f"[train]\nsplit_pattern = '{pattern}'")

    def test_a_normalizer_that_is_not_known(self, complaint):
        assert "use None, or, joined with +" in complaint("[train]\nnormalizer = 'nfx'")

    def test_an_end_token_that_training_does_not_make(self, complaint):
        text = complaint("[encode]\nend_of_document = '<eos>'")
        assert 'encode.end_of_document="<eos>" is not in train.special_tokens' in text

    def test_a_split_pattern_that_looks_like_a_name(self, complaint):
        assert "did you mean gpt2?" in complaint("[train]\nsplit_pattern = 'gtp2'")

    def test_sources_of_ingest_are_not_written(self, complaint):
        assert "write [sources.NAME] instead" in complaint("[ingest.sources.web]\nformat = 'lines'")


class TestStages:
    def test_ingest_gets_how_sources_are_read_and_not_where_they_lie(self, load):
        params = load("[sources.code]\nfiles = ['x']\nformat = 'lines'").ingest_params()
        assert params.sources["code"].format == "lines"
        assert "files" not in params.model_dump_json()

    def test_a_step_is_as_long_as_the_sequences_that_are_packed(self, load):
        steps = (
            "[mix]\nschedule = [[0, {web = 1, books = 1}]]\nschedule_unit = 'steps'\nglobal_batch_size = 4"
        )
        assert load(f"{steps}\n[pack]\nsequence_length = 512").mix_params().sequence_length == 512
        assert load("[pack]\nsequence_length = 512").mix_params().sequence_length is None

    def test_count_follows_from_train(self, load):
        count = load("[train]\ndigits = 'single'\nsplit_pattern = 'cl100k'").training().count_params()
        assert (count.digits, count.split_pattern) == ("single", "cl100k")

    def test_a_vocabulary_size_does_not_change_how_text_is_counted(self, load):
        other = load("[train]\nvocab_size = 300").training()
        assert other.count_params() == load().training().count_params()

    def test_an_existing_tokenizer_is_not_trained(self, load):
        profile = load("[tokenizer]\nuse = 'tokenizer/base@v1'\nsplit_pattern = 'gpt2'")
        assert profile.training() is None
        assert profile.tokenizer.params().split_pattern == "gpt2"
        assert "use" not in profile.tokenizer.params().model_dump()

    def test_a_tokenizer_s_file_is_found_beside_the_profile(self, load, tmp_path):
        (tmp_path / "vocab.json").write_text("{}")
        assert load("[tokenizer]\nuse = 'vocab.json'").tokenizer.use == str(tmp_path / "vocab.json")


@pytest.mark.parametrize("name", shipped_names())
def test_what_ships_loads_and_says_what_it_is_for(name):
    profile = load_profile(name)
    assert profile.name == name
    assert profile.description.endswith(".")


def test_the_quickstart_is_what_the_readme_promises():
    profile = load_profile("quickstart")
    languages = profile.sources.keys() - {"code", "english"}
    assert len(languages) >= 12
    assert profile.balance.method == "temperature"
    assert profile.training().vocab_size == 8192
    assert profile.pack.sequence_length == 1024


class TestReference:
    def test_every_key_of_every_section_is_there_with_a_meaning(self):
        keys = profile_keys()
        assert all(key.description for key in keys)
        found = {(key.section, key.name) for key in keys}
        assert {("", "extends"), ("sources.NAME", "files"), ("pack", "sequence_length")} <= found
        assert ("ingest", "sources") not in found

    def test_defaults_and_kinds_are_in_words(self):
        keys = {(key.section, key.name): key for key in profile_keys()}
        frequency = keys["train", "min_frequency"]
        assert (frequency.kind, frequency.default) == ("whole number ≥ 1", "1")
        assert keys["", "name"].default == ""
        assert keys["sources.NAME", "files"].default == "required"
        assert keys["execution", "verify"].kind == '"sizes" or "full"'
