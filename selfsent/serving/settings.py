"""ServeConfig: the limits of the server, named as in text-embeddings-inference where it has them."""

from pydantic.dataclasses import dataclass

from selfsent.config import FINITE, MANY, setting


@dataclass(frozen=True, kw_only=True, config=FINITE)
class ServeConfig:
    """How much the server takes at once."""

    max_concurrent_requests: int = setting(512, "requests in work; the next is answered 429", ge=1, le=MANY)
    max_batch_tokens: int = setting(16_384, "tokens that are computed together", ge=1, le=MANY)
    max_wait: float = setting(0.0, "seconds that a batch waits for more texts while it is not full", ge=0, le=10)
    max_queued_tokens: int = setting(
        262_144,
        "tokens that wait, half of them of one request; a request that would exceed them is answered 429",
        ge=1,
        le=MANY,
    )
    max_client_batch_size: int = setting(2048, "texts of a request; more are answered 413", ge=1, le=MANY)
    payload_limit: int = setting(2_000_000, "bytes of a request's body; more are answered 413", ge=1, le=MANY)
    auto_truncate: bool = setting(False, "cut texts that are too long, where the request does not say; else 413")
    deadline: float = setting(30.0, "seconds until a request is computed, or it is answered 429", gt=0, le=86_400)
    body_timeout: float = setting(10.0, "seconds for the body of a request to arrive, or 408", gt=0, le=86_400)
    tokenization_workers: int = setting(2, "threads that tokenise long texts", ge=1, le=256)
    precision: str = setting("auto", "of the computation: auto, bf16 or fp32")
    allow_origins: tuple[str, ...] = setting(
        (), "origins, such as https://example.org, whose pages may call the server from a browser; * for all"
    )
    allow_hosts: tuple[str, ...] = setting(
        (), "names, such as search.example.org, that requests may have in the header Host; * for all"
    )
