"""What every request passes first: its origin, the key, the number of requests in work, and the size of the body."""

import asyncio
import hmac
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.middleware.cors import CORSMiddleware

from selfsent.errors import ConfigurationError
from selfsent.serving.protocol import Refusal, ServerMetrics
from selfsent.serving.settings import ServeConfig

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_OPEN = ("/", "/health", "/metrics")  # without the key: the page holds no text, and probes have no key
_KNOWN = ("/embed", "/similarity", "/tokenize", "/info", "/health", "/metrics", "/search", "/v1/embeddings", "/")


class Gateway:
    """An ASGI middleware; a body is read whole before the application sees the request."""

    def __init__(
        self, application: Application, config: ServeConfig, metrics: ServerMetrics, api_key: str | None
    ) -> None:
        self._application, self._config, self._metrics = application, config, metrics
        self._key = None if api_key is None else api_key.strip().encode()  # a file ends in a newline
        self._in_work = 0
        self.answered = 0  # requests with a status below 400, probes left out
        # Outside of all else: a browser asks without the key whether it may ask, and shows a page no refusal otherwise.
        self._first: Application = self._pass_on
        if origins := config.allow_origins:
            for origin in origins:
                if not re.fullmatch(r"\*|[a-z][a-z0-9+.-]*://[^/\s]+", origin):  # would never be that of a page
                    raise ConfigurationError(
                        f"allow_origins: {origin!r} is no origin: give scheme and host alone, as https://example.org"
                    )
            self._first = CORSMiddleware(
                self._pass_on, origins, allow_methods=("GET", "POST"), allow_headers=("authorization", "content-type")
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        await self._first(scope, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        path, began, status = scope["path"], time.monotonic(), 500

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        counts = path not in ("/health", "/metrics")
        self._in_work += counts
        try:
            try:
                self._authorise(scope)
                if counts and self._in_work > self._config.max_concurrent_requests:
                    raise Refusal("Overloaded", "the model is overloaded: too many requests are in work, try again")
                body = await self._body(scope, receive)
            except Refusal as refusal:
                self.refused(refusal)
                unread = {"connection": "close"} if refusal.status in (408, 413) else {}  # the rest of the body
                await refusal.response(path, unread)(scope, receive, counted)
                return
            await self._application(scope, _replay(body, receive), counted)
        finally:
            self._in_work -= counts
            method = path if path in _KNOWN else "other"
            self._metrics.requests.labels(method).inc()
            self._metrics.in_work.set(self._in_work)
            if counts:
                self._metrics.duration.observe(time.monotonic() - began)
            if status < 400:
                self._metrics.successes.labels(method).inc()
                self.answered += counts

    def refused(self, refusal: Refusal) -> None:
        """Count a refusal."""
        self._metrics.failures.labels(refusal.kind.lower()).inc()

    def _authorise(self, scope: Scope) -> None:
        if self._key is None or scope["path"] in _OPEN:
            return
        scheme, _, key = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(key.strip(), self._key):
            raise Refusal("Unauthorized", "the key is missing or wrong: send the header Authorization: Bearer KEY")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Read the body.

        Raises:
            Refusal: it is too large, or does not arrive in time.
        """
        most = self._config.payload_limit
        too_large = Refusal("Validation", f"the body is too large: at most {most:,} bytes are read")
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > most:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._config.body_timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refusal("Timeout", "the client left before its request was complete")
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise too_large
                    if not message.get("more_body"):
                        return bytes(body)
        except TimeoutError:
            raise Refusal("Timeout", f"the body did not arrive in {self._config.body_timeout:g} s") from None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the application a body that was read, and then what the server says."""
    is_read = False

    async def replayed() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
