"""What Prometheus is told. What the service counts is read from it when it is asked; only requests are counted here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from tether.serve.board import lag_of
from tether.serve.service import Service

CONTENT_TYPE = CONTENT_TYPE_LATEST
BUCKETS = (2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.5, 2.0)
"""Seconds."""


class Metrics:
    """Counters of one application.

    Args:
        service: Whose plants.
        stale: Whether the file of tokens is bad.
        ready: Whether the service can decide.
        version: Of the package.
    """

    def __init__(
        self, service: Service, stale: Callable[[], bool], ready: Callable[[], bool], version: str
    ) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "tether_requests", "Requests by call and status.", ("call", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "tether_request_seconds",
            "From the last byte of a request to its answer.",
            ("call",),
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._children: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._registry.register(_Plants(service, stale, ready, version))

    def count(self, call: str, status: int, seconds: float) -> None:
        """Count a request."""
        children = self._children.get((call, status))
        if children is None:
            children = self._requests.labels(call, status), self._seconds.labels(call)
            self._children[call, status] = children
        children[0].inc()
        children[1].observe(seconds)

    def text(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self._registry)


class _Plants(Collector):
    def __init__(
        self, service: Service, stale: Callable[[], bool], ready: Callable[[], bool], version: str
    ) -> None:
        self._service, self._stale, self._ready, self._version = service, stale, ready, version

    def collect(self) -> Iterator[Metric]:
        """Everything that the service knows, as it is now."""
        status = self._service.status()
        yield GaugeMetricFamily("tether_ready", "1 if it can decide.", float(self._ready()))
        yield GaugeMetricFamily(
            "tether_tokens_stale",
            "1 if the file of tokens is bad and the last good one counts.",
            float(self._stale()),
        )
        yield GaugeMetricFamily(
            "tether_journal_lag_seconds",
            "Age of the oldest record that is not as durable as was asked for.",
            lag_of(status) or 0.0,
        )
        build = GaugeMetricFamily("tether_build", "The version, in a label.", labels=("version",))
        build.add_metric((self._version,), 1.0)
        yield build
        decisions = CounterMetricFamily("tether_decisions", "Decisions.", labels=("plant",))
        interventions = CounterMetricFamily(
            "tether_interventions",
            "Decisions that are not the proposal, by reason.",
            labels=("plant", "reason"),
        )
        breaches = CounterMetricFamily("tether_breaches", "Breaches of assumptions.", labels=("plant",))
        opened = GaugeMetricFamily("tether_open_episodes", "Open episodes.", labels=("plant",))
        held = GaugeMetricFamily("tether_prior_now", "1 if an operator wants the prior.", labels=("plant",))
        margin = GaugeMetricFamily(
            "tether_margin", "Least margin of the open episodes, cost units.", labels=("plant",)
        )
        radius = GaugeMetricFamily(
            "tether_radius", "Least safe radius of the open episodes, action units.", labels=("plant",)
        )
        for name, plant in status["plants"].items():
            decisions.add_metric((name,), plant["decisions"])
            breaches.add_metric((name,), plant["breaches"])
            opened.add_metric((name,), len(plant["episodes"]))
            held.add_metric((name,), float(plant["held"] is not None))
            for reason, count in plant["reasons"].items():
                if reason != "safe":
                    interventions.add_metric((name, reason), count)
            for family, key in ((margin, "margin"), (radius, "radius")):
                last = [each["rounds"][-1][key] for each in plant["episodes"] if each["rounds"]]
                known = [value for value in last if value is not None]
                if known:
                    family.add_metric((name,), min(known))
        yield from (decisions, interventions, breaches, opened, held, margin, radius)
