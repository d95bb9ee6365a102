"""What Prometheus is told. What the service counts is read from it when it is asked; only requests are counted here."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
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
        self._requests = _Requests()
        self._registry = CollectorRegistry()
        self._registry.register(self._requests)
        self._registry.register(_Plants(service, stale, ready, version))

    def count(self, call: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.count(call, status, seconds)

    def text(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self._registry)


class _Requests(Collector):
    """Plain numbers, since they are counted in every request, and by the event loop only."""

    def __init__(self) -> None:
        self._statuses: Counter[tuple[str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def count(self, call: str, status: int, seconds: float) -> None:
        self._statuses[call, status] += 1
        if call not in self._buckets:
            self._buckets[call] = [0] * (len(BUCKETS) + 1)
        self._buckets[call][bisect.bisect_left(BUCKETS, seconds)] += 1
        self._seconds[call] += seconds

    def collect(self) -> Iterator[Metric]:
        """What was counted."""
        requests = CounterMetricFamily(
            "tether_requests", "Requests by call and status.", labels=("call", "status")
        )
        for (call, status), number in self._statuses.items():
            requests.add_metric((call, str(status)), number)
        seconds = HistogramMetricFamily(
            "tether_request_seconds", "From the head of a request to its answer.", labels=("call",)
        )
        ends = [*map(str, BUCKETS), "+Inf"]
        for call, counts in self._buckets.items():
            summed = list(itertools.accumulate(counts))
            seconds.add_metric((call,), list(zip(ends, summed, strict=True)), self._seconds[call])
        yield from (requests, seconds)


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
