"""Limits the profiles of runs from the Prefect UI to those in the served folder and those shipped.

Anyone who can start a run in the UI can name a profile. With any path they could make a run read any file of
the machine, so the path must be below the folder in which the server was started. Profiles are data: nothing
in one is executed.
"""

import os
from pathlib import Path

from tokmill.flows.errors import ProfileError
from tokmill.flows.profile.files import find_profile, shipped_folder

SERVED = "TOKMILL_SERVED"  # the folder; no limit if empty or not set


def require_served(name_or_path: str) -> None:
    """Check that a profile is below the served folder, or shipped with tokmill.

    Symbolic links are resolved first.

    Raises:
        ProfileError: the profile is elsewhere, or does not exist.
    """
    served = os.environ.get(SERVED)
    if not served:
        return
    folder, file = Path(served).resolve(), Path(name_or_path).expanduser()
    if name_or_path.endswith(".toml") or os.sep in name_or_path:
        where = (Path.cwd() / file).resolve()  # without revealing whether it exists
    else:
        where = find_profile(name_or_path).resolve()
    if not (where.is_relative_to(folder) or where.is_relative_to(shipped_folder())):
        raise ProfileError(
            f"profile '{name_or_path}': {where} is outside the served folder {folder}; move it there, or "
            "serve with `tokmill up --allow-profiles`"
        )
