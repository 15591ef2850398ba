"""A long table is written without rich, and looks as rich would draw it."""

from hypothesis import given
from hypothesis import strategies as st
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
