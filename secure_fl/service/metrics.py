"""What a service counts, for Prometheus: no batch, no content, no name but a querier's."""

from collections import Counter as Counts
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Metrics:
    """Counters of one process.

    Attributes:
        registry: of the client library.
        requests: by method and status.
        bytes: of HTTP headers and bodies, by direction ("in", "out").
        refusals: by reason, of a fixed list.
        batches: by state.
        asked: batches by querier and state.
        answered: queries that a contributor answered, by querier.
        contributions: accepted.
        evaluations: seconds each.
        failures: of the service's own loops, by loop.
        loops: 1 where a loop does its work, else 0.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "securefl_requests", "Requests.", ["method", "status"], registry=self.registry
        )
        self.bytes = Counter(
            "securefl_http_bytes", "Headers and bodies.", ["direction"], registry=self.registry
        )
        self.refusals = Counter(
            "securefl_refusals", "Refused requests.", ["reason"], registry=self.registry
        )
        self.batches = Gauge(
            "securefl_batches", "Batches in each state.", ["state"], registry=self.registry
        )
        self.asked = Gauge(
            *("securefl_querier_batches", "Batches of each querier in each state."),
            ["querier", "state"],
            registry=self.registry,
        )
        self.answered = Counter(
            *("securefl_answered_queries", "Queries answered.", ["querier"]),
            registry=self.registry,
        )
        self.contributions = Counter(
            "securefl_contributions", "Contributions accepted.", registry=self.registry
        )
        self.evaluations = Histogram(
            "securefl_evaluation_seconds",
            "Seconds of an evaluation.",
            buckets=(1, 3, 10, 30, 100, 300, 1000, 3000),
            registry=self.registry,
        )

        self.failures = Counter(
            "securefl_loop_failures", "Turns that failed.", ["loop"], registry=self.registry
        )
        self.loops = Gauge(
            "securefl_loop_alive", "Whether a loop does its work.", ["loop"], registry=self.registry
        )

    def stumbled(self, loop: str) -> None:
        """A turn of a loop failed."""
        self.failures.labels(loop).inc()

    def set_loops(self, loops: Mapping[str, bool]) -> None:
        """Notes which loops do their work."""
        for name, alive in loops.items():
            self.loops.labels(name).set(alive)

    def set_batches(self, counts: Mapping[tuple[str, str], int] | None) -> None:
        """Notes how many batches of each querier are in each state; None where nobody can look."""
        if counts is None:
            return
        # What is in no state any more has no count, and must not keep its last one.
        self.asked.clear()
        self.batches.clear()
        states: Counts[str] = Counts()
        for (querier, state), count in counts.items():
            self.asked.labels(querier, state).set(count)
            states[state] += count
        for state, count in states.items():
            self.batches.labels(state).set(count)

    def text(self) -> bytes:
        """All of them in Prometheus's text format."""
        return generate_latest(self.registry)


def counted(app: App, metrics: Metrics) -> App:
    """An application whose requests and bytes are counted."""

    async def wrapper(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        # The request line, and the two separators of every header.
        head = len(scope["method"]) + len(scope["raw_path"]) + len(scope["query_string"]) + 14
        metrics.bytes.labels("in").inc(head + _size(scope["headers"]))

        async def counted_receive() -> Message:
            message = await receive()
            metrics.bytes.labels("in").inc(len(message.get("body", b"")))
            return message

        async def counted_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                metrics.requests.labels(_method(scope["method"]), message["status"]).inc()
                metrics.bytes.labels("out").inc(17 + _size(message.get("headers", ())))
            metrics.bytes.labels("out").inc(len(message.get("body", b"")))
            await send(message)

        await app(scope, counted_receive, counted_send)

    return wrapper


def _size(headers: Any) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers)


def _method(name: str) -> str:
    # Anybody can send any word as a method; each would be a counter of its own.
    return name if name in ("GET", "PUT", "POST", "DELETE", "HEAD") else "other"
