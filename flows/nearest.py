"""Finds the known name that is nearest to an unknown one, for "did you mean" in error messages."""

import difflib
from collections.abc import Iterable

_SHOWN = 12


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to `name`, or None if nothing is close; ties go to the first in order."""
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.55)
    return found[0] if found else None


def suggestion(name: str, known: Iterable[str], *, known_as: str) -> str:
    """Return `; did you mean X?`, or a list of the known names, or nothing if there are none."""
    names = sorted(known)
    close = nearest(name, names)
    if close is not None:
        return f"; did you mean {close}?"
    if not names:
        return ""
    more = f", … ({len(names)} in all)" if len(names) > _SHOWN else ""
    return f"; {known_as}: {', '.join(names[:_SHOWN])}{more}"
