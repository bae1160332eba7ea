"""Small trainings that many tests start."""

import numpy as np

import selfsent
from selfsent.progress import Progress

QUICK = [
    "train.steps=4",
    "train.batch_size=8",
    "train.evaluate_every=2",
    "hardware.threads=1",
    "hardware.precision=fp32",
    "corpus.deduplicate=exact",
    "corpus.held_out=4",
    "train.select=retrieval",
    "objective.temperature=0.1",
]


WORDS = ["cat", "dog", "moon", "rain", "town", "book", "ships"]
WORDS += ["train", "rice", "beans", "garlic", "night", "mat", "late"]


def random_lines(path, count):
    """Write a file of lines of fourteen words."""
    draw = np.random.default_rng(0)
    path.write_text("\n".join(" ".join(draw.choice(WORDS, 14)) for _ in range(count)), encoding="utf-8")
    return path


class Told(Progress):
    """Keeps what it is told."""

    def __init__(self):
        self.said, self.steps = [], []
        self.reports, self.evaluations = [], []

    def say(self, message):
        self.said.append(message)

    def step(self, step, texts, terms):
        self.steps.append(step)

    def report(self, stage, done, total=None):
        self.reports.append((stage, done, total))

    def evaluated(self, step, scores, best):
        self.evaluations.append(step)


class StopAt(Progress):
    """Raises at a step of a training."""

    def __init__(self, at, error=KeyboardInterrupt):
        self.at, self.error = at, error

    def step(self, step, texts, terms):
        if step == self.at:
            raise self.error


def train(bert, text, out, *settings, method="simcse", **options):
    return selfsent.train(method, base=str(bert), corpus=[str(text)], out=out, settings=[*QUICK, *settings], **options)
