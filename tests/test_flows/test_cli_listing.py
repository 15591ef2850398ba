"""A long table is written without rich, and looks as rich would draw it."""

from io import StringIO

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from tokmill.flows.cli.output import results, table

CELLS = st.text(st.characters(codec="utf-8"), max_size=12)


def rows_of(width):
    return st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=6)


def drawn(made):
    console = results()
    with console.capture() as text:
        console.print(made)
    return "".join(f"{line.rstrip()}\n" for line in text.get().splitlines())


@given(st.data(), st.integers(1, 4), st.booleans())
def test_every_table_looks_as_rich_draws_it(data, width, wrap):
    columns, *rows = data.draw(rows_of(width).filter(lambda lines: len(lines) > 1))
    right = data.draw(st.sets(st.sampled_from(columns)))
    made = table(columns, rows, list(right), wrap=wrap)
    assert made.plain() in (None, drawn(made))


def test_an_ordinary_table_needs_no_rich():
    made = table(
        ("name", "size"), [("corpus/web", "12 B"), (Text("語料/網", style="dim"), "1.5 KiB")], ("size",)
    )
    assert made.plain() == drawn(made)
    assert made.plain().splitlines() == [
        "name            size",
        "────────────────────",
        "corpus/web      12 B",
        "語料/網      1.5 KiB",
    ]


ROW = {"run": "5b8b8092", "name": "a name of thirty characters …", "made": "4/16", "tags": "winner"}


def in_terminal(width, **more):
    """What a terminal of this width shows of a table with one row."""
    console = Console(width=width, file=StringIO())
    row = {**ROW, **more}
    console.print(table(list(row), [list(row.values())], right=("made", *more)))
    return console.file.getvalue()


def test_a_narrow_terminal_shows_every_column():
    wide = [line.split() for line in in_terminal(200).splitlines()]
    assert wide[::2] == [list(ROW), " ".join(ROW.values()).split()]
    narrow = in_terminal(40).splitlines()
    assert narrow[0].split() == list(ROW)
    assert max(map(len, narrow)) <= 40
    assert {"5b8b8092", "4/16", "winner"} <= set(narrow[2].split())


def test_a_terminal_that_is_too_narrow_for_a_table_shows_names_and_values():
    numbers = {f"figure_number_{number}": f"{number}.123" for number in range(3)}
    lines = [line.split(maxsplit=1) for line in in_terminal(40, **numbers).splitlines()]
    assert [(name, value.rstrip()) for name, value in lines if name in numbers] == [*numbers.items()]
    assert {name for name, _ in lines} >= {"run", "name", "made"}
