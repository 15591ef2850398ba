"""Which fields of a profile its overrides change: those whose value differs from the profile's own.

An override that repeats the profile's own value, or its default, changes nothing. So a form that is filled
with a profile's values, and sends all of them, has the same changes as one field typed by hand.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from tokmill.flows.profile.shape import keys_of, models_at
from tokmill.tasks.core.markdown import number

_MACHINE: Final = "execution"
_MEANT: Final = ("balance", "train", "pack")
_NAMED: Final = 3
_LONGEST_VALUE: Final = 24


class Change(NamedTuple):
    """One field of a profile that an override changes.

    Attributes:
        path: its keys, e.g. `("balance", "temperature")`.
        before: the profile's own value; None if it has none.
        after: the value of the run; None if it has none.
    """

    path: tuple[str, ...]
    before: Any
    after: Any

    @property
    def field(self) -> str:
        """The field as `--set` names it: `balance.temperature`."""
        return ".".join(self.path)


def changes_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return the fields that differ between two profiles, resolved, in the order of the second one."""
    left, right = dict(_fields(before)), dict(_fields(after))
    paths = [*right, *(path for path in left if path not in right)]
    return tuple(
        Change(path, left.get(path), right.get(path)) for path in paths if left.get(path) != right.get(path)
    )


def in_words(changes: Sequence[Change], model: type[BaseModel]) -> list[str]:
    """Return what changes say about a run, for its name: `temperature 5`, `mix method unimax`.

    A field of several sections is named with its own, unless people mean that one: of the balance, the
    training or the packing. Settings of the machine are left out, since they change no result.

    Args:
        changes: the changes.
        model: the profile's model, whose sections have the fields.
    """
    here = [change for change in changes if change.path[0] != _MACHINE]
    differing = [change for change in here if change.after is not None] or here  # a rule may drop another's
    words = [_words(change, _sections(model)) for change in differing[:_NAMED]]
    rest = len(differing) - _NAMED
    return words if rest <= 0 else [*words, f"{rest} more"]


def value_in_words(value: Any) -> str:
    """Return a value as people write it: `5` for 5.0, `16,384`, `a, b` for a list, `unset` for None."""
    if value is None:
        return "unset"
    if isinstance(value, list | tuple):
        return ", ".join(map(value_in_words, value)) or "none"
    if isinstance(value, bool | int | float | str):
        return number(value)
    return str(value)


def _words(change: Change, first: Mapping[str, str]) -> str:
    section, *keys = change.path
    alone = len(keys) == 1 and first.get(keys[0]) == section
    value = value_in_words(change.after)
    if len(value) > _LONGEST_VALUE:
        value = f"{value[: _LONGEST_VALUE - 1]}…"
    return f"{' '.join(keys if alone else change.path).replace('_', ' ')} {value}"


def _sections(model: type[BaseModel]) -> Mapping[str, str]:
    """Return field → the section that people mean by it."""
    first: dict[str, str] = {}
    for section in (*_MEANT, *model.model_fields):
        for key in keys_of(models_at(model, (section,))):
            first.setdefault(key, section)
    return first


def _fields(value: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from _fields(item, (*path, key))
        else:
            yield (*path, key), item
