"""Every setting of a run does what it says, by the right amount, and starts from the published value."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from contract import Contracts, build, defaults, recipe, write_lines
from safetensors.torch import load_file
from small_runs import Told
from tiny import make_base

from selfsent.config import EncoderConfig, HardwareConfig, Recipe, TrainConfig, recipe_table
from selfsent.errors import ConfigurationError, UserError
from selfsent.objectives import registry
from selfsent.progress import Progress
from selfsent.runtime import hardware
from selfsent.training import trainer
from selfsent.training.final_scores import final_baselines

contract = Contracts()
DEFAULTS = {
    **{"epochs": 1, "steps": None, "batch_size": 64, "learning_rate": 3e-5, "schedule": "linear", "warmup_steps": 0},
    **{"weight_decay": 0, "max_grad_norm": 1, "adam_betas": (0.9, 0.999), "adam_epsilon": 1e-8},
    **{"adam_bias_correction": True, "bucketed": True, "drop_last": False, "accumulation": 1, "cached": False},
    **{"chunk_size": 32, "allow_accumulation": False, "evaluate_every": 125, "checkpoint_every": None},
    **{"select": "auto", "patience": None, "log_every": 10, "baselines": True},
}
OTHERS = {
    HardwareConfig: {"precision": "auto", "threads": None, "device": None, "keep_heap": True},
    EncoderConfig: {"pooling": None, "template": None, "dropout": None, "max_length": None},
}


def test_every_setting_has_a_contract():
    assert contract.missing({"train": TrainConfig, "hardware": HardwareConfig, "recipe": Recipe}) == []


def test_every_default_is_the_published_one(tmp_path):
    assert defaults(TrainConfig) == DEFAULTS
    assert {kind: defaults(kind) for kind in OTHERS} == OTHERS
    given = recipe(tmp_path, "simcse")
    assert (given.base, given.texts, given.data, given.seed) == ("builtin", ("pydocs",), None, 42)


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    return write_lines(tmp_path / "text.txt")


@pytest.fixture
def made(bert, text, tmp_path, monkeypatch):
    return lambda **tables: build(monkeypatch, tmp_path, bert, text, **tables)


SHARED = {"allow_accumulation": True, "accumulation": 2}


@contract("train", "epochs steps batch_size drop_last accumulation")
@pytest.mark.parametrize(
    ("changes", "steps", "sizes"),
    [  # of 50 texts
        ({}, 7, [2] + [8] * 6),
        ({"epochs": 2.5}, 18, [2] + [8] * 6),
        ({"steps": 5}, 5, [2] + [8] * 6),
        ({"steps": 5, "epochs": 3.0}, 5, [2] + [8] * 6),
        ({"batch_size": 20}, 3, [10, 20, 20]),
        ({"drop_last": True}, 6, [8] * 6),
        ({**SHARED}, 4, [2] + [8] * 6),
        ({**SHARED, "epochs": 2.0}, 7, [2] + [8] * 6),
    ],
)
def test_steps_and_batches(changes, steps, sizes, made):
    built = made(train={"batch_size": 8, **changes})
    assert built.steps == steps
    assert sorted(len(built.batches(step)) for step in range(built.batches.steps_per_epoch)) == sizes
    seen = []
    built.objective.register_forward_hook(lambda module, given, result: seen.append(len(given[1]["text"]["input_ids"])))
    built.restore()
    built.train_step()
    count = changes.get("accumulation", 1)
    assert seen == [len(built.batches(step)) for step in range(count)]


@contract("train", "accumulation")
def test_a_step_takes_the_mean_gradient_of_its_batches(made):
    gradients = []
    for count in (1, 2):
        accumulated = {"accumulation": count, "allow_accumulation": True}
        built = made(train={"batch_size": 8, "max_grad_norm": 0.0, **accumulated})
        built.restore()
        built.learner.train()
        weight = built.encoder[0].model.encoder.layer[0].output.dense.weight
        if count == 1:
            for index in (0, 1):
                built._backward(index)
                gradients.append(weight.grad.clone())
                built.optimizer.zero_grad()
            continue
        built.optimizer.step = lambda weight=weight: gradients.append(weight.grad.clone())
        built.train_step()
    assert torch.allclose(gradients[2], (gradients[0] + gradients[1]) / 2, atol=1e-6)


@contract("train", "bucketed")
@pytest.mark.parametrize("bucketed", [True, False])
def test_batches_of_similar_length(bucketed, made):
    built = made(train={"batch_size": 10, "bucketed": bucketed})
    lengths = [sorted(built.rows.lengths[built.batches(step)]) for step in range(5)]
    lengths.sort()
    in_order = all(before[-1] <= after[0] for before, after in itertools.pairwise(lengths))
    assert in_order == bucketed


@contract("recipe", "seed")
def test_the_seed_decides_order_and_draws(made):
    for seed in (42, 7):
        built = made(seed=seed, train={"batch_size": 10, "bucketed": False})
        draw = np.random.default_rng([seed, 0])
        order = np.arange(50, dtype=np.int32)
        draw.shuffle(order)
        batch = draw.permutation(5)[0]
        assert built.batches(0).tolist() == order[10 * batch : 10 * batch + 10].tolist()
        torch.manual_seed(seed)
        fresh = registry.plan_objective("simcse", {}).build(built.encoder)
        assert torch.equal(built.objective.head[0].weight, fresh.head[0].weight)
    losses = []
    for built.seed in (7, 8):
        built.restore()
        built.state.step = 0
        built.learner.train()
        losses.append(built.train_step()["contrast"])
    assert losses[0] != losses[1]  # other dropout masks


def rate(step, steps, given):
    """The published schedules, at an update counted from 1."""
    peak, warm = given["learning_rate"], given["warmup_steps"]
    if step <= warm:
        return peak * step / warm
    done = (step - 1 - warm) / (steps - warm)
    if given["schedule"] == "slanted":
        cut = math.floor(0.1 * steps)
        return peak * (1 + 31 * (step / cut if step < cut else 1 - (step - cut) / (steps - cut))) / 32
    return peak * {"linear": 1 - done, "constant": 1, "cosine": (1 + math.cos(math.pi * done)) / 2}[given["schedule"]]


@contract("train", "learning_rate schedule warmup_steps weight_decay adam_betas adam_epsilon adam_bias_correction")
@pytest.mark.parametrize(
    "changes",
    [
        *({}, {"learning_rate": 0.01}, {"schedule": "cosine"}, {"schedule": "constant"}, {"warmup_steps": 2}),
        *({"schedule": "slanted"}, {"weight_decay": 5.0}, {"adam_betas": (0.5, 0.7)}, {"adam_epsilon": 0.01}),
        *({"adam_bias_correction": False}, {"adam_bias_correction": False, "weight_decay": 5.0}),
    ],
)
def test_updates(changes, made):
    given = DEFAULTS | {"learning_rate": 1e-3} | changes
    built = made(train={"batch_size": 8, "steps": 20, "learning_rate": 1e-3, **changes})
    built.restore()
    named = dict(built.encoder[0].model.named_parameters())
    watched = [named["encoder.layer.0.output.dense.weight"], named["encoder.layer.0.output.LayerNorm.weight"]]
    known = [{"p": p.detach().double().clone(), "m": 0.0, "v": 0.0} for p in watched]
    update, gradients = built.optimizer.step, []
    built.optimizer.step = lambda: (gradients.append([p.grad.double().clone() for p in watched]), update())
    first, second = given["adam_betas"]
    for step in range(1, 5):
        built.train_step()
        lr = rate(step, 20, given)
        for state, g, p in zip(known, gradients[-1], watched, strict=True):
            state["p"] *= 1 - lr * given["weight_decay"] * (p.ndim > 1)
            state["m"] = first * state["m"] + (1 - first) * g
            state["v"] = second * state["v"] + (1 - second) * g**2
            fix = (1 - first**step, 1 - second**step) if given["adam_bias_correction"] else (1, 1)
            state["p"] -= lr * state["m"] / fix[0] / ((state["v"] / fix[1]).sqrt() + given["adam_epsilon"])
            assert torch.allclose(p.double(), state["p"], rtol=1e-4, atol=2e-6)


@contract("train", "max_grad_norm")
def test_clipping(made):
    norms = {}
    for most in (0.0, 0.01, 1.0, 1000.0):
        built = made(train={"batch_size": 8, "max_grad_norm": most})
        built.restore()
        update = built.optimizer.step

        def watch(built=built, most=most, update=update):
            norms[most] = math.sqrt(sum(float(p.grad.square().sum()) for p in built.parameters if p.grad is not None))
            update()

        built.optimizer.step = watch
        built.train_step()
    assert norms[0.0] > 1
    wanted = {most: min(most or 1e9, norms[0.0]) for most in norms}
    assert norms == pytest.approx(wanted, rel=1e-4)


@contract("train", "cached chunk_size")
@pytest.mark.parametrize(
    ("changes", "sizes"), [({}, [16]), ({"cached": True}, [16]), ({"cached": True, "chunk_size": 3}, [6, 6, 4] * 2)]
)
def test_chunks(changes, sizes, made):
    built, seen = made(train={"batch_size": 8, "drop_last": True, **changes}), []
    built.encoder[0].register_forward_hook(lambda module, given, result: seen.append(len(result["input_ids"])))
    built.restore()
    built.train_step()
    assert sorted(seen) == sorted(sizes)  # two views of every text; each chunk once without and once with gradients


@contract("train", "allow_accumulation")
def test_accumulation_within_a_batch_needs_a_word(made):
    with pytest.raises(ConfigurationError, match="allow_accumulation"):
        made(train={"batch_size": 8, "accumulation": 2})


def go(built, scores):
    """Train to the end with scripted scores; return what happened at which steps."""
    saved, told, script = [], Told(), iter(scores)
    built.progress = told
    built.validate = lambda encoder: {"retrieval": float(next(script))}
    real = built.run.checkpoints.save
    built.run.checkpoints.save = lambda step, *content: (saved.append(step), real(step, *content))
    outcome = trainer.Trainer.train(built)
    log = [json.loads(line) for line in (built.run.folder / "log.jsonl").read_text().splitlines()]
    return outcome, told.evaluations, saved, [line["step"] for line in log if "loss" in line]


@contract("train", "evaluate_every checkpoint_every log_every")
@pytest.mark.parametrize(
    ("changes", "evaluations", "checkpoints", "logged"),
    [
        ({"evaluate_every": 3}, [0, 3, 6, 8], [3, 6, 8], [8]),
        ({"evaluate_every": 0}, [0, 8], [8], [8]),
        ({"evaluate_every": 3, "checkpoint_every": 2}, [0, 3, 6, 8], [2, 4, 6, 8], [8]),
        ({"evaluate_every": 0, "log_every": 3}, [0, 8], [8], [3, 6, 8]),
    ],
)
def test_what_happens_at_which_step(changes, evaluations, checkpoints, logged, made):
    built = made(train={"batch_size": 8, "steps": 8, "select": "last", **changes})
    assert go(built, range(9))[1:] == (evaluations, checkpoints, logged)


@contract("train", "select patience")
@pytest.mark.parametrize(
    ("changes", "ended", "best"),
    [({}, 6, 5), ({"select": "last"}, 6, 6), ({"patience": 1}, 2, 1), ({"patience": 2}, 3, 1), ({"patience": 3}, 6, 5)],
)
def test_which_weights_are_kept(changes, ended, best, made):
    train = {"batch_size": 4, "steps": 6, "evaluate_every": 1, "select": "retrieval", **changes}
    built = made(train=train, corpus={"held_out": 20, "held_out_share": 0.5})
    outcome = go(built, [1, 9, 8, 7, 10, 12, 11])[0]
    assert (outcome.steps, outcome.best_step) == (ended, best)


@pytest.mark.parametrize(("held_out", "chosen"), [(2, "last"), (0, "last"), (400, "retrieval")])
def test_auto_selects_by_retrieval_among_enough_pairs(held_out, chosen, made, text):
    write_lines(text, 1000, words=14)
    built = made(train={"batch_size": 4}, corpus={"held_out": held_out, "held_out_share": 0.5})
    assert built.select == chosen


@contract("train", "baselines")
@pytest.mark.parametrize("wanted", [True, False])
def test_baselines_are_scored_where_wanted(wanted, made, text, tmp_path):
    write_lines(text, 60, words=14)
    built = made(train={"batch_size": 4, "baselines": wanted}, corpus={"held_out": 20, "held_out_share": 0.5})
    test, dev = final_baselines(recipe(tmp_path, "simcse", train={"baselines": wanted}), built.rows, Progress())
    assert ("bm25" in test, "bm25" in dev) == (wanted, wanted)


@contract("recipe", "method base texts encoder corpus objective train hardware paper")
def test_the_parts_of_a_recipe(made, text, tmp_path):
    other, lines = make_base(tmp_path / "other", seed=5), write_lines(tmp_path / "more.txt", 30)
    built = made(
        **{"method": "whitenedcse", "base": str(other), "texts": [str(text), str(lines)], "paper": {"table": 3}},
        **{"encoder": {"pooling": "mean"}, "corpus": {"max_length": 7}, "objective": {"num_views": 2}},
        **{"train": {"batch_size": 8, "steps": 3}},
    )
    own = load_file(other / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
    assert torch.equal(built.encoder[0].model.get_input_embeddings().weight, own)
    assert type(built.objective) is registry.load_method("whitenedcse")
    assert built.objective.config.num_views == 2
    assert (len(built.rows), built.rows.lengths.max(), built.steps) == (80, 7, 3)
    assert built.encoder[1].pooling_mode == "mean"
    assert built.run.config()["recipe"]["paper"] == {"table": 3}  # a note, which changes nothing else
    assert recipe_table(recipe(tmp_path, "simcse", paper={"table": 3}))["paper"] == {"table": 3}


@contract("recipe", "data")
def test_data_are_read_where_they_are_said_to_be(made, tmp_path):
    with pytest.raises(UserError, match="nowhere"):
        made(data=str(tmp_path / "nowhere"), train={"batch_size": 8})


@contract("hardware", "precision threads device keep_heap")
def test_hardware(made, monkeypatch):
    calls, threads = [], []
    monkeypatch.setattr(hardware, "keep_the_heap", lambda: calls.append(1) or True)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    for keep in (True, False):
        made(train={"batch_size": 8}, hardware={"keep_heap": keep, "threads": 3 if keep else 2})
        assert len(calls) == 1
    assert threads == [3, 2]
    with pytest.raises(UserError, match="nonsense"):
        made(train={"batch_size": 8}, hardware={"device": "nonsense"})
    types = {}
    for precision in ("fp32", "bf16"):
        built = made(train={"batch_size": 8}, hardware={"precision": precision})
        built.encoder[0].register_forward_hook(
            lambda module, given, result, precision=precision: types.update(
                {precision: torch.is_autocast_enabled("cpu")}
            )
        )
        built.restore()
        built.train_step()
    assert types == {"fp32": False, "bf16": True}
