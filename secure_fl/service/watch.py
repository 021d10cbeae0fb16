"""A contributor's watch for drift: gauges and a page for its owner, on its own machine alone."""

import threading
from pathlib import Path

import numpy as np
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

    def page(self) -> str:
        """An HTML page: the last days as one, and every day by itself."""
        watch, n = self._watch, len(self._watch.usual)
        rows = [("last days", watch.counts(DAYS)), *reversed(list(watch.days.items()))]
        cells = []
        for name, counts in rows:
            found = drift(counts, n)
            said = "drifted" if found.drifted else "usual"
            bars = "".join(
                f'<i style="height:{round(100 * each / max(int(counts.max()), 1))}%"></i>'
                for each in counts.tolist()
            )
            cells.append(
                f"<tr><td>{name}</td><td>{found.queries}</td><td>{found.distance:.3f}</td>"
                f'<td>{found.limit:.3f}</td><td>{said}</td><td><div class="bars">{bars}</div></td>'
                "</tr>"
            )
        return _PAGE.format(records=n, days=DAYS, rows="".join(cells))


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Do the queries drift?</title>
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; margin: 2rem; max-width: 60rem }}
td, th {{ padding: .2rem .8rem; text-align: left; vertical-align: bottom }}
.bars {{ display: flex; align-items: flex-end; height: 2rem; gap: 1px }}
.bars i {{ width: 6px; background: #357; min-height: 1px }}
</style>
<h1>Do the queries drift?</h1>
<p>How far this client's head folds the queries, against how far it folds {records} of its own
records by machines that did not see them. Twenty bins, from the least folding to the most, are
equally full where queries are like the records. Above the limit is what chance gives once in a
hundred times. "Last days" are the last {days} with queries. Nothing of this leaves the machine.</p>
<table><tr><th>day</th><th>queries</th><th>distance</th><th>limit</th><th></th><th>bins</th></tr>
{rows}</table></html>
"""
