"""A contributor's loop: it fetches what is asked, and delivers answers or declines.

Every call goes out from here; what is answered is decided by `secure_fl.service.contributor`.
"""

import logging
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import fhe
from fhe.envelope import load_json
from fhe.errors import StorageError
from secure_fl.errors import FormatError, InputError, ProtocolError, QuorumError, ServiceError
from secure_fl.heads.manifest import Manifest
from secure_fl.service.channel import LARGEST, Channel, Sink
from secure_fl.service.contributor import Contributor, Declined
from secure_fl.service.declining import seal_reason
from secure_fl.service.masked_offer import Offer
from secure_fl.service.masked_part import DroppedOut
from secure_fl.service.sealed_query import BATCH, SealedQuery, sealed_bytes

log = logging.getLogger("securefl.service")

WAIT = 20.0
"""Seconds that one call waits for a batch."""
_FINAL = (404, 409, 410, 413, 422)
"""Signed words of the evaluator after which this contribution will never be taken."""


def answer_listed(
    contributor: Contributor,
    channel: Channel,
    stop: threading.Event,
    busy: threading.Lock,
    told: Callable[[bool], None],
    *,
    at_once: bool = False,
) -> None:
    """Waits for batches once, and answers those that are there; a turn of the loop.

    An evaluator that is away is no failure of this process: it is asked again in the next turn.

    Args:
        contributor: that answers.
        channel: to the evaluator.
        stop: set to end after the batch at hand.
        busy: held while a batch is at hand.
        told: hears after every call whether the evaluator could be reached.
        at_once: do not wait where there is none.
    """
    wait = 0.0 if at_once else WAIT
    try:
        if contributor.manifest.summed:
            work = _offered(contributor, channel, stop, wait)
        else:
            work = _listed(contributor, channel, wait)
        told(True)
        for serve in work:
            with busy:
                if stop.is_set():
                    return
                serve()
    except ServiceError as error:
        told(False)
        log.warning("%s", error)
        stop.wait(2.0)


def _listed(contributor: Contributor, channel: Channel, wait: float) -> list[Callable[[], None]]:
    """What serves the batches that wait for an encrypted contribution."""
    listed = channel.expect("GET", f"/asked?wait={wait:.0f}", what="asking for batches")
    return [partial(_serve, contributor, channel, batch) for batch in _names(listed)]


def _offered(
    contributor: Contributor, channel: Channel, stop: threading.Event, wait: float
) -> list[Callable[[], None]]:
    """What serves the next masked sum, if there is one."""
    path = f"/sums?wait={wait:.0f}&holds={','.join(contributor.setups.names)}"
    found = channel.granted("GET", path, what="asking for sums")
    if found.status == 202:
        return []
    try:
        offer = Offer.from_bytes(found.content)
    except FormatError as error:
        raise ServiceError(f"the evaluator's offer cannot be read: {error}") from None
    return [partial(_take_part, contributor, channel, offer, stop)]


def _names(listed: bytes) -> list[str]:
    try:
        names = load_json(listed)["batches"]
        # They become parts of paths.
        if all(BATCH.fullmatch(name) for name in names):
            return list(names)
    except (ValueError, KeyError, TypeError):
        pass
    raise ServiceError("the evaluator's list of batches cannot be read")


def _take_part(
    contributor: Contributor, channel: Channel, offer: Offer, stop: threading.Event
) -> None:
    with _declining(contributor, channel, offer.batch, offer.sealed):
        part = contributor.part(offer.sealed, offer.batch, time.time(), offer.keys)
        part.run(channel, stop)
        contributor.metrics.contributions.inc()


