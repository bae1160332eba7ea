"""A terminal gets bars, a log a line every ten seconds, and standard output only results."""

import pytest
from rich.table import Table

from selfsent.cli.display import Display
from selfsent.progress import printable


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = [0.0]
    monkeypatch.setattr("selfsent.cli.display.time.perf_counter", lambda: now[0])
    return now


@pytest.fixture
def terminal(monkeypatch, capsys):
    """What is written to standard error, for rich a terminal."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    return lambda: capsys.readouterr().err


def test_a_log_gets_a_line_of_a_stage_every_ten_seconds(clock, capsys):
    display = Display()
    for done in range(0, 2_600, 100):  # a second each
        display.report("encode", done, 2_600)
        clock[0] += 1
    display.report("pool", 1, 1)
    assert capsys.readouterr().err.splitlines() == ["encode: 1,100 of 2,600", "encode: 2,200 of 2,600"]


def test_stages_that_take_turns_get_their_lines_too(clock, capsys):
    """As an index of a long text is made: documents are read between the blocks that are encoded."""
    display = Display()
    for block in range(1, 7):
        for _ in range(4):
            clock[0] += 1
            display.report("reading", block)
        display.report("encode", 100 * block)
    assert capsys.readouterr().err.splitlines() == ["reading: 4"]


def test_a_log_gets_a_line_of_training_every_ten_seconds_with_its_speed_and_terms(clock, capsys):
    display = Display()
    display.begin(0, 100, "texts")
    for step in range(1, 13):
        clock[0] += 1
        display.step(step, 64, {"contrast": 2.0})
    display.evaluated(12, {"sts": 61.5}, best=True)
    assert capsys.readouterr().err.splitlines() == [
        "step 11 of 100  64 texts/s  contrast 2.000  0:01:29 left",
        "step     12: sts 61.50  (best so far)",
    ]


def test_a_second_training_is_shown_by_its_own_speed_and_terms(clock, capsys):
    display = Display()
    for seconds, term in ((0.1, "fast"), (20.0, "slow")):
        display.begin(0, 100, "texts")
        for step in range(1, 4):
            clock[0] += seconds
            display.step(step, 40, {term: 1.0})
        display.end()
    first = next(line for line in capsys.readouterr().err.splitlines() if "slow" in line)
    assert "2 texts/s" in first
    assert "fast" not in first


def test_a_terminal_gets_bars_of_stages_and_of_training(terminal):
    display = Display()
    display.opening("loading")
    display.report("read", 10)
    display.report("encode", 64, 128)
    display.report("encode", 128, 128)
    display.begin(0, 10, "texts")
    display.step(10, 64, {"contrast": 2.0})
    display.end()
    shown = terminal()
    for part in ("loading ...", "read", "encode", "train", "10/10", "contrast 2.000"):
        assert part in shown


def test_a_stage_that_is_over_at_once_draws_nothing_on_a_terminal(terminal):
    Display().report("encode", 5, 5)
    assert terminal() == ""


def test_results_alone_go_to_standard_output(capsys):
    display = Display()
    display.opening("loading")
    display.say("warning: odd")
    display.print("result")
    out, err = capsys.readouterr()
    assert (out.strip(), err.strip()) == ("result", "warning: odd")


EVIL = "\x1b[31mred\x1b]0;title\x07 \x9b5m back\rspace\x08 turned \u202e lone \ud800"
SHOWN = "�[31mred�]0;title� �5m back�space� turned � lone �"


def test_what_a_text_holds_is_shown_and_not_obeyed(terminal, capsys):
    display = Display()
    table = Table(EVIL, title=EVIL)
    table.add_row(EVIL)
    for show in (display.say, display.print):
        for what in (EVIL, table) if show == display.print else (EVIL, f"warning: {EVIL}"):
            show(what)
    display.report(EVIL, 1, 2)
    display.end()
    out, err = capsys.readouterr()
    assert not set("\x07\x08\x9b\u202e") & {*out, *err}
    for held in ("[31mred", "]0;title"):
        assert f"\x1b{held}" not in out + err
        assert f"�{held}" in out
        assert f"�{held}" in err


def test_printable_keeps_what_is_text():
    assert printable(EVIL) == SHOWN
    for text in ("two\nlines\tand a tab", "Ünïcode 漢字 עברית \u200f 👍🏽", ""):
        assert printable(text) == text


def test_markup_in_the_name_of_a_stage_is_no_markup(terminal):
    Display().report("pairs:[/red]a.csv", 1, 2)
    assert "pairs:[/red]a.csv" in terminal()
