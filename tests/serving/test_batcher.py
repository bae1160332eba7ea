"""The queue: batches by tokens, turns, refusals, and every accepted request answered."""

import threading
import time

import numpy as np
import pytest

from selfsent.encoder.base import TokenizedText
from selfsent.serving.batcher import Batcher, Work
from selfsent.serving.protocol import Refusal


class Recorder:
    """Vectors that hold the first id of the text; remembers its batches."""

    def __init__(self, gate: threading.Event | None = None, broken: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.gate, self.broken = gate, broken
        self.computing = threading.Event()

    def embed_tokenized(self, texts):
        self.computing.set()
        if self.gate:
            assert self.gate.wait(60)
        if self.broken:
            raise RuntimeError("no memory")
        self.batches.append([text.rows[0][0] for text in texts])
        return np.array([[text.rows[0][0]] for text in texts], np.float32)


def pieces(*firsts: int, length: int = 10) -> list[TokenizedText]:
    return [TokenizedText(((first, *[0] * (length - 1)),)) for first in firsts]


def later() -> float:
    return time.monotonic() + 60


@pytest.fixture
def start():
    started = []

    def make(**limits):
        batcher = Batcher(**({"max_batch_tokens": 40, "max_wait": 0.0, "max_queued_tokens": 1000} | limits))
        batcher.start()
        started.append(batcher)
        return batcher

    yield make
    for batcher in started:
        batcher.stop()


def test_every_request_gets_its_own_rows(start):
    batcher, encoder = start(), Recorder()
    works = [Work(encoder, pieces(*range(10 * n, 10 * n + 1 + n)), later()) for n in range(9)]
    for work in works:
        batcher.submit(work)
    for n, work in enumerate(works):
        assert work.result.result(60)[:, 0].tolist() == list(range(10 * n, 10 * n + 1 + n))


def test_a_batch_is_counted_before_its_requests_are_answered(start):
    work, seen = Work(Recorder(), pieces(1, 2), later()), []
    batcher = start(computed=lambda texts, tokens, seconds: seen.append((texts, tokens, work.result.done())))
    batcher.submit(work)
    batcher.stop()
    assert seen == [(2, 20, False)]


def blocked(start, **limits):
    """A batcher that computes a first request until its gate is opened, and the encoder of that."""
    encoder, batcher = Recorder(threading.Event()), start(**limits)
    batcher.submit(Work(encoder, pieces(1000), later()))
    assert encoder.computing.wait(60)
    return batcher, encoder


def finish(batcher, encoder):
    """Open the gate, compute what was accepted, and return the batches behind the first."""
    encoder.gate.set()
    batcher.stop()
    return encoder.batches[1:]


def queued(start, *works):
    """Let a first request compute while the others queue, and return their batches."""
    batcher, encoder = blocked(start)
    for work in works:
        work.encoder = encoder
        batcher.submit(work)
    return finish(batcher, encoder)


def test_a_batch_has_no_more_tokens_than_its_budget_and_a_long_text_is_one_alone(start):
    works = [
        Work(Recorder(), pieces(n, length=length), later()) for n, length in enumerate([10, 10, 10, 10, 10, 900, 10])
    ]
    assert queued(start, *works) == [[0, 1, 2, 3], [4], [5], [6]]


def test_requests_take_turns(start):
    many, one = Work(Recorder(), pieces(*range(8)), later()), Work(Recorder(), pieces(100), later())
    assert queued(start, many, one) == [[0, 100, 1, 2], [3, 4, 5, 6], [7]]


def test_texts_of_different_encoders_are_not_computed_together(start):
    first, second = Recorder(), Recorder()
    batcher, blocker = blocked(start)
    for n in range(4):
        batcher.submit(Work((first, second)[n % 2], pieces(n), later()))
    finish(batcher, blocker)
    assert (first.batches, second.batches) == ([[0, 2]], [[1, 3]])


def test_what_would_exceed_the_queue_is_refused_and_what_was_accepted_is_answered_at_the_stop(start):
    batcher, encoder = blocked(start, max_queued_tokens=25)
    works = [Work(encoder, pieces(n), later()) for n in range(3)]
    batcher.submit(works[0])
    batcher.submit(works[1])
    with pytest.raises(Refusal) as refused:
        batcher.submit(works[2])
    assert refused.value.status == 429
    assert finish(batcher, encoder) == [[0, 1]]
    assert [work.result.result(0)[0, 0] for work in works[:2]] == [0, 1]
    assert batcher.queued_tokens == 0
    with pytest.raises(Refusal, match="stopping"):
        batcher.submit(works[2])


def test_a_large_request_leaves_room_for_the_others(start):
    batcher, encoder = blocked(start, max_queued_tokens=100)
    large = Work(encoder, pieces(*range(1, 41)), later())
    batcher.submit(large)  # 400 tokens
    small = [Work(encoder, pieces(50 + n), later()) for n in range(5)]
    for work in small:
        batcher.submit(work)
    with pytest.raises(Refusal):
        batcher.submit(Work(encoder, pieces(60), later()))
    batcher.abandon(large)
    assert batcher.queued_tokens == 50
    batcher.submit(Work(encoder, pieces(61), later()))
    finish(batcher, encoder)
    assert [work.result.result(0)[0, 0] for work in small] == [50, 51, 52, 53, 54]


def test_a_text_that_the_model_fails_for_fails_its_own_request_alone(start):
    class Fussy(Recorder):
        def embed_tokenized(self, texts):
            vectors = super().embed_tokenized(texts)
            if 3 in vectors:
                raise RuntimeError("no memory")
            vectors[vectors == 2] = np.nan
            return vectors

    gate = threading.Event()
    encoder, batcher = Fussy(gate), start()
    works = [Work(encoder, pieces(n), later()) for n in range(5)]
    for work in works:
        batcher.submit(work)
    gate.set()
    batcher.stop()
    answers = [work.result.exception(0) or work.result.result(0)[0, 0] for work in works]
    assert [answers[n] for n in (0, 1, 4)] == [0, 1, 4]
    assert "NaN or infinity" in answers[2].message
    assert "no memory" in answers[3].message


def test_work_past_its_deadline_or_without_a_client_is_not_computed(start):
    late, gone, fine = (Work(Recorder(), pieces(n), later()) for n in range(3))
    late.deadline, gone.abandoned = 0.0, True
    assert queued(start, late, gone, fine) == [[2]]
    with pytest.raises(Refusal, match="waited too long") as refused:
        late.result.result(0)
    assert refused.value.status == 429


def test_a_model_that_fails_is_the_answer_of_its_requests_and_not_the_end(start):
    batcher, broken = start(), Recorder(broken=True)
    failed = Work(broken, pieces(*range(20)), later())
    batcher.submit(failed)
    with pytest.raises(Refusal, match="no memory") as refused:
        failed.result.result(60)
    assert refused.value.status == 424
    fine = Work(Recorder(), pieces(7), later())
    batcher.submit(fine)
    assert fine.result.result(60)[0, 0] == 7
    assert batcher.queued_tokens == 0


def test_a_batch_waits_for_more_until_it_is_full(start):
    encoder = Recorder()
    batcher = start(max_wait=60.0)
    works = [Work(encoder, pieces(n), later()) for n in range(4)]
    for work in works:
        batcher.submit(work)
    works[-1].result.result(60)
    assert encoder.batches == [[0, 1, 2, 3]]
