"""How many steps a pretraining makes: as many as given, one epoch, or as many as fit into the given time."""

import json
import statistics
import time

import torch
from sentence_transformers import SentenceTransformer
from torch.optim import AdamW

from selfsent import hardware, trainer
from selfsent.encoder.embed import collate
from selfsent.errors import ConfigurationError
from selfsent.optimizer import MasterWeights
from selfsent.pretraining.masked_lm import MaskedLM, PackedSequences, SequentialOrder
from selfsent.run import Run

_FEWEST = 10  # steps that a run may be fitted to
_TIMED = 8  # steps, of which the first 3 warm up


def steps_in_time(
    run: Run,
    hours: float,
    encoder: SentenceTransformer,
    objective: MaskedLM,
    sequences: PackedSequences,
    batches: SequentialOrder,
    machine: hardware.Hardware,
) -> int:
    """Return how many steps fit into ``hours``; measured once and stored in the run's plan.json.

    Raises:
        ConfigurationError: too few steps to learn from.
    """
    path = run.folder / "plan.json"
    if path.is_file():
        return int(json.loads(path.read_text(encoding="utf-8"))["steps"])
    seconds = seconds_per_step(encoder, objective, sequences, batches, machine)
    steps = int(0.95 * 3600 * hours / seconds)  # the rest is for evaluations and checkpoints
    if steps < _FEWEST:
        raise ConfigurationError(
            f"{hours:g} hours are {steps} steps of {seconds:.1f} s, too few to learn from: give "
            f"{_FEWEST * seconds / 0.95 / 3600:.2g} hours at least, or a smaller size"
        )
    run.write("plan.json", {"steps": steps, "seconds_a_step": seconds})
    return steps


def seconds_per_step(
    encoder: SentenceTransformer,
    objective: MaskedLM,
    sequences: PackedSequences,
    batches: SequentialOrder,
    machine: hardware.Hardware,
) -> float:
    """Time a few steps at a learning rate of 0, which change no weight."""
    learner = trainer.Learner(encoder, objective, machine.precision).train()
    masters = MasterWeights(learner) if machine.precision == "bf16" else None
    parameters = masters.parameters() if masters else [p for p in learner.parameters() if p.requires_grad]
    optimizer = AdamW(parameters, lr=0.0, fused=machine.device in ("cpu", "cuda"))
    seconds = []
    for step in range(_TIMED):
        start = time.perf_counter()
        rows = sequences.rows(batches(step))
        half = sequences.length // 2
        batch = {"text": collate(encoder, [row[:half] for row in rows] + [row[half:] for row in rows])}
        torch.stack(list(learner(batch).values())).sum().backward()
        if masters:
            masters.collect_gradients()
        optimizer.step()
        optimizer.zero_grad()
        if masters:
            masters.publish()
        seconds.append(time.perf_counter() - start)
    if masters:
        masters.restore()
    return statistics.median(seconds[3:])
