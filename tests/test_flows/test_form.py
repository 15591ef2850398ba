"""The form of a deployment: what it shows, what the server accepts, and what a run takes from it."""

import json
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prefect.utilities.schema_tools.validation import validate

from tests.test_flows.corpora import write_project
from tokmill.flows.errors import ProfileError
from tokmill.flows.prefect.deployments import DEPLOYED, Deployed
from tokmill.flows.prefect.flow_run import SHOWN, overrides_of
from tokmill.flows.prefect.form import SECTIONS, form_of, keeping, kept_in, shown_in, version_of
from tokmill.flows.profile import Profile, load_profile, shipped_names
from tokmill.flows.profile.served import served_profiles

PLAIN = {"integer", "number", "string", "boolean"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_project(tmp_path, num_documents=10)
    return tmp_path


def form(profile: Profile) -> dict[str, Any]:
    return form_of(profile, SECTIONS, ["tiny.toml"])


def leaves(schema: dict[str, Any]) -> list[dict[str, Any]]:
    inner = schema.get("properties", {}).values()
    return [leaf for each in inner for leaf in leaves(each)] if inner else [schema]


def sent(schema: dict[str, Any]) -> dict[str, Any]:
    """What the page sends of a form that nobody has changed: every default."""
    values = {}
    for name, field in schema["properties"].items():
        value = sent(field) if "properties" in field else field.get("default")
        if value not in (None, {}):
            values[name] = value
    return values


@pytest.mark.parametrize("name", shipped_names())
def test_every_field_is_one_that_the_page_shows_as_one(name: str) -> None:
    schema = form(load_profile(name))

    for leaf in leaves(schema):
        assert leaf["title"]
        assert leaf["type"] in PLAIN | {"array"}
        assert {"anyOf", "$ref", "oneOf"}.isdisjoint(leaf)
        assert leaf["type"] != "array" or leaf["items"]["type"] in PLAIN | {"object"}


@pytest.mark.parametrize("name", shipped_names())
def test_an_untouched_form_is_accepted_and_overrides_nothing(name: str) -> None:
    schema = form(load_profile(name))
    filled = json.loads(json.dumps({"profile": "tiny.toml", **sent(schema)}))

    validate(filled, schema, raise_on_error=True)

    sections = {section: filled.get(section) for section in SECTIONS}
    assert overrides_of(sections, filled["more"], shown_in(schema)) == {}


def test_the_form_shows_the_values_of_the_profile(project: Path) -> None:
    shown = shown_in(form(load_profile(project / "tiny.toml")))

    assert shown["train"]["vocab_size"] == 600
    assert shown["balance"] == {"method": "temperature", "temperature": 2.0, "max_repetition": 10.0}
    assert shown["mix"]["weights"] == {"many": 4.0, "few": 1.0}
    assert shown["pack"]["sequence_length"] == 128
    assert shown["pack"]["formats"] == ["memmap", "parquet"]


@pytest.mark.parametrize(
    ("section", "values", "says"),
    [
        ("train", {"vocab_size": 1}, "minimum of 2"),
        ("train", {"vocab_size": "many"}, "not of type 'integer'"),
        ("train", {"family": "bpe"}, "is not one of"),
        ("pack", {"sequence_length": 7}, "minimum of 8"),
        ("mix", {"weights": {"moby": 1.0}}, "'moby' was unexpected"),
        ("mix", {"schedule": [{"start": 0.5}]}, "'weights' is a required property"),
        ("holdout", {"share": 1}, "maximum of 1"),
        ("audit", {"max_unused_share": 2}, "maximum of 1"),
    ],
)
def test_the_server_refuses_a_wrong_value(project: Path, section: str, values: Any, says: str) -> None:
    schema = form(load_profile(project / "tiny.toml"))

    found = validate({"profile": "tiny.toml", section: values}, schema)

    assert [says in error.message for error in found] == [True]


def test_a_profile_with_a_tokenizer_of_its_own_has_no_fields_of_training(project: Path) -> None:
    (project / "used.toml").write_text('extends = "tiny.toml"\n[tokenizer]\nuse = "tokenizer/tiny@v1"\n')

    schema = form(load_profile(project / "used.toml"))

    assert {"train", "balance"}.isdisjoint(schema["properties"])
    assert shown_in(schema)["tokenizer"] == {"use": "tokenizer/tiny@v1"}


def test_a_value_that_is_sent_as_it_was_shown_is_the_profiles_own() -> None:
    shown: dict[str, Any] = {"train": {"vocab_size": 600}, "mix": {"weights": {"many": 4.0, "few": 1.0}}}
    sent_: dict[str, Any] = {
        "train": {"vocab_size": 600},
        "mix": {"weights": {"many": 4, "few": 2}, "seed": 3},
        "pack": None,
    }

    assert overrides_of(sent_, ["encode.min_tokens=4"], shown) == {
        "mix": {"weights": {"few": 2}, "seed": 3},
        "encode.min_tokens": 4,
    }


def test_what_is_not_known_to_be_shown_replaces_the_profiles_value() -> None:
    assert overrides_of({"pack": {"sequence_length": 128}}, [], {}) == {"pack": {"sequence_length": 128}}


def test_more_is_refused_in_the_words_of_the_command_line() -> None:
    with pytest.raises(ProfileError, match="not of the form key=value"):
        overrides_of({}, ["vocab_size"], {})


VALUES = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
TABLES = st.dictionaries(
    st.sampled_from("abc"), VALUES | st.dictionaries(st.sampled_from("xy"), st.integers())
)


@given(TABLES, TABLES)
def test_the_overrides_over_what_was_shown_are_what_was_given(
    given_: dict[str, Any], shown: dict[str, Any]
) -> None:
    """Law: merged into what was shown, they give what was sent; nothing that was shown is among them."""
    changed = overrides_of({"s": given_}, [], {"s": shown}).get("s", {})

    for key, value in given_.items():
        if isinstance(value, dict):
            before = shown.get(key)
            base = before if isinstance(before, dict) else {}
            assert base | changed.get(key, {}) == base | value
        elif value is not None:
            assert changed.get(key, shown.get(key)) == value
    assert all(key not in shown or shown[key] != value for key, value in changed.items())


def test_a_new_version_keeps_what_earlier_ones_showed(project: Path) -> None:
    profile = load_profile(project / "tiny.toml")
    old = keeping(form(profile), None)
    changed = form(load_profile(project / "tiny.toml", ["train.vocab_size=700"]))

    new = keeping(changed, old)
    again = keeping(changed, new)

    versions = kept_in(again)[SHOWN]
    assert [versions[version_of(each)]["train"]["vocab_size"] for each in (old, changed)] == [600, 700]
    assert list(versions) == [version_of(old), version_of(changed)]
    assert version_of(old) != version_of(changed)


@pytest.mark.parametrize("deployed", DEPLOYED, ids=lambda deployed: deployed.flow.name)
@pytest.mark.parametrize("choices", [["tiny.toml"], ["tiny.toml", "quickstart"]])
def test_the_flow_takes_what_an_untouched_form_sends(deployed: Deployed, choices: list[str]) -> None:
    schema = deployed.form(None, choices)

    filled = {**({} if deployed.of_store else {"profile": "tiny.toml"}), **sent(schema)}
    validate(filled, schema, raise_on_error=True)
    taken = deployed.flow.validate_parameters(filled)

    assert taken.keys() >= filled.keys()
    assert set(schema["properties"]) <= set(signature(deployed.flow.fn).parameters)


def test_the_served_profiles_are_those_of_the_folder_and_the_quickstart(project: Path) -> None:
    (project / "runs").mkdir()
    (project / "runs" / "own.toml").write_text('extends = "../tiny.toml"\n')
    (project / "runs" / "broken.toml").write_text("[sources.a]\nfiles = [\n")
    (project / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (project / ".hidden").mkdir()
    (project / ".hidden" / "old.toml").write_text('extends = "quickstart"\n')

    found = {one.given: one.slug for one in served_profiles(project)}

    assert found == {
        "quickstart": "quickstart",
        "tiny.toml": "tiny",
        "runs/broken.toml": "runs-broken",
        "runs/own.toml": "runs-own",
    }
