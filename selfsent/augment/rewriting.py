"""Rewriting by any server that speaks OpenAI's chat protocol, hosted or local.

The client repeats a request after 408, 409, 429, 5xx, a lost connection or a timeout by itself: exponential back-off
with jitter, or what Retry-After says.  Added here: a request whose answer cannot be read is repeated, a text that fails
for good is counted and left out, and the run stops where no text can succeed any more.
"""

import json
import os
import random
import re
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from selfsent.augment.cache import Generated, OutputCache
from selfsent.augment.produce import Backend
from selfsent.corpus import clean
from selfsent.errors import ConfigurationError, UserError
from selfsent.progress import Progress

if TYPE_CHECKING:
    from openai import OpenAI

PROMPT = Path(__file__).parent / "prompt.txt"
PLACEHOLDER = "{text}"
_HOSTED = "api.openai.com"
_MAX_FAILURES = 8  # texts that may fail in a row before the run stops
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0  # seconds, before a request whose answer could not be read is repeated
_BYTES_PER_TOKEN = 4  # roughly, in the most common languages and tokenizers
_REASONING = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
_QUOTES = (('"', '"'), ("“", "”"), ("„", "“"), ("«", "»"), ("'", "'"))


class _UnreadableAnswerError(Exception):
    """The server answered, and the answer cannot be read."""


class _Failure(NamedTuple):
    reason: str
    remedy: str
    permanent: bool = False  # every other text would fail, too
    of_the_text: bool = False  # others may well succeed


