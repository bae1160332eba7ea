"""The routes that rank texts for a query, and those of Cohere: queries and documents behind their own prompts.

An encoder ranks by the cosine of two vectors, each of which has seen one text alone; a cross-encoder reads both.
"""

from collections.abc import Sequence
from typing import Any, Literal
from uuid import uuid4

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from selfsent.encoder.base import Role
from selfsent.encoder.quantize import unit
from selfsent.serving.embedder import Embedder, Wanted
from selfsent.serving.embedding_routes import in_base64, shaped
from selfsent.serving.protocol import Body, Text, json_response
from selfsent.serving.served import ServedModel, ServedModels

_META = {"api_version": {"version": "2"}}


class RerankRequest(Body):
    """POST /rerank, of text-embeddings-inference."""

    query: Text
    texts: list[Text]
    truncate: bool | None = None
    return_text: bool = False
    raw_scores: bool = Field(False, description="without effect: a score is a cosine")
    model: str | None = None


class _Document(BaseModel):
    text: Text


class CohereRerank(Body):
    """POST /v2/rerank and /v1/rerank, of Cohere and Jina."""

    query: Text
    documents: list[Text | _Document]
    top_n: int | None = Field(None, ge=1)
    return_documents: bool = False
    model: str | None = None


class CohereEmbed(Body):
    """POST /v2/embed, of Cohere."""

    texts: list[Text]
    input_type: Literal["search_document", "search_query", "classification", "clustering"] = "search_document"
    embedding_types: list[Literal["float", "base64"]] | None = Field(None, description="None: float")
    output_dimension: int | None = Field(None, ge=1, description="keep so many leading dimensions, at length 1")
    truncate: Literal["NONE", "START", "END"] = "END"
    model: str | None = None


def ranking_routes(models: ServedModels, embedder: Embedder) -> APIRouter:
    """Build the routes."""
    router = APIRouter()

    async def rank(
        request: Request, model: ServedModel, query: str, texts: Sequence[str], *, truncate: bool | None
    ) -> list[tuple[int, float]]:
        """Return places and cosines of texts, the nearest first."""
        embedder.check_number(texts)
        asked, _ = await embedder.vectors(request, model, [query], _wanted(model, "query", truncate))
        found, _ = await embedder.vectors(request, model, texts, _wanted(model, "document", truncate))
        cosines: NDArray[np.float32] = unit(found) @ unit(asked)[0]
        return [(place, float(cosines[place])) for place in np.argsort(-cosines, kind="stable").tolist()]

    @router.post("/rerank")
    async def rerank(body: RerankRequest, request: Request) -> Response:
        """Rank texts by their cosine with a query."""
        ranked = await rank(request, models.find(body.model), body.query, body.texts, truncate=body.truncate)
        texts = [{"text": body.texts[place]} if body.return_text else {} for place, _ in ranked]
        rows = zip(ranked, texts, strict=True)
        return json_response([{"index": place, "score": score, **text} for (place, score), text in rows])

    @router.post("/v1/rerank")
    @router.post("/v2/rerank")
    async def cohere_rerank(body: CohereRerank, request: Request) -> Response:
        """Rank documents by their cosine with a query; one that is too long is cut."""
        texts = [each if isinstance(each, str) else each.text for each in body.documents]
        model, results = models.find(body.model), []
        for place, score in (await rank(request, model, body.query, texts, truncate=True))[: body.top_n]:
            document = {"document": {"text": texts[place]}} if body.return_documents else {}
            results.append({"index": place, "relevance_score": min(1.0, score), **document})
        return json_response({"id": str(uuid4()), "model": model.name, "results": results, "meta": _META})

    @router.post("/v2/embed")
    async def cohere_embed(body: CohereEmbed, request: Request) -> Response:
        """Return embeddings at length 1: of queries and documents behind their own prompts."""
        roles: dict[str, Role] = {"search_query": "query", "search_document": "document"}
        model, start = models.find(body.model), "left" if body.truncate == "START" else "right"
        wanted = _wanted(model, roles.get(body.input_type, "default"), body.truncate != "NONE", start)
        vectors, tokens = await embedder.vectors(request, model, body.texts, wanted)
        vectors = shaped(vectors, body.output_dimension, normalize=True)
        made: dict[str, Any] = {"float": lambda: vectors, "base64": lambda: in_base64(vectors)}
        answer = {
            **{"id": str(uuid4()), "response_type": "embeddings_by_type", "texts": body.texts},
            "embeddings": {name: made[name]() for name in body.embedding_types or ["float"]},
            "meta": {**_META, "billed_units": {"input_tokens": tokens}},
        }
        return json_response(answer)

    return router


def _wanted(model: ServedModel, role: Role, truncate: bool | None, direction: str = "right") -> Wanted:
    return Wanted(truncate=truncate, direction=direction, prompt=model.encoder.task_prompt(role))
