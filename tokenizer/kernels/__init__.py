"""The hot loops: numba kernels over flat arrays, compiled once and cached on disk.

Importing a kernel costs nothing: numba is loaded, and machine code compiled or read, when one is first
called. `prepare` does that ahead of time and says what it does. See `jit` for the rules.
"""

from tokmill.tokenizer.kernels.jit import Kernel, kernel, prepare
from tokmill.tokenizer.kernels.reports import Compilation

__all__ = ["Compilation", "Kernel", "kernel", "prepare"]
