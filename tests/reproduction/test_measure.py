"""A table is trained, measured, written and compared; what is finished is not repeated."""

import csv
import io
import json
import shutil

import matplotlib.image
import numpy as np
import pytest
from labelled_files import FEW, shrink
from small_runs import WORDS

from selfsent.errors import ConfigurationError, DataError
from selfsent.evaluation.data_sets import SETS
from selfsent.reproduction import measure
from selfsent.reproduction.measure import plan_reproduction, reproduce
from selfsent.reproduction.scale import ReproduceOptions, SmallScale
from selfsent.training import train as training

SMALL = SmallScale(steps=2, batch_size=8, threads=1, evaluations=2)
NAMES = ["whitenedcse-table-5", "whitenedcse-figure-3"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A text of 200 lines, and STS-B in SentEval's layout."""
    folder = tmp_path_factory.mktemp("place")
    draw = np.random.default_rng(0)
    (folder / "text.txt").write_text("\n".join(" ".join(draw.choice(WORDS, 9)) for _ in range(200)), encoding="utf-8")
    benchmark = folder / "downstream" / "STS" / "STSBenchmark"
    benchmark.mkdir(parents=True)
    patched = pytest.MonkeyPatch()
    shrink(patched, "stsb", FEW)
    texts = [" ".join(draw.choice(WORDS, 6)) for _ in range(60)]
    for ((file, count),) in map(dict.items, SETS["stsb"].splits.values()):
        rows = [f"g\tf\ty\t1\t{draw.uniform(0, 5):.2f}\t{'	'.join(draw.choice(texts, 2))}" for _ in range(count)]
        (benchmark / file).write_text("\n".join(rows) + "\n", encoding="utf-8")
    yield folder
    patched.undo()


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path_factory.getbasetemp() / "reproduce-cache"))


def options(bert, place, **changed):
    given = {"scale": "small", "small": SMALL, "base": str(bert), "data": str(place)}
    return ReproduceOptions(**{**given, "texts": {"sentences": (str(place / "text.txt"),)}, **changed})


@pytest.fixture(scope="module")
def whole(bert, place, tmp_path_factory):
    """A table and a figure of curves, three seeds."""
    out = tmp_path_factory.mktemp("whole") / "out"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SELFSENT_CACHE", str(tmp_path_factory.getbasetemp() / "reproduce-cache"))
        return out, reproduce(NAMES, options(bert, place, seeds=3), out)


def test_a_table_is_written_in_four_files_with_the_papers_values_beside_ours(whole):
    out, _ = whole
    name = NAMES[0]
    text = (out / f"{name}.md").read_text(encoding="utf-8")
    assert "78.78" in text
    assert "± " in text
    content = json.loads((out / f"{name}.json").read_text())
    rows = {row["name"]: row for row in content["rows"]}
    assert len(rows["m = 3"]["here"]["STS-B"]["values"]) == 3
    assert content["missing"].keys() == {"sts12", "sts13", "sts14", "sts15", "sts16", "sickr"}
    lines = list(csv.DictReader(io.StringIO((out / f"{name}.csv").read_text())))
    of_row = {line["measure"]: line for line in lines if line["row"] == "m = 3"}
    assert (of_row["average"]["paper"], of_row["average"]["here"]) == ("78.78", "")
    name = "average without sts12, sts13, sts14, sts15, sts16, sickr"  # never by the name of the whole
    ours = of_row[name]
    assert f"| {name} |" in text
    assert name in rows["m = 3"]["here"]
    assert (ours["paper"], ours["scores"], ours["of"]) == ("", "1", "7")
    assert float(ours["here"]) == pytest.approx(rows["m = 3"]["here"]["STS-B"]["value"])
    picture = matplotlib.image.imread(out / f"{NAMES[0]}.png")
    assert picture[..., :3].std() > 0.01


def test_every_claim_ends_in_a_sentence(whole):
    out, outcomes = whole
    sentences = [finding.sentence for finding in outcomes[0].findings]
    assert len(sentences) == 5
    summary = (out / "summary.md").read_text(encoding="utf-8")
    for sentence in sentences:
        assert sentence in summary
        assert any(word in sentence for word in ("same direction", "opposite", "cannot tell"))


def test_the_values_are_those_of_an_evaluation_of_the_saved_model(whole, place):
    out, outcomes = whole
    table = json.loads((out / f"{NAMES[0]}.json").read_text())
    run = next(row["run"] for row in table["rows"] if row["name"] == "m = 2")
    model = next((out / "runs").glob(f"*-{run}")) / "seed-43" / "model"
    from selfsent.evaluation.evaluate import evaluate

    score = evaluate(model, ["stsb"], data=place, bootstrap=0)["model"].get("stsb")
    assert outcomes[0].cells["m = 2"]["STS-B"].values[1] == pytest.approx(score.value)


