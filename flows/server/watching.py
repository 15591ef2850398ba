"""Monitors the server of `tokmill up`: prints its errors, and runs that do not start."""

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tokmill.flows.server.findings import Finding, look_at_packages
from tokmill.flows.server.settings import prepare_terminal_run

DOCTOR_SECONDS = 60


class Watch:
    """Prints each problem once."""

    def __init__(self, api: str, logs: Path, announce: Callable[[str], None]) -> None:
        """Start monitoring.

        Args:
            api: URL of the server's API.
            logs: the folder of its log and its file of errors.
            announce: called with each line, from several threads.
        """
        self._api = api
        self._logs = logs
        self._announce = announce
        self._read_bytes = 0
        self._next_doctor = time.monotonic() + DOCTOR_SECONDS
        self._doctor = threading.Thread()
        self._known: set[str] = set()
        self._report(look_at_packages())

    def look(self) -> None:
        """Report new problems: reads the file of errors, and diagnoses the server once per minute."""
        for fault in self._new_faults():
            self._report([Finding(fault, f"the server fails: {fault}", f"see {self._logs / 'server.log'}")])
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

    def _new_faults(self) -> list[str]:
        try:
            with (self._logs / "faults.log").open("rb") as file:
                file.seek(self._read_bytes)
                new = file.read()
        except FileNotFoundError:
            return []
        whole = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        return whole.decode("utf-8", "replace").splitlines()
