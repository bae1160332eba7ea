"""What a score is computed from, and every setting of SentEval's classifier, is what the literature uses."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from contract import Contracts, defaults
from scipy.stats import spearmanr

from selfsent.corpus.held_out import HeldOut
from selfsent.encoder.load import load_encoder
from selfsent.evaluation.data_sets import SETS
from selfsent.evaluation.labelled_tasks import make_task
from selfsent.evaluation.senteval.batched_classifier import Features, Fold, SentEval, initial_weights
from selfsent.evaluation.senteval.cross_validation import CLASSIFIERS
from selfsent.training.validation import Validator

contract = Contracts()
FULL = {
    **{"optimizer": "adam", "batch_size": 64, "passes": 4, "tenacity": 5, "max_passes": 200, "hidden": 0},
    **{"dropout": 0, "grid": (1e-5, 1e-4, 1e-3, 1e-2)},
}


def test_every_setting_has_a_contract():
    assert contract.missing({"classifier": SentEval}) == []


def test_every_default_is_that_of_the_literature():
    assert defaults(SentEval) == FULL
    fast = FULL | {"optimizer": "rmsprop", "batch_size": 128, "passes": 2, "tenacity": 3}
    for name, settings, folds in (("senteval_full", FULL, 10), ("senteval_fast", fast, 5)):
        ((_, learner),) = CLASSIFIERS[name].learners
        assert {key: getattr(learner, key) for key in settings} == settings
        assert CLASSIFIERS[name].folds == folds


@pytest.mark.parametrize("name", ["senteval_full", "senteval_fast"])
def test_snli_is_learned_in_rounds_of_one_pass_up_to_fifteen_without_a_penalty(name):
    rows = {split: {"file": [("a b", "c d", label) for label in (0, 1, 2)]} for split in ("train", "dev", "test")}
    task = make_task("snli", SETS["snli"], rows, "", CLASSIFIERS[name])
    ((_, usual),) = CLASSIFIERS[name].learners
    assert task.classifier.learners == (("", replace(usual, max_passes=15, passes=1, grid=(1e-9,))),)


def fit(settings, features, labels, penalty=0.0, epochs=None):
    count = len(labels)
    fold = Fold(np.arange(count), np.arange(count))
    return settings.fit(Features.of(features), labels, [fold], np.array([[penalty]]))


@contract("classifier", "passes tenacity max_passes")
@pytest.mark.parametrize(
    ("changes", "passes"),
    [  # of a classifier that never improves: the round that is best, ``tenacity`` others, and one more
        ({}, 4 * 7),
        ({"passes": 3}, 3 * 7),
        ({"tenacity": 2}, 4 * 4),
        ({"tenacity": 1000, "max_passes": 15, "passes": 1}, 16),
        ({"tenacity": 1000}, 204),
    ],
)
def test_rounds(changes, passes):
    labels = np.array([0, 1] * 10)
    assert fit(SentEval(**changes), torch.zeros(20, 3), labels).passes.tolist() == [[passes]]


@contract("classifier", "optimizer batch_size hidden dropout grid")
@pytest.mark.parametrize(
    ("changes", "steps"), [({}, 1), ({"optimizer": "rmsprop"}, 1), ({"batch_size": 32}, 2), ({"batch_size": 63}, 2)]
)
@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_updates(changes, steps, penalty):
    torch.manual_seed(0)
    x, labels = torch.randn(64, 5), np.arange(64) % 3
    settings = SentEval(**{"max_passes": 0, "passes": 1, **changes})
    fits = fit(settings, x, labels, penalty)
    weight, bias = (w.reshape(3, -1).clone().requires_grad_() for w in initial_weights(5, 3, hidden=0)[0])
    if "optimizer" in changes:
        optimizer = torch.optim.RMSprop([weight, bias], lr=1e-2, alpha=0.99, weight_decay=penalty)
    else:
        optimizer = torch.optim.Adam([weight, bias], lr=1e-3, weight_decay=penalty)
    torch.nn.functional.cross_entropy(x @ weight.T + bias[:, 0], torch.from_numpy(labels)).backward()
    optimizer.step()
    moved = torch.allclose(fits.weights[0].reshape(3, 5), weight, atol=1e-5)
    assert moved == (steps == 1)  # one batch of all rows: their order is nothing


def test_a_hidden_layer_and_its_dropout():
    torch.manual_seed(0)
    x, labels = torch.randn(40, 5), np.arange(40) % 2
    plain = fit(SentEval(hidden=7, max_passes=0), x, labels)
    assert [tuple(weight.shape[2:]) for weight in plain.weights] == [(7, 5), (7, 1), (2, 7), (2, 1)]
    assert not torch.equal(plain.weights[0], fit(SentEval(hidden=7, dropout=0.5, max_passes=0), x, labels).weights[0])


def test_the_grid_is_what_the_penalty_is_chosen_from():
    from selfsent.evaluation.senteval.cross_validation import cross_validate

    torch.manual_seed(0)
    x, labels = torch.randn(60, 4), np.arange(60) % 2
    learner = SentEval(grid=(0.25,), max_passes=1, passes=1)
    classifier = replace(CLASSIFIERS["senteval_full"], learners=(("", learner),), folds=3)
    result = cross_validate(Features.of(x), labels, {"all": np.arange(60)}, classifier)
    assert {float(choice.rpartition("=")[2]) for choice in result.chosen} == {0.25}


@pytest.mark.usefixtures("fp32_alone")
def test_validation_scores_the_development_files(senteval):
    """The files are read here a second time, line by line, and scored with scipy."""
    encoder = load_encoder("builtin-static")
    validator = Validator(HeldOut("halves"), str(senteval.parent), "sickr-dev")
    assert validator.select("auto") == "sickr-dev"
    assert Validator(HeldOut("halves"), str(senteval.parent), "stsb-dev").select("auto") == "stsb-dev"
    scores = validator(encoder)
    lines = (senteval / "STS" / "STSBenchmark" / "sts-dev.csv").read_text().splitlines()
    stsb = [(float(line.split("\t")[4]), *line.split("\t")[5:7]) for line in lines]
    lines = (senteval / "SICK" / "SICK_trial.txt").read_text().splitlines()[1:]
    sick = [(float(line.split("\t")[3]), *line.split("\t")[1:3]) for line in lines]
    tasks = {task.name: task for task in validator._suite.tasks}
    wanted = {}
    for name, rows in (("stsb-dev", stsb), ("sickr-dev", sick)):
        gold, left, right = zip(*rows, strict=True)
        assert tasks[name].texts == [*left, *right]
        u, v = (encoder.encode(list(side), normalize_embeddings=True) for side in (left, right))
        wanted[name] = 100 * spearmanr(gold, (u * v).sum(1)).statistic
        if name == "stsb-dev":
            same = np.array(gold) > 4
            assert scores["stsb_alignment"] == pytest.approx(((u - v)[same] ** 2).sum(1).mean(), rel=0.01)
    wanted["sts-dev"] = np.mean(list(wanted.values()))
    assert {name: scores[name] for name in wanted} == pytest.approx(
        wanted, abs=0.3
    )  # equal cosines are told apart by rounding
