"""Loads a profile from files and overrides, validates it, and notes overrides without effect.

`--set a.b=c` is one value: a TOML dotted key (`sources."zh.hans".on_error`) and a TOML value (`2048`,
`["a", "b"]`). Any other value is text, so `train.split_pattern=gpt2` needs no quotes. The last one wins.
"""

import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tokmill.flows.errors import ProfileError, suggestion
from tokmill.flows.profile.fields import Change, KeyPath, changes_between, may_be_unset, models_at
from tokmill.flows.profile.files import (
    OVERRIDES,
    TABLE,
    Layered,
    LimitError,
    Table,
    dotted,
    find_profile,
    parse_toml,
    read_layers,
    with_absolute_paths,
)
from tokmill.flows.profile.model import Profile
from tokmill.flows.profile.problems import place, problems_of, profile_error
from tokmill.tasks.core.stage import Params
from tokmill.tasks.train.stage import TrainParams
from tokmill.tokenizer.components.normalizers import steps_of
from tokmill.tokenizer.core.errors import TokenizerError
from tokmill.tokenizer.splitting.fallback import compile_regex
from tokmill.tokenizer.splitting.patterns import resolve


def load_profile(
    name_or_path: str | Path,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    fixed: Set[str] = frozenset(),
) -> Profile:
    """Load a profile from a file, or a shipped one by its name.

    TOML has no null value: an empty string means "not set" for a key that may be unset.

    Args:
        name_or_path: `quickstart`, or `runs/own.toml`.
        overrides: `pack.sequence_length=2048`, in order, or a mapping from dotted keys to values. Relative
            file patterns in them start at the working directory.
        fixed: sections, or keys of sections, that overrides must not change.

    Raises:
        ProfileError: the file is missing or not TOML, a key is unknown, a value is invalid, or two sections
            contradict each other. The message has all problems.
    """
    path = find_profile(str(name_or_path))
    layered = read_layers(path)
    layered.table.setdefault("name", path.stem)
    return _loaded(layered, path.stem, overrides, fixed)


def profile_of(table: Mapping[str, Any], overrides: Iterable[str] | Mapping[str, Any] = ()) -> Profile:
    """Make a profile of a table like that of a TOML file; None stands for "not set".

    Args:
        table: the sections; paths, tuples and arrays are taken, too. Relative file patterns start
            at the working directory.
        overrides: see `load_profile`.

    Raises:
        ProfileError: as `load_profile`; tables that extend a file are not supported.
    """
    if "extends" in table:
        raise ProfileError(
            f"profile 'own': extends={table['extends']!r} is for files; name that profile, with overrides"
        )
    layered = Layered()
    layered.merge(with_absolute_paths(_without_none(as_toml(table)), Path.cwd()), TABLE)
    layered.table.setdefault("name", "own")
    return _loaded(layered, str(layered.table["name"]), overrides, frozenset())


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """Write None as TOML files do, as an empty string."""
    return {
        key: _without_none(value) if isinstance(value, Mapping) else "" if value is None else value
        for key, value in table.items()
    }


def _loaded(
    layered: Layered, stem: str, overrides: Iterable[str] | Mapping[str, Any], fixed: Set[str]
) -> Profile:
    own = deepcopy(layered.table) if overrides else None
    layered.merge(with_absolute_paths(overrides_table(overrides), Path.cwd()), OVERRIDES)
    name = str(layered.table["name"])
    if refused := list(_fixed(layered, fixed)):
        raise profile_error(name, refused)
    try:
        profile = Profile.model_validate(_with_unset(layered.table))
    except ValidationError as error:
        raise profile_error(name, problems_of(error, Profile, layered)) from error
    if problems := list(_contradictions(profile, layered)):
        raise profile_error(name, problems)
    changed: tuple[Change, ...] = ()
    if own is not None:
        try:
            before = Profile.model_validate(_with_unset({"name": stem, **own})).resolved()
            changed = changes_between(before, profile.resolved())
        except ValidationError:  # it is only valid with them: all of them are changes
            changes = changes_between({}, profile.resolved())
            changed = tuple(change for change in changes if layered.origins.get(change.path) == OVERRIDES)
    notes = dict.fromkeys(_without_effect(profile, layered))
    return profile.with_notes([*layered.notes, *notes], changed)


