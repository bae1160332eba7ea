"""Weights between a base and what was trained from it:  theta(a) = (1 - a) theta_base + a theta_trained.

Part of the way often keeps most of what training gained and nearly all that the base could do before.  Source:
Wortsman et al. 2022, https://arxiv.org/abs/2109.01903.  The mean of several trainings from one base is often better
than each of them.  Source: Wortsman et al. 2022, https://arxiv.org/abs/2203.05482.
"""

from collections.abc import Sequence

from sentence_transformers import SentenceTransformer

from selfsent.errors import EncoderError


def interpolate(base: SentenceTransformer, trained: SentenceTransformer, share: float) -> SentenceTransformer:
    """Move the weights of ``base``, in place, by ``share`` of the way to ``trained``, and return it.

    Raises:
        EncoderError: the two are not of one shape.
    """
    start, goal = base.state_dict(), trained.state_dict()
    if start.keys() != goal.keys() or any(start[name].shape != goal[name].shape for name in start):
        raise EncoderError("weights can be interpolated between encoders of one shape only: one has other layers")
    mixed = {
        name: start[name].lerp(goal[name], share) if start[name].is_floating_point() else start[name] for name in start
    }
    base.load_state_dict(mixed)
    return base


def mean_weights(trained: Sequence[SentenceTransformer]) -> SentenceTransformer:
    """Give the first encoder, in place, the mean of the weights of all, and return it.

    Raises:
        EncoderError: they are not of one shape.
    """
    mean = trained[0]
    for number, other in enumerate(trained[1:], start=2):
        interpolate(mean, other, 1 / number)
    return mean
