"""Arguments and options that several commands share, and what they name: a store, artifact, tokenizer, run.

A name without a match is wrong usage (exit code 2), not a failure.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from typer import Argument, Option

from tokmill.flows.errors import UsageError
from tokmill.tasks.core.errors import StoreError
from tokmill.tokenizer.core.errors import TokenizerError

if TYPE_CHECKING:
    from tokmill.tasks.core.stage import ArtifactRef
    from tokmill.tasks.store import Run, Store
    from tokmill.tokenizer import Tokenizer

_T = TypeVar("_T")


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
    Option("--set", metavar="KEY=VALUE", help="Replace a value, e.g. pack.sequence_length=2048; repeatable."),
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
NoPrefectOption = Annotated[
    bool, Option("--no-prefect", help="Run in this process, without any Prefect server; same artifacts.")
]
ArtifactArgument = Annotated[
    str,
    Argument(metavar="ARTIFACT", help="kind/name, kind/name@v3 or @alias, or a fingerprint's first digits."),
]


def existing_store(option: str | None) -> "Store":
    """Open a store; raises UsageError if there is none at the location."""
    from tokmill.flows.run.machine import open_store, store_url

    location = store_url(option)
    store = open_store(location)
    if not store.root.is_dir():
        raise UsageError(
            f"there is no store at {location}; make one with `tokmill run quickstart`, or set --store or "
            "TOKMILL_STORE to the folder of one"
        )
    return store


def find_artifact(store: "Store", reference: str, *kinds: str, removed: bool = False) -> "ArtifactRef":
    """Return the artifact that a reference names, of one of some kinds; raises UsageError unless one does.

    A name without a kind has the first of them ; it may have been removed where `removed`.
    """
    try:
        ref = store.resolve(_complete(reference, kinds[0]) if kinds else reference, removed=removed)
    except StoreError as error:
        raise UsageError(str(error)) from error
    if kinds and ref.kind not in kinds:
        names = " or ".join(f"{kind}/NAME" for kind in kinds)
        raise UsageError(f"{reference} is of kind {ref.kind}, not {' or '.join(kinds)}; name {names}")
    return ref


def find_run(store: "Store", reference: str) -> "Run":
    """Return the run that a reference names; raises UsageError unless exactly one has that name."""
    from tokmill.tasks.store import references

    try:
        return references.find_run(store, reference)
    except StoreError as error:
        raise UsageError(str(error)) from error


def _complete(reference: str, kind: str) -> str:
    is_prefix = len(reference) >= 6 and not set(reference.lower()) - set("0123456789abcdef")
    return reference if "/" in reference or is_prefix else f"{kind}/{reference}"


def load_tokenizer(reference: str, store: str | None) -> "Tokenizer":
    """Load a tokenizer from a path, or from the store (`tokenizer/quickstart@v1`, or just `quickstart`)."""
    from tokmill import tokenizer
    from tokmill.tasks.formats.tokenizer import open_tokenizer

    if Path(reference).exists():
        return tokenizer.load(reference)
    opened = existing_store(store)
    ref = find_artifact(opened, reference, "tokenizer")
    try:
        return open_tokenizer(opened.path(ref))
    except (StoreError, TokenizerError) as error:
        name = _complete(reference, "tokenizer")
        raise StoreError(
            f"{name} is damaged: {error}; `tokmill store verify {name}` lists the damage, and the next run "
            "makes it again"
        ) from error


def load_tokenizers(references: Sequence[str], store: str | None) -> "dict[str, Tokenizer]":
    """Load tokenizers by their short names, or by their paths if files have the same name.

    A file that does not say how text is split may be named with a pattern, as FILE:PATTERN.
    """
    from tokmill import tokenizer

    places = list[tuple[str, str | None]]()
    for reference in references:
        path, colon, pattern = reference.rpartition(":")
        has_pattern = colon and not Path(reference).exists() and Path(path).exists()
        places.append((path, pattern) if has_pattern else (reference, None))
    short = [
        Path(path).name if Path(path).exists() else path.removeprefix("tokenizer/") for path, _ in places
    ]
    names = [one if short.count(one) == 1 else ref for one, ref in zip(short, references, strict=True)]
    return {
        name: load_tokenizer(path, store) if pattern is None else tokenizer.load(path, split_pattern=pattern)
        for name, (path, pattern) in once_each("tokenizers", zip(names, places, strict=True)).items()
    }


def once_each(what: str, named: Iterable[tuple[str, _T]]) -> dict[str, _T]:
    """Return values by name; raises UsageError for a name that stands for two of them, or for all."""
    values: dict[str, _T] = {}
    for name, value in named:
        if name in values:
            raise UsageError(f"{what}: {name!r} is named twice; name each once")
        if name in ("all", "*"):
            raise UsageError(f"{what}: {name!r} is what all together are called; use another name")
        values[name] = value
    return values
