"""All stages' accounts of documents or tokens in one table, which adds up from left to right.

The table has one row per source and one column per step: the input of the first stage, then for each stage
the amounts that it added, lost by reason, and handed on. Each amount is one of an account in a stage's
record; only sums are computed. Every row adds up, and each stage takes in the amount that the previous one
handed on; otherwise there is no table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tokmill.tasks.core.errors import AccountError
from tokmill.tasks.core.stage import NO_SOURCE, Account, Unit
from tokmill.tasks.formats.files.manifests import Entry

Sign: TypeAlias = Literal["in", "+", "-", "="]


class Column(Entry):
    """One step: the amount that comes in (`in`), is added (`+`), lost (`-`) or handed on (`=`)."""

    stage: str
    sign: Sign
    name: str


class AccountTable(Entry):
    """The accounts of all stages in `unit`, by source."""

    unit: Unit
    columns: list[Column]  # the steps; additions and losses that are 0 for every source are left out
    rows: dict[str, list[int]]  # the amounts of each source, one per column
    total: list[int]  # their sums


@dataclass(frozen=True)
class StageAccounts:
    """The accounts in a stage's record, and how to read them."""

    stage: str  # the stage's name
    hands_on: str  # name of the column for the amount that is handed on
    passes: frozenset[str]  # the ends in `became` that are handed on; every other end counts as a loss
    accounts: Sequence[Account]  # all accounts of the record

    def of(self, source: str, unit: Unit) -> Account:
        """The account of one source."""
        for account in self.accounts:
            if (account.source, account.unit) == (source, unit):
                return account
        raise AccountError(
            f"card: the record of {self.stage} has no account of {unit} for source '{source}'; run "
            f"{self.stage} again"
        )


def account_table(unit: Unit, sources: Sequence[str], stages: Sequence[StageAccounts]) -> AccountTable:
    """Follow `unit` of each source through the stages."""
    steps = {source: _steps(unit, source, stages) for source in sources}
    columns = [
        column
        for column in _columns(unit, sources, stages)
        if column.sign in {"in", "="} or any(steps[source].get(column) for source in sources)
    ]
    rows = {source: [steps[source].get(column, 0) for column in columns] for source in sources}
    total = [sum(amounts) for amounts in zip(*rows.values(), strict=True)]
    return AccountTable(unit=unit, columns=columns, rows=rows, total=total)


def _columns(unit: Unit, sources: Sequence[str], stages: Sequence[StageAccounts]) -> list[Column]:
    """Every column that any source has, in the order of the stages, each once."""
    found = [Column(stage=stages[0].stage, sign="in", name="in")]
    for stage in stages:
        accounts = [stage.of(source, unit) for source in sources]
        added = [name for account in accounts for name in account.added]
        lost = [name for account in accounts for name in account.became if name not in stage.passes]
        found += [Column(stage=stage.stage, sign="+", name=name) for name in dict.fromkeys(added)]
        found += [Column(stage=stage.stage, sign="-", name=name) for name in dict.fromkeys(lost)]
        found.append(Column(stage=stage.stage, sign="=", name=stage.hands_on))
    return found


def _steps(unit: Unit, source: str, stages: Sequence[StageAccounts]) -> dict[Column, int]:
    """The amounts of one source by column, checked on the way."""
    amount = stages[0].of(source, unit).num_in
    steps = {Column(stage=stages[0].stage, sign="in", name="in"): amount}
    for stage in stages:
        account = stage.of(source, unit)
        if account.num_in != amount or not account.balanced:
            raise AccountError(
                f"card: source '{source}': {stage.stage} was handed {amount} {unit}, but its record has "
                f"{account.num_in} coming in and {dict(account.became)} going out; run {stage.stage} again"
            )
        steps |= _moves(stage, account)
        amount = sum(value for name, value in account.became.items() if name in stage.passes)
        steps[Column(stage=stage.stage, sign="=", name=stage.hands_on)] = amount
    return steps


def _moves(stage: StageAccounts, account: Account) -> dict[Column, int]:
    lost: Mapping[str, int] = {
        name: value for name, value in account.became.items() if name not in stage.passes
    }
    return {
        Column(stage=stage.stage, sign=sign, name=name): value
        for sign, moves in (("+", account.added), ("-", lost))
        for name, value in moves.items()
    }


def padding(accounts: Sequence[Account]) -> int:
    """The padding that packing added; it belongs to no source."""
    return sum(account.became.get("padding", 0) for account in accounts if account.source == NO_SOURCE)
