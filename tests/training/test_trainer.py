"""The loop: exact, resumable at every step, honest about which weights it kept."""

import json

import numpy as np
import pytest
import torch
from small_runs import StopAt
from tiny import TEXTS

from selfsent.config import TrainConfig
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.errors import Interrupted, UserError
from selfsent.objectives import registry
from selfsent.progress import Progress
from selfsent.runtime import hardware
from selfsent.storage.run_folder import Run
from selfsent.training import optimizer, trainer
from selfsent.training.batches import Batches

PATIENT = {"patience": 2, "steps": 100}
METHODS = {
    "simcse": {},
    "scd": {"projector_width": 16},
    "whitenedcse": {},
    "denosent": {"decoder_layers": 2, "decoder_width": 32},
}


class Rows:
    """A corpus of sixteen texts in memory."""

    def __init__(self, encoder):
        words = sorted({word for text in TEXTS for word in text.split()})
        draw = np.random.default_rng(0)
        self.texts = [" ".join(draw.choice(words, 4 + i % 5)) for i in range(16)]
        self.ids = encoder.tokenizer(self.texts)["input_ids"]
        self.lengths = np.array([len(row) for row in self.ids], dtype=np.int32)
        self.keys = np.arange(16, dtype=np.uint64)

    paired = False

    def rows(self, indices):
        return [self.ids[i] for i in indices]

    def positives(self, indices):
        raise AssertionError


class Watch(Progress):
    """Remembers what it is told, and raises Ctrl-C after a step if asked to."""

    def __init__(self, interrupt_at=None):
        self.losses, self.texts, self.said, self.scores, self.interrupt_at = [], [], [], [], interrupt_at

    def step(self, step, texts, terms):
        self.losses.append(sum(terms.values()))
        self.texts.append(texts)
        if step == self.interrupt_at:
            import signal

            signal.raise_signal(signal.SIGINT)

    def evaluated(self, step, scores, best):
        self.scores.append((step, scores, best))

    def say(self, message):
        self.said.append(message)


