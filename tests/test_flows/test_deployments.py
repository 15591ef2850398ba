"""What is registered at a server: forms with the profile's values, schedules, and the served profiles."""

import json
from datetime import timedelta
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prefect.utilities.schema_tools.validation import validate

from tests.test_flows.corpora import write_project
from tokmill.flows.errors import ProfileError, ServeError
from tokmill.flows.prefect.deployments import (
    DEPLOYED,
    Deployed,
    Deployment,
    deployments_of,
    schedule_changes,
    schedules_of,
    times_of,
)
from tokmill.flows.prefect.form import MACHINE, SECTIONS, changed, form_of, overrides_of
from tokmill.flows.profile import Profile, load_profile, shipped_names
from tokmill.flows.profile.sections import Schedule
from tokmill.flows.profile.served import ServedFolder, served_profiles

PLAIN = {"integer", "number", "string", "boolean"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_project(tmp_path, num_documents=3)
    return tmp_path


def form(profile: Profile) -> dict[str, Any]:
    return form_of(profile, list(SECTIONS), ["tiny.toml"], MACHINE, {})


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
def test_a_form_has_fields_that_the_page_shows_and_untouched_it_overrides_nothing(name: str) -> None:
    profile = load_profile(name)
    schema = form(profile)
    for leaf in leaves(schema):
        assert leaf["title"]
        assert leaf["type"] in PLAIN | {"array"}
        assert {"anyOf", "$ref", "oneOf"}.isdisjoint(leaf)
        assert leaf["type"] != "array" or leaf["items"]["type"] in PLAIN | {"object"}
    filled = json.loads(json.dumps({"profile": "tiny.toml", **sent(schema)}))
    validate(filled, schema, raise_on_error=True)
    sections = {section: filled.get(section) or {} for section in SECTIONS}
    assert overrides_of(sections, filled["more"], profile) == {}


@pytest.mark.parametrize("deployed", DEPLOYED, ids=lambda deployed: deployed.flow.name)
@pytest.mark.parametrize("choices", [["tiny.toml"], ["tiny.toml", "quickstart"]])
def test_the_flow_takes_what_an_untouched_form_sends(deployed: Deployed, choices: list[str]) -> None:
    schema = deployed.form(None, choices)
    filled = {**({} if not deployed.sections else {"profile": "tiny.toml"}), **sent(schema)}
    validate(filled, schema, raise_on_error=True)
    assert deployed.flow.validate_parameters(filled).keys() >= filled.keys()
    assert set(schema["properties"]) <= set(signature(deployed.flow.fn).parameters)


def test_a_form_shows_the_values_of_the_profile_and_no_training_where_there_is_none(project: Path) -> None:
    shown = sent(form(load_profile(project / "tiny.toml")))
    assert shown["train"]["vocab_size"] == 600
    assert shown["balance"] == {"method": "temperature", "temperature": 2.0, "max_repetition": 10.0}
    assert shown["mix"]["weights"] == {"many": 4.0, "few": 1.0}
    assert shown["pack"]["formats"] == ["memmap", "parquet"]
    (project / "used.toml").write_text('extends = "tiny.toml"\n[tokenizer]\nuse = "tokenizer/tiny@v1"\n')
    schema = form(load_profile(project / "used.toml"))
    assert {"train", "balance"}.isdisjoint(schema["properties"])
    assert sent(schema)["tokenizer"] == {"use": "tokenizer/tiny@v1"}


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
    found = validate({"profile": "tiny.toml", section: values}, form(load_profile(project / "tiny.toml")))
    assert [says in error.message for error in found] == [True]


def test_a_value_that_is_the_profiles_own_replaces_nothing(project: Path) -> None:
    mix = {"weights": {"many": 4, "few": 2}, "seed": 3}
    values: dict[str, Any] = {"train": {"vocab_size": 600}, "mix": mix, "pack": {}}
    new = {"mix": {"weights": {"few": 2}, "seed": 3}, "encode.min_tokens": 4}
    assert overrides_of(values, ["encode.min_tokens=4"], load_profile(project / "tiny.toml")) == new
    with pytest.raises(ProfileError, match="not of the form key=value"):
        overrides_of({}, ["vocab_size"], None)


VALUES = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
INNER = st.dictionaries(st.sampled_from("xy"), st.integers())
TABLES = st.dictionaries(st.sampled_from("abc"), VALUES | INNER)


@given(TABLES, TABLES)
def test_what_differs_laid_over_a_profiles_values_gives_what_was_sent(
    values: dict[str, Any], own: dict[str, Any]
) -> None:
    new = changed(values, own)
    for key, value in values.items():
        if isinstance(value, dict):
            before = own.get(key)
            base = before if isinstance(before, dict) else {}
            assert base | new.get(key, {}) == base | value
        elif value is not None:
            assert new.get(key, own.get(key)) == value
    assert all(key not in own or own[key] != value for key, value in new.items())


def test_the_served_profiles_are_those_of_the_folder_and_the_quickstart(project: Path) -> None:
    for name, text in {
        "runs/own.toml": 'extends = "../tiny.toml"\n',
        "runs/broken.toml": "[sources.a]\nfiles = [\n",
        "pyproject.toml": "[project]\nname = 'x'\n",
        ".hidden/old.toml": 'extends = "quickstart"\n',
    }.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    assert {one.given: one.slug for one in served_profiles(project)} == {
        "quickstart": "quickstart",
        "tiny.toml": "tiny",
        "runs/broken.toml": "runs-broken",
        "runs/own.toml": "runs-own",
    }


def as_written(deployed: Deployed) -> dict[str, Any]:
    """The entry of `prefect.yaml` for a deployment of the quickstart, without its work pool."""
    quickstart = "quickstart" if deployed.sections else None
    made = Deployment(deployed.flow.name, deployed, deployed.form(None, []), given=quickstart)
    limit, options = made.concurrency().values()
    schedules = [
        {"slug": one["slug"], "active": one["active"], **one["schedule"]}
        for one in schedules_of(made.schedule)
    ]
    return {
        "name": made.name,
        "description": deployed.flow.description,
        "entrypoint": deployed.entrypoint,
        "tags": made.tags,
        "parameters": made.parameters(),
        "concurrency_limit": {"limit": limit, **options},
        "schedules": [{key: one[key] for key in one if key != "day_or"} for one in schedules],
    }


def test_prefect_yaml_says_what_is_registered(checkout: Path) -> None:
    written = yaml.safe_load((checkout / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]
    # Deployments and pool are named after the folder elsewhere; a team chooses its own names.
    made = [as_written(deployed) for deployed in DEPLOYED]
    assert made == [{key: each[key] for key in each if key != "work_pool"} for each in written]


NIGHTLY = Schedule(cron="0 3 * * *", timezone="Europe/Berlin")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"cron": "0 3 * *"}, "five fields"),
        ({"cron": "0 3 * * *", "interval": "6h"}, "cron and interval exclude each other"),
        ({"interval": "6 hours"}, "schedule.interval"),
        ({"interval": "0h"}, "schedule.interval"),
        ({"rrule": "daily"}, "schedule.rrule"),
        ({"cron": "0 3 * * *", "timezone": "Berlin"}, "not a known time zone"),
        ({"cron": "0 3 * * *", "if_running": "stop"}, "'wait' or 'cancel'"),
        ({"cron": "0 3 * * *", "runs_at_once": "0"}, "schedule.runs_at_once"),
    ],
)
def test_a_wrong_schedule_is_refused_with_the_place(project: Path, values: dict[str, str], says: str) -> None:
    overrides = [f'schedule.{key}="{value}"' for key, value in values.items()]
    with pytest.raises(ProfileError, match="schedule") as refused:
        load_profile(project / "tiny.toml", overrides)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "bad",
    [
        'cron = "61 * * * *"',
        'cron = "0 0 31 2 *"',
        'cron = "0 3 * * *"\ntimezone = "Mars/Phobos"',
        'rrule = "FREQ=DAILY;BYHOUR=99"',
        'rrule = "FREQ=DAILY;INTERVAL=0"',  # the server would look for its next time for ever
        'rrule = "FREQ=DAILY;INTERVAL=-1"',
    ],
)
def test_a_profile_with_a_bad_schedule_is_named_and_the_others_are_served(project: Path, bad: str) -> None:
    tiny = (project / "tiny.toml").read_text("utf-8")
    (project / "bad.toml").write_text(f"{tiny.replace('tiny', 'bad')}\n[schedule]\n{bad}\n", "utf-8")
    deployments, problems = deployments_of(ServedFolder.of(project, project / "store"))
    (problem,) = problems
    assert "profile 'bad" in problem
    assert "schedule" in problem
    served = {each.given for each in deployments if each.given}
    assert ("tiny.toml" in served, "bad.toml" in served) == (True, False)


