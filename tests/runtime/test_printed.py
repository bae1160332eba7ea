"""What results print: every public one in at most twelve lines, escaped in a notebook, and whole as JSON."""

import inspect
import json
import typing
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len

import selfsent
from selfsent import pairs
from selfsent.bulk.encode import Encoded
from selfsent.encoder.base import Encoder
from selfsent.evaluation.comparison import Compared, Comparison
from selfsent.evaluation.label_free.verdict import Verdict
from selfsent.evaluation.score import Results, Score, Scored
from selfsent.export.export import Exported
from selfsent.export.gate import ExportJudgement
from selfsent.labels.classify import Classified, ClassifierScore
from selfsent.labels.topics import Topic, Topics
from selfsent.pairs.write import PairsSummary
from selfsent.pretraining.pretrained import Pretrained
from selfsent.runtime.printed import LINES, Printed, Shown, plain
from selfsent.searching.index import Changed, Index
from selfsent.searching.reader import Hit, Hits
from selfsent.selection.fit import Fitted
from selfsent.sweeping.outcome import SweepOutcome
from selfsent.sweeping.trials import SweepTrial
from selfsent.training.run import Trained
from selfsent.training.train import TrainedSeeds
from selfsent.training.trainer import TrainingOutcome

EVIL = "<b>&\x1b[31m"
LONG = f"{EVIL} " + "a sentence that goes on and on " * 60


FOLDER = Path("runs/x")


def score(task):
    how = {"split": "test", "metric": "spearman", "n": 9, "replicates": np.zeros(5)}
    return Score(task=task, value=76.31, low=74.9, high=float("nan"), **how)


def large(number=400):
    """Every public result, with far more in it than fits."""
    at, said, scores = {"folder": FOLDER}, [LONG] * number, [score(f"task-{place}") for place in range(number)]
    results = Results(scores=scores, missing={f"gone-{place}": LONG for place in range(number)})
    figures = {"metric": "spearman", "before": 1, "after": 2, "value": 1, "low": 0, "high": 2, "n": 9}
    changes = [Comparison(task=each.task, decision="better", **figures) for each in scores]
    ended = {"steps": 9, "best_step": 8, "best_score": 7.0, "selected_by": "retrieval"}
    outcome = TrainingOutcome(**ended, start={}, seconds=1.0, texts_per_second=1.0)
    run = Trained(**at, model=FOLDER, seed=1, outcome=outcome, before=results, after=results, verdict=LONG)
    row = {"name": LONG, "note": LONG, "dev_mrr": 50.0}
    trial = SweepTrial(number=1, settings={"objective.temperature": LONG}, state="complete", runs=[run])
    swept = {"keys": [*trial.settings], "seeds": 1, "selected_by": "retrieval", "metric": "mrr@10", "best": trial}
    judgement = ExportJudgement(results, results, changes[0], 0.9, LONG, LONG)
    judged = ClassifierScore(LONG, (50.0, 1.0), (50.0, 1.0))
    labelled = {"classes": said, "folds": 5, "kept": LONG, "notes": said, "out": FOLDER, "classifier": None}
    topic = Topic(words=[LONG], size=9, typical=[LONG])
    grouped = {"rule": LONG, "page": FOLDER, "table": FOLDER, "labels": []}
    hits = [Hit(place, 0.5, 0.5, EVIL, LONG, "7") for place in range(number)]
    return [
        Fitted(
            **at, model=FOLDER, kept="a", base="b", sentences=said, rows=[row] * number, page=FOLDER, jobs={}, widths={}
        ),
        run,
        TrainedSeeds(**at, runs=[run] * number, comparison=None, verdict=LONG),
        SweepOutcome(**at, **swept, trials=[trial] * number, finding="better", decision=LONG),
        trial,
        Pretrained(**at, model=FOLDER, steps=9, scores=dict.fromkeys(map(str, range(number)), 1.0)),
        scores[0],
        results,
        Scored(model=results, **{EVIL: results}),
        changes[0],
        Compared(results, results, changes),
        Verdict(changes[0], said, {"base": results}, changes, {}, {}),
        Encoded(output=FOLDER, rows=9, width=3, resumed=0, missing=tuple(range(number))),
        Exported(**at, megabytes=1.0, judgement=judgement),
        judgement,
        PairsSummary(out=FOLDER, dropped=Counter({EVIL: 3}), sample=[(LONG, LONG)] * number),
        hits[0],
        Hits(hits),
        Hits(),
        Classified(model=LONG, texts=9, scores=[judged] * 2, **labelled),
        Topics(model=LONG, texts=9, topics=[topic] * number, **grouped),
        Changed(added=number, deleted=1, kept=2),
    ]


