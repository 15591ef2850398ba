"""All stages' accounts of documents or tokens in one table, which adds up from left to right.

It has a row per source and a column per step: what comes into the first stage, then what each stage adds,
loses by reason, and hands on. Every stage takes in what the one before handed on, or there is no table.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokmill.tasks.core.errors import AccountError
from tokmill.tasks.core.markdown import table
from tokmill.tasks.core.stage import Account, Unit
from tokmill.tasks.store.record import read_record

_SIGNS = {"in": "in", "+": "+ {}", "-": "− {}", "=": "= {}"}
"""The kinds of steps, in the order of a stage's columns: what comes in, is added, lost, handed on."""
# How the accounts' ends read in a table's head; the others read as they are called.
_WORDS = {
    "begin_of_document": "begin tokens",
    "end_of_document": "end tokens",
    "repetition": "read again",
    "dropped:min_tokens": "too short",
    "dropped:too_long": "too long",
    "truncated": "cut off",
}


@dataclass(frozen=True)
class StageAccounts:
    """The accounts in a stage's record, and how to read them."""

    stage: str
    hands_on: str  # name of the column for the amount that is handed on
    passes: frozenset[str]  # the ends in `became` that are handed on; every other end counts as a loss
    accounts: Sequence[Account]

    @classmethod
    def read(cls, path: Path, stage: str, hands_on: str, *passes: str) -> "StageAccounts":
        """Read those of the artifact in the directory `path`."""
        return cls(stage, hands_on, frozenset(passes), read_record(path).accounts)

    def of(self, source: str, unit: Unit) -> Account:
        """Return the account of one source."""
        for account in self.accounts:
            if (account.source, account.unit) == (source, unit):
                return account
        raise AccountError(
            f"card: the record of {self.stage} has no account of {unit} for source '{source}'; run "
            f"{self.stage} again"
        )


def account_table(unit: Unit, sources: Sequence[str], stages: Sequence[StageAccounts]) -> dict[str, Any]:
    """Follow `unit` of each source through the stages.

    Returns:
        `unit`; `columns`, each with `stage`, `sign` (`in`, `+`, `-` or `=`) and `name`, without additions and
        losses that are 0 for every source; `rows` of amounts by source; and `total`, their sums.
    """
    steps = {source: dict(_steps(unit, source, stages)) for source in sources}
    every = dict.fromkeys(step for its in steps.values() for step in its)
    kept = [
        step
        for step in sorted(every, key=lambda step: (step[0], [*_SIGNS].index(step[1])))
        if step[1] in ("in", "=") or any(its.get(step) for its in steps.values())
    ]
    rows = {source: [its.get(step, 0) for step in kept] for source, its in steps.items()}
    return {
        "unit": unit,
        "columns": [{"stage": stages[k].stage, "sign": sign, "name": name} for k, sign, name in kept],
        "rows": rows,
        "total": [sum(amounts) for amounts in zip(*rows.values(), strict=True)],
    }


def _steps(
    unit: Unit, source: str, stages: Sequence[StageAccounts]
) -> Iterator[tuple[tuple[int, str, str], int]]:
    """Yield the amounts of one source by stage, sign and name, checked on the way."""
    amount = stages[0].of(source, unit).num_in
    yield (0, "in", "in"), amount
    for place, stage in enumerate(stages):
        account = stage.of(source, unit)
        if account.num_in != amount or not account.balanced:
            raise AccountError(
                f"card: source '{source}': {stage.stage} was handed {amount} {unit}, but its record has "
                f"{account.num_in} coming in and {dict(account.became)} going out; run {stage.stage} again"
            )
        lost = {name: value for name, value in account.became.items() if name not in stage.passes}
        for sign, moves in (("+", account.added), ("-", lost)):
            yield from (((place, sign, name), value) for name, value in moves.items())
        amount = sum(account.became.values()) - sum(lost.values())
        yield (place, "=", stage.hands_on), amount


def account_lines(accounts: Mapping[str, Any]) -> list[str]:
    """Return a table of accounts as Markdown: a row per source, and their sum."""
    columns = accounts["columns"]
    names = (_WORDS.get(one["name"], one["name"].split(":")[-1].replace("_", " ")) for one in columns)
    head = [_SIGNS[one["sign"]].format(name) for one, name in zip(columns, names, strict=True)]

    def cells(amounts: Sequence[int]) -> list[str]:
        pairs = zip(columns, amounts, strict=True)
        return [f"{amount:,}" if amount or one["sign"] in ("in", "=") else "·" for one, amount in pairs]

    rows = [[source, *cells(row)] for source, row in accounts["rows"].items()]
    rows.append(["**all**", *(f"**{amount}**" for amount in cells(accounts["total"]))])
    return table([accounts["unit"], *head], rows)
