"""Batches of classifiers: against the authors' numbers, against PyTorch one fit at a time, and their stopping."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from selfsent.evaluation.senteval.batched_classifier import ClassifierSettings, Fold, Matrix, fit_classifiers
from selfsent.evaluation.senteval.classifiers import FAST, FULL
from selfsent.evaluation.senteval.network import Stopping

REGULARISERS = np.array([1e-5, 1e-4, 1e-3, 1e-2])
SETTINGS = {"full": FULL, "fast": FAST}
CASES = [(case, name) for case in ("c2", "c6") for name in SETTINGS]
CLASSES = {"c2": 2, "c6": 6}


def grid(folds, values=REGULARISERS):
    return np.tile(np.asarray(values, dtype=np.float64), (folds, 1))


def of_golden(values, case):
    return Matrix(torch.from_numpy(values[f"{case}_X_train"])), values[f"{case}_y_train"]


def problem(rows=90, width=5, classes=3, seed=0):
    """Rows that a linear classifier gets partly right."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, width)).astype(np.float32)
    y = (x @ rng.normal(size=(width, classes)) + rng.normal(size=(rows, classes))).argmax(axis=1)
    return Matrix(torch.from_numpy(x)), y


def uneven(rows=90):
    """Four folds, whose training sets have two sizes, and one that stops by its own rows."""
    parts = np.array_split(np.random.default_rng(3).permutation(rows), [20, 42, 64])
    folds = [Fold(np.setdiff1d(np.arange(rows), part), np.sort(part)) for part in parts]
    return [*folds, Fold(np.arange(rows), None)]


def one_at_a_time(features, labels, fold, penalty, settings, classes):
    """The classifier as one writes it in PyTorch, with the global random streams."""
    np.random.seed(settings.seed)  # noqa: NPY002
    torch.manual_seed(settings.seed)
    width = features.width
    if settings.hidden:
        model = nn.Sequential(
            nn.Linear(width, settings.hidden),
            nn.Dropout(settings.dropout),
            nn.Sigmoid(),
            nn.Linear(settings.hidden, classes),
        )
    else:
        model = nn.Sequential(nn.Linear(width, classes))
    if settings.optimizer == "adam":
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=penalty)
    else:
        optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2, alpha=0.99, weight_decay=penalty)
    x, y = features.values, torch.from_numpy(labels)
    train, stop = fold.train, fold.stop
    if stop is None:
        order = np.random.permutation(len(train))  # noqa: NPY002
        cut = int(0.05 * len(train))
        train, stop = train[order[cut:]], train[order[:cut]]
    best, passes, failures, history, kept = -1.0, 0, 0, [], None
    while passes <= settings.max_passes:
        model.train()
        for _ in range(settings.passes):
            order = np.random.permutation(len(train))  # noqa: NPY002
            for start in range(0, len(train), settings.batch_size):
                rows = torch.from_numpy(train[order[start : start + settings.batch_size]])
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
                optimizer.step()
        passes += settings.passes
        model.eval()
        with torch.no_grad():
            accuracy = (model(x[stop]).argmax(dim=1) == y[stop]).double().mean().item()
        history.append(accuracy)
        if accuracy > best:
            best, kept = accuracy, copy.deepcopy(model.state_dict())
        else:
            if failures >= settings.tenacity:
                break
            failures += 1
    return best, passes, history, list(kept.values())


@pytest.mark.parametrize(("case", "name"), CASES)
def test_one_round_gives_the_authors_weights(golden, case, name):
    values, steps = golden("senteval_classifier"), golden("senteval_fit_steps")
    features, labels = of_golden(values, case)
    cut = len(labels) - int(values[f"{case}_n_valid_tail"])
    settings = replace(SETTINGS[name], max_passes=0)
    penalty = grid(1, [float(steps[f"{case}_{name}_l2"])])
    fold = Fold(np.arange(cut), np.arange(cut, len(labels)))
    found = fit_classifiers(features, labels, [fold], penalty, settings, classes=CLASSES[case])
    assert found.passes[0, 0] == settings.passes
    np.testing.assert_allclose(found.weights[0][0, 0], steps[f"{case}_{name}_W_after_round"], atol=2e-6)
    np.testing.assert_allclose(found.weights[1][0, 0, :, 0], steps[f"{case}_{name}_b_after_round"], atol=2e-6)
    assert found.accuracy[0, 0] == pytest.approx(float(steps[f"{case}_{name}_dev_accuracy_after_round"]), abs=1e-12)


