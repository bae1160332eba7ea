"""DeCLUTR's averages, from the rows that the paper prints."""

from dataclasses import replace

import pytest

from selfsent.errors import DataError
from selfsent.evaluation.score import Score
from selfsent.evaluation.senteval.declutr_averages import DOWNSTREAM, PROBING, averages, summary

# CR MR MPQA SUBJ SST2 SST5 TREC MRPC(acc F1) SNLI SICK-E SICK-R STS-B COCO STS12-16, then the ten probing tasks.
ROWS = {
    "Transformer-small": (
        "86.81 82.51 87.20 94.69 87.75 49.64 91.60 73.80 81.14 71.81 "
        "81.98 77.48 71.26 60.65 54.95 46.11 57.08 65.56 63.80",
        "89.16 64.50 41.21 73.50 88.33 87.97 85.44 84.17 63.80 64.65",
    ),
    "DeCLUTR-small": (
        "88.03 82.54 89.86 94.94 87.59 48.42 92.40 75.54 82.68 73.72 "
        "82.69 78.35 77.26 61.22 64.10 65.80 67.89 75.63 72.84",
        "85.83 74.51 38.04 73.78 85.26 87.72 85.48 83.08 62.06 62.61",
    ),
    "DeCLUTR-base": (
        "90.15 84.89 89.39 95.19 89.68 50.18 93.60 75.25 82.80 74.18 "
        "82.95 79.39 78.84 61.92 64.21 70.40 69.99 77.51 75.35",
        "79.74 69.98 37.25 72.96 87.50 88.29 85.72 82.92 65.60 68.03",
    ),
}


def scores(name, leave_out=()):
    cells = [float(cell) for row in ROWS[name] for cell in row.split()]
    parts = [(task, *part) for task, parts in (DOWNSTREAM | PROBING).items() for part in parts]
    return [
        Score(task=task, split="test", metric=metric, aggregation=aggregation, value=value, n=100)
        for (task, metric, aggregation), value in zip(parts, cells, strict=True)
        if task not in leave_out
    ]


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("Transformer-small", (72.69, 74.27, 73.48)),
        ("DeCLUTR-small", (76.80, 73.84, 75.32)),
        ("DeCLUTR-base", (78.16, 73.80, 75.98)),
    ],
)
def test_the_papers_averages_come_out_of_its_rows(name, printed):
    found = averages(scores(name))
    assert (found.downstream, found.probing, found.average) == pytest.approx(printed, abs=0.0051)
    assert found.missing == ()


@pytest.mark.parametrize(("name", "printed"), [("DeCLUTR-small", 76.98), ("DeCLUTR-base", 78.39)])
def test_the_averages_without_snli_come_out_too(name, printed):
    assert averages(scores(name)).without_snli == pytest.approx(printed, abs=0.0051)
    assert averages(scores(name, leave_out=["snli"])).downstream == pytest.approx(printed, abs=0.0051)


def test_the_average_of_the_two_means_is_not_that_of_all_tasks():
    # 18 x 78.16 + 10 x 73.80 over 28, where the paper's average weighs both groups alike.
    assert averages(scores("DeCLUTR-base")).of_all_tasks == pytest.approx(76.60, abs=0.01)


def test_missing_tasks_are_named_and_left_out():
    found = averages(scores("DeCLUTR-base", leave_out=["captions", "word_content"]))
    assert found.missing == ("captions", "word_content")
    assert found.downstream == pytest.approx((18 * 78.16 - 61.92) / 17, abs=0.01)
    assert found.probing == pytest.approx((10 * 73.80 - 69.98) / 9, abs=0.01)


def test_mrpc_without_its_f1_does_not_count():
    left = [score for score in scores("DeCLUTR-base") if score.metric != "f1"]
    assert averages(left).missing == ("mrpc",)


def test_nothing_measured_has_no_average():
    nothing = averages([])
    assert (nothing.downstream, nothing.probing, nothing.average, nothing.of_all_tasks) == (None,) * 4
    assert len(nothing.missing) == 28


def test_scores_of_other_protocols_do_not_count():
    # STS12 with one correlation over the year, SICK-R by cosine, and dev scores are other numbers.
    others = [
        Score(task="sts12", split="test", metric="spearman", aggregation="all", value=99.0, n=100),
        Score(task="sickr", split="test", metric="spearman", aggregation="all", value=99.0, n=100),
        Score(task="cr", split="dev", metric="accuracy", value=99.0, n=100),
    ]
    assert averages([*others, *scores("DeCLUTR-base")]) == averages(scores("DeCLUTR-base"))


def test_accuracies_of_different_classifiers_are_never_averaged():
    full = [replace(score, protocol={"classifier": "senteval_full"}) for score in scores("DeCLUTR-base")]
    assert averages(full) == averages(scores("DeCLUTR-base"))
    mixed = [replace(full[0], protocol={"classifier": "sklearn"}), *full[1:]]
    with pytest.raises(DataError, match="scores of senteval_full and sklearn cannot be averaged"):
        averages(mixed)


def test_sub_sampled_tasks_count_as_missing():
    sampled = {"rows": "9600/1200/1200 of 100000/10000/10000"}
    found = averages(
        replace(score, protocol=sampled) if score.task == "bigram_shift" else score for score in scores("DeCLUTR-base")
    )
    assert found.missing == ("bigram_shift",)


def test_the_summary_says_of_how_many_tasks_and_which_are_missing():
    said = summary(averages(scores("DeCLUTR-base", leave_out=["captions"])))
    assert said.startswith("DeCLUTR's averages: downstream 79.1")
    assert "(17 of 18 tasks), probing 73.80 (10 of 10 tasks)" in said
    assert said.endswith("missing: captions")
    assert "probing none (0 of 10 tasks)" in summary(averages([]))


def test_tasks_that_are_none_of_the_28_are_no_part_of_the_averages_and_do_not_stop_them():
    full = [replace(score, protocol={"classifier": "senteval_full"}) for score in scores("DeCLUTR-base")]
    few_shot = {"classifier": "logistic regression, 8 texts a class, 10 draws"}
    intents = Score(task="banking77", split="test", metric="accuracy", value=1.0, n=100, protocol=few_shot)
    assert averages([intents, *full]) == averages(full)
