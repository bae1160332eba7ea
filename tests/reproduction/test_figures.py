"""Pictures show the values that they are given; figures without scores show what the methods do to text.

Spans have the paper's densities, and whitened features are white.
"""

import csv
import io
import json
import math
import random
from collections import Counter

import matplotlib.image
import numpy as np
import pytest
import torch
from small_runs import WORDS

from selfsent.encoder.load import load_encoder
from selfsent.errors import CorpusError, DataError
from selfsent.objectives.registry import plan_objective
from selfsent.reproduction.figures import count_places, draw_artifact, draw_sketch, sample_spans, whiten_twice
from selfsent.reproduction.findings import Cell
from selfsent.reproduction.measure import reproduce
from selfsent.reproduction.plan import plan_artifacts
from selfsent.reproduction.scale import ReproduceOptions
from selfsent.reproduction.spec import find_artifact

SKETCHES = ["declutr-figure-1", "whitenedcse-figure-1"]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path_factory.getbasetemp() / "sketch-cache"))


@pytest.fixture
def texts(tmp_path):
    """30 documents of 700 words, and 600 lines."""
    draw = np.random.default_rng(0)
    documents = [json.dumps({"text": " ".join(draw.choice(WORDS, 700))}) for _ in range(30)]
    (tmp_path / "documents.jsonl").write_text("\n".join(documents), encoding="utf-8")
    (tmp_path / "lines.txt").write_text("\n".join(" ".join(draw.choice(WORDS, 9)) for _ in range(600)))
    return {"documents": (str(tmp_path / "documents.jsonl"),), "sentences": (str(tmp_path / "lines.txt"),)}


def options(texts):
    return ReproduceOptions(scale="small", texts=texts)


