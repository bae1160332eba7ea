"""How many steps of a pretraining fit into a given time."""

import json
import statistics
import time

from selfsent.errors import ConfigurationError
from selfsent.run import Run
from selfsent.trainer import Trainer

TIMED = 8  # steps, of which the first 3 warm up
_FEWEST = 10  # steps that a run may be fitted to


def steps_in_time(run: Run, hours: float, trial: Trainer) -> int:
    """Return how many steps fit into ``hours``; measured once and stored in the run's plan.json.

    Args:
        trial: trains for ``TIMED`` steps; its weights are put back afterwards.

    Raises:
        ConfigurationError: too few steps to learn from.
    """
    path = run.folder / "plan.json"
    if path.is_file():
        return int(json.loads(path.read_text(encoding="utf-8"))["steps"])
    seconds = seconds_per_step(trial)
    steps = int(0.95 * 3600 * hours / seconds)  # the rest is for evaluations and checkpoints
    if steps < _FEWEST:
        raise ConfigurationError(
            f"{hours:g} hours are {steps} steps of {seconds:.1f} s, too few to learn from: give "
            f"{_FEWEST * seconds / 0.95 / 3600:.2g} hours at least, or a smaller size"
        )
    run.write("plan.json", {"steps": steps, "seconds_a_step": seconds})
    return steps


def seconds_per_step(trial: Trainer) -> float:
    """Time a few training steps, then put the weights back."""
    weights = {name: tensor.clone() for name, tensor in trial.learner.state_dict().items()}
    trial.restore()
    trial.learner.train()
    seconds = []
    for _ in range(trial.steps):
        start = time.perf_counter()
        trial.train_step()
        seconds.append(time.perf_counter() - start)
    if trial.masters:
        trial.masters.restore()
    trial.learner.load_state_dict(weights)
    return statistics.median(seconds[3:])
