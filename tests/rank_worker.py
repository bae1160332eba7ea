"""Training on a tiny encoder, for one process and for one of several."""

import os
import signal
import sys
from contextlib import suppress

import numpy as np
import torch
from tiny import TEXTS

from selfsent.config import TrainConfig
from selfsent.encoder.dropout import set_dropout
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.errors import EndedElsewhere, UserError
from selfsent.objectives import registry
from selfsent.pretraining.masked_lm import MaskedLM, SequentialOrder
from selfsent.progress import Progress
from selfsent.runtime import distributed, hardware, lifeline
from selfsent.storage.run_folder import Run, first_difference
from selfsent.training import trainer
from selfsent.training.batches import Batches

RECIPES = {
    "simcse": {"mlm_weight": 0.1, "mlm_probability": 0.4},
    "scd": {"projector_width": 16, "dropout_low": 0.0, "dropout_high": 0.0},
    "whitenedcse": {},
    "denosent": {"decoder_layers": 2, "decoder_width": 32, "decoder_dropout": 0.0, "noise": 0.0},
    "declutr": {"max_length": 20, "min_length": 8, "memory_size": 7},
    "distil": {},
    "simcse+whitenedcse": {"simcse": {"mlm_weight": 0.1}},
    "pretrain": {},
}


class Rows:
    """Texts, documents or sequences in memory, of which the last batch of an epoch is smaller."""

    paired = True

    def __init__(self, encoder, unit, count):
        words = sorted({word for text in TEXTS for word in text.split()})
        draw = np.random.default_rng(0)
        sizes = {"documents": 90, "sequences": 30}

        def ids():
            texts = (" ".join(draw.choice(words, sizes.get(unit, 3 + i % 6))) for i in range(count))
            return [encoder.tokenizer(text)["input_ids"] for text in texts]

        self.ids, self.others = ids(), ids()
        self.paired = unit == "sentences"

    def rows(self, indices):
        return [self.ids[i] for i in indices]

    def positives(self, indices):
        return [self.others[i] for i in indices]


class Steps(Progress):
    """Remembers the loss of every step, and kills this process after one if asked to."""

    def __init__(self, die_at=None):
        self.losses, self.die_at = [], die_at

    def step(self, step, units, terms):
        self.losses.append(sum(terms.values()))
        if step == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)


def train(base, folder, name, *, count=20, size=9, dropout=0.0, die_at=None, resume=False, **changes):
    """Train for 5 steps of ``size`` rows; return the losses and the weights of encoder and heads."""
    encoder = load_encoder(base, pooling="cls")
    set_dropout(encoder, dropout)
    torch.manual_seed(1)
    settings = RECIPES[name] | ({"teacher": str(base)} if name == "distil" else {})
    if name == "pretrain":
        objective = MaskedLM(MaskedLM.Config(contrast_weight=0.1), encoder)
        batches, unit = SequentialOrder(count, size, 3), "sequences"
    else:
        objective = registry.plan_objective(name, settings).build(encoder)
        unit = objective.unit
    encoder.double(), objective.double()  # so that a difference is no rounding error
    text = Rows(encoder, unit, count)
    if name != "pretrain":
        lengths = [len(row) for row in text.ids]
        batches = Batches(lengths, np.arange(count, dtype=np.uint64), size, seed=3, least=objective.least_rows)
    given = {"steps": 5, "batch_size": size, "learning_rate": 1e-3, "adam_epsilon": 1e-4, "evaluate_every": 2}
    group = distributed.here()
    steps = Steps(die_at)
    run = Run(folder)
    group.on_first(lambda: Run.reopen(folder, {}) if resume else Run.create(folder, {}))
    training = trainer.Trainer(
        encoder,
        objective,
        text,
        batches,
        run,
        config=TrainConfig(**given | changes),
        hardware=hardware.choose_hardware(precision="fp32", threads=1, device="cpu"),
        seed=3,
        validate=lambda encoder: {"score": float(np.abs(encode(encoder, TEXTS, precision="fp32")).sum())},
        select="last",
        progress=steps,
    )
    training.train()
    return {"losses": steps.losses, "weights": training.learner.state_dict()}


def said(act):
    """Return what is said of an error that every process meets."""
    try:
        act()
    except (UserError, EndedElsewhere) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def work(task, base, out):
    """Do one task as one of several processes, and leave what the first found in ``out``."""
    if task in ("stopped", "behind"):
        lifeline._BEAT = 0.02
        lifeline._SILENCE, lifeline._GRACE = 10 if task == "stopped" else 150, 0.2
        lifeline._BEHIND = 160  # later than silence would end it
    with distributed.joined("cpu") as group:
        if task in ("stopped", "behind"):
            group.means([1.0])
            if not group.first and task == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            if not group.first and task == "behind":
                signal.sigwait({signal.SIGUSR1})
            found = group.means([2.0])
        elif task == "equal":
            found = {name: train(base, out / name, name) for name in RECIPES}
            found["uneven"] = train(base, out / "uneven", "scd", count=23)
            found |= {
                f"cached {name}": train(base, out / f"{name}-cached", name, cached=True, chunk_size=2)
                for name in ("simcse", "denosent")
            }
        elif task in ("killed", "resumed"):
            die_at = 3 if task == "killed" and not group.first else None
            found = train(
                base, out / "cut", "whitenedcse", size=8, dropout=0.1, die_at=die_at, resume=task == "resumed"
            )
        else:
            tables = [{"recipe": {"train": {"steps": 7}}}, {"recipe": {"train": {"steps": 8 if group.number else 7}}}]
            boom = iter([UserError("the disk is full")])
            found = {
                "alike": said(lambda: group.require_equal(tables[0], first_difference)),
                "different": said(lambda: group.require_equal(tables[1], first_difference)),
                "uneven": said(lambda: group.require_even(9, "train.batch_size")),
                "first": said(lambda: group.on_first(lambda: (_ for _ in ()).throw(next(boom)))),
                "turns": group.rank_zero_first(lambda: (out / "seen").exists() or (out / "seen").touch()),
                "apart": group.on_first(lambda: distributed.draw_rows((2, 3)).shape),
                "whole": train(base, out / "whole", "whitenedcse", size=8, dropout=0.1),
            }
        torch.save(found, out / f"{task}-{group.number}.pt")


def run_rank(task, base, out, number, surroundings):
    """Do one task as the process of a number, as a launcher would start it; its errors go to a file of its own."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # before there are threads, for sigwait
    os.environ |= surroundings | {"RANK": str(number), "LOCAL_RANK": str(number)}
    torch.set_num_threads(1)
    os.dup2(os.open(errors_of(task, out, number), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), sys.stderr.fileno())
    with suppress(EndedElsewhere):
        work(task, base, out)
        return
    sys.exit(1)


def errors_of(task, out, number):
    """Return where a process leaves what it says."""
    return out / f"{task}-{number}.err"
