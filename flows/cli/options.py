"""Arguments and options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from tokmill.flows.cli.lookup import existing_store


def _store_option(callback: Callable[..., Any] | None = None) -> Any:
    return Option(
        "--store",
        envvar="TOKMILL_STORE",
        metavar="URL",
        help="Where artifacts are kept: a folder, or a URL such as s3://bucket/team (gs://, az://, file://).",
        show_default="tokmill-store",
        callback=callback,
    )


StoreOption = Annotated[str | None, _store_option()]
if TYPE_CHECKING:
    from tokmill.tasks.store import Store

    ExistingStore = Store
else:
    ExistingStore = Annotated[str | None, _store_option(lambda location: existing_store(location))]  # noqa: PLW0108 - whose hints Typer cannot read
DEFAULT: Any = None
"""The store of `ExistingStore`, opened: that of the environment, or tokmill-store."""
JsonOption = Annotated[bool, Option("--json", help="Write JSON instead of text.")]
ProfileArgument = Annotated[
    str, Argument(metavar="PROFILE", help="A profile that ships with tokmill, or the path of a TOML file.")
]
SetOption = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="KEY=VALUE",
        help="A value of the profile, e.g. pack.sequence_length=2048; repeatable.",
    ),
]
RehashOption = Annotated[bool, Option("--rehash", help="Read every source file; do not trust size and time.")]
EmbeddingsOption = Annotated[
    Path | None,
    Option(
        metavar="MODEL", help="A safetensors file, an index or a folder: what the model has learned least."
    ),
]
EmbeddingTensorOption = Annotated[
    list[str] | None,
    Option(
        "--tensor", help="The tensor of the input embeddings, and again for the output's; default: by name."
    ),
]
WorkersOption = Annotated[
    int | None, Option(min=1, metavar="N", help="Parallel tasks.", show_default="one per core")
]
MemoryOption = Annotated[
    str | None,
    Option(
        envvar="TOKMILL_MEMORY",
        metavar="SIZE",
        help="Memory for counts before they are written to disk, e.g. 4GB.",
        show_default="a quarter of the RAM",
    ),
]
RefreshOption = Annotated[
    list[str] | None, Option(metavar="STAGE", help="Make a stage's artifacts again, e.g. train; repeatable.")
]
UntilOption = Annotated[
    list[str] | None,
    Option(metavar="KIND", help="Make this kind of artifact, e.g. tokenizer, and what it needs; repeatable."),
]
NoPrefectOption = Annotated[
    bool, Option("--no-prefect", help="Run in this process, without any Prefect server; same artifacts.")
]
VerifyOption = Annotated[
    Literal["sizes", "full"] | None,
    Option(help="How artifacts are checked before reuse: sizes, or also digests.", show_default="sizes"),
]
ArtifactArgument = Annotated[
    str,
    Argument(
        metavar="ARTIFACT", help="kind/name, kind/name@v3, kind/name@alias, or a fingerprint's first digits."
    ),
]
PackedArgument = Annotated[
    str, Argument(metavar="PACKED", help="packed/name, packed/name@v3, or a fingerprint's first digits.")
]
RootOption = Annotated[
    list[str] | None,
    Option(metavar="SOURCE=FOLDER", help="The folder or URL of a source's files, if they moved; repeatable."),
]
