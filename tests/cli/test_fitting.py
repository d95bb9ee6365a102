"""Tables at any width: every word and every figure is there, whole."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.box import HEAVY_HEAD, SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from commands import WIDTHS, shown_whole, words_of
from tether.bench.speed import Measurement
from tether.bench.speed import table as speeds
from tether.cli import shell
from tether.cli.fitting import Fitting, fitted

MEASURED = [
    Measurement("structured / Lipschitz, carbon", 73.4512, 61.25, 123456.0, "times", "<= 20", False),
    Measurement("act + observe, H = 10,000", 25.5, 24.125, 31.0, "µs"),
]


def test_what_rich_would_cut_is_whole_in_a_terminal_of_any_width():
    cut = io.StringIO()
    Console(file=cut, width=40).print(speeds("tether bench guard", MEASURED))
    assert "…" in cut.getvalue()  # without the fitting
    for width in range(24, 121, 4):
        shown_whole(speeds("tether bench guard", MEASURED), width)


def test_a_table_that_fits_is_left_as_it_is():
    made = speeds("tether bench guard", MEASURED)
    assert fitted(made, Console(width=120)) == [made]


def test_every_part_says_what_its_rows_are_and_the_title_comes_once():
    made = speeds("tether bench guard", MEASURED)
    made.caption = "All of it."
    parts = fitted(made, Console(width=40))
    assert [part.title for part in parts] == ["tether bench guard", *[None] * (len(parts) - 1)]
    assert [part.caption for part in parts] == [*[None] * (len(parts) - 1), "All of it."]
    assert {part.columns[0].header for part in parts} == {"measured"}
    named = [column.header for part in parts for column in part.columns[1:]]
    assert named == [column.header for column in made.columns[1:]]
    assert len(parts) > 1
    assert not any(part.columns[0] is made.columns[0] for part in parts)  # which keeps its own widths


texts = st.text("abc 0123.±-", max_size=25)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(texts, min_size=4, max_size=4), min_size=1, max_size=3),
    st.sampled_from([SIMPLE_HEAD, HEAVY_HEAD, None]),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.integers(30, 100),
)
def test_no_word_of_any_table_is_cut_where_two_columns_fit(rows, box, flags, width):
    header, footer, held = flags
    table = Table(box=box, show_header=header, show_footer=footer)
    for i, name in enumerate(("name", "median", "highest of all", "target")):
        table.add_column(name, footer="all 12.5", no_wrap=held, justify="right" if i else "left")
    for row in rows:
        table.add_row(*row)
    longest = max((len(word) for word in words_of(table)), default=0)
    if 2 * longest + 12 <= width:
        shown_whole(table, width)


def test_where_not_even_two_columns_fit_nothing_is_lost():
    table = Table("a word of sixteen", "figures")
    table.add_row("incomprehensible", "123456789012345")
    printed = io.StringIO()
    console = Console(file=printed, width=16)
    console.push_render_hook(Fitting(console))
    console.print(table)
    shown = printed.getvalue()
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 16
    digits = "".join(character for character in shown if character.isdigit())
    assert digits == "123456789012345"


def test_the_commands_print_through_it(capsys, monkeypatch):
    assert any(isinstance(hook, Fitting) for hook in shell.console._render_hooks)
    monkeypatch.setattr(shell.console, "_width", 40)
    shell.console.print(speeds("tether bench guard", MEASURED))
    assert "…" not in capsys.readouterr().out


@pytest.mark.parametrize("width", WIDTHS)
def test_the_check_of_the_commands_goes_red_where_something_is_cut(width):
    table = Table("name", "figure")
    table.add_row("x", "1" * (width + 1))
    with pytest.raises(AssertionError):
        shown_whole(table, width)