@pytest.mark.parametrize(("case", "name"), CASES)
def test_folds_score_and_stop_as_the_authors_do(golden, case, name):
    values = golden("senteval_classifier")
    features, labels = of_golden(values, case)
    assigned = values[f"{case}_{name}_kfold_assignment"]
    folds = [
        Fold(np.flatnonzero(assigned != number), np.flatnonzero(assigned == number))
        for number in range(assigned.max() + 1)
    ]
    found = fit_classifiers(features, labels, folds, grid(len(folds)), SETTINGS[name], classes=CLASSES[case])
    np.testing.assert_allclose(found.accuracy.T, values[f"{case}_{name}_kfold_fold_scores"], atol=1e-12)
    np.testing.assert_array_equal(found.passes.T, values[f"{case}_{name}_kfold_passes"])


@pytest.mark.parametrize(("case", "name"), CASES)
def test_the_last_fit_holds_out_the_authors_rows_and_keeps_their_weights(golden, case, name):
    values = golden("senteval_classifier")
    features, labels = of_golden(values, case)
    chosen = float(values[f"{case}_{name}_kfold_chosen_reg"])
    everything = Fold(np.arange(len(labels)), None)
    found = fit_classifiers(features, labels, [everything], grid(1, [chosen]), SETTINGS[name], classes=CLASSES[case])
    rounds = values[f"{case}_{name}_kfold_refit_dev_per_round"]
    np.testing.assert_allclose(found.history[0][0], rounds, atol=1e-12)
    np.testing.assert_allclose(found.weights[0][0, 0], values[f"{case}_{name}_kfold_refit_W"], atol=2e-6)
    np.testing.assert_allclose(found.weights[1][0, 0, :, 0], values[f"{case}_{name}_kfold_refit_b"], atol=2e-6)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_scripted_accuracies_stop_after_the_authors_rounds(golden, number):
    steps = golden("senteval_fit_steps")
    script = steps[f"stop_s{number}_scripted"]
    stopping = Stopping((1,), int(steps[f"stop_s{number}_tenacity"]))
    rounds = 0
    while stopping.running.any() and rounds < len(script):
        stopping.update(script[rounds : rounds + 1])
        rounds += 1
    assert rounds == int(steps[f"stop_s{number}_rounds_done"])
    assert stopping.best[0] == pytest.approx(float(steps[f"stop_s{number}_best"]))


def test_rounds_without_a_better_score_are_counted_in_all_and_not_in_a_row():
    stopping = Stopping((1,), 3)
    ran = [stopping.running[0] and stopping.update(np.array([value])) is not None for value in (0.5, 0.4, 0.6, 0.5)]
    assert all(ran)
    for value, still in ((0.7, True), (0.6, True), (0.5, False)):
        stopping.update(np.array([value]))
        assert stopping.running[0] == still
    assert stopping.best[0] == 0.7


def test_an_equal_accuracy_is_not_better_and_keeps_the_earlier_weights():
    stopping = Stopping((2,), 5)
    assert stopping.update(np.array([0.5, 0.5])).tolist() == [True, True]
    assert stopping.update(np.array([0.5, 0.6])).tolist() == [False, True]


def test_a_fit_that_has_stopped_hears_nothing_more():
    stopping = Stopping((2,), 0)
    for accuracies in ([0.5, 0.1], [0.4, 0.2], [0.9, 0.3]):
        better = stopping.update(np.array(accuracies))
    assert better.tolist() == [False, True]
    assert stopping.best.tolist() == [0.5, 0.3]


@pytest.mark.parametrize("size", [4, 2, 1])
def test_the_limit_of_passes_ends_what_nothing_else_does(golden, size):
    features, labels = problem(rows=12)
    settings = ClassifierSettings(passes=size, tenacity=1000)
    fold = Fold(np.arange(8), np.arange(8, 12))
    found = fit_classifiers(features, labels, [fold], grid(1, [1e-5]), settings, classes=3)
    steps = golden("senteval_fit_steps")
    assert found.passes[0, 0] == int(steps[f"cap_epoch_size_{size}_passes"])
    assert len(found.history[0][0]) == int(steps[f"cap_epoch_size_{size}_rounds"])