def test_the_times_are_those_of_prefects_schedules() -> None:
    interval = Schedule(interval="90 min", timezone="Asia/Kolkata")
    rule = "FREQ=WEEKLY;BYDAY=MO;BYHOUR=3;BYMINUTE=0;BYSECOND=0"
    assert times_of(NIGHTLY) == {"cron": "0 3 * * *", "timezone": "Europe/Berlin", "day_or": True}
    assert (interval.every, times_of(interval)["interval"]) == (timedelta(minutes=90), 5400.0)
    assert str(times_of(interval)["anchor_date"]).startswith("2020-01-01T00:00:00")
    assert times_of(Schedule(rrule=rule)) == {"rrule": rule, "timezone": "UTC"}
    assert schedules_of(None) == schedules_of(Schedule(if_running="cancel")) == []
    assert schedules_of(NIGHTLY)[0]["active"] is False
    with pytest.raises(ServeError, match="99 3"):
        times_of(Schedule(cron="99 3 * * *"))


LATER = Schedule(cron="0 5 * * *", timezone="Europe/Berlin")
ACTIVE = NIGHTLY.model_copy(update={"active": True})
BY_PEOPLE: list[dict[str, Any]] = [{"id": "2", "slug": "weekly"}, {"id": "1", "slug": "profile"}]


@pytest.mark.parametrize(
    ("now", "before", "there", "changed"),
    [
        (LATER, NIGHTLY, BY_PEOPLE, [("PATCH", "/1", {"schedule": times_of(LATER)})]),
        (ACTIVE, NIGHTLY, BY_PEOPLE, [("PATCH", "/1", {"schedule": times_of(ACTIVE), "active": True})]),
        (None, NIGHTLY, BY_PEOPLE, [("DELETE", "/1", None)]),
        (None, NIGHTLY, BY_PEOPLE[:1], []),
        (NIGHTLY, None, BY_PEOPLE[:1], [("POST", "", schedules_of(NIGHTLY))]),
    ],
)
def test_a_registration_changes_the_profiles_own_schedule_alone(now, before, there, changed) -> None:
    assert schedule_changes(now, before.model_dump() if before else {}, there) == changed
