"""What clients and server say to each other: bodies of requests, refusals in either protocol's form, metrics.

The protocols are OpenAI's embeddings (below /v1) and text-embeddings-inference.
"""

from typing import Annotated, Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from pydantic import BaseModel, ConfigDict, Field

# The kinds of text-embeddings-inference, and their status codes.
_STATUS = {
    "Empty": 400,
    "Unauthorized": 401,
    "NotFound": 404,
    "MethodNotAllowed": 405,
    "Timeout": 408,
    "Validation": 413,
    "TooLong": 413,  # a text; "Validation" outside /v1
    "Tokenizer": 422,
    "Backend": 424,
    "Overloaded": 429,
    "Unhealthy": 503,
}
_BAD_REQUEST = ("Validation", "TooLong", "Tokenizer")  # 400 below /v1, as OpenAI's clients expect
_CODES = {"NotFound": "model_not_found", "TooLong": "context_length_exceeded"}
_OPENAI = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 424: "server_error"}


class Refusal(Exception):
    """A request is refused; ``kind`` is the ``error_type`` of text-embeddings-inference and decides the status."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message, self.status = kind, message, _STATUS[kind]

    def body(self, path: str) -> dict[str, Any]:
        """Return the JSON of the answer: OpenAI's form below /v1, elsewhere that of text-embeddings-inference."""
        if not path.startswith("/v1/"):
            return {"error": self.message, "error_type": "Validation" if self.kind == "TooLong" else self.kind}
        kind = _OPENAI.get(self.status, "invalid_request_error")
        code = _CODES.get(self.kind, self.kind.lower())
        return {"error": {"message": self.message, "type": kind, "param": None, "code": code}}

    def status_at(self, path: str) -> int:
        """Return the status of the answer at a path."""
        return 400 if path.startswith("/v1/") and self.kind in _BAD_REQUEST else self.status

    @property
    def headers(self) -> dict[str, str]:
        """Headers that belong to the status."""
        return {401: {"www-authenticate": "Bearer"}, 429: {"retry-after": "1"}}.get(self.status, {})


Ids = list[Annotated[int, Field(ge=0, le=2**31 - 1)]]
Input = str | Ids | list[str | Ids]
Direction = Literal["Left", "Right", "left", "right"]


class _Body(BaseModel):
    """A body, whose other keys are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")


class OpenAIEmbeddings(_Body):
    """POST /v1/embeddings."""

    input: Input = Field(description="a text, or several; token ids are those of the model, as /tokenize gives them")
    model: str | None = Field(None, description="a name of /v1/models; without one the first model")
    dimensions: int | None = Field(None, ge=1, description="keep so many leading dimensions, at length 1")
    encoding_format: Literal["float", "base64"] = "float"
    user: str | None = None
    truncate: bool | None = Field(None, description="beyond OpenAI: cut texts that are too long, or answer 400")
    prompt_name: str | None = Field(None, description="beyond OpenAI: a prompt of the model's folder")


class _Options(_Body):
    truncate: bool | None = Field(None, description="cut texts that are too long, or answer 413")
    truncation_direction: Direction = "right"
    prompt_name: str | None = Field(None, description="a prompt of the model's folder, put before every text")


class EmbedRequest(_Options):
    """POST /embed."""

    inputs: Input
    normalize: bool = True
    dimensions: int | None = Field(None, ge=1)
    model: str | None = None


class SimilarityInputs(_Body):
    """One text, and those it is compared with."""

    source_sentence: str
    sentences: list[str]


class SimilarityRequest(_Body):
    """POST /similarity."""

    inputs: SimilarityInputs
    parameters: _Options | None = None
    model: str | None = None


class TokenizeRequest(_Body):
    """POST /tokenize."""

    inputs: str | list[str]
    add_special_tokens: bool = True
    prompt_name: str | None = None
    model: str | None = None


class SearchRequest(_Body):
    """POST /search."""

    query: str
    top: int = Field(10, ge=1, le=100)
    index: str | None = Field(None, description="a name of GET /search; without one all of them are searched")
    mode: Literal["dense", "bm25", "hybrid"] | None = Field(None, description="None: as the index was made")
    counted: bool = Field(True, description="whether the drift gauge takes note of it")


_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = tuple(2**power for power in range(15))


class ServerMetrics:
    """Counters and histograms of one server."""

    def __init__(self) -> None:
        disable_created_metrics()  # which would double the lines
        self._registry = registry = CollectorRegistry()
        self.requests = Counter("te_request_count", "requests, by method", ["method"], registry=registry)
        self.successes = Counter("te_request_success", "requests answered with 200", ["method"], registry=registry)
        self.failures = Counter("te_request_failure", "requests refused, by kind", ["err"], registry=registry)
        self.duration = Histogram("te_request_duration", "seconds", registry=registry, buckets=_SECONDS)
        self.queue = Histogram("te_request_queue_duration", "seconds", registry=registry, buckets=_SECONDS)
        self.tokenization = Histogram(
            "te_request_tokenization_duration", "seconds", registry=registry, buckets=_SECONDS
        )
        self.inference = Histogram("te_batch_inference_duration", "seconds", registry=registry, buckets=_SECONDS)
        self.batch_size = Histogram("te_batch_next_size", "texts", registry=registry, buckets=_SIZES)
        self.batch_tokens = Histogram("te_batch_next_tokens", "tokens", registry=registry, buckets=_SIZES)
        self.queued = Gauge("te_queue_size", "tokens that wait", registry=registry)
        self.in_work = Gauge("te_request_in_work", "requests that are not answered yet", registry=registry)

    def computed(self, texts: int, tokens: int, seconds: float) -> None:
        """Count a batch."""
        self.batch_size.observe(texts)
        self.batch_tokens.observe(tokens)
        self.inference.observe(seconds)

    def text(self) -> bytes:
        """Return all of them in Prometheus' text format."""
        return generate_latest(self._registry)
