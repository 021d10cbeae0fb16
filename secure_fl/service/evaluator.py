"""What the evaluator's routes work on: batches on disk, the gate, and the evaluations."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from secure_fl.files import make_folder
from secure_fl.service.batch import Batch
from secure_fl.service.blobs import Blobs
from secure_fl.service.cluster import Calling
from secure_fl.service.evaluations import Evaluations
from secure_fl.service.exchange import Exchanges
from secure_fl.service.gate import Caller, Gate, Refusal
from secure_fl.service.holding import Held
from secure_fl.service.large_arrivals import LargeArrivals
from secure_fl.service.limits import Limits, Nonces
from secure_fl.service.members import Member
from secure_fl.service.metrics import Metrics
from secure_fl.service.registry import Federation, succeeded_by
from secure_fl.service.settling import Settling
from secure_fl.service.setup_store import SetUpStore
from secure_fl.service.shelf import FOLDER, Shelf
from secure_fl.service.signing import LIFETIME
from secure_fl.service.store import Store
from secure_fl.service.supervision import Ending

SUCCEEDED = "a successor of its federation took its place; ask again under it"
"""Why batches of former federations end; nobody answers under two manifests at once."""


class Evaluator:
    """A service that holds evaluation keys and ciphertexts, and opens none of what passes it.

    Args:
        federations: by fingerprint, each with this service's secrets.
        state: folder of the databases, made where absent, mode 0700.
        limits: on what others may ask.
        calling: how workers are called that answer batches; None answers here.

    Attributes:
        stopping: set when the service is to end; requests that wait for news return then.
        ending: ends the process where a loop cannot go on.
        shelf: files of engine bgv.
        large: what comes in for it.

    Raises:
        InputError: another process works on the state.
    """

    def __init__(
        self,
        federations: Mapping[str, tuple[Federation, Member]],
        state: Path,
        limits: Limits,
        calling: Calling | None = None,
    ) -> None:
        make_folder(state, mode=0o700)
        self._held = Held(state)
        self.metrics, self.stopping = Metrics(), False
        by_name = {name: federation for name, (federation, _) in federations.items()}
        self.limits = limits.shared_by(
            sum(len(each.queriers) for each in by_name.values()),
            sum(len(each.batched_queriers) for each in by_name.values()),
        )
        self.ending = Ending(self.stop)
        self.store = Store(state / "batches.db", wait=limits.database)
        # A request may name a time that lies ahead, and is valid for as long after it.
        self.nonces = Nonces(state / "nonces.db", 2 * LIFETIME, wait=limits.database)
        succeeded = succeeded_by(by_name)
        self.gate = Gate(federations, limits, self.nonces, self.metrics, succeeded)
        self.store.end(succeeded, SUCCEEDED)
        setups = SetUpStore(self.store, by_name)
        self.exchanges = Exchanges(self.store, setups, by_name, limits.step, state / "rows")
        self.shelf = Shelf(self.store, Blobs(state / FOLDER))
        self.shelf.clean()
        self.large = LargeArrivals(self.shelf, self.gate)
        folders = [each.folder for each in by_name.values() if not each.masked]
        self.evaluations = Evaluations(
            self.store,
            state / "batches.db",
            folders,
            limits,
            self.metrics,
            self.ending,
            self._advance,
            calling,
        )
        self.settling = Settling(self.store, setups, self.evaluations.changes.tell)

    def _advance(self, now: float, missed: float) -> bool:
        self.shelf.sweep()
        return self.exchanges.advance(now, missed)

    def stop(self) -> None:
        """Lets requests that wait return."""
        self.stopping = True
        self.evaluations.changes.tell()

    def close(self) -> None:
        """Closes the databases and gives the state free."""
        self.store.close()
        self.nonces.close()
        self._held.release()

    async def news(
        self, wait: float, found: Callable[[], Awaitable[bool]], *, look: float = 1.0
    ) -> None:
        """Returns when `found` is true, when the service stops, or after some seconds.

        Args:
            wait: seconds at most.
            found: asked at every change, and as often as `look` says.
            look: seconds; changes that another process makes are not told here.
        """
        end = time.monotonic() + wait
        while not self.stopping and not await found():
            left = end - time.monotonic()
            if left <= 0:
                return
            await self.evaluations.changes.wait(min(left, look))

    async def batch(self, caller: Caller[Federation], name: str) -> Batch:
        """A batch of the caller's federation; of a querier its own.

        Raises:
            Refusal: there is none; of another querier's the same is said.
        """
        federation = caller.federation.manifest.fingerprint
        found = await asyncio.to_thread(self.store.find, federation, name)
        if found is None or (caller.role == "querier" and found.querier != caller.name):
            raise Refusal(404, "absent", "no such batch")
        return found
