"""Raw text to training-ready token shards, and the tokenizers that make them.

    import tokmill

    result = tokmill.run("quickstart")           # a profile, from text to packed shards
    tok = tokmill.load("tokenizer/quickstart")   # an artifact, or any tokenizer's file
    dataset = tokmill.PackedDataset("packed/quickstart", batch_size=8)

Importing this package is cheap: what a name needs is loaded when the name is first used. Below it lie
`tokmill.tokenizer` (algorithms), `tokmill.tasks` (stages, formats, store) and `tokmill.flows` (profiles,
command line, deployments). In the repository they are folders at the top, linked from here (docs/adr/0013).
"""

from typing import TYPE_CHECKING, Any

from tokmill.tokenizer import lazy_names

if TYPE_CHECKING:
    from tokmill.flows.library.api import FinishedRun, plan, run, sweep
    from tokmill.flows.library.artifact import Artifact
    from tokmill.flows.library.encoding import encode
    from tokmill.flows.library.packing import mix, pack
    from tokmill.flows.library.store import Store
    from tokmill.flows.library.table import Table
    from tokmill.flows.library.training import audit, train
    from tokmill.flows.profile import Profile, load_profile
    from tokmill.flows.results import RunResult
    from tokmill.flows.run.planning import PlanRow
    from tokmill.tasks.formats.packed.reader import PackedReader
    from tokmill.tasks.loading import PackedDataset
    from tokmill.tokenizer import (
        EncodedBatch,
        Tokenizer,
        count_pretokens,
        load,
        train_from_counts,
        train_sweep_from_counts,
    )

    __version__: str

_HOMES = {
    "Artifact": "flows.library.artifact",
    "EncodedBatch": "tokenizer",
    "FinishedRun": "flows.library.api",
    "PackedDataset": "tasks.loading",
    "PackedReader": "tasks.formats.packed",
    "PlanRow": "flows.run.planning",
    "Profile": "flows.profile",
    "RunResult": "flows.results",
    "Store": "flows.library.store",
    "Table": "flows.library.table",
    "Tokenizer": "tokenizer",
    "audit": "flows.library.training",
    "count_pretokens": "tokenizer",
    "encode": "flows.library.encoding",
    "load": "tokenizer",
    "load_profile": "flows.profile",
    "mix": "flows.library.packing",
    "pack": "flows.library.packing",
    "plan": "flows.library.api",
    "run": "flows.library.api",
    "sweep": "flows.library.api",
    "train": "flows.library.training",
    "train_from_counts": "tokenizer",
    "train_sweep_from_counts": "tokenizer",
}

__all__ = [
    "Artifact",
    "EncodedBatch",
    "FinishedRun",
    "PackedDataset",
    "PackedReader",
    "PlanRow",
    "Profile",
    "RunResult",
    "Store",
    "Table",
    "Tokenizer",
    "__version__",
    "audit",
    "count_pretokens",
    "encode",
    "load",
    "load_profile",
    "mix",
    "pack",
    "plan",
    "run",
    "sweep",
    "train",
    "train_from_counts",
    "train_sweep_from_counts",
]


_find = lazy_names(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - takes longer than all the rest

        return version("tokmill")
    return _find(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
