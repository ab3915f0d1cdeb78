"""What `/metrics` says, in the text format of Prometheus."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS")
SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: Any = {"registry": self.registry}
        self._requests = Counter(
            "mtnet_requests", "Requests.", ["method", "route", "status"], **own
        )
        self._seconds = Histogram(
            "mtnet_request_seconds", "Time of requests.", ["route"], buckets=SECONDS, **own
        )
        self._adapted = Histogram(
            "mtnet_adapt_seconds", "Time to adapt to a task.", ["network"], buckets=SECONDS, **own
        )
        self._batches = Histogram(
            "mtnet_adapt_batch", "Tasks adapted together.", buckets=(1, 2, 4, 8, 16), **own
        )
        self._tasks = Gauge("mtnet_tasks", "Tasks that the server has.", **own)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        method = method if method in METHODS else "other"  # few series, whatever is sent
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def adapted(self, network: str, seconds: float) -> None:
        self._adapted.labels(network).observe(seconds)

    def batch(self, count: int) -> None:
        self._batches.observe(count)

    def text(self, tasks: int) -> bytes:
        self._tasks.set(tasks)
        return generate_latest(self.registry)
