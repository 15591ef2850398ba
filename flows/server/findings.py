"""Problems of a server or of installed packages, and who looks for them while `tokmill up` runs."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import Requirement

from tokmill.flows.server.settings import prepare_terminal_run

DOCTOR_SECONDS = 60


@dataclass(frozen=True)
class Finding:
    """A problem.

    Attributes:
        key: identifies the problem when it is found again.
        what: place and problem.
        fix: what to do about it.
        fails: whether something does not work; False for advice.
    """

    key: str
    what: str
    fix: str
    fails: bool = True

    @property
    def text(self) -> str:
        """Place, problem and fix, in one line."""
        return f"{self.what}; {self.fix}"


def look_at_packages() -> list[Finding]:
    """Return the installed packages with incompatible versions.

    pip obeys the version bounds when it installs tokmill, but may break them when it installs other packages.
    """
    return list(out_of_bounds(metadata.requires("tokmill") or []))


def out_of_bounds(requirements: list[str]) -> Iterator[Finding]:
    """Yield the installed packages whose versions these requirements exclude."""
    for requirement in map(Requirement, requirements):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        installed = metadata.version(requirement.name)
        if not requirement.specifier.contains(installed, prereleases=True):
            yield Finding(
                f"package {requirement.name}",
                f"{requirement.name} {installed} is installed; tokmill works with {requirement.specifier}",
                f"python -m pip install '{requirement.name}{requirement.specifier}'",
            )


class Watch:
    """Prints each problem once."""

    def __init__(self, api: str, announce: Callable[[str], None]) -> None:
        """Start monitoring.

        Args:
            api: URL of the server's API.
            announce: called with each line, from several threads.
        """
        self._api = api
        self._announce = announce
        self._next_doctor = time.monotonic() + DOCTOR_SECONDS
        self._doctor = threading.Thread()
        self._known: set[str] = set()
        self._report(look_at_packages())

    def look(self) -> None:
        """Diagnose the server once per minute."""
        if time.monotonic() >= self._next_doctor and not self._doctor.is_alive():
            self._next_doctor = time.monotonic() + DOCTOR_SECONDS
            # In a thread, because requests to a busy server are retried, and Ctrl-C must not wait for that.
            self._doctor = threading.Thread(target=self._look_at_runs, name="doctor", daemon=True)
            self._doctor.start()

    def _look_at_runs(self) -> None:
        prepare_terminal_run()
        from tokmill.flows.server.doctor import look_at_runs  # noqa: PLC0415 - imports Prefect, which takes seconds

        self._report(look_at_runs(self._api))

    def _report(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if finding.key not in self._known:
                self._known.add(finding.key)
                self._announce(finding.text)
