"""How much a test tries: all of it in the whole suite, a quarter in the inner loop."""

import os

from hypothesis import settings

_ALL_EXAMPLES = 100  # Hypothesis's own default
_FEWEST = 3


def examples(number: int) -> int:
    """How many examples a property gets that gets `number` of them in the whole suite."""
    return max(_FEWEST, number * settings().max_examples // _ALL_EXAMPLES)


def fuzz_seconds(seconds: float) -> float:
    """How long a fuzzer goes on: `TOKMILL_FUZZ_SECONDS`, else `seconds` in the whole suite."""
    asked = os.environ.get("TOKMILL_FUZZ_SECONDS")
    return float(asked) if asked else seconds * min(1.0, settings().max_examples / _ALL_EXAMPLES)
