"""The benchmarks are programs beside the packages; their modules are found as they find each other."""

import sys

from tests.conftest import CHECKOUT

sys.path.append(str(CHECKOUT / "benchmarks"))
