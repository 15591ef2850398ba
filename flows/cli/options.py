"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="TOKMILL_STORE",
        metavar="URL",
        help="Where artifacts are kept: a folder, or a URL such as s3://bucket/team (gs://, az://, file://).",
        show_default="tokmill-store",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON instead of text.")]
ProfileArgument = Annotated[
    str,
    typer.Argument(metavar="PROFILE", help="A profile that ships with tokmill, or the path of a TOML file."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace one value of the profile, e.g. pack.sequence_length=2048; may be given several times.",
    ),
]
RehashOption = Annotated[
    bool, typer.Option("--rehash", help="Read every source file again instead of trusting its size and time.")
]
EmbeddingsOption = Annotated[
    Path | None,
    typer.Option(
        "--embeddings",
        metavar="MODEL",
        help="A model's safetensors file, the index of several, or their folder: what it has learned least.",
    ),
]
EmbeddingTensorOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tensor",
        help="The tensor of the input embeddings, and once more for the output's; usual names by default.",
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", min=1, metavar="N", help="Parallel tasks.", show_default="one per core"),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory",
        envvar="TOKMILL_MEMORY",
        metavar="SIZE",
        help="Memory for counts before they are written to disk, e.g. 4GB.",
        show_default="a quarter of the RAM",
    ),
]
RefreshOption = Annotated[
    list[str] | None,
    typer.Option(
        "--refresh",
        metavar="STAGE",
        help="Make a stage's artifacts again, e.g. train, though they are there; may be given several times.",
    ),
]
UntilOption = Annotated[
    list[str] | None,
    typer.Option(
        "--until",
        metavar="KIND",
        help="Make artifacts of this kind, e.g. tokenizer, and what it needs, but nothing else; may be given "
        "several times.",
    ),
]
NoPrefectOption = Annotated[
    bool,
    typer.Option(
        "--no-prefect", help="Run the stages in this process, unseen by any Prefect server; same artifacts."
    ),
]
VerifyOption = Annotated[
    Literal["sizes", "full"] | None,
    typer.Option(
        "--verify",
        help="How an artifact is checked before it is reused: its files' sizes, or their digests as well.",
        show_default="sizes",
    ),
]
ArtifactArgument = Annotated[
    str,
    typer.Argument(
        metavar="ARTIFACT",
        help="kind/name, kind/name@v3, kind/name@alias, or the first digits of a fingerprint.",
    ),
]
