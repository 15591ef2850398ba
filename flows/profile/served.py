"""Profiles of runs that somebody starts from a page: those below the served folder, or shipped with tokmill.

Whoever can start a run from a page chooses among the profiles that lie where the server was started; a path
elsewhere would have any file of the machine read. Profiles are data: nothing in one is run.
"""

import os
from pathlib import Path

from tokmill.flows.errors import ProfileError
from tokmill.flows.profile.files import find_profile, shipped_folder

SERVED = "TOKMILL_SERVED"  # the folder; anywhere if empty or not set


def require_served(name_or_path: str) -> None:
    """Refuse a profile that lies outside the folder that the environment says is served.

    Links are followed first: what counts is where the file is.

    Raises:
        ProfileError: it lies elsewhere, or there is none.
    """
    served = os.environ.get(SERVED)
    if not served:
        return
    folder, file = Path(served).resolve(), Path(name_or_path).expanduser()
    if name_or_path.endswith(".toml") or os.sep in name_or_path:
        where = (Path.cwd() / file).resolve()  # before anything tells whether it exists
    else:
        where = find_profile(name_or_path).resolve()
    if not (where.is_relative_to(folder) or where.is_relative_to(shipped_folder())):
        raise ProfileError(
            f"profile '{name_or_path}': {where} lies outside the served folder {folder}; move it there, or "
            "serve with `tokmill up --allow-profiles`"
        )
