"""EmbeddingQueue against a deque."""

from collections import deque

import torch

from selfsent.objectives.base import EmbeddingQueue


def test_the_queue_holds_what_a_deque_would():
    torch.manual_seed(0)
    queue, truth = EmbeddingQueue(5, 3), deque(maxlen=5)
    for count in (2, 1, 4, 3, 7, 5, 1):
        rows = torch.randn(count, 3, requires_grad=True)
        queue.add(rows)
        truth.extend(tuple(row) for row in rows.tolist())
        assert sorted(tuple(row) for row in queue.rows().tolist()) == sorted(truth)
        assert not queue.rows().requires_grad


def test_a_copy_made_of_its_state_goes_on_alike():
    torch.manual_seed(0)
    queue, copy = EmbeddingQueue(4, 2), EmbeddingQueue(4, 2)
    queue.add(torch.randn(3, 2))
    copy.load_state_dict(queue.state_dict())
    more = torch.randn(2, 2)
    queue.add(more)
    copy.add(more)
    assert torch.equal(queue.rows(), copy.rows())


def test_a_queue_of_none_holds_and_saves_nothing():
    queue = EmbeddingQueue(0, 3)
    queue.add(torch.randn(4, 3))
    assert queue.rows().shape == (0, 3)
    assert list(queue.state_dict()) == []