def test_curves_are_those_of_the_training_log(whole):
    _, outcomes = whole
    curves = outcomes[1].curves["WhitenedCSE"]["stsb_uniformity"]
    assert len(curves) == 3
    assert [step for step, _ in curves[0]] == [0, 1, 2]


def test_what_is_finished_is_neither_trained_nor_evaluated_again(whole, bert, place, monkeypatch):
    out, _ = whole
    before = {path: path.read_bytes() for path in out.glob("whitened*")}

    def refuse(*_, **__):
        raise AssertionError("this was done before")

    monkeypatch.setattr(measure, "evaluate", refuse)
    monkeypatch.setattr("selfsent.training.run.Trainer", refuse)
    reproduce(NAMES, options(bert, place, seeds=3), out, resume=True)
    assert {path: path.read_bytes() for path in out.glob("whitened*")} == before
    planned = plan_reproduction(NAMES, options(bert, place, seeds=4), out)
    assert [(one.cost.trainings, one.left) for one in planned] == [(16, 4), (8, 2)]


def test_scores_of_evaluation_data_that_have_changed_since_are_measured_again(whole, bert, place, monkeypatch):
    class Measured(Exception):
        pass

    def measured(*_, **__):
        raise Measured

    monkeypatch.setattr(measure, "evaluate", measured)
    path = place / "downstream" / "STS" / "STSBenchmark" / "sts-test.csv"
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace("\t1\t", "\t2\t", 1), encoding="utf-8")
    try:
        with pytest.raises(Measured):
            reproduce(NAMES, options(bert, place, seeds=3), whole[0], resume=True)
    finally:
        path.write_text(before, encoding="utf-8")


class Killed(BaseException):
    """Ends the process here."""


def test_one_that_was_killed_ends_with_the_same_bytes(bert, place, tmp_path, monkeypatch):
    names, given = NAMES[1:], options(bert, place)
    reproduce(names, given, tmp_path / "whole")
    train, calls = training.train, []

    def killed_at_the_second(*arguments, **named):
        calls.append(1)
        if len(calls) == 2:
            raise Killed
        return train(*arguments, **named)

    monkeypatch.setattr(training, "train", killed_at_the_second)
    with pytest.raises(Killed):
        reproduce(names, given, tmp_path / "killed")
    reproduce(names, given, tmp_path / "killed", resume=True)
    for name in ("md", "csv", "json"):
        both = [(tmp_path / folder / f"{names[0]}.{name}").read_bytes() for folder in ("whole", "killed")]
        assert both[0] == both[1]


def test_damaged_scores_are_measured_again(whole, bert, place, tmp_path):
    out = shutil.copytree(whole[0], tmp_path / "out")
    before = (out / f"{NAMES[0]}.csv").read_bytes()
    for path in sorted((out / "scores").glob("*.json"))[:2]:
        path.write_bytes(path.read_bytes()[:-40])
    reproduce(NAMES, options(bert, place, seeds=3), out, resume=True)
    assert (out / f"{NAMES[0]}.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("names", "changed", "kind", "words"),
    [
        (NAMES, {}, ConfigurationError, "--resume"),
        (["denosent-table-3"], {}, DataError, "data pairs"),
        (NAMES, {"seeds": 0}, ConfigurationError, "seeds = 0"),
        (NAMES, {"seeds": 2, "first_seed": 2**32 - 1}, ConfigurationError, "its 2 seeds would go beyond"),
        (NAMES, {"scale": "tiny"}, ConfigurationError, "choose one of small, full"),
    ],
)
def test_a_taken_folder_and_what_cannot_be_measured_are_refused(names, changed, kind, words, bert, place, tmp_path):
    (tmp_path / "file").write_text("here")
    with pytest.raises(kind, match=words):
        reproduce(names, options(bert, place, **changed), tmp_path)


def test_a_checkpoint_is_measured_beside_the_published_rows(bert, place, tmp_path):
    given = options(bert, place, checkpoints={"mine": str(bert)})
    outcome = reproduce(["denosent-table-3"], given, tmp_path / "out")[0]  # its trainings lack pairs
    assert outcome.cells.keys() == {"mine"}
    assert "average" in outcome.cells["mine"]
    text = (tmp_path / "out" / "denosent-table-3.md").read_text(encoding="utf-8")
    assert "| mine | here |" in text
    assert "| DenoSent | paper | 79.33 |" in text


def test_all_leaves_out_what_cannot_be_measured(bert, place, tmp_path):
    given = options(bert, place)
    ready = [one.plan.artifact.id for one in plan_reproduction([], given, tmp_path / "out") if one.plan.ready]
    assert "scd-table-1" in ready
    assert "denosent-table-3" not in ready  # no pairs were given
    assert "scd-table-2" not in ready  # no data of transfer tasks
