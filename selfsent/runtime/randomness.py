"""Every random draw of training comes from here: a pure function of seed, step, epoch and text.

So a resumed run draws what an uninterrupted one does, and any number of processes agree on the plan.
"""

import numpy as np
import torch

from selfsent.runtime import distributed


def seed_step(seed: int, step: int) -> None:
    """Seed torch's global generator for batch ``step``: dropout, masks, permutations and shuffles follow from it."""
    torch.manual_seed(int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1))  # 63 bits
    number = distributed.here().number
    if number and torch.cuda.is_available():  # on a GPU dropout is drawn from its generator
        torch.cuda.manual_seed(int(np.random.SeedSequence([seed, step, number]).generate_state(1, np.uint64)[0] >> 1))


def text_generator(seed: int, epoch: int, text: int) -> np.random.Generator:
    """Return the generator of one text in one epoch: spans and other draws that belong to the text."""
    return np.random.default_rng([seed, epoch, text])
