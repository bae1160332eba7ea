"""Rewriting by any chat server that speaks OpenAI's protocol, a hosted one or one on this machine.

Waiting and asking again after 408, 409, 429, 5xx, a lost connection or a stall is the client's own: exponential
back-off with jitter, or what Retry-After says.  What it does not do is ours: to ask again where an answer is none, to
count a text that cannot be had and go on, and to stop where nothing can be had any more.
"""

import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from selfsent.augment.cache import Output, identity_digest
from selfsent.augment.produce import Store
from selfsent.corpus import clean
from selfsent.errors import UserError

if TYPE_CHECKING:
    from openai import OpenAI

PROMPT = Path(__file__).parent / "prompt.txt"
PLACE = "{text}"
_HOSTED = "api.openai.com"
_PATIENCE = 8  # texts that may fail one after the other before it stops
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0  # seconds, before asking again where an answer was none
_TOKEN = 4  # bytes, roughly, in the languages and tokenizers that are most in use
_THOUGHTS = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
_QUOTES = (('"', '"'), ("“", "”"), ("„", "“"), ("«", "»"), ("'", "'"))


class _NoAnswerError(Exception):
    """The server answered, and the answer cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What is about to be asked for."""

    requests: int
    tokens_in: int
    tokens_out: int
    price: float | None  # in the currency of the prices given

    def line(self) -> str:
        """Say it in one line."""
        cost = "" if self.price is None else f", {self.price:,.2f} at the prices given"
        return (
            f"{self.requests:,} requests of about {self.tokens_in:,} tokens in and {self.tokens_out:,} out "
            f"(at {_TOKEN} bytes a token){cost}"
        )


