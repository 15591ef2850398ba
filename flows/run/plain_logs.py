"""Keeps out of the page's logs what Prefect says of its own accord, and nobody needs.

- "Finished in state Completed()": the page logs ends with figures.
- The traceback of a mistake that a person can mend: the message of our errors says where, the value, the rule
  and the fix. Whatever else is raised, a bug of ours above all, keeps its traceback.
"""

import logging

from tokmill.flows.errors import FlowError, RunError
from tokmill.flows.run.groups import GroupError
from tokmill.tasks.core.errors import TaskError
from tokmill.tokenizer.core.errors import LawError, TokenizerError

_OF_FLOWS, _OF_TASKS = "prefect.flow_runs", "prefect.task_runs"
_MISTAKES = (FlowError, TaskError, TokenizerError)


def keep_logs_plain() -> None:
    """Filter the messages of this process's runs; may be called again."""
    logging.getLogger(_OF_FLOWS).addFilter(_without_mistakes_tracebacks)
    logging.getLogger(_OF_TASKS).addFilter(_without_mistakes_tracebacks)
    logging.getLogger(_OF_TASKS).addFilter(_says_more)


def _says_more(record: logging.LogRecord) -> bool:
    """Whether a message says more than that a task has ended well."""
    return record.levelno > logging.INFO or not record.getMessage().startswith("Finished in state ")


def _without_mistakes_tracebacks(record: logging.LogRecord) -> bool:
    """Replace the traceback of a mistake by its message; every record passes."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and is_mistake(error):
        record.msg, record.args, record.exc_info, record.exc_text = str(error), None, None, None
    return True


def is_mistake(error: BaseException) -> bool:
    """Whether a person can mend what an error is about: it, and what it was raised for, are ours."""
    if isinstance(error, GroupError):
        return is_mistake(error.error)
    if isinstance(error, RunError) and error.__cause__ is not None:
        return is_mistake(error.__cause__)
    return isinstance(error, _MISTAKES) and not isinstance(error, LawError)
