"""Batches of classifiers: against the authors' numbers, against PyTorch one fit at a time, and their stopping."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from selfsent.evaluation.senteval.batched_classifier import SEED, Features, Fold, SentEval, Stopping
from selfsent.evaluation.senteval.cross_validation import FAST

REGULARISERS = np.array([1e-5, 1e-4, 1e-3, 1e-2])
SETTINGS = {"full": SentEval(), "fast": FAST}
CASES = [(case, name) for case in ("c2", "c6") for name in SETTINGS]


def grid(folds, values=REGULARISERS):
    return np.tile(np.asarray(values, dtype=np.float64), (folds, 1))


def of_golden(values, case):
    return Features.of(torch.from_numpy(values[f"{case}_X_train"])), values[f"{case}_y_train"]


def problem(rows=90, width=5, classes=3, seed=0):
    """Rows that a linear classifier gets partly right."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, width)).astype(np.float32)
    y = (x @ rng.normal(size=(width, classes)) + rng.normal(size=(rows, classes))).argmax(axis=1)
    return Features.of(torch.from_numpy(x)), y


def uneven(rows=90):
    """Four folds, whose training sets have two sizes, and one that stops by its own rows."""
    parts = np.array_split(np.random.default_rng(3).permutation(rows), [20, 42, 64])
    folds = [Fold(np.setdiff1d(np.arange(rows), part), np.sort(part)) for part in parts]
    return [*folds, Fold(np.arange(rows), None)]


def one_at_a_time(features, labels, fold, penalty, settings, classes):
    """The classifier as one writes it in PyTorch, with the global random streams."""
    np.random.seed(SEED)  # noqa: NPY002
    torch.manual_seed(SEED)
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
    x, y = features.take(torch.arange(len(labels))), torch.from_numpy(labels)
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
    fits = settings.fit(features, labels, [fold], penalty)
    assert fits.passes[0, 0] == settings.passes
    np.testing.assert_allclose(fits.weights[0][0, 0], steps[f"{case}_{name}_W_after_round"], atol=2e-6)
    np.testing.assert_allclose(fits.weights[1][0, 0, :, 0], steps[f"{case}_{name}_b_after_round"], atol=2e-6)
    assert fits.accuracy[0, 0] == pytest.approx(float(steps[f"{case}_{name}_dev_accuracy_after_round"]), abs=1e-12)


@pytest.mark.parametrize(("case", "name"), CASES)
def test_folds_score_and_stop_as_the_authors_do(golden, case, name):
    values = golden("senteval_classifier")
    features, labels = of_golden(values, case)
    assigned = values[f"{case}_{name}_kfold_assignment"]
    folds = [
        Fold(np.flatnonzero(assigned != number), np.flatnonzero(assigned == number))
        for number in range(assigned.max() + 1)
    ]
    fits = SETTINGS[name].fit(features, labels, folds, grid(len(folds)))
    np.testing.assert_allclose(fits.accuracy.T, values[f"{case}_{name}_kfold_fold_scores"], atol=1e-12)
    np.testing.assert_array_equal(fits.passes.T, values[f"{case}_{name}_kfold_passes"])


@pytest.mark.parametrize(("case", "name"), CASES)
def test_the_last_fit_holds_out_the_authors_rows_and_keeps_their_weights(golden, case, name):
    values = golden("senteval_classifier")
    features, labels = of_golden(values, case)
    chosen = float(values[f"{case}_{name}_kfold_chosen_reg"])
    everything = Fold(np.arange(len(labels)), None)
    fits = SETTINGS[name].fit(features, labels, [everything], grid(1, [chosen]))
    rounds = values[f"{case}_{name}_kfold_refit_dev_per_round"]
    np.testing.assert_allclose(fits.history[0][0], rounds, atol=1e-12)
    np.testing.assert_allclose(fits.weights[0][0, 0], values[f"{case}_{name}_kfold_refit_W"], atol=2e-6)
    np.testing.assert_allclose(fits.weights[1][0, 0, :, 0], values[f"{case}_{name}_kfold_refit_b"], atol=2e-6)


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


def test_a_fit_that_has_stopped_ignores_later_accuracies():
    stopping = Stopping((2,), 0)
    for accuracies in ([0.5, 0.1], [0.4, 0.2], [0.9, 0.3]):
        better = stopping.update(np.array(accuracies))
    assert better.tolist() == [False, True]
    assert stopping.best.tolist() == [0.5, 0.3]


@pytest.mark.parametrize("size", [4, 2, 1])
def test_the_limit_of_passes_ends_a_fit_that_would_not_stop(golden, size):
    features, labels = problem(rows=12)
    settings = SentEval(passes=size, tenacity=1000)
    fold = Fold(np.arange(8), np.arange(8, 12))
    fits = settings.fit(features, labels, [fold], grid(1, [1e-5]))
    steps = golden("senteval_fit_steps")
    assert fits.passes[0, 0] == int(steps[f"cap_epoch_size_{size}_passes"])
    assert len(fits.history[0][0]) == int(steps[f"cap_epoch_size_{size}_rounds"])


