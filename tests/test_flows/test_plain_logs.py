"""Which messages of Prefect reach the page's log with a traceback: bugs do, a person's mistakes do not."""

import logging

import pytest

from tokmill.flows.errors import ProfileError, RunError
from tokmill.flows.prefect.task import GroupError, keep_logs_plain
from tokmill.tasks.core.errors import TaskError
from tokmill.tokenizer.core.errors import LawError, TrainingError


def raised_for(error: Exception, cause: Exception) -> Exception:
    """An error as `raise error from cause` leaves it."""
    error.__cause__ = cause
    return error


def passed_on(error: Exception) -> logging.LogRecord:
    """What becomes of Prefect's message about a flow that an error has ended."""
    keep_logs_plain()
    logger = logging.getLogger("prefect.flow_runs")
    exc_info = (type(error), error, None)
    record = logger.makeRecord(
        logger.name,
        logging.ERROR,
        __file__,
        1,
        "Encountered exception during execution: %r",
        (error,),
        exc_info,
    )
    assert logger.filter(record)
    return record


@pytest.mark.parametrize(
    "error",
    [
        raised_for(ProfileError("profile 'tiny': no TOML"), ValueError("line 3")),
        TaskError("ingest: no file matches"),
        raised_for(RunError("train: too few words"), TrainingError("too few words")),
        raised_for(RunError("encode[a/3]: no"), GroupError("encode[a/3]", [], TaskError("no"))),
        GroupError("encode[a/3]", [], TaskError("no")),
        raised_for(TaskError("a.jsonl cannot be read"), FileNotFoundError("a.jsonl")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_mistake_is_a_sentence(error: Exception) -> None:
    record = passed_on(error)

    assert record.getMessage() == str(error)
    assert record.exc_info is None


@pytest.mark.parametrize(
    "error",
    [
        KeyError("a bug"),
        LawError("the tokens do not add up to the text", 3),
        raised_for(RunError("train: 'a bug'"), KeyError("a bug")),
        raised_for(RunError("encode[a/3]: no"), GroupError("encode[a/3]", [], ZeroDivisionError())),
        GroupError("encode[a/3]", [], ZeroDivisionError()),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_bug_keeps_its_traceback(error: Exception) -> None:
    assert passed_on(error).exc_info is not None