@pytest.mark.parametrize("result", large(), ids=lambda result: type(result).__name__)
def test_a_result_of_any_size_prints_at_most_twelve_lines_and_no_control_character(result):
    lines = repr(result).splitlines()
    assert 1 <= len(lines) <= 12
    assert str(result) == repr(result)
    assert "\x1b" not in repr(result)
    assert "Printed" not in repr(result)
    assert max(map(cell_len, lines)) <= 200


@pytest.mark.parametrize("result", large(), ids=lambda result: type(result).__name__)
def test_in_a_notebook_it_is_as_short_and_no_text_becomes_markup(result):
    page = result._repr_html_()
    assert page.count("<tr>") + page.count("<div>") <= 12
    assert "<b>" not in page


@pytest.mark.parametrize("result", large(3), ids=lambda result: type(result).__name__)
def test_as_json_a_result_is_strict_and_holds_no_resamples(result):
    def refuse(constant):
        raise AssertionError(constant)

    said = json.dumps(plain(result), allow_nan=False)
    assert json.loads(said, parse_constant=refuse) == plain(result)
    assert "replicates" not in said


def test_what_every_public_function_returns_is_one_of_these():
    public = [getattr(module, name) for module in (selfsent, pairs) for name in module.__all__]
    methods = [function for _, function in inspect.getmembers(Index, inspect.isfunction) if function.__name__[0] != "_"]
    returned = set()
    for function in [*filter(inspect.isfunction, public), *methods]:
        returned |= classes(inspect.unwrap(function).__annotations__["return"])
    ours = {each for each in returned if each.__module__.startswith("selfsent.")} - {Index, Encoder, Shown}
    assert {Fitted, Trained, TrainedSeeds, Scored, Hits, Encoded} <= ours
    assert ours <= {type(result) for result in large(3)}
    assert issubclass(Index, Printed)


def classes(hint):
    """The classes in a hint."""
    found = {hint} if inspect.isclass(hint) else set()
    return found.union(*map(classes, typing.get_args(hint)))


def test_sentences_come_first_and_what_does_not_fit_is_counted():
    @dataclass(repr=False)
    class Result(Printed):
        rows: list = field(default_factory=list)

        def shown(self):
            return Shown(["Better."], ["name", "points"], self.rows)

    short = Result([["first", "1.5"], ["second, which is longer", "10.25"]])
    assert repr(short).splitlines() == [
        "Better.",
        "name                     points",
        "first                       1.5",
        "second, which is longer   10.25",
    ]
    lines = repr(Result([[f"row {place}", "1"] for place in range(100)])).splitlines()
    assert (len(lines), lines[0], lines[-1]) == (LINES, "Better.", "… and 91 more")
    assert [line.split("  ")[0] for line in lines[2:-1]] == [f"row {place}" for place in range(9)]


def test_json_is_what_a_program_can_read():
    assert plain({"a": np.float32(0.5), 2: (np.arange(2), float("inf"), Path("x"), None, True)}) == {
        "a": 0.5,
        "2": [[0, 1], None, "x", None, True],
    }