@dataclass(kw_only=True, eq=False)
class Rewriting(Backend):
    """A chat server, a model and a prompt.

    Raises:
        ConfigurationError: an endpoint that is no URL, no such prompt or key, or the client is not installed.
    """

    name: ClassVar[str] = "rewrite"

    endpoint: str  # base URL, such as https://api.openai.com/v1 or http://localhost:8000/v1
    model: str  # as the server calls it
    prompt: Path | None = None  # a file with {text} in it; None: ours
    key_variable: str | None = None  # environment variable that holds the key; None: OPENAI_API_KEY, if it is set
    temperature: float | None = None  # of the sampling; None: the server's own
    limit: int | None = None  # tokens of an answer; those that reach it are dropped; None: the server's own
    concurrency: int = 4  # simultaneous requests
    retries: int = 6  # repetitions of a failed request
    timeout: float = 60.0  # seconds
    price_in: float | None = None  # of a million tokens of the requests, for the estimate
    price_out: float | None = None  # of a million tokens of the answers
    tokens_in: int = field(default=0, init=False)  # of all requests so far, as the server counts them
    tokens_out: int = field(default=0, init=False)  # of all answers so far

    def __post_init__(self) -> None:
        self._base_url, self.endpoint = self.endpoint, _without_password(self.endpoint)
        self._prompt = read_prompt(self.prompt or PROMPT)
        if find_spec("openai") is None:
            raise ConfigurationError("rewriting needs the package openai: pip install 'selfsent[augment]'")
        self._key_variable = self.key_variable or "OPENAI_API_KEY"
        self._key = os.environ.get(self._key_variable, "")
        if not self._key and (self.key_variable or urlsplit(self.endpoint).hostname == _HOSTED):
            raise ConfigurationError(
                f"{self.endpoint} needs a key: put it into the environment variable {self._key_variable}"
            )

    def identity(self) -> dict[str, object]:
        """Return the server, the model, the prompt's text and the temperature."""
        return {
            "endpoint": self.endpoint,
            "model": self.model,
            "prompt": self._prompt,
            "temperature": self.temperature,
        }

    def settings(self) -> dict[str, Any]:
        """Return the settings for people."""
        return {
            "endpoint": self.endpoint,
            "model": self.model,
            "prompt": str(self.prompt) if self.prompt else "default",
            "prompt_text": self._prompt,
            "temperature": self.temperature,
            "max_tokens": self.limit,
        }

    def cost(self, texts: int, size: int) -> str:
        """Estimate requests, tokens and, where prices are given, the price; answers are as long as their texts."""
        prompt = len(self._prompt.replace(PLACEHOLDER, "").encode())
        tokens_in, tokens_out = (texts * prompt + size) // _BYTES_PER_TOKEN, size // _BYTES_PER_TOKEN
        price = ""
        if self.price_in is not None or self.price_out is not None:
            total = (tokens_in * (self.price_in or 0.0) + tokens_out * (self.price_out or 0.0)) / 1e6
            price = f", {total:,.2f} at the prices given"
        return (
            f"{texts:,} requests of about {tokens_in:,} tokens in and {tokens_out:,} out "
            f"(at {_BYTES_PER_TOKEN} bytes a token){price}"
        )

    def run(self, cache: OutputCache, progress: Progress) -> Counter[str]:
        """Send a request for each text, several at a time, and store each answer at once.

        However it ends, requests that were sent are waited for and their answers stored: they are paid for.
        """
        failures: Counter[str] = Counter()
        texts, total = chain.from_iterable(cache.pending()), cache.remaining()[0]
        sent: set[Future[Generated]] = set()
        failed_in_a_row = 0
        with self._client() as client, ThreadPoolExecutor(self.concurrency) as pool:
            try:
                while True:
                    # One request alone until the first answer: a server that cannot answer is sent no more.
                    for text in islice(texts, (self.concurrency if cache.made else 1) - len(sent)):
                        cache.count_requests(1)
                        sent.add(pool.submit(self._ask, client, text))
                    if not sent:
                        break
                    done = wait(sent, return_when=FIRST_COMPLETED).done
                    if answers := [future.result() for future in done if future.exception() is None]:
                        cache.store(answers)
                        progress.report(self.name, cache.made, total)
                        failed_in_a_row = 0
                    sent -= done  # not before they are stored
                    for error in filter(None, (future.exception() for future in done)):
                        failure = self._failure(error)
                        failures[failure.reason] += 1
                        failed_in_a_row += not answers
                        hopeless = failure.permanent or not (cache.made or failure.of_the_text)
                        if hopeless or failed_in_a_row >= _MAX_FAILURES:
                            raise UserError(
                                f"{self.endpoint} stopped answering ({failure.reason}); {cache.made:,} answers of this "
                                f"run are kept: {failure.remedy}, then run the same command again to resume"
                            ) from error
            except BaseException:
                cache.store([future.result() for future in wait(sent).done if future.exception() is None])
                raise
        if failures and not cache.made:
            reason = failures.most_common(1)[0][0]
            raise UserError(f"{self.endpoint} answered none of {failures.total():,} texts ({reason})")
        return failures

    def _client(self) -> "OpenAI":
        from openai import OpenAI

        return OpenAI(
            base_url=self._base_url,
            api_key=self._key or "none",
            max_retries=self.retries,
            timeout=self.timeout,
        )

    def _ask(self, client: "OpenAI", text: str) -> Generated:
        """Repeat the request until its answer can be read; runs in a thread."""
        for attempt in range(self.retries):
            try:
                return self._answer(client, text)
            except _UnreadableAnswerError:
                pause = min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE)
                time.sleep(pause * random.uniform(0.75, 1.0))
        return self._answer(client, text)

    def _answer(self, client: "OpenAI", text: str) -> Generated:
        request: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": self._prompt.replace(PLACEHOLDER, text)}],
        }
        if self.temperature is not None:
            request["temperature"] = self.temperature
        if self.limit is not None:
            request["max_tokens"] = self.limit
        try:
            answer = client.chat.completions.create(**request)
        except json.JSONDecodeError as error:
            raise _UnreadableAnswerError("an answer that is no JSON") from error
        # The client returns a string where the Content-Type is not JSON, and leaves out fields that are missing.
        choices = getattr(answer, "choices", None)
        if not choices or getattr(choices[0], "message", None) is None:
            raise _UnreadableAnswerError("an answer that holds no text")
        usage = getattr(answer, "usage", None)
        self.tokens_in += getattr(usage, "prompt_tokens", None) or 0
        self.tokens_out += getattr(usage, "completion_tokens", None) or 0
        content = choices[0].message.content
        if content is not None and not isinstance(content, str):
            raise _UnreadableAnswerError("an answer that holds no text")
        return Generated(text, content or "", (self.limit or 0) if choices[0].finish_reason == "length" else None)

    def _failure(self, error: BaseException) -> _Failure:
        """Classify what the client raised; anything unknown is raised again."""
        import openai

        if isinstance(error, _UnreadableAnswerError):
            return _Failure(
                str(error), "check that --endpoint is the base URL of a chat server, which usually ends in /v1"
            )
        if isinstance(error, openai.APITimeoutError):
            return _Failure(f"no answer within {self.timeout:g} seconds", "check the server, or set a longer --timeout")
        if isinstance(error, openai.APIConnectionError):
            return _Failure("no connection", "check that the server runs there")
        remedy = "wait, or set a lower --concurrency"
        if isinstance(error, openai.APIStatusError):
            status, quota = error.status_code, error.code == "insufficient_quota"
            if quota and status == 429:
                remedy = "raise the quota of that account"
            elif status in (401, 403):
                remedy = f"put a valid key into the environment variable {self._key_variable}"
            elif status == 404:
                remedy = f"check --endpoint and --model {self.model}"
            return _Failure(
                f"{status} {_message(error.body)}".strip(),
                remedy,
                permanent=status in (401, 403, 404) or (quota and status == 429),
                of_the_text=status in (400, 422),
            )
        if isinstance(error, openai.APIError):
            return _Failure("an answer that cannot be read", remedy)
        raise error

    def positive_from(self, text: str, output: str) -> str:
        """Put an answer on one line, without its reasoning and without quotation marks that the text lacks."""
        line = clean.one_line(_REASONING.sub("", output, count=1))
        for left, right in _QUOTES:
            quoted = len(line) > 1 and line.startswith(left) and line.endswith(right)
            if quoted and not text.startswith(left) and left not in line[1:-1]:
                return line[1:-1].strip()
        return line


def read_prompt(path: Path) -> str:
    """Read a prompt.

    Raises:
        ConfigurationError: no such file, not UTF-8, or no ``{text}`` in it.
    """
    try:
        prompt = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(
            f"the prompt {path} cannot be read ({reason}): give a text file with {PLACEHOLDER} in it"
        ) from error
    if PLACEHOLDER not in prompt:
        raise ConfigurationError(f"the prompt {path} has no place for the text: write {PLACEHOLDER} where it goes")
    return prompt


def _message(body: object) -> str:
    """Return the server's own message in at most 120 characters."""
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
        raise ConfigurationError(f"endpoint {endpoint!r} is no URL: give one such as http://localhost:8000/v1")
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
