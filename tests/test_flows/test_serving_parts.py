"""The flows that make parts of the DAG, started from outside."""

import pytest

from tests.test_flows.served import RefusedError, Service

pytestmark = pytest.mark.server


def stages(service: Service, run: dict[str, str], last: str) -> dict[str, str]:
    """Stage → the state of its last task; `last` is the last task of the run."""
    return {
        name.partition("[")[0]: state
        for name, state in service.ended_task_states(run, last).items()
        if not name.startswith("pack[plan]")
    }


def test_a_tokenizer_is_trained_audited_and_the_mixture_packed_by_flows_of_their_own(
    service: Service,
) -> None:
    trained = service.run_flow("train-tokenizer", profile="tiny.toml", train={"vocab_size": 640})
    built = service.run(profile="tiny.toml", train={"vocab_size": 640})
    named = {"use": "tokenizer/tiny@latest"}
    audited = service.run_flow(
        "audit-tokenizer", profile="tiny.toml", tokenizer=named, audit={"sample_megabytes": 1}
    )
    packed = service.run_flow("repack", profile="tiny.toml", pack={"sequence_length": 80})

    ended = [run["state_name"] for run in (trained, built, audited, packed)]
    assert ended == ["Completed"] * 4, [run["state"]["message"] for run in (trained, built, audited, packed)]
    assert (
        {"train", "audit"}
        <= stages(service, trained, "tokenizer_card").keys()
        <= {"ingest", "count", "balance", "train", "audit", "encode", "usage", "tokenizer_card"}
    )
    assert stages(service, built, "card")["train"] == "Cached"
    assert stages(service, audited, "audit").keys() == {"ingest", "audit"}
    assert stages(service, packed, "pack").keys() == {"pack"}
    assert trained["name"].startswith("tiny · tokenizer")


def test_a_mixture_that_is_not_there_fails_at_once_and_is_named(service: Service) -> None:
    run = service.run_flow("repack", profile="tiny.toml", mixture="mixture/none")

    assert run["state_name"] == "Failed"
    assert "mixture/none" in run["state"]["message"]
    assert service.task_states(run) == {}
    (summary,) = artifacts(service, run)
    assert "mixture/none" in summary["data"]
    assert "## What a retry does" in summary["data"]


def test_a_run_that_is_refused_says_why_on_its_page(service: Service) -> None:
    run = service.run(profile="tiny.toml", more=["train.family=none"])

    (summary,) = artifacts(service, run)
    assert run["state_name"] == "Failed"
    assert summary["data"].startswith("# tiny.toml: refused")


def artifacts(service: Service, run: dict[str, str]) -> list[dict[str, str]]:
    """The artifacts of a run; Prefect's own, of the results of states, have no key."""
    wanted = {"artifacts": {"flow_run_id": {"any_": [run["id"]]}}, "limit": 200}
    return [found for found in service.call("/artifacts/filter", wanted) if found["key"]]


def test_an_unknown_profile_is_refused(service: Service) -> None:
    with pytest.raises(RefusedError, match="is not one of"):
        service.run_flow("train-tokenizer", profile="other.toml")


def test_the_store_is_verified_and_its_garbage_listed(service: Service) -> None:
    checked = service.run_flow("verify-store")
    listed = service.run_flow("collect-garbage", apply=False, older_than_days=0)

    assert [run["state_name"] for run in (checked, listed)] == ["Completed"] * 2
    deployment = service.call(f"/deployments/name/verify-store/{service.served.name}")
    assert [(each["schedule"]["cron"], each["active"]) for each in deployment["schedules"]] == [
        ("0 1 * * *", False)
    ]