def fit(
    bert,
    folder,
    method="simcse",
    *,
    watch=None,
    validate=None,
    select="score",
    seed=1,
    resume=False,
    precision="fp32",
    objective=None,
    **changes,
):
    encoder = load_encoder(bert, pooling="cls")
    text = Rows(encoder)
    kind = registry.load_method(method)
    torch.manual_seed(seed)
    made = kind(kind.Config(**METHODS[method], **(objective or {})), encoder)
    config = TrainConfig(
        **{"steps": 8, "batch_size": 4, "learning_rate": 1e-3, "evaluate_every": 2, "log_every": 1} | changes
    )
    batches = Batches(text.lengths, text.keys, config.batch_size, seed=seed, bucketed=config.bucketed)
    run = Run.reopen(folder, {}) if resume else Run.create(folder, {})
    if validate is None:

        def validate(encoder):
            vectors = encode(encoder, TEXTS, precision="fp32")
            return {"score": float(np.abs(vectors).sum())}

    outcome = trainer.Trainer(
        encoder,
        made,
        text,
        batches,
        run,
        config=config,
        hardware=hardware.choose_hardware(precision=precision, threads=1, device="cpu"),
        seed=seed,
        validate=validate,
        select=select,
        progress=watch or Watch(),
    ).train()
    return encoder, made, outcome


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.mark.parametrize(("method", "precision"), [*((method, "fp32") for method in METHODS), ("scd", "bf16")])
def test_a_run_stopped_at_any_step_ends_with_the_bits_of_the_one_that_was_not(method, precision, bert, tmp_path):
    settings = {"select": "last", "precision": precision, "steps": 6}
    whole, head, _ = fit(bert, tmp_path / "whole", method, **settings)
    for step in (1, 2, 5):  # before an evaluation, at one, and behind one
        folder = tmp_path / f"stopped-{step}"
        with pytest.raises(Interrupted, match=f"stopped at step {step} of 6; its state is saved"):
            fit(bert, folder, method, **settings, watch=Watch(interrupt_at=step))
        resumed, again, _ = fit(bert, folder, method, **settings, resume=True)
        assert same(whole, resumed)
        assert same(head, again)
        lines = [
            [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
            for name in ("whole", f"stopped-{step}")
        ]
        assert lines[0] == lines[1]


def test_what_a_killed_run_had_logged_behind_its_checkpoint_is_logged_once(bert, tmp_path):
    fit(bert, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(bert, tmp_path / "killed", watch=StopAt(8))  # its checkpoint is that of step 6, its log goes to 7
    fit(bert, tmp_path / "killed", resume=True)
    whole, killed = ((tmp_path / name / "log.jsonl").read_text().splitlines() for name in ("whole", "killed"))
    assert [json.loads(line).get("step") for line in killed] == [json.loads(line).get("step") for line in whole]


def test_evaluating_more_often_does_not_change_what_is_learned(bert, tmp_path):
    often, _, _ = fit(bert, tmp_path / "often", select="last", evaluate_every=1)
    never, _, _ = fit(bert, tmp_path / "never", select="last", evaluate_every=0)
    assert same(often, never)


@pytest.mark.parametrize(
    ("scores", "select", "changes", "ended", "said"),
    [
        # a published score has to be strictly better; of equal ones of held-out retrieval the later weights are kept
        ([0.0, 0.5, 0.7, 0.7, 0.6], "score", {}, (8, 4, 0.7), []),
        ([0.0, 0.5, 0.7, 0.7 - 1e-12, 0.6], "retrieval", {}, (8, 6, 0.7), []),
        # the base is no candidate even if training only hurts
        ([0.9, 0.3, 0.2, 0.2, 0.1], "score", {}, (8, 2, 0.3), ["base's score of 0.90; the best have 0.30"]),
        # a first score of zero is a score
        ([0.0, 0.0, -0.5, -0.1, 0.0], "score", {}, (8, 2, 0.0), []),
        # an equal score does not renew patience, and is no score below the base's
        ([0.0, 0.5, 0.4, 0.6, 0.5, 0.5, 0.9], "score", PATIENT, (10, 6, 0.6), ["no better score in 2 evaluations"]),
        ([0.3, *[0.3 - 1e-12] * 3, 0.9], "retrieval", PATIENT, (6, 6, 0.3), ["no better retrieval in 2 evaluations"]),
    ],
)
def test_the_best_weights_are_kept_and_come_back(bert, tmp_path, scores, select, changes, ended, said):
    script, seen, watch = iter(scores), [], Watch()

    def validate(encoder):
        seen.append({name: value.clone() for name, value in encoder.state_dict().items()})
        return {select: next(script)}

    encoder, _, outcome = fit(bert, tmp_path / "run", validate=validate, select=select, watch=watch, **changes)
    assert (outcome.steps, outcome.best_step, outcome.best_score) == pytest.approx(ended)
    assert all(torch.equal(value, seen[ended[1] // 2][name]) for name, value in encoder.state_dict().items())
    warned = [line for line in watch.said if "no weights reached" in line or "no better" in line]
    assert len(warned) == len(said)
    assert all(words in line for words, line in zip(said, warned, strict=True))


def test_a_head_that_is_exported_is_of_the_best_step(bert, tmp_path):
    settings = {"objective": {"eval_head": True}, "schedule": "constant"}
    _, short, _ = fit(bert, tmp_path / "short", **settings, steps=4, select="last")
    script = iter([0.0, 0.5, 0.7, 0.6, 0.6])
    _, whole, _ = fit(bert, tmp_path / "whole", **settings, validate=lambda encoder: {"score": next(script)})
    assert same(short.exported_head(), whole.exported_head())


@pytest.mark.parametrize("max_grad_norm", [0.0, 1.0])
def test_a_gradient_that_is_not_finite_does_not_reach_the_weights(bert, tmp_path, monkeypatch, max_grad_norm):
    seen = []
    step = trainer.AdamW.step

    def kept(self, *given, **named):
        seen.append(all(p.grad.isfinite().all() for g in self.param_groups for p in g["params"] if p.grad is not None))
        return step(self, *given, **named)

    monkeypatch.setattr(trainer.AdamW, "step", kept)
    backward = trainer.Trainer._backward

    def broken(self, index):
        terms = backward(self, index)
        if index == 2:
            next(p for p in self.parameters if p.grad is not None).grad.view(-1)[0] = float("nan")
        return terms

    monkeypatch.setattr(trainer.Trainer, "_backward", broken)
    with pytest.raises(UserError, match="the gradient is no longer finite at step 3: start again"):
        fit(bert, tmp_path / "run", max_grad_norm=max_grad_norm)
    assert seen == [True, True]


def test_without_evaluations_a_kill_loses_no_more_than_with_the_default_ones(bert, tmp_path, monkeypatch):
    monkeypatch.setattr(TrainConfig, "evaluate_every", 3)  # the default; the run sets 0
    saved = []
    save = trainer.Trainer.save_checkpoint
    monkeypatch.setattr(trainer.Trainer, "save_checkpoint", lambda self: (saved.append(self.state.step), save(self)))
    fit(bert, tmp_path / "run", evaluate_every=0, steps=8, select="last")
    assert saved == [3, 6, 8]


@pytest.mark.parametrize(
    ("changes", "warning"),
    [({"patience": 1}, "train.patience has no effect"), ({"steps": 2, "warmup_steps": 5}, "never reaches")],
)
def test_what_has_no_effect_is_warned_of(bert, tmp_path, changes, warning):
    watch = Watch()
    _, _, outcome = fit(bert, tmp_path / "run", select="last", watch=watch, **changes)
    assert outcome.best_step == outcome.steps == changes.get("steps", 8)
    assert any(warning in message for message in watch.said)


def test_weight_decay_shrinks_matrices_and_leaves_biases_and_layer_norms(bert, tmp_path, monkeypatch):
    """Without gradients AdamW's update is the decay alone: each step multiplies by 1 - rate x decay."""
    start = load_encoder(bert, pooling="cls").state_dict()
    monkeypatch.setattr(
        registry.load_method("simcse"), "terms", lambda self, first, second: {"contrast": 0 * (first + second).sum()}
    )
    changes = {"steps": 3, "schedule": "constant", "learning_rate": 0.1, "weight_decay": 0.5}
    encoder, _, _ = fit(bert, tmp_path / "run", select="last", **changes)
    decayed = {name for name, weights in encoder.named_parameters() if not torch.equal(weights, start[name])}
    trained = {name for name, weights in encoder.named_parameters() if weights.requires_grad}
    vectors = {name for name in trained if name.endswith("bias") or "LayerNorm" in name}
    assert decayed == trained - vectors
    for name in decayed:
        torch.testing.assert_close(encoder.state_dict()[name], start[name] * 0.95**3)


def test_a_score_that_does_not_exist_stops_the_run_before_its_first_step(bert, tmp_path):
    watch = Watch()
    with pytest.raises(UserError, match="unknown score to select by 'scor': did you mean 'score'"):
        fit(bert, tmp_path / "run", select="scor", watch=watch)
    assert watch.losses == []


def test_accumulation_is_refused_for_a_loss_within_the_batch_unless_allowed(bert, tmp_path):
    with pytest.raises(UserError, match="no more negatives than one batch has"):
        fit(bert, tmp_path / "refused", accumulation=2)
    watch, allowed = Watch(), {"accumulation": 2, "allow_accumulation": True}
    _, _, outcome = fit(bert, tmp_path / "allowed", **allowed, steps=2, watch=watch)
    assert watch.texts == [8, 8]  # of two batches of 4
    assert outcome.steps == 2


def test_the_schedule_is_linear_to_zero_and_warms_up_from_the_first_update():
    config = TrainConfig(learning_rate=1.0)
    assert [optimizer.learning_rate(step, 4, config) for step in range(5)] == [1.0, 0.75, 0.5, 0.25, 0.0]
    config = TrainConfig(learning_rate=1.0, warmup_steps=2)
    assert [optimizer.learning_rate(step, 6, config) for step in range(6)] == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    config = TrainConfig(learning_rate=1.0, schedule="cosine")
    assert optimizer.learning_rate(2, 4, config) == pytest.approx(0.5)


def test_bf16_follows_fp32(bert, tmp_path):
    watches = {precision: Watch() for precision in ("fp32", "bf16")}
    encoder_of = {
        precision: fit(bert, tmp_path / precision, precision=precision, watch=watch, select="last", steps=20)[0]
        for precision, watch in watches.items()
    }
    assert watches["bf16"].losses == pytest.approx(watches["fp32"].losses, rel=0.1)
    exact, low = (encode(encoder_of[precision], TEXTS, precision="fp32") for precision in ("fp32", "bf16"))
    cosine = (exact * low).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(low, axis=1)
    assert cosine.min() > 0.98
    assert all(value.dtype != torch.bfloat16 for value in encoder_of["bf16"].state_dict().values())


def test_a_loss_that_is_no_longer_finite_is_named_by_its_term(bert, tmp_path, monkeypatch):
    forward = registry.load_method("simcse").forward
    monkeypatch.setattr(
        registry.load_method("simcse"),
        "forward",
        lambda self, *args: {"contrast": forward(self, *args)["contrast"] * float("nan")},
    )
    with pytest.raises(UserError, match=r"no longer finite at step 1 \(term contrast\): lower train\.learning_rate"):
        fit(bert, tmp_path / "run")


def test_an_alarm_reaches_the_watcher_and_the_log(bert, tmp_path):
    watch = Watch()
    cosines = iter([0.5, 0.99])
    fit(
        bert,
        tmp_path / "run",
        select="last",
        evaluate_every=0,
        watch=watch,
        validate=lambda _: {"score": 1.0, "mean_cosine": next(cosines)},
    )
    assert [message for message in watch.said if message.startswith("warning: embeddings are collapsing")]
    assert "alarm" in (tmp_path / "run" / "log.jsonl").read_text()
