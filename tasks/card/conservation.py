"""The way of every document and token through the stages, as one table that adds up from left to right.

A ledger has one row a source and one column a step: what comes in first, then per stage what it added, what
it lost by reason, and what it hands on. Each amount is one of an account in a stage's record; nothing is
computed but sums. The amounts of a row add up, and what one stage hands on is what the next one takes in, or
there is no ledger.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from tokmill.tasks.core.errors import AccountError
from tokmill.tasks.core.stage import NO_SOURCE, Account, Unit

Sign: TypeAlias = Literal["in", "+", "-", "="]


class Column(BaseModel):
    """One step: `in` comes in, `+` is added, `-` is lost, `=` is handed on by `stage`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: str
    sign: Sign
    name: str


class Ledger(BaseModel):
    """Amounts by source, in `unit`.

    Attributes:
        columns: the steps; those that are 0 for every source are left out.
        rows: the amounts by source, one a column.
        total: their sums.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: Unit
    columns: list[Column]
    rows: dict[str, list[int]]
    total: list[int]


@dataclass(frozen=True)
class StageAccounts:
    """What a stage's record says of one unit.

    Attributes:
        stage: the stage's word.
        hands_on: what to call that which is handed on.
        passes: the ends in `became` that are handed on; every other end is a loss.
        accounts: all accounts of the record.
    """

    stage: str
    hands_on: str
    passes: frozenset[str]
    accounts: Sequence[Account]

    def of(self, source: str, unit: Unit) -> Account:
        """The account of one source.

        Raises:
            AccountError: the record has none.
        """
        for account in self.accounts:
            if (account.source, account.unit) == (source, unit):
                return account
        raise AccountError(
            f"card: the record of {self.stage} has no account of {unit} for source '{source}'; run "
            f"{self.stage} again"
        )


def ledger(unit: Unit, sources: Sequence[str], stages: Sequence[StageAccounts]) -> Ledger:
    """Follow `unit` of each source through the stages.

    Raises:
        AccountError: an account is missing or does not add up, or a stage took in something else than the one
            before it handed on.
    """
    steps = {source: _steps(unit, source, stages) for source in sources}
    columns = [
        column
        for column in _columns(unit, sources, stages)
        if column.sign in {"in", "="} or any(steps[source].get(column) for source in sources)
    ]
    rows = {source: [steps[source].get(column, 0) for column in columns] for source in sources}
    total = [sum(amounts) for amounts in zip(*rows.values(), strict=True)]
    return Ledger(unit=unit, columns=columns, rows=rows, total=total)


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
                f"card: source '{source}': {amount} {unit} were handed to {stage.stage}, whose record has "
                f"{account.num_in} come in and {dict(account.became)} come out; run {stage.stage} again"
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
    """The padding that packing added, which belongs to no source."""
    return sum(account.became.get("padding", 0) for account in accounts if account.source == NO_SOURCE)
