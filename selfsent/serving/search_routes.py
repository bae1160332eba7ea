"""The search over indexes, and its page."""

import asyncio
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from selfsent.encoder.quantize import unit
from selfsent.errors import ConfigurationError
from selfsent.runtime.templates import template_environment
from selfsent.searching.reader import Hit
from selfsent.searching.settings import require_options
from selfsent.serving.embedder import Embedder, Wanted
from selfsent.serving.protocol import Refusal, SearchRequest, json_response
from selfsent.serving.served import ServedIndex, ServedIndexes, rounded


def search_routes(indexes: ServedIndexes, embedder: Embedder) -> APIRouter:
    """Build the routes."""
    router = APIRouter()
    thread = ThreadPoolExecutor(1, "search")  # as many as compute: a search uses every core
    for served in indexes:
        thread.submit(served.map_points)  # before the first search, which needs the map

    @router.get("/search")
    async def list_indexes(query: str | None = None) -> Response:
        """List the indexes."""
        if query is not None:
            raise Refusal("Tokenizer", "GET /search lists the indexes: search with POST /search")
        return json_response({"indexes": [_outline(served) for served in indexes]})

    @router.post("/search")
    async def search_texts_of(body: SearchRequest, request: Request) -> Response:
        """Search one index, or all of them."""
        chosen = list(indexes) if body.index is None else [indexes.find(body.index)]
        _require_possible(body)
        results = [await _search(served, body, request) for served in chosen]
        return json_response({"query": body.query, "results": results})

    async def _search(served: ServedIndex, body: SearchRequest, request: Request) -> dict[str, Any]:
        began = time.monotonic()
        served = await asyncio.get_running_loop().run_in_executor(thread, indexes.current, served.name)
        index, model = served.index, served.model
        no_word = Refusal("Tokenizer", f"{model.name} knows no word of the query: ask in the language of its texts")
        mode = body.mode or index.mode_with(body.words)
        is_unknown = await embedder.beside(len(body.query), model.encoder.knows_nothing, body.query)
        if is_unknown and mode == "dense":
            raise no_word
        mode = "bm25" if is_unknown else mode  # the number of a spare part, say: its words may be in the documents
        wanted = Wanted(truncate=True, prompt=index.facts["fingerprint"]["query"])
        vector = unit((await embedder.vectors(request, model, [body.query], wanted))[0]).astype(np.float32)

        def find() -> tuple[list[Hit], list[Any]]:
            if not index.is_intact():
                raise Refusal("Backend", f"{served.name} was changed while it was searched: ask again")
            (ranked,) = index.rank([body.query], vector, body.top, mode, words=body.words, feedback=body.feedback)
            hits = index.hits(ranked, body.query, vector[0])
            if is_unknown and not hits:
                raise no_word
            if body.counted and hits and mode != "bm25":
                ((_, cosines),) = index.dense.rank(vector, 1)  # which words may have ranked behind the hits
                served.drift.count_query(cosines[0])
            numbers = np.array([hit.document for hit in hits], np.int64)
            documents = index.opening_vectors(numbers) if hits else vector[:0]
            return hits, served.overview.project(np.concatenate([vector, documents])).tolist()

        hits, (point, *points) = await asyncio.get_running_loop().run_in_executor(thread, find)
        return {
            "index": served.name,
            "model": model.name,
            "mode": mode,
            "seconds": round(time.monotonic() - began, 4),
            "place": rounded(point),
            "hits": [vars(hit) | {"place": rounded(at)} for hit, at in zip(hits, points, strict=True)],
            "drift": served.drift.report(),
        }

    @router.get("/search/map")
    async def list_points(index: str) -> Response:
        """Return some of the documents of an index and where they are on its map, from -1 to 1."""
        points = await asyncio.get_running_loop().run_in_executor(thread, lambda: indexes.current(index).map_points())
        return json_response({"index": index, "points": points})

    @router.get("/")
    async def search_page() -> Response:
        """Return the page, which loads nothing but answers of this server."""
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; connect-src 'self'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        content = template_environment().get_template("serving/page.html").render(nonce=nonce)
        headers = {"content-security-policy": policy, "referrer-policy": "no-referrer", "cache-control": "no-store"}
        return Response(content, headers=headers, media_type="text/html; charset=utf-8")

    return router


def _require_possible(body: SearchRequest) -> None:
    if not body.query.strip():
        raise Refusal("Empty", "the query is empty: say what to look for")
    try:
        require_options(body.mode, body.words, body.feedback)
    except ConfigurationError as error:
        raise Refusal("Tokenizer", str(error)) from error


def _outline(served: ServedIndex) -> dict[str, Any]:
    return {
        "name": served.name,
        "model": served.model.name,
        "documents": len(served.index),
        "mode": served.index.mode,
        "description": served.index.describe(),
    }
