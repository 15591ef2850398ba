"""What commands import, and what they import only while they run; loaded once by the fork server for all.

These are all modules of our own, except those for libraries that are not installed, what Prefect and pyarrow
import in the course of a run, and the machine code of the kernels. A forked run would otherwise need two CPU
seconds for them.
"""

from importlib import import_module
from pkgutil import walk_packages

import tokmill
from tokmill.flows.prefect.settings import prepare_terminal_run
from tokmill.tokenizer.jit import make_ready
from tokmill.tokenizer.preparing import kernel_modules

LATE = (
    "anyio._backends._asyncio",
    "duckdb",
    "fastapi",
    "numba",
    "pandas",
    "prefect.flow_engine",
    "prefect.task_engine",
    "pyarrow.dataset",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
)


def import_ours() -> None:
    """Import every module of tokmill that can be imported here."""
    for found in walk_packages(tokmill.__path__, "tokmill."):
        try:
            import_module(found.name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "tokmill":
                raise


prepare_terminal_run()
import_ours()
for name in LATE:
    import_module(name)
make_ready(list(kernel_modules()))
