"""The server as one ASGI application: what every request passes first, routes, and errors in either protocol's form."""

import asyncio
import hmac
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse

from selfsent.errors import ConfigurationError
from selfsent.serving.batcher import Batcher
from selfsent.serving.embedder import Embedder
from selfsent.serving.embedding_routes import embedding_routes
from selfsent.serving.protocol import KnownHosts, Refusal, ServerMetrics
from selfsent.serving.ranking_routes import ranking_routes
from selfsent.serving.reference import reference_page
from selfsent.serving.search_routes import search_routes
from selfsent.serving.served import ServedIndexes, ServedModels
from selfsent.serving.settings import ServeConfig

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_OPEN = ("/", "/health", "/metrics")  # without the key: the page holds no text, and probes have no key
_KNOWN = (
    *("/embed", "/similarity", "/tokenize", "/rerank", "/info", "/health", "/metrics", "/search", "/"),
    *("/v1/embeddings", "/embeddings", "/v1/rerank", "/v2/rerank", "/v2/embed"),
)


class Gateway:
    """What every request passes first: its origin, host and key, the number of requests in work, the size of the body.

    An ASGI middleware; a body is read whole before the application sees the request.
    """

    def __init__(
        self,
        application: Application,
        config: ServeConfig,
        metrics: ServerMetrics,
        api_key: str | None,
        hosts: KnownHosts | None = None,
    ) -> None:
        self._application, self._config, self._metrics = application, config, metrics
        self._key = None if api_key is None else api_key.strip().encode()  # a file ends in a newline
        if self._key == b"":  # which a client that sends none would match
            raise ConfigurationError("the API key is empty: give one, or leave it out")
        self._hosts = hosts
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
                self._require_known_host(scope)
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

    def _require_known_host(self, scope: Scope) -> None:
        for name, value in scope["headers"]:
            host = value.decode("latin-1")
            if name == b"host" and self._hosts is not None and host not in self._hosts:
                raise Refusal(
                    "Misdirected",
                    f"this server does not answer to the host {host[:200]!r}: ask it by its address, or start it with "
                    "--set 'allow_hosts=[\"NAME\"]'",
                )

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


def build_application(
    models: ServedModels,
    config: ServeConfig,
    *,
    api_key: str | None = None,
    indexes: ServedIndexes | None = None,
    host: str | None = None,
) -> Gateway:
    """Return the application, whose thread computes between its start and its shutdown.

    Args:
        api_key: what clients send as ``Authorization: Bearer KEY``; None: whoever reaches the server may use it.
        indexes: what /search and the page look through; without any there are neither.
        host: what the server listens on, by which it knows the names it answers to; None: it answers to every name.
    """
    metrics = ServerMetrics()
    batcher = Batcher(
        max_batch_tokens=config.max_batch_tokens,
        max_wait=config.max_wait,
        max_queued_tokens=config.max_queued_tokens,
        computed=metrics.computed,
    )
    embedder = Embedder(config, metrics, batcher)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        try:
            yield
        finally:  # uvicorn has answered every request by now
            batcher.stop()
            embedder.close()

    # The pages of FastAPI's own documentation load scripts from another server.
    application = FastAPI(title="selfsent", lifespan=lifespan, docs_url=None, redoc_url=None)
    application.include_router(embedding_routes(models, embedder, batcher, metrics))
    application.include_router(ranking_routes(models, embedder))
    if indexes:
        application.include_router(search_routes(indexes, embedder))

    @application.get("/docs", include_in_schema=False)
    async def reference() -> Response:
        return HTMLResponse(reference_page(application.openapi()))

    hosts = None if host is None else KnownHosts(host, config.allow_hosts)
    gateway = Gateway(application, config, metrics, api_key, hosts)

    @application.exception_handler(Refusal)
    async def refused(request: Request, refusal: Refusal) -> Response:
        gateway.refused(refusal)
        return refusal.response(request.url.path)

    @application.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        return await refused(request, Refusal("Tokenizer", _sentence(error.errors())))

    @application.exception_handler(HTTPException)
    async def without_route(request: Request, error: HTTPException) -> Response:
        kinds = {400: "Tokenizer", 404: "NotFound", 405: "MethodNotAllowed"}
        if error.status_code not in kinds:
            raise error
        message = {404: f"there is no {request.url.path[:200]} here", 405: f"{request.method} is not taken here"}
        refusal = Refusal(kinds[error.status_code], message.get(error.status_code, "the body is not JSON in UTF-8"))
        return await refused(request, refusal)

    return gateway


def _sentence(errors: Sequence[dict[str, object]]) -> str:
    """Say in one sentence what does not fit; a union of types is one place with several errors."""
    first = errors[0]
    path = first.get("loc", ())
    names = [name for name in (path if isinstance(path, tuple) else ()) if isinstance(name, str)]
    keys = [name for name in names if name.isidentifier() and name not in ("body", "str")]
    if first.get("type") == "json_invalid":
        return "the body is not JSON in UTF-8"
    if not keys:
        return "the body is no JSON object: send one, with the header Content-Type: application/json"
    return f"{'.'.join(keys)} does not fit: {first.get('msg', 'it is of another type')}"
