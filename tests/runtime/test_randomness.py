"""Draws are a pure function of seed, step, epoch and text."""

import torch

from selfsent.runtime.randomness import seed_step, text_generator


def test_each_text_has_a_generator_of_its_own_in_each_epoch():
    def draws(*place):
        return text_generator(*place).random(4).tolist()

    assert draws(7, 0, 3) == draws(7, 0, 3)
    assert len({tuple(draws(*place)) for place in [(7, 0, 3), (7, 0, 5), (7, 1, 3), (8, 0, 3)]}) == 4


def test_a_step_seeds_torch_and_no_two_steps_or_seeds_alike():
    drawn = {}
    for seed in (1, 2):
        for step in (0, 1):
            seed_step(seed, step)
            drawn[seed, step] = torch.rand(3)
    seed_step(1, 1)
    assert torch.equal(torch.rand(3), drawn[1, 1])
    assert len({float(values[0]) for values in drawn.values()}) == 4