def _fixed(layered: Layered, sections: Set[str]) -> Iterator[str]:
    """Yield the overrides of sections that only the profile's file may have."""
    for path, origin in layered.origins.items():
        if origin == OVERRIDES and not sections.isdisjoint((path[0], dotted(path[:2]))):
            yield f"{dotted(path)} cannot be set for one run here; change it in the profile's file"


def _with_unset(table: Mapping[str, Any], above: KeyPath = ()) -> dict[str, Any]:
    """Replace empty strings by None for keys that may be unset."""
    return {
        key: _with_unset(value, (*above, key))
        if isinstance(value, Mapping)
        else None
        if isinstance(value, str) and not value and may_be_unset(Profile, (*above, key))
        else value
        for key, value in table.items()
    }


def _contradictions(profile: Profile, layered: Layered) -> Iterator[str]:
    """Yield the contradictions between sections."""
    if profile.train is not None and profile.tokenizer is not None:
        where = place(layered, ("tokenizer",))
        yield f"[train] and [tokenizer] exclude each other; keep [tokenizer] to use an existing one{where}"
    if profile.ingest.sources:
        where = place(layered, ("ingest", "sources"))
        yield f"ingest.sources is derived from [sources]; write [sources.NAME] instead{where}"
    for path, named, complete in _by_source(profile):
        for source in named:
            if source not in profile.sources:
                key, hint = dotted((*path, source)), suggestion(source, profile.sources, known_as="sources")
                yield f"{key}: no such source{hint}{place(layered, (*path, source))}"
        for source in profile.sources if complete and named else ():
            if source not in named:
                key, where = dotted((*path, source)), place(layered, path)
                yield f"{key} is missing: every source needs a weight; add {key} = 0 to leave it out{where}"
    yield from _special_token_problems(profile, layered)
    for key, error in _pretoken_problems(profile.training()):
        yield f"train.{error}{place(layered, ('train', key))}"


def _by_source(profile: Profile) -> Iterator[tuple[KeyPath, Iterable[str], bool]]:
    """Yield what names sources, with its place, and whether it must name all, or none."""
    mix = profile.mix
    for section in ("balance", "mix"):
        rule = getattr(profile, section)
        yield (section, rule.method), rule.tables, True
    for index, point in enumerate(mix.schedule):
        yield ("mix", "schedule", str(index)), point.given, True
    keys = ("max_repetition", "min_epochs", "warmup", "annealing")
    tables: dict[KeyPath, Any] = {("mix", key): getattr(mix, key) for key in keys}
    tables["mix", "curriculum", "sources"] = mix.curriculum.sources if mix.curriculum else ()
    tables |= {(section, "fim_rate"): getattr(profile, section).fim_rate for section in ("encode", "pack")}
    for path, named in tables.items():
        if isinstance(named, Mapping | Sequence):
            yield path, named, False


def _special_token_problems(profile: Profile, layered: Layered) -> Iterator[str]:
    """Yield tokens that encoding adds but training does not make, and a conflict of fill-in-the-middle."""
    train, encode = profile.training(), profile.encode
    named = [("begin_of_document", encode.begin_of_document), ("end_of_document", encode.end_of_document)]
    named += [("fim_tokens", token) for token in encode.fim_tokens or ()]
    for key, token in named:
        if token is None or train is None or token in train.special_tokens:
            continue
        where = place(layered, ("encode", key))
        hint = suggestion(token, train.special_tokens, known_as="train.special_tokens")
        fix = hint or f'; add it: train.special_tokens = ["{token}"]'
        yield f'encode.{key}="{token}" is not in train.special_tokens{fix}{where}'
    if encode.rearranges and profile.pack.rearranges:
        where = place(layered, ("pack", "fim_rate"))
        yield f"encode.fim_rate and pack.fim_rate exclude each other; keep one of them{where}"


def _pretoken_problems(train: TrainParams | None) -> Iterator[tuple[str, Exception]]:
    """Yield what is wrong with the split pattern and the normalizer, which only `count` uses, by key."""
    if train is None:
        return
    checks: dict[str, Callable[[], object]] = {
        "split_pattern": lambda: [compile_regex(each) for each in resolve(train.split_pattern, train.digits)],
        "normalizer": lambda: steps_of(train.normalizer),
    }
    if train.mode == "sentencepiece":
        rules = "normalization_rules" if train.normalization_rules else "normalizer"
        checks = {rules: lambda: train.sentences}
    for key, check in checks.items():
        try:
            check()
        except TokenizerError as error:
            yield key, error


