"""A contributor's watch for drift: gauges and a page for its owner, on its own machine alone."""

import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from prometheus_client import Gauge

from secure_fl.heads.head import Head
from secure_fl.heads.manifest import Manifest
from secure_fl.heads.watching import (
    DAYS,
    Array,
    Watch,
    drift,
    load_watch,
    save_watch,
    usual_measures,
)
from secure_fl.pages import html
from secure_fl.service.metrics import Metrics

FILE = "watch.json"


class DriftWatch:
    """Counts the queries that a contributor answers, and says whether they drift.

    Args:
        head: the contributor's.
        manifest: of the federation.
        path: of the counts, which a restart finds again.
        metrics: that get its two gauges.

    Raises:
        InputError: a head of one machine, or another file at that place.
    """

    def __init__(self, head: Head, manifest: Manifest, path: Path, metrics: Metrics) -> None:
        usual = usual_measures(head.bank, manifest.measure)  # type: ignore[arg-type]  # checked by the manifest
        self._path, self._lock = path, threading.Lock()
        self._watch = load_watch(path, usual)
        self._distance = Gauge(
            "securefl_drift",
            "Distance of the last days' queries from the client's own records, in [0, 1].",
            registry=metrics.registry,
        )
        self._limit = Gauge(
            "securefl_drift_limit", "What chance alone hardly exceeds.", registry=metrics.registry
        )
        self._measure()

    @classmethod
    def of(
        cls, head: Head, manifest: Manifest, state: Path, metrics: Metrics
    ) -> "DriftWatch | None":
        """The watch of a head that can have one.

        Raises:
            InputError: another file at the place of its counts.
        """
        if head.bank.n_machines < 2:
            return None
        return cls(head, manifest, state / FILE, metrics)

    @property
    def watch(self) -> Watch:
        """What was counted."""
        return self._watch

    def seen(self, measures: Array, now: float) -> None:
        """Counts queries that were answered.

        Args:
            measures: of each query and class, shape (q, C).
            now: seconds since 1970.
        """
        with self._lock:
            self._watch = self._watch.seen(np.asarray(measures).min(axis=1), now)
            save_watch(self._path, self._watch)
            self._measure()

    def _measure(self) -> None:
        found = drift(self._watch.counts(DAYS), len(self._watch.usual))
        self._distance.set(found.distance)
        self._limit.set(found.limit)

    def page(self, asked: Mapping[str, tuple[int, int]] = MappingProxyType({})) -> str:
        """An HTML page: the last days as one, every day by itself, and who asked.

        Args:
            asked: by querier, queries answered in 24 hours and how many it may ask.
        """
        watch, n = self._watch, len(self._watch.usual)
        rows = [("last days", watch.counts(DAYS)), *reversed(list(watch.days.items()))]
        return html.page(
            "Do the queries drift?",
            html.paragraph(
                f"How far this client's head folds the queries, against how far it folds {n} of its"
                " own records by machines that did not see them. Twenty bins, from the least"
                " folding to the most, are equally full where queries are like the records. Above"
                " the limit is what chance gives once in a hundred times. “Last days” are the last"
                f" {DAYS} with queries. Nothing of this leaves the machine."
            ),
            html.table(
                "",
                ("day", "queries", "distance", "limit", "", "bins"),
                [self._row(name, counts) for name, counts in rows],
            ),
            *([_askers(asked)] if asked else []),
        )

    def _row(self, name: str, counts: NDArray[np.int64]) -> list[html.Cell]:
        found = drift(counts, len(self._watch.usual))
        said = "drifted" if found.drifted else "usual"
        return [name, found.queries, found.distance, found.limit, said, html.bars(counts.tolist())]


def _askers(asked: Mapping[str, tuple[int, int]]) -> Markup:
    columns = ("querier", "queries in 24 hours", "may ask")
    return html.table("Who asked", columns, [[name, *each] for name, each in asked.items()])
