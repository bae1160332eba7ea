"""One queue and one thread that computes: texts of many requests in batches by number of tokens.

A batch starts as soon as the thread is free, with what came while it computed the last; with ``max_wait`` its oldest
text waits that long for more.  Requests take turns: one with thousands of texts gets its share of every batch, and a
short one is not kept waiting behind it.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from selfsent.encoder.base import Encoder, TokenizedText
from selfsent.serving.protocol import Refusal

_TURNS = 4  # in a batch: no request fills more than a quarter of it before the others had their turn


@dataclass(eq=False)
class Work:
    """The texts of one request; ``result`` becomes their (N, D) embeddings."""

    encoder: Encoder
    texts: Sequence[TokenizedText]
    deadline: float  # of time.monotonic()
    result: "Future[NDArray[np.float32]]" = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)
    started: float | None = None
    abandoned: bool = False  # its client is gone
    taken: int = 0  # texts that are in a batch already
    left: int = 0  # tokens of those that are not
    parts: list[NDArray[np.float32]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left = sum(text.tokens for text in self.texts)


Batch = list[tuple[Work, int, int]]  # request, first text, behind its last


class Batcher:
    """Takes work from any thread, and computes in one of its own.

    Args:
        computed: called after every batch with texts, tokens and seconds.
    """

    def __init__(
        self,
        *,
        max_batch_tokens: int,
        max_wait: float,
        max_queued_tokens: int,
        computed: Callable[[int, int, float], None] = lambda texts, tokens, seconds: None,
    ) -> None:
        self._budget, self._wait, self._most = max_batch_tokens, max_wait, max_queued_tokens
        self._computed = computed
        self._queue: deque[Work] = deque()
        self._queued = 0  # tokens
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="compute", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread computes."""
        return self._thread.is_alive()

    @property
    def queued_tokens(self) -> int:
        """Tokens of texts that wait."""
        return self._queued

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Compute what was accepted, and end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, work: Work) -> None:
        """Accept work.

        Raises:
            Refusal: too much waits already, or the server stops.
        """
        with self._changed:
            if self._stopping:
                raise Refusal("Unhealthy", "the server is stopping: ask another one")
            # Requests take turns, so that a large one delays the others little: it counts for half of the limit.
            counted = sum(min(waiting.left, self._most // 2) for waiting in (*self._queue, work))
            if self._queue and counted > self._most:
                raise Refusal("Overloaded", "the model is overloaded: too many texts are waiting, try again later")
            self._queue.append(work)
            self._queued += work.left
            self._changed.notify()

    def abandon(self, work: Work) -> None:
        """Take a request off the queue whose client is gone."""
        with self._changed:
            work.abandoned = True
            if work in self._queue:
                self._queue.remove(work)
                self._queued -= work.left

    def _run(self) -> None:
        torch.get_num_threads()  # torch reads their number once for this thread: now, not while a model opens with one
        while True:
            with self._changed:
                while not self._queue and not self._stopping:
                    self._changed.wait()
                if not self._queue:
                    return
                until = self._queue[0].arrived + self._wait
                while not self._stopping and self._queued < self._budget and (left := until - time.monotonic()) > 0:
                    self._changed.wait(left)
                batch = self._take()
            if batch:
                self._compute(batch)

    def _take(self) -> Batch:
        """Take a batch for one encoder off the queue; the lock is held."""
        batch: Batch = []
        room, now, later = self._budget, time.monotonic(), deque[Work]()
        encoder: Encoder | None = None
        while self._queue and (room > 0 or not batch):
            work = self._queue.popleft()
            if work.abandoned or (work.started is None and now > work.deadline):
                self._queued -= work.left
                late = Refusal("Overloaded", "the model is overloaded: the request waited too long, try again later")
                work.result.set_exception(late)
                continue
            encoder = encoder or work.encoder
            if work.encoder is not encoder:
                later.append(work)
                continue
            first, turn = work.taken, min(room, max(1, self._budget // _TURNS))
            while work.taken < len(work.texts) and (turn > 0 or not batch):
                tokens = work.texts[work.taken].tokens
                if tokens > turn and (batch or work.taken > first):
                    break
                turn, room = turn - tokens, room - tokens
                self._queued -= tokens
                work.left -= tokens
                work.taken += 1
            if work.taken == first:  # its next text does not fit any more
                later.append(work)
                break
            work.started = work.started or now
            batch.append((work, first, work.taken))
            if work.taken < len(work.texts):
                self._queue.append(work)
        self._queue.extendleft(reversed(later))
        return batch

    def _compute(self, batch: Batch) -> None:
        began = time.monotonic()
        texts = [text for work, first, stop in batch for text in work.texts[first:stop]]
        try:
            vectors = batch[0][0].encoder.embed_tokenized(texts)
        except Exception as error:  # whatever a model raises is the answer of a request, and not the server's end
            if len(batch) == 1:
                self._fail(batch[0][0], error)
            else:  # it may be one of them alone that it fails for
                for taken in batch:
                    self._compute([taken])
            return
        # Counted first: a client that has its answer finds it in /metrics.
        self._computed(len(texts), sum(text.tokens for text in texts), time.monotonic() - began)
        row = 0
        for work, first, stop in batch:
            work.parts.append(vectors[row : row + stop - first])
            row += stop - first
            if not np.isfinite(work.parts[-1]).all():
                self._fail(work, Refusal("Backend", "inference failed: the encoder gives NaN or infinity"))
            elif stop == len(work.texts) and not work.result.done():
                work.result.set_result(np.concatenate(work.parts))

    def _fail(self, work: Work, error: Exception) -> None:
        with self._changed:
            if work in self._queue:
                self._queue.remove(work)
                self._queued -= work.left
        if not work.result.done():
            refusal = error if isinstance(error, Refusal) else Refusal("Backend", f"inference failed: {error}")
            work.result.set_exception(refusal)
