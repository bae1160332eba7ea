"""The search over indexes, and its page."""

import asyncio
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from selfsent.evaluation.geometry import unit
from selfsent.runtime.templates import template_environment
from selfsent.searching.index import Hit
from selfsent.serving.embeddings import json_response
from selfsent.serving.protocol import Refusal, SearchRequest
from selfsent.serving.registry import IndexRegistry, ModelRegistry, ServedIndex, ServedModel, rounded
from selfsent.serving.work import Wanted, Worker
from selfsent.text import clean


def search_routes(indexes: IndexRegistry, models: ModelRegistry, worker: Worker) -> APIRouter:
    """Build the routes."""
    router = APIRouter()
    thread = ThreadPoolExecutor(1, "search")  # as many as compute: a search uses every core
    for one in indexes:
        thread.submit(one.map_points)  # before the first search, which needs the map

    @router.get("/search")
    async def list_indexes() -> Response:
        """List the indexes."""
        return json_response({"indexes": [_outline(one) for one in indexes]})

    @router.post("/search")
    async def search_texts_of(body: SearchRequest, request: Request) -> Response:
        """Search one index, or all of them."""
        chosen = list(indexes) if body.index is None else [indexes.find(body.index)]
        if not body.query.strip():
            raise Refusal("Empty", "the query is empty: say what to look for")
        results = [await _search(one, body, request) for one in chosen]
        return json_response({"query": clean.encodable(body.query), "results": results})

    async def _search(one: ServedIndex, body: SearchRequest, request: Request) -> dict[str, Any]:
        began = time.monotonic()
        model = _model_of(one, models)
        unknown = await worker.beside(len(body.query), model.encoder.knows_nothing, body.query)
        mode = _mode_for(body.mode or one.index.mode, unknown, model)
        wanted = Wanted(truncate=True, prompt=one.index.facts["fingerprint"]["query"])
        vectors, _ = await worker.vectors(request, model, [body.query], wanted)
        vector = unit(vectors).astype(np.float32)

        def find() -> tuple[list[Hit], list[Any]]:
            (ranked,) = one.index.rank([body.query], vector, body.top, mode)
            hits = one.index.hits(ranked, body.query, vector[0])
            if unknown and not hits:
                raise _unknown(model)
            if body.counted and hits and mode != "bm25":
                ((_, cosines),) = one.index.dense.rank(vector, 1)  # which words may have ranked behind the hits
                one.drift.count_query(cosines[0])
            documents = (
                one.index.opening_vectors(np.array([hit.document for hit in hits], np.int64)) if hits else vector[:0]
            )
            return hits, one.overview.project(np.concatenate([vector, documents])).tolist()

        hits, (place, *places) = await asyncio.get_running_loop().run_in_executor(thread, find)
        return {
            "index": one.name,
            "model": one.model,
            "mode": mode,
            "seconds": round(time.monotonic() - began, 4),
            "place": rounded(place),
            "hits": [vars(hit) | {"place": rounded(at)} for hit, at in zip(hits, places, strict=True)],
            "drift": one.drift.report(),
        }

    @router.get("/search/map")
    async def list_points(index: str) -> Response:
        """Return some of the documents of an index and where they are on its map, from -1 to 1."""
        points = await asyncio.get_running_loop().run_in_executor(thread, indexes.find(index).map_points)
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


def _mode_for(mode: str, unknown: bool, model: ServedModel) -> str:
    """Return how a query is searched of which the model may know no word: a number of a part, say, by words alone."""
    if unknown and mode == "dense":
        raise _unknown(model)
    return "bm25" if unknown else mode


def _unknown(model: ServedModel) -> Refusal:
    return Refusal("Tokenizer", f"{model.name} knows no word of the query: ask in the language of its texts")


def _model_of(one: ServedIndex, models: ModelRegistry) -> ServedModel:
    model = models.find(one.model)
    if model.digest != one.index.facts["fingerprint"]["digest"]:
        raise Refusal("Backend", f"{model.name} changed since {one.name} was made: make the index again")
    return model


def _outline(one: ServedIndex) -> dict[str, Any]:
    return {
        "name": one.name,
        "model": one.model,
        "documents": len(one.index),
        "mode": one.index.mode,
        "description": one.index.describe(),
    }
