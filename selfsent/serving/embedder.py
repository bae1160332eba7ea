"""From the texts of a request to vectors: tokenised, checked against the limits, computed, and waited for."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from fastapi import Request
from numpy.typing import NDArray

from selfsent.encoder.base import TokenizedText
from selfsent.errors import UserError
from selfsent.serving.batcher import Batcher, Work
from selfsent.serving.protocol import Refusal, ServerMetrics
from selfsent.serving.served import ServedModel
from selfsent.serving.settings import ServeConfig

_AT_ONCE = 2000  # characters that are tokenised without another thread
_LOOK = 0.25  # seconds between two looks whether the client is still there

Item = str | list[int]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How the texts of a request are read."""

    truncate: bool | None = None
    direction: str = "right"
    prompt_name: str | None = None
    prompt: str | None = None


class Embedder:
    """Tokenises in a few threads, and passes the rest to the batcher."""

    def __init__(self, config: ServeConfig, metrics: ServerMetrics, batcher: Batcher) -> None:
        self.config, self._metrics, self._batcher = config, metrics, batcher
        self._tokenizers = ThreadPoolExecutor(config.tokenization_workers, "tokenize")

    def close(self) -> None:
        """End the threads."""
        self._tokenizers.shutdown()

    async def vectors(
        self, request: Request, model: ServedModel, texts: Sequence[Item], wanted: Wanted
    ) -> tuple[NDArray[np.float32], int]:
        """Return the (N, D) embeddings, and the number of tokens.

        Raises:
            Refusal: nothing to embed, too many texts, a text too long, or the model fails.
        """
        began = time.monotonic()
        self.check_number(texts)
        tokenized = await self.beside(sum(map(len, texts)), self._read, model, texts, wanted)
        self._metrics.tokenization.observe(time.monotonic() - began)
        work = Work(model.encoder, tokenized, began + self.config.deadline)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def finish() -> None:
            if not done.done():
                done.set_result(None)

        work.result.add_done_callback(lambda _: loop.call_soon_threadsafe(finish))
        self._batcher.submit(work)
        try:
            while not (await asyncio.wait((done,), timeout=_LOOK))[0]:
                if await request.is_disconnected():
                    raise Refusal("Timeout", "the client left")
        finally:
            if not work.result.done():
                self._batcher.abandon(work)
        if work.started is not None:
            self._metrics.queue.observe(work.started - work.arrived)
        return work.result.result(), sum(text.tokens for text in tokenized)

    async def beside(self, characters: int, function: Callable[..., T], *arguments: object) -> T:
        """Call a function that tokenises so many characters, and long ones in another thread."""
        if characters <= _AT_ONCE:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._tokenizers, function, *arguments)

    def check_number(self, texts: Sequence[object]) -> None:
        """Refuse no texts, and too many.

        Raises:
            Refusal: there is none, one is empty, or there are more than a request may have.
        """
        if not texts or not all(texts):
            raise Refusal("Empty", "the input is empty: give at least one text, and no empty one")
        most = self.config.max_client_batch_size
        if len(texts) > most:
            raise Refusal("Validation", f"the request has {len(texts):,} texts: at most {most:,} are taken at once")

    def _read(self, model: ServedModel, texts: Sequence[Item], wanted: Wanted) -> list[TokenizedText]:
        encoder = model.encoder
        try:
            prompt = encoder.resolve_prompt(wanted.prompt_name, wanted.prompt)
            strings = [text for text in texts if isinstance(text, str)]
            ids = [text for text in texts if not isinstance(text, str)]
            read = iter(encoder.tokenize(strings, prompt, direction=wanted.direction) if strings else ())
            taken = iter(encoder.from_ids(ids, prompt, direction=wanted.direction) if ids else ())
        except UserError as error:
            raise Refusal("Tokenizer", str(error)) from error
        tokenized = [next(read if isinstance(text, str) else taken) for text in texts]
        truncate = self.config.auto_truncate if wanted.truncate is None else wanted.truncate
        for number, text in enumerate(tokenized):
            if text.truncated and not truncate:
                raise Refusal(
                    "TooLong",
                    f"input {number} is longer than the {encoder.max_length} tokens that this model reads: shorten it, "
                    "or ask for truncate",
                )
        return tokenized
