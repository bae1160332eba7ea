"""A request that is not answered with what it asked for: status, kind and one sentence, in either protocol's form."""

from typing import Any

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
