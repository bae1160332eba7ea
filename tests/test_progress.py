"""Bars of tqdm: what they were told is what they show, without a warning where ipywidgets is absent."""

import importlib.util

import pytest

from selfsent.progress import Bar


@pytest.mark.parametrize("absent", [True, False])
def test_a_bar_shows_stages_steps_and_lines_on_standard_error_and_leaves_none_open(monkeypatch, capsys, absent):
    if absent:  # as warnings are errors here, one of tqdm's would fail
        found = importlib.util.find_spec
        monkeypatch.setattr("selfsent.progress.find_spec", lambda name: None if name == "ipywidgets" else found(name))
    bar = Bar()
    bar.report("encode", 30, 100)
    assert (bar._bar.n, bar._bar.total) == (30, 100)
    bar.report("encode", 70, 100)
    assert bar._bar.n == 70
    bar.report("encode", 100, 100)
    assert bar._bar is None
    bar.begin(5, 10, "texts")  # resumed
    bar.step(6, 32, {"contrast": 0.51234})
    assert (bar._bar.n, bar._bar.initial, bar._bar.total) == (6, 5, 10)
    assert "contrast=0.512" in str(bar._bar)
    bar.evaluated(6, {"retrieval": 61.234}, best=True)
    bar.end()
    out, err = capsys.readouterr()
    assert out == ""
    assert "encode" in err
    assert "step 6: retrieval 61.23  (best so far)" in err
