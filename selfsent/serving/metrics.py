"""Prometheus metrics under the names of text-embeddings-inference."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

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
        self.batch_tokens = Histogram("te_batch_next_tokens", "word pieces", registry=registry, buckets=_SIZES)
        self.queued = Gauge("te_queue_size", "word pieces that wait", registry=registry)
        self.in_work = Gauge("te_request_in_work", "requests that are not answered yet", registry=registry)

    def computed(self, texts: int, tokens: int, seconds: float) -> None:
        """Count a batch."""
        self.batch_size.observe(texts)
        self.batch_tokens.observe(tokens)
        self.inference.observe(seconds)

    def text(self) -> bytes:
        """Return all of them in Prometheus' text format."""
        return generate_latest(self._registry)
