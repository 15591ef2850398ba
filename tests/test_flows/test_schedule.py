"""`[schedule]`: what a profile may say, and what a registration changes at the server."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.test_flows.corpora import write_project
from tokmill.flows.errors import ProfileError, ServeError
from tokmill.flows.prefect.deployments import deployments_of
from tokmill.flows.prefect.schedules import changes, first, registered, times_of
from tokmill.flows.profile import load_profile
from tokmill.flows.profile.sections import Schedule
from tokmill.flows.profile.served import ServedFolder

NIGHTLY = Schedule(cron="0 3 * * *", timezone="Europe/Berlin")


@pytest.mark.parametrize(
    ("given", "says"),
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
def test_a_wrong_schedule_is_refused_with_the_place(tmp_path: Path, given: dict[str, str], says: str) -> None:
    write_project(tmp_path, num_documents=2)
    overrides = [f'schedule.{key}="{value}"' for key, value in given.items()]

    with pytest.raises(ProfileError, match="schedule") as refused:
        load_profile(tmp_path / "tiny.toml", overrides)

    assert says in str(refused.value)


def test_a_schedule_given_for_a_run_has_no_effect(tmp_path: Path) -> None:
    write_project(tmp_path, num_documents=2)

    loaded = load_profile(tmp_path / "tiny.toml", ["schedule.interval=1d"])

    assert any("schedule.interval has no effect" in note for note in loaded.notes)


def test_the_times_are_those_of_prefects_schedules() -> None:
    interval = Schedule(interval="90 min", timezone="Asia/Kolkata")
    rule = "FREQ=WEEKLY;BYDAY=MO;BYHOUR=3;BYMINUTE=0;BYSECOND=0"

    assert times_of(NIGHTLY) == {"cron": "0 3 * * *", "timezone": "Europe/Berlin", "day_or": True}
    assert interval.every == timedelta(minutes=90)
    assert times_of(interval)["interval"] == 5400.0
    assert str(times_of(interval)["anchor_date"]).startswith("2020-01-01T00:00:00")
    assert times_of(Schedule(rrule=rule)) == {"rrule": rule, "timezone": "UTC"}


def test_what_prefect_refuses_is_refused() -> None:
    with pytest.raises(ServeError, match="99 3"):
        times_of(Schedule(cron="99 3 * * *"))


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
def test_a_profile_with_a_bad_schedule_is_named_and_the_others_are_served(tmp_path: Path, bad: str) -> None:
    write_project(tmp_path, num_documents=2)
    tiny = (tmp_path / "tiny.toml").read_text("utf-8")
    (tmp_path / "bad.toml").write_text(f"{tiny.replace('tiny', 'bad')}\n[schedule]\n{bad}\n", "utf-8")

    deployments, problems = deployments_of(ServedFolder.of(tmp_path, tmp_path / "store"))

    (problem,) = problems
    assert "profile 'bad" in problem
    assert "schedule" in problem
    served = {each.given for each in deployments if each.given}
    assert "tiny.toml" in served
    assert "bad.toml" not in served


def test_a_profile_without_times_has_no_schedule() -> None:
    assert first(None) == first(Schedule(if_running="cancel")) == []
    assert first(NIGHTLY)[0]["active"] is False


BY_PEOPLE: list[dict[str, Any]] = [{"id": "2", "slug": "weekly"}, {"id": "1", "slug": "profile"}]


def test_what_the_profile_has_not_changed_is_left_to_people() -> None:
    assert changes(NIGHTLY, registered(NIGHTLY), BY_PEOPLE) == []
    assert changes(NIGHTLY, registered(NIGHTLY), []) == []


def test_new_times_replace_those_of_the_profiles_own_schedule_alone() -> None:
    later = Schedule(cron="0 5 * * *", timezone="Europe/Berlin")

    assert changes(later, registered(NIGHTLY), BY_PEOPLE) == [("PATCH", "/1", {"schedule": times_of(later)})]


def test_a_schedule_is_activated_when_the_profile_says_so_now() -> None:
    active = Schedule(cron="0 3 * * *", timezone="Europe/Berlin", active=True)

    (changed,) = changes(active, registered(NIGHTLY), BY_PEOPLE)

    assert changed[2]["active"] is True


def test_a_schedule_comes_and_goes_with_the_profiles() -> None:
    assert changes(None, registered(NIGHTLY), BY_PEOPLE) == [("DELETE", "/1", None)]
    assert changes(NIGHTLY, None, BY_PEOPLE[:1]) == [("POST", "", first(NIGHTLY))]
