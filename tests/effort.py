"""How much a test tries of what has no end."""

import os

EVERYTHING = "TOKMILL_EVERYTHING" in os.environ
"""Whether matrices are tried in full, which takes minutes for each."""


def fuzz_seconds(seconds: float) -> float:
    """How long a fuzzer goes on: `TOKMILL_FUZZ_SECONDS`, else `seconds`."""
    return float(os.environ.get("TOKMILL_FUZZ_SECONDS", seconds))