def _without_effect(profile: Profile, layered: Layered) -> Iterator[str]:
    """Yield a warning for each override that other settings make irrelevant, in the order given.

    In a file such settings are normal: a profile's `method` can be changed without clearing the settings of
    the other methods. A person who sets one for a run expects a difference, so each is named with the reason.
    """
    for path, origin in layered.origins.items():
        if origin == OVERRIDES and (found := _why_unused(profile, layered.table, path)):
            key, reason = found
            yield f"warning: --set {dotted(key)} has no effect: {reason}"


def _why_unused(profile: Profile, table: Mapping[str, Any], path: KeyPath) -> tuple[KeyPath, str] | None:
    """Return the key at or above `path` that has no effect, and why; None if it has one."""
    section, curriculum = path[0], profile.mix.curriculum
    if section == "balance" and profile.tokenizer is not None:
        return path, "[tokenizer] names an existing tokenizer, so none is trained on balanced text"
    if section == "score" and (curriculum is None or "perplexity" not in curriculum.measures):
        return path, "no mix.curriculum measures perplexity"
    if section == "schedule":
        return path, "only the registration of deployments reads it"
    value: Any = table
    for depth, key in enumerate(path):
        for model in models_at(Profile, path[:depth]) if isinstance(value, Mapping) else ():
            reasons = model.without_effect(value) if issubclass(model, Params) else {}
            if key in reasons:
                return path[: depth + 1], f"in [{dotted(path[:depth])}], {reasons[key]}"
        value = value.get(key) if isinstance(value, Mapping) else None
    return None


def overrides_table(overrides: Iterable[str] | Mapping[str, Any]) -> Table:
    """Return overrides as one nested table, to be merged into a profile."""
    pairs = as_toml(overrides).items() if isinstance(overrides, Mapping) else map(parse_override, overrides)
    table: Table = {}
    for key, value in pairs:
        *above, last = _key_path(key)
        inner = table
        for part in above:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise ProfileError(
                    f"--set {key}={value}: {part} is also set to a value; set either {part} or keys in it"
                )
        inner[last] = value
    return table


def parse_override(text: str) -> tuple[str, Any]:
    """Split `a.b=c` into its dotted key and its value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ProfileError(
            f"--set {text!r}: not of the form key=value; write e.g. --set pack.sequence_length=2048"
        )
    return key.strip(), _value(value.strip())


def _value(text: str) -> object:
    """Read a TOML value; anything else, including a second line or a comment, is text."""
    try:
        alone = parse_toml(f"value = {text}")
        listed = parse_toml(f"value = [{text}]")
    except tomllib.TOMLDecodeError:
        return text
    except LimitError as error:
        raise ProfileError(f"--set …={text[:40]}…: {error}") from error
    return alone["value"] if listed == {"value": [alone["value"]]} else text


def _key_path(key: str) -> list[str]:
    """Read a dotted key by TOML's rules."""
    try:
        inner: Any = parse_toml(f"{key} = 0")
    except ValueError:  # not TOML, or nested too deeply
        inner = {}
    path: list[str] = []
    while isinstance(inner, dict) and len(inner) == 1:
        ((name, inner),) = inner.items()
        path.append(name)
    if inner != 0:
        raise ProfileError(
            f'--set {key[:80]}: not a dotted key; write e.g. pack.sequence_length, or sources."a.b".files'
        )
    return path


def as_toml(given: Any, where: str = "") -> Any:
    """Return a value, with all in it, as `tomllib` returns it; what has no such form is left as it is."""
    if isinstance(given, Mapping):
        return {key: as_toml(value, f"{where}.{key}" if where else str(key)) for key, value in given.items()}
    if isinstance(given, list | tuple):
        return [as_toml(value, where) for value in given]
    if isinstance(given, Set):
        raise ProfileError(f"{where} is a set, which has no order; write a list")
    if isinstance(given, int) and not -(1 << 63) <= given < 1 << 64:
        raise ProfileError(f"{where}: the number has {given.bit_length()} bits; use one of at most 64")
    if isinstance(given, os.PathLike):
        return os.fspath(given)
    to_list = getattr(given, "tolist", None)  # of numpy's scalars and arrays, Arrow's arrays, pandas' Series
    return given if to_list is None else to_list()