NETWORKS = {
    "linear, Adam": ClassifierSettings(batch_size=16, tenacity=2),
    "linear, RMSprop": ClassifierSettings(optimizer="rmsprop", batch_size=16, passes=2, tenacity=1),
    "hidden, Adam": ClassifierSettings(batch_size=16, tenacity=2, hidden=7),
    "hidden with dropout, RMSprop": ClassifierSettings(
        optimizer="rmsprop", batch_size=16, tenacity=2, hidden=7, dropout=0.2
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_batch_of_fits_equals_pytorch_one_fit_at_a_time(name):
    settings = NETWORKS[name]
    features, labels = problem()
    folds = uneven()
    penalties = [1e-4, 1e-1, 1.0]  # strong enough to move what they should: weights and biases
    found = fit_classifiers(features, labels, folds, grid(len(folds), penalties), settings, classes=3)
    for index, fold in enumerate(folds):
        for place, penalty in enumerate(penalties):
            best, passes, history, weights = one_at_a_time(features, labels, fold, penalty, settings, 3)
            assert found.history[index][place] == pytest.approx(history, abs=1e-12)
            assert found.passes[index, place] == passes
            assert found.accuracy[index, place] == pytest.approx(best, abs=1e-12)
            for ours, theirs in zip(found.weights, weights, strict=True):
                torch.testing.assert_close(ours[index, place].view_as(theirs), theirs, atol=2e-6, rtol=1e-5)
    assert len(np.unique(found.passes)) > 1, "fits must stop at different times for this to say anything"


def test_a_fit_does_not_depend_on_the_fits_beside_it():
    features, labels = problem()
    folds = uneven()
    together = fit_classifiers(features, labels, folds, grid(5), FAST, classes=3)
    for index, fold in enumerate(folds):
        alone = fit_classifiers(features, labels, [fold], grid(1)[:, 2:3], FAST, classes=3)
        assert alone.history[0][0] == together.history[index][2]
        torch.testing.assert_close(alone.weights[0][0, 0], together.weights[0][index, 2], atol=1e-6, rtol=1e-5)


def test_many_small_batches_equal_one(monkeypatch):
    features, labels = problem()
    whole = fit_classifiers(features, labels, uneven(), grid(5), FAST, classes=3)
    monkeypatch.setattr("selfsent.evaluation.senteval.batched_classifier.TILE", 1)
    cut = fit_classifiers(features, labels, uneven(), grid(5), FAST, classes=3)
    assert cut.history == whole.history
    np.testing.assert_array_equal(cut.passes, whole.passes)


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def test_threads_change_nothing_and_leave_the_number_of_threads_as_it_was(two_threads):
    features, labels = problem()
    parallel = fit_classifiers(features, labels, uneven(), grid(5), FAST, classes=3)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert parallel.history == fit_classifiers(features, labels, uneven(), grid(5), FAST, classes=3).history


def test_an_error_in_one_thread_ends_the_others(two_threads):
    features, labels = problem()

    def tick(count):
        raise KeyboardInterrupt

    endless = ClassifierSettings(max_passes=10**9, tenacity=10**9)
    short = [Fold(np.arange(40), np.arange(40, 60)), Fold(np.arange(41), np.arange(41, 60))]
    with pytest.raises(KeyboardInterrupt):
        fit_classifiers(features, labels, short, grid(2), endless, classes=3, tick=tick)
    assert torch.get_num_threads() == 2


def test_the_global_random_streams_are_left_alone():
    features, labels = problem()
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    expected = np.random.rand(), torch.rand(1).item()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    fit_classifiers(features, labels, uneven(), grid(5), replace(FAST, hidden=3, dropout=0.1), classes=3)
    assert (np.random.rand(), torch.rand(1).item()) == expected  # noqa: NPY002


def test_every_fit_is_told_when_it_ends():
    features, labels = problem()
    counts = []
    fit_classifiers(features, labels, uneven(), grid(5), FAST, classes=3, tick=counts.append)
    assert sum(counts) == 20
    counts.clear()
    fit_classifiers(
        features, labels, uneven(), grid(5), replace(FAST, tenacity=1000, max_passes=4), classes=3, tick=counts.append
    )
    assert sum(counts) == 20


def test_predictions_are_those_of_the_weights_kept():
    features, labels = problem()
    found = fit_classifiers(features, labels, uneven(), grid(5), FAST, classes=3)
    rows = np.array([4, 80, 4])
    weight, bias = found.weights[0][1, 2], found.weights[1][1, 2, :, 0]
    expected = [int((weight @ features.values[row] + bias).argmax()) for row in rows]
    assert found.predict(features, rows, 1, 2).tolist() == expected


def test_a_fold_with_nothing_to_stop_by_is_the_callers_mistake():
    features, labels = problem()
    with pytest.raises(ValueError, match="a fold has 19 rows to learn from and 0 to stop by"):
        fit_classifiers(features, labels, [Fold(np.arange(19), None)], grid(1), FAST, classes=3)
