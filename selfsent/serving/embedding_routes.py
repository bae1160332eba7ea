"""The routes of OpenAI's embeddings and of text-embeddings-inference."""

import base64
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray

from selfsent.encoder.base import UNLIMITED
from selfsent.encoder.quantize import unit
from selfsent.errors import UserError
from selfsent.serving.batcher import Batcher
from selfsent.serving.embedder import Embedder, Item, Wanted
from selfsent.serving.protocol import (
    EmbedRequest,
    Input,
    OpenAIEmbeddings,
    Refusal,
    ServerMetrics,
    SimilarityRequest,
    TokenizeRequest,
    json_response,
)
from selfsent.serving.served import ServedModel, ServedModels


def embedding_routes(models: ServedModels, embedder: Embedder, batcher: Batcher, metrics: ServerMetrics) -> APIRouter:
    """Build the routes."""
    router = APIRouter()

    @router.post("/embeddings", include_in_schema=False)
    @router.post("/v1/embeddings")
    async def openai_embeddings(body: OpenAIEmbeddings, request: Request) -> Response:
        """Return embeddings at length 1, as OpenAI does."""
        model = models.find(body.model)
        wanted = Wanted(truncate=body.truncate, prompt_name=body.prompt_name)
        vectors, tokens = await embedder.vectors(request, model, _items(body.input), wanted)
        vectors = shaped(vectors, body.dimensions, normalize=True)
        rows: Any = in_base64(vectors) if body.encoding_format == "base64" else vectors
        data = [{"object": "embedding", "index": number, "embedding": row} for number, row in enumerate(rows)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return json_response({"object": "list", "data": data, "model": model.name, "usage": usage})

    @router.get("/models", include_in_schema=False)
    @router.get("/v1/models")
    async def openai_models() -> Response:
        """List the models."""
        return json_response({"object": "list", "data": [_openai_model(model) for model in models]})

    @router.get("/models/{name:path}", include_in_schema=False)
    @router.get("/v1/models/{name:path}")
    async def openai_model(name: str) -> Response:
        """Describe one model."""
        return json_response(_openai_model(models.find(name)))

    @router.post("/embed")
    async def embed_texts(body: EmbedRequest, request: Request) -> Response:
        """Return one vector for each text."""
        wanted = _wanted(body.truncate, body.truncation_direction, body.prompt_name)
        vectors, _ = await embedder.vectors(request, models.find(body.model), _items(body.inputs), wanted)
        return json_response(shaped(vectors, body.dimensions, normalize=body.normalize is not False))

    @router.post("/similarity")
    async def similarities(body: SimilarityRequest, request: Request) -> Response:
        """Return the cosine of the source sentence with each of the others."""
        options = body.parameters
        wanted = _wanted(options.truncate, options.truncation_direction, options.prompt_name) if options else Wanted()
        embedder.check_number(body.inputs.sentences)
        texts = [body.inputs.source_sentence, *body.inputs.sentences]
        vectors, _ = await embedder.vectors(request, models.find(body.model), texts, wanted)
        vectors = unit(vectors)
        return json_response((vectors[1:] @ vectors[0]).astype(np.float32))

    @router.post("/tokenize")
    async def tokenize_texts(body: TokenizeRequest) -> Response:
        """Return the tokens of each text, whole."""
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        embedder.check_number(texts)
        model = models.find(body.model)
        return json_response(await embedder.beside(sum(map(len, texts)), _tokens, model, texts, body))

    @router.get("/info")
    async def info() -> Response:
        """Describe the first model, and the limits."""
        return json_response(_info(models.find(None), embedder, [model.name for model in models]))

    @router.head("/health", include_in_schema=False)
    @router.get("/health")
    async def health() -> Response:
        """Tell whether the server computes."""
        if not batcher.alive:
            raise Refusal("Unhealthy", "the thread that computes has ended: start the server again")
        return Response(status_code=200)

    @router.get("/metrics")
    async def prometheus() -> Response:
        """Return the metrics in Prometheus' text format."""
        metrics.queued.set(batcher.queued_tokens)
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def in_base64(vectors: NDArray[np.float32]) -> list[str]:
    """Return each vector as its little-endian bytes in base64."""
    return [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]


def _items(inputs: Input) -> Sequence[Item]:
    """Return the texts of an input: one text, one list of ids, or several of either."""
    if isinstance(inputs, str):
        return [inputs]
    ids = [item for item in inputs if isinstance(item, int)]
    return [ids] if ids else [item for item in inputs if not isinstance(item, int)]


def _wanted(truncate: bool | None, direction: str, prompt_name: str | None) -> Wanted:
    return Wanted(truncate=truncate, direction=direction.lower(), prompt_name=prompt_name)


def shaped(vectors: NDArray[np.float32], dimensions: int | None, *, normalize: bool) -> NDArray[np.float32]:
    """Return so many leading dimensions of vectors, at length 1 if asked.

    Raises:
        Refusal: there are not so many.
    """
    if dimensions is not None and dimensions > vectors.shape[1]:
        raise Refusal("Tokenizer", f"dimensions {dimensions} do not fit: this model has {vectors.shape[1]}")
    vectors = vectors[:, :dimensions]
    return np.ascontiguousarray(unit(vectors) if normalize else vectors, np.float32)


def _openai_model(model: ServedModel) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": 0, "owned_by": "selfsent"}


def _tokens(model: ServedModel, texts: Sequence[str], body: TokenizeRequest) -> list[list[dict[str, Any]]]:
    try:
        prompt = model.encoder.resolve_prompt(body.prompt_name, None)
    except UserError as error:
        raise Refusal("Tokenizer", str(error)) from error
    encodings = model.encoder.encodings(texts, prompt, special=body.add_special_tokens)
    return [
        [
            {"id": number, "text": token, "special": True, "start": None, "stop": None}
            if sequence is None
            else {"id": number, "text": (prompt + text)[start:stop], "special": False, "start": start, "stop": stop}
            for number, token, sequence, (start, stop) in zip(
                encoding.ids, encoding.tokens, encoding.sequence_ids, encoding.offsets, strict=True
            )
        ]
        for text, encoding in zip(texts, encodings, strict=True)
    ]


def _info(model: ServedModel, embedder: Embedder, names: list[str]) -> dict[str, Any]:
    config, longest = embedder.config, model.encoder.max_length
    return {
        "model_id": model.name,
        "model_sha": model.digest,
        "model_dtype": "float32",
        "model_type": {"embedding": {"pooling": model.encoder.pooling}},
        "max_concurrent_requests": config.max_concurrent_requests,
        "max_input_length": longest if longest < UNLIMITED else config.payload_limit,
        "max_batch_tokens": config.max_batch_tokens,
        "max_batch_requests": None,
        "max_client_batch_size": config.max_client_batch_size,
        "auto_truncate": config.auto_truncate,
        "tokenization_workers": config.tokenization_workers,
        "version": version("selfsent"),
        "width": model.encoder.width,
        "models": names,
    }