NETWORKS = {
    "linear, Adam": SentEval(batch_size=16, tenacity=2),
    "linear, RMSprop": SentEval(optimizer="rmsprop", batch_size=16, passes=2, tenacity=1),
    "hidden, Adam": SentEval(batch_size=16, tenacity=2, hidden=7),
    "hidden with dropout, RMSprop": SentEval(optimizer="rmsprop", batch_size=16, tenacity=2, hidden=7, dropout=0.2),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_batch_of_fits_equals_pytorch_one_fit_at_a_time(name):
    settings = NETWORKS[name]
    features, labels = problem()
    folds = uneven()
    penalties = [1e-4, 1e-1, 1.0]  # strong enough to move what they should: weights and biases
    fits = settings.fit(features, labels, folds, grid(len(folds), penalties))
    for index, fold in enumerate(folds):
        for place, penalty in enumerate(penalties):
            best, passes, history, weights = one_at_a_time(features, labels, fold, penalty, settings, 3)
            assert fits.history[index][place] == pytest.approx(history, abs=1e-12)
            assert fits.passes[index, place] == passes
            assert fits.accuracy[index, place] == pytest.approx(best, abs=1e-12)
            for ours, theirs in zip(fits.weights, weights, strict=True):
                torch.testing.assert_close(ours[index, place].view_as(theirs), theirs, atol=2e-6, rtol=1e-5)
    assert len(np.unique(fits.passes)) > 1, "fits must stop at different times for this to say anything"


def test_a_fit_does_not_depend_on_the_fits_beside_it():
    features, labels = problem()
    folds = uneven()
    together = FAST.fit(features, labels, folds, grid(5))
    for index, fold in enumerate(folds):
        alone = FAST.fit(features, labels, [fold], grid(1)[:, 2:3])
        assert alone.history[0][0] == together.history[index][2]
        torch.testing.assert_close(alone.weights[0][0, 0], together.weights[0][index, 2], atol=1e-6, rtol=1e-5)


def test_many_small_batches_equal_one(monkeypatch):
    features, labels = problem()
    whole = FAST.fit(features, labels, uneven(), grid(5))
    monkeypatch.setattr("selfsent.evaluation.senteval.batched_classifier.TILE", 1)
    cut = FAST.fit(features, labels, uneven(), grid(5))
    assert cut.history == whole.history
    np.testing.assert_array_equal(cut.passes, whole.passes)


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def test_threads_change_nothing_and_leave_the_number_of_threads_as_it_was(two_threads):
    features, labels = problem()
    parallel = FAST.fit(features, labels, uneven(), grid(5))
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert parallel.history == FAST.fit(features, labels, uneven(), grid(5)).history


def test_an_error_in_one_thread_ends_the_others(two_threads):
    features, labels = problem()

    def take(rows):
        if (rows == 40).any():  # in the second fold alone
            raise KeyboardInterrupt
        return features.take(rows)

    endless = SentEval(max_passes=10**9, tenacity=10**9)
    folds = [Fold(np.arange(40), np.arange(50, 60)), Fold(np.arange(41), np.arange(50, 60))]
    with pytest.raises(KeyboardInterrupt):
        endless.fit(replace(features, take=take), labels, folds, grid(2))
    assert torch.get_num_threads() == 2


def test_the_global_random_streams_are_left_alone():
    features, labels = problem()
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    expected = np.random.rand(), torch.rand(1).item()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    replace(FAST, hidden=3, dropout=0.1).fit(features, labels, uneven(), grid(5))
    assert (np.random.rand(), torch.rand(1).item()) == expected  # noqa: NPY002


@pytest.mark.parametrize("settings", [FAST, replace(FAST, tenacity=1000, max_passes=4)])
def test_progress_counts_every_fit_that_ends(settings, reports):
    features, labels = problem()
    settings.fit(features, labels, uneven(), grid(5), progress=reports)
    counts = [done for _, done, _ in reports]
    assert reports[-1] == ("classifiers trained", 20, 20)
    assert counts == sorted(set(counts))


def test_predictions_are_those_of_the_weights_kept():
    features, labels = problem()
    fits = FAST.fit(features, labels, uneven(), grid(5))
    rows = np.array([4, 80, 4])
    weight, bias = fits.weights[0][1, 2], fits.weights[1][1, 2, :, 0]
    expected = [int((weight @ features.take(torch.tensor([row]))[0] + bias).argmax()) for row in rows]
    assert fits.predict(features, rows, 1, 2).tolist() == expected


def test_a_fold_without_stopping_rows_is_refused():
    features, labels = problem()
    with pytest.raises(ValueError, match="a fold has 19 training rows and 0 stopping rows"):
        FAST.fit(features, labels, [Fold(np.arange(19), None)], grid(1))
