"""Rewriting by any server that speaks OpenAI's chat protocol, hosted or local.

The client repeats a request after 408, 409, 429, 5xx, a lost connection or a timeout by itself: exponential back-off
with jitter, or what Retry-After says.  A text that fails for good is counted and left out, and the run stops where the
first text gets no answer or several in a row fail.
"""

import json
import os
import re
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

from selfsent.augment.cache import Generated, OutputCache
from selfsent.augment.produce import Backend
from selfsent.corpus import clean
from selfsent.errors import ConfigurationError, UserError, first_line
from selfsent.progress import Progress

if TYPE_CHECKING:
    from openai import OpenAI

PROMPT = Path(__file__).parent / "prompt.txt"
PLACEHOLDER = "{text}"
_MAX_FAILURES = 8  # texts that may fail in a row before the run stops
_BYTES_PER_TOKEN = 4  # roughly, in the most common languages and tokenizers
_REASONING = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
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
            raise ConfigurationError("rewriting needs the package openai: pip install 'selfsent[augment]'")
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
        from openai import OpenAI

        key = os.environ.get("OPENAI_API_KEY") or "none"  # most local servers need none
        options: dict[str, Any] = {"max_retries": self.retries, "timeout": self.timeout}
        failures: Counter[str] = Counter()
        texts, total = chain.from_iterable(cache.pending()), cache.remaining()[0]
        sent: set[Future[Generated]] = set()
        failed_in_a_row = 0
        with (
            OpenAI(base_url=self._base_url, api_key=key, **options) as client,
            ThreadPoolExecutor(self.concurrency) as pool,
        ):
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

    def _ask(self, client: "OpenAI", text: str) -> Generated:
        """Request an answer; runs in a thread."""
        content = self.settings["prompt_text"].replace(PLACEHOLDER, text)
        request: dict[str, Any] = {"model": self.model, "messages": [{"role": "user", "content": content}]}
        options = {"temperature": self.temperature, "max_tokens": self.limit}
        request |= {key: value for key, value in options.items() if value is not None}
        try:
            answer: Any = client.chat.completions.create(**request)
            # The client returns a string where the Content-Type is not JSON, and leaves out fields that are missing.
            choice = answer.choices[0]
            output = "".join([choice.message.content or ""])  # a TypeError where it is no string
        except (json.JSONDecodeError, AttributeError, IndexError, TypeError) as error:
            raise UserError("an answer that is no chat completion") from error
        self.tokens_in += getattr(answer.usage, "prompt_tokens", None) or 0
        self.tokens_out += getattr(answer.usage, "completion_tokens", None) or 0
        return Generated(text, output, (self.limit or 0) if choice.finish_reason == "length" else None)

    def positive_from(self, text: str, output: str) -> str:
        """Put an answer on one line, without its reasoning and without quotation marks that the text lacks."""
        line = clean.one_line(_REASONING.sub("", output, count=1))
        for left, right in _QUOTES:
            quoted = len(line) > 1 and line.startswith(left) and line.endswith(right)
            if quoted and not text.startswith(left) and left not in line[1:-1]:
                return line[1:-1].strip()
        return line


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
        said = error.body.get("message") if isinstance(error.body, dict) else None
        line = clean.one_line(f"{error.status_code} {said or ''}").rstrip(".")
        return line if len(line) <= 120 else f"{line[:119]}…", error.status_code in (400, 422)
    if isinstance(error, (openai.APIError, UserError)):
        return first_line(error).rstrip("."), False
    raise error


def _without_password(endpoint: str) -> str:
    try:
        parts = urlsplit(endpoint)
    except ValueError:  # such as http://[broken
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"endpoint {endpoint!r} is no URL: give one such as http://localhost:8000/v1")
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
