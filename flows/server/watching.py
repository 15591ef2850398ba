"""What `tokmill up` looks at while it serves, and says: faults of its server, and runs that do not start."""

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tokmill.flows.server.findings import Finding, look_at_packages
from tokmill.flows.server.settings import prepare_terminal_run

DOCTOR_SECONDS = 60


class Watch:
    """Says everything once."""

    def __init__(self, api: str, logs: Path, announce: Callable[[str], None]) -> None:
        """Watch a server from now on.

        Args:
            api: of the server.
            logs: the folder of its faults and its log.
            announce: called with each line, from several threads.
        """
        self._api = api
        self._logs = logs
        self._announce = announce
        self._read_bytes = 0
        self._next_doctor = time.monotonic() + DOCTOR_SECONDS
        self._doctor = threading.Thread()
        self._said: set[str] = set()
        self._say(look_at_packages())

    def look(self) -> None:
        """Say what is new; reads a file every time, and has the server looked at once a minute."""
        for fault in self._new_faults():
            self._say(
                [Finding(fault, f"the server's own work fails: {fault}; see {self._logs / 'server.log'}")]
            )
        if time.monotonic() >= self._next_doctor and not self._doctor.is_alive():
            self._next_doctor = time.monotonic() + DOCTOR_SECONDS
            # Beside: a server that is busy is asked again and again, and Ctrl-C must not wait for it.
            self._doctor = threading.Thread(target=self._look_at_runs, name="doctor", daemon=True)
            self._doctor.start()

    def _look_at_runs(self) -> None:
        prepare_terminal_run()
        from tokmill.flows.server.doctor import look_at_runs  # noqa: PLC0415 - imports Prefect, which takes seconds

        self._say(look_at_runs(self._api))

    def _say(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if finding.key not in self._said:
                self._said.add(finding.key)
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
