"""Our layer over numba: functions over flat arrays, compiled once and cached on disk.

Importing a kernel costs nothing: numba is loaded, and machine code compiled or read, when one is first
called. `kernel` has the rules. Nothing here depends on what the kernels do.
"""

from tokmill.tokenizer.jit.kernel import Kernel, kernel, kernel_modules_of, make_ready, specialized
from tokmill.tokenizer.jit.machine_code import Compilation

__all__ = ["Compilation", "Kernel", "kernel", "kernel_modules_of", "make_ready", "specialized"]
