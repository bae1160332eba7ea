"""Rewriting by any server that speaks OpenAI's chat protocol, hosted or local.

The client repeats a request after 408, 409, 429, 5xx, a lost connection or a timeout by itself: exponential back-off
with jitter, or what Retry-After says.  A text that fails for good is counted and left out, and the run stops where the
first text gets no answer or several in a row fail.  A server is not trusted: an answer has a limited time and size in
all, whatever it holds is kept as text or counted as a failure, and a redirect, which would carry texts and the key to
another place, is not followed.
"""

import json
import os
import re
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from selfsent.errors import ConfigurationError, UserError, first_line
from selfsent.pairs.cache import Generated, OutputCache
from selfsent.pairs.produce import Backend
from selfsent.progress import Progress
from selfsent.text import clean

if TYPE_CHECKING:
    from openai import AsyncOpenAI

PROMPT = Path(__file__).parent / "prompt.txt"
PLACEHOLDER = "{text}"
_MAX_FAILURES = 8  # texts that may fail in a row before the run stops
_LONGEST = 1 << 21  # bytes of an answer
_BYTES_PER_TOKEN = 4  # roughly, in the most common languages and tokenizers
_REASONING = re.compile(r"\A\s*(?:<think>)?.*?</think>", re.DOTALL)  # many templates open it in the prompt
_QUOTES = (('"', '"'), ("“", "”"), ("„", "“"), ("«", "»"), ("'", "'"))


@dataclass(kw_only=True, eq=False)
class Rewriting(Backend):
    """A chat server, a model and a prompt; the key is in the environment variable OPENAI_API_KEY.

    Raises:
        ConfigurationError: an endpoint that is no URL, no such prompt, or the client is not installed.
    """

    name: ClassVar[str] = "rewrite"

    endpoint: str  # base URL, such as https://api.openai.com/v1 or http://localhost:8000/v1
    model: str  # as the server calls it
    prompt: Path | None = None  # a file with {text} in it; None: ours
    temperature: float | None = None  # of the sampling; None: the server's own
    limit: int | None = None  # tokens of an answer; those that reach it are dropped; None: the server's own
    concurrency: int = 4  # simultaneous requests
    retries: int = 6  # repetitions of a failed request
    timeout: float = 60.0  # seconds
    price: tuple[float, float] | None = None  # of a million tokens of the requests and of the answers
    tokens_in: int = field(default=0, init=False)  # of all requests so far, as the server counts them
    tokens_out: int = field(default=0, init=False)  # of all answers so far

    def __post_init__(self) -> None:
        if find_spec("openai") is None:
            raise ConfigurationError("rewriting needs the package openai: pip install '.[pairs]' in the checkout")
        self._base_url, self.endpoint = self.endpoint, _without_password(self.endpoint)
        text = read_prompt(self.prompt or PROMPT)
        self.settings = {
            "endpoint": self.endpoint,
            "model": self.model,
            "prompt": str(self.prompt) if self.prompt else "default",
            "prompt_text": text,
            "temperature": self.temperature,
            "max_tokens": self.limit,
        }
        self.identity = {key: self.settings[key] for key in ("endpoint", "model", "temperature")} | {"prompt": text}

    def cost(self, texts: int, size: int) -> str:
        """Estimate requests, tokens and, where prices are given, the price; answers are as long as their texts."""
        prompt = len(self.settings["prompt_text"].replace(PLACEHOLDER, "").encode())
        tokens_in, tokens_out = (texts * prompt + size) // _BYTES_PER_TOKEN, size // _BYTES_PER_TOKEN
        estimate = f"{texts:,} requests of about {tokens_in:,} tokens in and {tokens_out:,} out"
        if self.price is not None:
            total = (tokens_in * self.price[0] + tokens_out * self.price[1]) / 1e6
            estimate += f", {total:,.2f} at the prices given"
        return f"{estimate} (at {_BYTES_PER_TOKEN} bytes a token)"

    def run(self, cache: OutputCache, progress: Progress) -> Counter[str]:
        """Send a request for each text, several at a time, and store each answer at once.

        However it ends, requests that were sent are waited for and their answers stored: they are paid for.
        """
        from anyio.from_thread import start_blocking_portal
        from openai import AsyncOpenAI

        key = os.environ.get("OPENAI_API_KEY", "").strip() or "none"  # most local servers need none
        if not (key.isascii() and key.isprintable()):
            raise ConfigurationError("OPENAI_API_KEY holds a character that no key has: set it anew")
        options: dict[str, Any] = {"max_retries": self.retries, "http_client": _http_client(self.timeout)}
        failures: Counter[str] = Counter()
        texts, total = chain.from_iterable(cache.pending()), cache.remaining()[0]
        sent: set[Future[Generated]] = set()
        failed_in_a_row = 0
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(AsyncOpenAI(base_url=self._base_url, api_key=key, **options)) as client,
        ):
            try:
                while True:
                    # One request alone until the first answer: a server that cannot answer is sent no more.
                    for text in islice(texts, (self.concurrency if cache.made else 1) - len(sent)):
                        cache.count_requests(1)
                        sent.add(portal.start_task_soon(self._ask, client, text))
                    if not sent:
                        break
                    done = wait(sent, return_when=FIRST_COMPLETED).done
                    if answers := [future.result() for future in done if future.exception() is None]:
                        cache.store(answers)
                        progress.report(self.name, cache.made, total)
                        failed_in_a_row = 0
                    sent -= done  # not before they are stored
                    for error in filter(None, (future.exception() for future in done)):
                        reason, of_the_text = _reason(error)
                        failures[reason] += 1
                        failed_in_a_row += not answers
                        if not (cache.made or of_the_text) or failed_in_a_row >= _MAX_FAILURES:
                            raise UserError(
                                f"{self.endpoint} stopped answering ({reason}); {cache.made:,} answers of this run are "
                                "kept: check --endpoint, --model and the key in OPENAI_API_KEY, then run the same "
                                "command again to resume"
                            ) from error
            except BaseException:
                cache.store([future.result() for future in wait(sent).done if future.exception() is None])
                raise
        return failures

    async def _ask(self, client: "AsyncOpenAI", text: str) -> Generated:
        """Request an answer."""
        content = self.settings["prompt_text"].replace(PLACEHOLDER, text)
        request: dict[str, Any] = {"model": self.model, "messages": [{"role": "user", "content": content}]}
        options = {"temperature": self.temperature, "max_tokens": self.limit}
        request |= {key: value for key, value in options.items() if value is not None}
        response: Any = await client.chat.completions.with_raw_response.create(**request)
        answer = read_answer(response.content)
        self.tokens_in += answer.tokens_in
        self.tokens_out += answer.tokens_out
        return Generated(text, answer.output, (self.limit or 0) if answer.truncated else None)

    def positive_from(self, text: str, output: str) -> str:
        """Put an answer on one line, without its reasoning and without quotation marks that the text lacks."""
        line = clean.one_line(output if "</think>" in text else _REASONING.sub("", output, count=1))
        for left, right in _QUOTES:
            quoted = len(line) > 1 and line.startswith(left) and line.endswith(right)
            if quoted and not text.startswith(left) and left not in line[1:-1]:
                return line[1:-1].strip()
        return line


