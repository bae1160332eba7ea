"""Figures: which points of curves are drawn, and SVG that takes its colours from the page."""

import re

import numpy as np
import pytest

from selfsent.report import page, plots


def test_curves_of_seeds_are_drawn_at_the_steps_that_all_have():
    steps, values = plots.align_curves([[(0, 1.0), (10, 2.0), (20, 9.0)], [(0, 3.0), (10, 4.0)]], 9)
    assert steps.tolist() == [0, 10]
    assert values.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_of_curves_without_a_common_step_the_longest_is_drawn():
    steps, values = plots.align_curves([[(72, 1.0)], [(50, 2.0), (103, 3.0)]], 9)
    assert (steps.tolist(), values.tolist()) == ([50, 103], [[2.0, 3.0]])


def test_long_curves_are_averaged_in_segments():
    steps, values = plots.align_curves([[(step, float(step)) for step in range(1000)]], 10)
    assert steps.tolist() == [49.5 + 100 * segment for segment in range(10)]
    assert values[0].tolist() == steps.tolist()


def test_a_drawing_has_no_colour_font_or_style_of_its_own():
    line = plots.Line(label="run", number=1, curves=[[(0, 1.0), (5, 2.0)], [(0, 2.0), (5, 4.0)]])
    drawing = plots.draw_curves("a <b> & c", [line], "caption", best=5)
    assert re.findall(r"#[0-9a-f]{6}\b", drawing.svg) == []
    assert {"var(--ink)", "var(--soft)", "var(--faint)", "var(--c1)"} <= set(re.findall(r"var\(--\w+\)", drawing.svg))
    assert "font-family" not in drawing.svg
    assert "<style" not in drawing.svg
    assert "a &lt;b&gt; &amp; c" in drawing.svg
    assert drawing == plots.draw_curves("a <b> & c", [line], "caption", best=5)


def test_levels_are_drawn_with_their_names_and_said_in_the_caption():
    line = plots.Line(label="run", number=0, curves=[[(0, 40.0), (5, 50.0)]])
    plain = plots.draw_curves("MRR@10", [line], "caption")
    drawing = plots.draw_curves("MRR@10", [line], "caption", levels={"BM25": 61.24, "word vectors": 69.8})
    assert drawing.caption.endswith(" BM25: 61.2. word vectors: 69.8.")
    assert {"BM25", "word vectors"} <= set(re.findall(r">([\w ]+)</text>", drawing.svg))
    assert "BM25" not in plain.svg
    assert "70" in re.findall(r">(\d+)</text>", drawing.svg)  # the axis reaches up to them


def test_a_seventh_series_has_the_first_s_colour_and_another_shape():
    shapes = {(number % 6, plots.shape_of(number)) for number in range(36)}
    assert len(shapes) == 36


def test_a_map_keeps_both_axes_alike_and_stays_within_its_drawing():
    points = np.random.default_rng(0).normal(size=(50, 2)) * (3, 1)
    drawn = page.map_points(points)
    assert (drawn >= 0).all()
    assert (drawn <= page.MAP_SIZE).all()
    scale = np.ptp(drawn[:, 0]) / np.ptp(points[:, 0])
    assert drawn[:, 1] == pytest.approx(drawn[0, 1] - scale * (points[:, 1] - points[0, 1]), abs=0.2)
