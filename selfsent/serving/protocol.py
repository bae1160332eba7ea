"""What clients and server say to each other: bodies of requests, refusals in either protocol's form, metrics.

The protocols are OpenAI's embeddings (below /v1), text-embeddings-inference, and Cohere's (below /v2).
"""

import re
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Annotated, Any, Literal

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.responses import Response

from selfsent.text.clean import encodable

# The kinds of text-embeddings-inference: status, that below /v1 as OpenAI's clients expect it, OpenAI's type and code
_KINDS = {
    "Empty": (400, 400, "invalid_request_error", "empty"),
    "Unauthorized": (401, 401, "authentication_error", "unauthorized"),
    "NotFound": (404, 404, "not_found_error", "model_not_found"),
    "MethodNotAllowed": (405, 405, "invalid_request_error", "methodnotallowed"),
    "Timeout": (408, 408, "invalid_request_error", "timeout"),
    "Validation": (413, 400, "invalid_request_error", "validation"),
    "Misdirected": (421, 421, "invalid_request_error", "misdirected"),
    "TooLong": (413, 400, "invalid_request_error", "context_length_exceeded"),  # a text; "Validation" outside /v1
    "Tokenizer": (422, 400, "invalid_request_error", "tokenizer"),
    "Backend": (424, 424, "server_error", "backend"),
    "Overloaded": (429, 429, "rate_limit_error", "overloaded"),
    "Unhealthy": (503, 503, "invalid_request_error", "unhealthy"),
}
OPENAI = ("/v1/", "/embeddings", "/models")  # paths of OpenAI's protocol: some clients leave /v1 out
_HEADERS = {"Unauthorized": {"www-authenticate": "Bearer"}, "Overloaded": {"retry-after": "1"}}


def json_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return JSON; numbers of NumPy in their shortest form."""
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, status, headers, media_type="application/json")


class Refusal(Exception):
    """A request is refused; ``kind`` is the ``error_type`` of text-embeddings-inference and decides the status."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message, self.status = kind, message, _KINDS[kind][0]

    def response(self, path: str, headers: dict[str, str] | None = None) -> Response:
        """Return the answer at a path, in the form of the protocol that it belongs to."""
        content: dict[str, Any]
        status, openai_status, openai_type, code = _KINDS[self.kind]
        if path.startswith(OPENAI):
            status = openai_status
            content = {"error": {"message": self.message, "type": openai_type, "param": None, "code": code}}
        elif path.startswith("/v2/"):  # Cohere's
            status, content = openai_status, {"message": self.message}
        else:
            content = {"error": self.message, "error_type": "Validation" if self.kind == "TooLong" else self.kind}
        return json_response(content, status, {**_HEADERS.get(self.kind, {}), **(headers or {})})


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a host name."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class KnownHosts:
    """The names in the header Host that a server answers to.

    A web page may let its own name resolve to the address of a server that only the reader's machine or network
    reaches (DNS rebinding), and then read its answers.  Its requests bear that name; an address cannot be rebound.
    """

    def __init__(self, host: str, allowed: Sequence[str]) -> None:
        self._local, self._all = is_loopback(host), "*" in allowed
        own = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
        self._names = {name.lower().rstrip(".") for name in ("localhost", own, *allowed)}

    def __contains__(self, header: str) -> bool:
        match = re.fullmatch(r"(\[[^\[\]]+\]|[^:]+)(:\d+)?", header.strip())
        name = match[1].strip("[]").lower().rstrip(".") if match else ""
        if self._all or name in self._names:
            return True
        try:
            return ip_address(name).is_loopback or not self._local
        except ValueError:
            return False


Text = Annotated[str, AfterValidator(encodable)]  # JSON can hold lone surrogates, and no answer could say them again
Ids = list[Annotated[int, Field(ge=0, le=2**31 - 1)]]
Input = Text | Ids | list[Text | Ids]
Direction = Literal["Left", "Right", "left", "right"]


class Body(BaseModel):
    """A body, whose other keys are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")


class OpenAIEmbeddings(Body):
    """POST /v1/embeddings."""

    input: Input = Field(description="a text, or several; token ids are those of the model, as /tokenize gives them")
    model: str | None = Field(None, description="a name of /v1/models; without one the first model")
    dimensions: int | None = Field(None, ge=1, description="keep so many leading dimensions, at length 1")
    encoding_format: Literal["float", "base64"] | None = Field(None, description="float by default")
    user: str | None = None
    truncate: bool | None = Field(None, description="beyond OpenAI: cut texts that are too long, or answer 400")
    prompt_name: str | None = Field(None, description="beyond OpenAI: a prompt of the model's folder")


class _Options(Body):
    truncate: bool | None = Field(None, description="cut texts that are too long, or answer 413")
    truncation_direction: Direction = "right"
    prompt_name: str | None = Field(None, description="a prompt of the model's folder, put before every text")


class EmbedRequest(_Options):
    """POST /embed."""

    inputs: Input
    normalize: bool | None = Field(None, description="true by default: vectors of length 1")
    dimensions: int | None = Field(None, ge=1)
    model: str | None = None


class SimilarityInputs(Body):
    """One text, and those it is compared with."""

    source_sentence: Text
    sentences: list[Text]


class SimilarityRequest(Body):
    """POST /similarity."""

    inputs: SimilarityInputs
    parameters: _Options | None = None
    model: str | None = None


class TokenizeRequest(Body):
    """POST /tokenize."""

    inputs: Text | list[Text]
    add_special_tokens: bool = True
    prompt_name: str | None = None
    model: str | None = None


class SearchRequest(Body):
    """POST /search."""

    query: Text
    top: int = Field(10, ge=1, le=100)
    index: str | None = Field(None, description="a name of GET /search; without one all of them are searched")
    mode: Literal["dense", "bm25", "hybrid"] | None = Field(None, description="None: as the index was made")
    words: float | None = Field(None, ge=0, le=1, description="weight of words in hybrid; None: as the index was made")
    feedback: int | None = Field(None, ge=0, le=100, description="documents found first that the query is moved to")
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