class Rewriting:
    """A chat server, a model and a prompt.

    Args:
        endpoint: base URL, such as ``https://api.openai.com/v1`` or ``http://localhost:8000/v1``.
        model: as the server calls it.
        prompt: a file with ``{text}`` in it; default: ours.
        key_variable: the environment variable that holds the key; a server on this machine mostly wants none.
        temperature: of the sampling; default: the server's own.
        limit: tokens of an answer; answers that run into it are dropped.  Default: the server's own.
        concurrency: requests that are under way at a time.
        retries: times that a failed request is made again.
        timeout: seconds after which a request that says nothing has failed.

    Raises:
        UserError: no such prompt or key, or the client is not installed.
    """

    name = "rewrite"

    def __init__(
        self,
        endpoint: str,
        model: str,
        *,
        prompt: Path | None = None,
        key_variable: str | None = None,
        temperature: float | None = None,
        limit: int | None = None,
        concurrency: int = 4,
        retries: int = 6,
        timeout: float = 60.0,
    ) -> None:
        self.endpoint = _without_password(endpoint)
        self.model = model
        self.limit = limit
        self.retries = retries
        self.timeout = timeout
        self.tokens_in = self.tokens_out = 0  # as the server counts them
        self._prompt = read_prompt(prompt or PROMPT)
        self._prompt_name = str(prompt) if prompt else "default"
        self._temperature = temperature
        self._concurrency = concurrency
        self._key_variable = key_variable or "OPENAI_API_KEY"
        self._full_endpoint = endpoint
        if find_spec("openai") is None:
            raise UserError("rewriting needs the package openai: pip install 'selfsent[augment]'")
        self._key = os.environ.get(self._key_variable, "")
        if not self._key and (key_variable or urlsplit(endpoint).hostname == _HOSTED):
            raise UserError(f"{self.endpoint} needs a key: put it into the environment variable {self._key_variable}")

    @property
    def digest(self) -> str:
        """Hash the server, the model, the prompt's text and the temperature."""
        return identity_digest(
            {
                "backend": self.name,
                "endpoint": self.endpoint,
                "model": self.model,
                "prompt": self._prompt,
                "temperature": self._temperature,
            }
        )

    @property
    def settings(self) -> dict[str, Any]:
        """The settings for people."""
        return {
            "endpoint": self.endpoint,
            "model": self.model,
            "prompt": self._prompt_name,
            "prompt_text": self._prompt,
            "temperature": self._temperature,
            "max_tokens": self.limit,
        }

    def estimate(
        self, texts: int, size: int, price_in: float | None = None, price_out: float | None = None
    ) -> Estimate:
        """Estimate what so many texts of so many bytes in all will cost.

        Args:
            price_in: of a million tokens of the requests.
            price_out: of a million tokens of the answers.
        """
        around = len(self._prompt.replace(PLACE, "").encode())
        tokens_in, tokens_out = (texts * around + size) // _TOKEN, size // _TOKEN
        priced = price_in is not None or price_out is not None
        price = (tokens_in * (price_in or 0.0) + tokens_out * (price_out or 0.0)) / 1e6 if priced else None
        return Estimate(requests=texts, tokens_in=tokens_in, tokens_out=tokens_out, price=price)

    def run(self, pages: Iterable[Sequence[str]], asking: Callable[[int], None], store: Store) -> Counter[str]:
        """Ask for every text, several at a time, and keep each answer as soon as it is there.

        However it ends, answers that are under way are waited for and kept: they are paid.
        """
        failed: Counter[str] = Counter()
        texts = chain.from_iterable(pages)
        waiting: set[Future[Output]] = set()
        answered = unlucky = 0  # answers in all, and failures since the last

        def collect(waiting: set[Future[Output]]) -> None:
            nonlocal answered, unlucky
            done = wait(waiting, return_when=FIRST_COMPLETED).done
            good = [future.result() for future in done if future.exception() is None]
            if good:
                store(good)
                answered, unlucky = answered + len(good), 0
            waiting -= done  # not before they are stored
            for error in filter(None, (future.exception() for future in done)):
                told, hopeless = self._told(error)
                failed[told] += 1
                unlucky += not good
                if hopeless or unlucky >= _PATIENCE or not (answered or _lies_in_the_text(error)):
                    raise UserError(self._stopped(error, answered)) from error

        with self._connected() as client, ThreadPoolExecutor(self._concurrency) as pool:
            try:
                for text in texts:
                    asking(1)
                    waiting.add(pool.submit(self._ask, client, text))
                    # The first goes alone: where nothing can be had, nothing else is asked.
                    while len(waiting) >= (self._concurrency if answered else 1):
                        collect(waiting)
                while waiting:
                    collect(waiting)
            except BaseException:
                done, _ = wait(waiting)
                store([future.result() for future in done if future.exception() is None])
                raise
        if failed and not answered:
            raise UserError(
                f"{self.endpoint} answered none of {failed.total():,} texts ({failed.most_common(1)[0][0]})"
            )
        return failed

    def _connected(self) -> "OpenAI":
        from openai import OpenAI

        return OpenAI(
            base_url=self._full_endpoint,
            api_key=self._key or "none",
            max_retries=self.retries,
            timeout=self.timeout,
        )

    def _ask(self, client: "OpenAI", text: str) -> Output:
        """Ask until there is an answer that can be read; runs in a thread."""
        for attempt in range(self.retries + 1):
            try:
                return self._answer(client, text)
            except _NoAnswerError:
                if attempt == self.retries:
                    raise
                pause = min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE)
                time.sleep(pause * random.uniform(0.75, 1.0))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _answer(self, client: "OpenAI", text: str) -> Output:
        request: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": self._prompt.replace(PLACE, text)}],
        }
        if self._temperature is not None:
            request["temperature"] = self._temperature
        if self.limit is not None:
            request["max_tokens"] = self.limit
        try:
            answer = client.chat.completions.create(**request)
        except json.JSONDecodeError as error:
            raise _NoAnswerError("an answer that is no JSON") from error
        # What is no JSON by its Content-Type comes as a string, and what lacks a field as an object without it.
        choices = getattr(answer, "choices", None)
        if not choices or getattr(choices[0], "message", None) is None:
            raise _NoAnswerError("an answer that holds no text")
        usage = getattr(answer, "usage", None)
        self.tokens_in += getattr(usage, "prompt_tokens", None) or 0
        self.tokens_out += getattr(usage, "completion_tokens", None) or 0
        content = choices[0].message.content
        if content is not None and not isinstance(content, str):
            raise _NoAnswerError("an answer that holds no text")
        return Output(text, content or "", (self.limit or 0) if choices[0].finish_reason == "length" else None)

    def _told(self, error: BaseException) -> tuple[str, bool]:
        """Return the reason of a failure in a few words, and whether every other text would fail of it."""
        import openai

        if isinstance(error, _NoAnswerError):
            return str(error), False
        if isinstance(error, openai.APITimeoutError):
            return f"no answer within {self.timeout:g} seconds", False
        if isinstance(error, openai.APIConnectionError):
            return "no connection", False
        if isinstance(error, openai.APIStatusError):
            quota = error.status_code == 429 and error.code == "insufficient_quota"
            return f"{error.status_code} {_said(error)}".strip(), quota or error.status_code in (401, 403, 404)
        if isinstance(error, openai.APIError):
            return "an answer that cannot be read", False
        raise error

    def _stopped(self, error: BaseException, answered: int) -> str:
        """Say in one sentence what went wrong, what is kept and how to go on."""
        import openai

        told, _ = self._told(error)
        mend = "wait, or give fewer --concurrency"
        if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
            mend = f"put a valid key into the environment variable {self._key_variable}"
        elif isinstance(error, openai.NotFoundError):
            mend = f"check --endpoint and --model {self.model}"
        elif isinstance(error, openai.APITimeoutError):
            mend = "check the server, or give it a longer --timeout"
        elif isinstance(error, openai.APIConnectionError):
            mend = "check that the server runs there"
        elif isinstance(error, _NoAnswerError):
            mend = "check that --endpoint is the base URL of a chat server, which mostly ends in /v1"
        elif isinstance(error, openai.RateLimitError) and error.code == "insufficient_quota":
            mend = "raise the quota of that account"
        return (
            f"{self.endpoint} stopped answering ({told}); {answered:,} answers of this run are kept: {mend}, then run "
            "the same command again to go on"
        )

    def tidy(self, text: str, output: str) -> str:
        """Put an answer on one line, without the thoughts and the quotation marks that came with it."""
        line = clean.one_line(_THOUGHTS.sub("", output, count=1))
        for left, right in _QUOTES:
            around = len(line) > 1 and line.startswith(left) and line.endswith(right)
            if around and not text.startswith(left) and left not in line[1:-1]:
                return line[1:-1].strip()
        return line


def read_prompt(path: Path) -> str:
    """Read a prompt.

    Raises:
        UserError: no such file, not UTF-8, or nowhere to put the text.
    """
    try:
        prompt = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(f"the prompt {path} cannot be read ({reason}): give a text file with {PLACE} in it") from error
    if PLACE not in prompt:
        raise UserError(f"the prompt {path} does not say where the text goes: write {PLACE} there")
    return prompt


def _lies_in_the_text(error: BaseException) -> bool:
    """Tell whether a failure may be that of one text alone; all others are likely to be that of every text."""
    import openai

    return isinstance(error, openai.BadRequestError | openai.UnprocessableEntityError)


def _said(error: Any) -> str:  # noqa: ANN401 - the client is imported only where it is needed
    body = error.body
    message = body.get("message") if isinstance(body, dict) else None
    line = clean.one_line(str(message or "")).rstrip(".")
    return line if len(line) <= 120 else f"{line[:119]}…"


def _without_password(endpoint: str) -> str:
    try:
        parts = urlsplit(endpoint)
        host = parts.hostname and parts.netloc.rpartition("@")[2]
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise UserError(f"endpoint {endpoint!r} is no URL: give one such as http://localhost:8000/v1")
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