def _serve(contributor: Contributor, channel: Channel, batch: str) -> None:
    made = contributor.outbox.undelivered(batch)
    if made is None:
        sealed = _fetch_query(contributor, channel, batch)
        if sealed is None:
            # Closed or expired since it was listed.
            return
        with _declining(contributor, channel, batch, sealed):
            made = contributor.answer(sealed, batch, time.time())
    if made is None:
        return
    status = _deliver(channel, batch, made)
    if status >= 300 and status not in _FINAL:
        raise ServiceError(
            f"the evaluator did not take a contribution ({status}); it is sent again"
        )
    contributor.outbox.delivered(batch)
    if status < 300:
        contributor.metrics.contributions.inc()
    elif status not in (404, 409):
        # Closed and expired batches are nothing to speak of; this one will not be taken later.
        log.error("the evaluator did not take a contribution (%d)", status)
        asks = contributor.outbox.querier(batch)
        _decline(contributor, channel, batch, asks, "its contribution was refused; see its log")


@contextmanager
def _declining(
    contributor: Contributor, channel: Channel, batch: str, sealed: bytes
) -> Iterator[None]:
    """Declines a batch that cannot be answered, with the reason, to who sealed its query."""
    try:
        yield
    except (Declined, DroppedOut, ProtocolError, QuorumError) as reason:
        log.warning("a batch is declined: %s", reason)
        asks = _asker(contributor.manifest, sealed)
        _decline(contributor, channel, batch, asks, str(reason))
    except (sqlite3.Error, OSError, StorageError):
        # The machine's trouble and not the batch's: the turn fails, and is tried again.
        raise
    except ServiceError:
        # The evaluator is away: of a sum this client has dropped out.
        raise
    except Exception as error:
        # One batch that cannot be answered must not keep the others from it.
        log.error("a batch cannot be answered: %s", type(error).__name__)
        asks = _asker(contributor.manifest, sealed)
        _decline(contributor, channel, batch, asks, "this client failed over it; see its log")


def _fetch_query(contributor: Contributor, channel: Channel, batch: str) -> bytes | None:
    """A sealed query; None where this client is not asked any more."""
    path, what = f"/batches/{batch}/query", "asking for a query"
    keys = contributor.keys.values()
    slots = [key.parameters.degree for key in keys if isinstance(key, fhe.BatchedPublicKey)]
    if not slots:
        found = channel.heard("GET", path, what=what)
        return found.content if found.status == 200 else None
    most = sealed_bytes(max(slots), contributor.manifest)
    if len(slots) < len(keys):
        # Of which querier a batch is, and so of which engine, only the sealed query says.
        most = max(most, LARGEST)
    with tempfile.TemporaryDirectory(dir=contributor.outbox.folder) as folder:
        sink = Sink(Path(folder) / "query", most)
        found = channel.fetch(path, sink, what=what)
        return sink.path.read_bytes() if found.status == 200 else None


def _deliver(channel: Channel, batch: str, made: bytes | Path) -> int:
    """Sends a contribution; the status of the evaluator's answer."""
    path = f"/batches/{batch}"
    if isinstance(made, Path):
        # Megabytes are not sent for nothing.
        asked = channel.heard("GET", f"{path}/part", what="asking whether a batch waits")
        if asked.status != 200:
            return asked.status
        if _state(asked.content) != "asked":
            return 200 if _state(asked.content) == "sent" else 409
    return channel.heard("PUT", f"{path}/contribution", made, what="sending a contribution").status


def _state(part: bytes) -> object:
    try:
        return load_json(part)["state"]
    except (ValueError, KeyError, TypeError):
        raise ServiceError("the evaluator's word on a batch cannot be read") from None


def _asker(manifest: Manifest, data: bytes) -> str | None:
    """The querier that signed a sealed query; None where none of several is known to have."""
    try:
        return SealedQuery.from_bytes(data, manifest).facts.querier
    except (InputError, fhe.InputError):
        return manifest.queriers[0] if len(manifest.queriers) == 1 else None


def _decline(
    contributor: Contributor, channel: Channel, batch: str, asks: str | None, reason: str
) -> None:
    """Declines a batch; who asked hears why, and nobody else."""
    contributor.metrics.refusals.labels("declined").inc()
    sealed = b""
    if asks is not None:
        sealed = seal_reason(contributor.member, contributor.manifest, batch, asks, reason)
    channel.heard("DELETE", f"/batches/{batch}/query", sealed, what="declining a batch")
