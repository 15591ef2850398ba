"""Registers the deployments of a served folder, and again when its profiles change.

The registration imports Prefect and all stages, so it is a process of its own. What a form shows is therefore
at most some seconds older than the files; a run reads the file itself when it starts.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tokmill.flows.errors import ServeError
from tokmill.flows.profile.served import served_profiles
from tokmill.flows.server.served_folder import ServedFolder

LOOK_SECONDS = 2.0

_Seen = dict[str, tuple[int, int]]


@dataclass
class Registration:
    """The registration of one folder at one server.

    Attributes:
        served: the folder.
        environment: of the process that registers; it names the server.
        any_profile: whether runs may name profiles elsewhere.
        announce: called with each line for the user.
    """

    served: ServedFolder
    environment: Mapping[str, str]
    any_profile: bool
    announce: Callable[[str], None]
    _seen: _Seen = field(default_factory=dict)
    _next: float = 0.0

    def register(self) -> None:
        """Register the deployments.

        Raises:
            ServeError: the server or Prefect refuses them.
        """
        self._seen = self._look()
        module = ["tokmill.flows.deploying.registering", str(self.served.folder), str(self.served.store)]
        done = run_module([*module, *(["--any-profile"] if self.any_profile else [])], self.environment)
        if done.returncode:
            output = (done.stderr or done.stdout).strip()
            raise ServeError(f"the deployments of {self.served.name!r} could not be registered: {output}")
        for line in done.stdout.splitlines():
            self.announce(line)

    def look(self) -> None:
        """Register the deployments again if a profile has changed since; looks every two seconds."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + LOOK_SECONDS
        now = self._look()
        changed = sorted(name for name in now.keys() | self._seen if now.get(name) != self._seen.get(name))
        if changed:
            try:
                self.register()
            except ServeError as error:
                self.announce(str(error))
            else:
                self.announce(f"registered again: {', '.join(changed)}")

    def _look(self) -> _Seen:
        """Return the size and the time of each profile's file."""
        found: _Seen = {}
        for profile in served_profiles(self.served.folder):
            try:
                status = profile.path.stat()
            except OSError:  # removed a moment ago
                continue
            found[profile.given] = (status.st_mtime_ns, status.st_size)
        return found


def run_module(module: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run one of our modules; -P prevents imports from the working directory."""
    command = [sys.executable, "-P", "-m", *module]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
