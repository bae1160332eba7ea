"""The server as one ASGI application: models, limits, routes, and errors in the form of either protocol."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from selfsent.serving.batcher import Batcher
from selfsent.serving.embedder import Embedder
from selfsent.serving.embeddings import embedding_routes
from selfsent.serving.gateway import Gateway
from selfsent.serving.protocol import Refusal, ServerMetrics
from selfsent.serving.search import search_routes
from selfsent.serving.served import ServedIndexes, ServedModels
from selfsent.serving.settings import ServeConfig


def build_application(
    models: ServedModels, config: ServeConfig, *, api_key: str | None = None, indexes: ServedIndexes | None = None
) -> Gateway:
    """Return the application, whose thread computes between its start and its shutdown.

    Args:
        api_key: what clients send as ``Authorization: Bearer KEY``; None: whoever reaches the server may use it.
        indexes: what /search and the page look through; without any there are neither.
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

    # The pages of FastAPI's own documentation load scripts from another server; /openapi.json does not.
    application = FastAPI(title="selfsent", lifespan=lifespan, docs_url=None, redoc_url=None)
    application.include_router(embedding_routes(models, embedder, batcher, metrics))
    if indexes:
        application.include_router(search_routes(indexes, models, embedder))
    gateway = Gateway(application, config, metrics, api_key)

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