def drawn_by_slow_loops(count):
    """Return where positives lie in documents of 2,048 tokens, and mean lengths: the paper's sampler in loops."""
    draw, places, sizes = random.Random(5), Counter(), {"anchors": 0, "positives": 0}
    for _ in range(count // 2):
        blocks = [0, 512, 1024, 1536]
        for left in (2, 1):
            ends = [0, len(blocks) - 1]
            place = draw.choice(ends) if len(blocks) // left < left else draw.randrange(len(blocks))
            size = math.floor(draw.betavariate(4, 2) * 480 + 32)
            start = draw.randint(blocks[place], blocks[place] + 512 - size)
            end = start + size
            blocks = [block for block in blocks if abs(block - blocks[place]) > 512]
            near = math.floor(draw.betavariate(2, 4) * 480 + 32)
            first = draw.randint(max(0, start - near), min(end, 2048 - near))
            last = first + near
            touching, inside = last == start or first == end, start <= first and last <= end
            around = first <= start and end <= last
            places["adjacent" if touching else "inside" if inside else "around" if around else "overlapping"] += 1
            sizes["anchors"] += size
            sizes["positives"] += near
    return {place: 100 * n / count for place, n in places.items()}, {kind: n / count for kind, n in sizes.items()}


def test_spans_have_the_lengths_and_places_of_the_papers_sampler():
    settings = {"min_length": 32, "max_length": 512, "mlm_weight": 0.0}
    objective = plan_objective("declutr", settings).build(load_encoder("builtin"))
    found = sample_spans(objective, [2048], np.random.default_rng(1), count=80_000)
    expected, lengths = drawn_by_slow_loops(40_000)
    for kind, mean in (("anchors", 351.5), ("positives", 191.5)):  # of the densities, less the half that floor takes
        measured = np.mean([end - start for start, end in found[kind]])
        assert measured == pytest.approx(mean, abs=2)
        assert lengths[kind] == pytest.approx(mean, abs=2)
    places = count_places(found["anchors"], found["positives"])
    share = {place.split()[0]: 100 * count / sum(places.values()) for place, count in places.items()}
    for place, tolerance in (("overlapping", 1.2), ("inside", 1.2), ("around", 0.3), ("adjacent", 0.15)):
        assert share[place] == pytest.approx(expected[place], abs=tolerance)


@pytest.mark.parametrize(
    ("positive", "place"),
    [
        ((0, 10), "adjacent"),
        ((20, 25), "adjacent"),
        ((10, 15), "inside the anchor"),
        ((12, 20), "inside the anchor"),
        ((8, 22), "around the anchor"),
        ((5, 12), "overlapping"),
        ((19, 30), "overlapping"),
    ],
)
def test_a_positive_lies_in_one_place(positive, place):
    assert count_places([(10, 20)], [positive]) == {place: 1}


def test_whitened_groups_of_two_have_the_identity_as_covariance_and_every_shuffle_other_values():
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(300, 8, generator=draw, dtype=torch.float64) @ torch.randn(
        8, 8, generator=draw, dtype=torch.float64
    )
    white, positives = whiten_twice(features, seed=3)
    centred = white - white.mean(dim=0)
    covariance = centred.T @ centred / 300
    for group in range(4):
        block = covariance[2 * group : 2 * group + 2, 2 * group : 2 * group + 2]
        assert torch.allclose(block, torch.eye(2, dtype=torch.float64), atol=1e-4)
    assert not torch.allclose(positives[0], positives[1], atol=0.01)
    assert torch.allclose((positives[0] ** 2).mean(dim=0), torch.ones(8, dtype=torch.float64), atol=1e-3)


def test_both_are_written_as_tables_are(texts, tmp_path):
    out = tmp_path / "out"
    outcomes = reproduce(SKETCHES, options(texts), out)
    for name, outcome in zip(SKETCHES, outcomes, strict=True):
        lines = list(csv.reader(io.StringIO((out / f"{name}.csv").read_text())))
        assert lines == [outcome.sketch.heads, *outcome.sketch.rows]
        content = json.loads((out / f"{name}.json").read_text())
        assert [list(row.values()) for row in content["sketch"]] == outcome.sketch.rows
        assert " | ".join(outcome.sketch.rows[0]) in (out / f"{name}.md").read_text(encoding="utf-8")
        assert matplotlib.image.imread(out / f"{name}.png")[..., :3].std() > 0.01
    (before, after) = outcomes[1].sketch.rows
    assert (float(before[1]) > 0.01, float(after[1])) == (True, 0.0)
    assert float(after[4]) < float(before[4])


def test_the_same_seed_draws_the_same(texts):
    (plan,) = plan_artifacts([find_artifact(SKETCHES[0])], options(texts))
    once, again = (draw_sketch("spans", plan.sketch).rows for _ in range(2))
    assert once == again


def test_text_that_is_too_short_is_refused(tmp_path):
    (tmp_path / "short.txt").write_text("\n".join(f"a short line of text {number}" for number in range(40)))
    short = {kind: (str(tmp_path / "short.txt"),) for kind in ("documents", "sentences")}
    for name, words in zip(SKETCHES, ("no document of .* has 512 tokens", "has 40 different texts"), strict=True):
        with pytest.raises(CorpusError, match=words):
            reproduce([name], options(short), tmp_path / name)


def test_what_is_missing_is_named_before_anything_is_drawn(tmp_path):
    given = ReproduceOptions(scale="small", texts={"documents": (str(tmp_path / "none.jsonl"),)})
    with pytest.raises(DataError, match=r"needs data .*none\.jsonl"):
        reproduce(SKETCHES[:1], given, tmp_path / "out")


def drawn_differences(values, measure=0, **options):
    """Draw the differences of one measure; return its name, the axes, and the lines without that at zero."""
    (plan,) = plan_artifacts([find_artifact("denosent-figure-3")], ReproduceOptions(**options))
    names = [column.name for column in plan.artifact.measures]
    name = names[measure] if isinstance(measure, int) else measure
    cells = {row: {name: Cell(values=of_row, low=None, high=None, parts=1, of=1)} for row, of_row in values.items()}
    (axes,) = draw_artifact(plan, cells, {}).axes
    return names, axes, axes.get_lines()[1:]


def test_differences_are_those_of_each_seed_and_of_the_published_values():
    shown = "Quora MAP@1"
    values = {"SimCSE BERT-base": (50.0, 51.0, 52.0), "DenoSent": (53.0, 53.5, 51.0)}
    names, axes, drawn = drawn_differences(values, shown)
    lines = {(line.get_label(), round(float(line.get_ydata()[0]))): line.get_xdata() for line in drawn}
    number = names.index(shown)
    np.testing.assert_allclose(lines["here, each seed", number], (3.0, 2.5, -1.0))
    assert lines["paper", number] == pytest.approx(64.36 - 60.99)
    assert sorted(row for label, row in lines if label == "paper") == list(range(10))  # there is no published nDCG
    assert [text.get_text() for text in axes.get_yticklabels()] == names


def test_a_checkpoint_stands_for_every_seed_and_a_further_one_changes_nothing():
    values = {"SimCSE BERT-base": (50.0,), "DenoSent": (53.0, 53.5, 51.0), "mine": (10.0,)}
    _, _, drawn = drawn_differences(values, checkpoints={"SimCSE BERT-base": "one", "mine": "another"})
    (ours,) = [line for line in drawn if line.get_label() == "here, each seed"]
    np.testing.assert_allclose(ours.get_xdata(), (3.0, 3.5, 1.0))
    assert "paper" in {line.get_label() for line in drawn}


def test_an_encoder_that_is_not_measured_leaves_the_published_values():
    assert {line.get_label() for line in drawn_differences({})[2]} == {"paper"}