def _http_client(seconds: float) -> Any:  # noqa: ANN401 - its class needs openai
    """Return a client that follows no redirect and gives a whole answer so many seconds; httpx's are of each byte."""
    import httpx2
    from anyio import fail_after
    from openai import DefaultAsyncHttpxClient

    class Client(DefaultAsyncHttpxClient):
        async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401
            body = bytearray()
            try:
                with fail_after(seconds):
                    response = await super().send(request, **{**options, "stream": True})
                    try:
                        async for part in response.aiter_bytes():
                            body += part
                            if len(body) > _LONGEST:
                                raise UserError(f"an answer of more than {_LONGEST >> 20} MiB")
                    finally:
                        await response.aclose()
            except TimeoutError as error:
                raise httpx2.ReadTimeout("the answer took too long", request=request) from error
            packed = ("content-encoding", "content-length", "transfer-encoding")
            headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in packed]
            return httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=request)

    return Client(follow_redirects=False, timeout=seconds)


class Answer(NamedTuple):
    """What is read from a chat completion."""

    output: str
    truncated: bool
    tokens_in: int  # as the server counts, 0 where it does not
    tokens_out: int


def read_answer(content: bytes) -> Answer:
    """Read a chat completion, of which only the text of the first choice must be there.

    Raises:
        UserError: it is none.
    """
    try:
        answer = json.loads(content)
        choice, usage = answer["choices"][0], answer.get("usage")
        output = "".join([choice["message"]["content"] or ""])  # a TypeError where it is no string
        truncated = choice.get("finish_reason") == "length"
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UserError("an answer that is no chat completion") from error
    counts = (usage.get(key) if isinstance(usage, dict) else 0 for key in ("prompt_tokens", "completion_tokens"))
    tokens = [count if isinstance(count, int) and count > 0 else 0 for count in counts]
    return Answer(clean.encodable(output), truncated, *tokens)


def read_prompt(path: Path) -> str:
    """Read a prompt, which must be UTF-8 with ``{text}`` in it."""
    with suppress(OSError, UnicodeDecodeError):
        prompt = path.read_text(encoding="utf-8").strip()
        if PLACEHOLDER in prompt:
            return prompt
    raise ConfigurationError(
        f"the prompt {path} cannot be used: give a UTF-8 text file with {PLACEHOLDER} where the text goes"
    )


def _reason(error: BaseException) -> tuple[str, bool]:
    """Quote the server or the client, and tell whether the server refused this text alone; raise what is unknown."""
    import openai

    if isinstance(error, openai.APIStatusError):
        if 300 <= error.status_code < 400:
            there = clean.one_line(error.response.headers.get("location", "nowhere"))[:120]
            return f"{error.status_code}, a redirect to {there}, which is not followed", False
        said = error.body.get("message") if isinstance(error.body, dict) else None
        line = clean.one_line(f"{error.status_code} {said or ''}").rstrip(".")
        return line if len(line) <= 120 else f"{line[:119]}…", error.status_code in (400, 422)
    if isinstance(error, (openai.APIError, UserError)):
        return first_line(error).rstrip("."), False
    raise error


def _without_password(endpoint: str) -> str:
    try:
        parts = urlsplit(endpoint)
        parts.port  # noqa: B018 - a ValueError where it is no number
    except ValueError:  # such as http://[broken
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"endpoint {endpoint!r} is no URL: give one such as http://localhost:8000/v1")
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
