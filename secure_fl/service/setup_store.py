"""Set-ups of keys on the evaluator's disk: which batch goes on with which, and what a sum needs.

Of a set-up the evaluator keeps public keys, commitments and how many places it has handed out; the
sealed shares go when the batch that made it is answered. A batch gets its place in one transaction,
so no kill hands out a place twice; contributors would refuse it.
"""

import json
import sqlite3
from collections.abc import Collection

from fhe.errors import FormatError as EnvelopeError
from secure_fl.errors import FederationError, ProtocolError
from secure_fl.federation import wire
from secure_fl.federation.secagg import Parameters
from secure_fl.federation.secagg.setup_server import ServerSetUp
from secure_fl.service.batch import Batch
from secure_fl.service.masked_offer import HELD, Keys, Offer
from secure_fl.service.masked_words import SUMS
from secure_fl.service.store import Store

KIND = "service set-up of keys"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS setups (
    id INTEGER PRIMARY KEY, federation TEXT NOT NULL, querier TEXT NOT NULL, name TEXT NOT NULL,
    quorum INTEGER NOT NULL, degree INTEGER NOT NULL, members TEXT NOT NULL,
    taken INTEGER NOT NULL, content BLOB NOT NULL, UNIQUE (federation, name)
)
"""
_WORKING = (
    "EXISTS (SELECT 1 FROM batches b WHERE b.federation = setups.federation AND"
    " b.setup = setups.name AND b.state = 'collecting')"
)


class SetUpStore:
    """The set-ups of all federations.

    Args:
        store: of the batches.
        federations: fingerprints of those that are served; set-ups of others are dropped.
    """

    def __init__(self, store: Store, federations: Collection[str]) -> None:
        self._store = store
        with store.transaction() as db:
            db.execute(_SCHEMA)
            for (found,) in db.execute("SELECT DISTINCT federation FROM setups").fetchall():
                if found not in federations:
                    db.execute("DELETE FROM setups WHERE federation = ?", (found,))

    def asked(self, federation: str, client: str) -> tuple[list[int], Offer | None]:
        """Batches that wait for a client's part in a sum, the oldest first.

        Returns:
            The numbers of those whose keys are not settled, and the first one whose are.
        """
        with self._store.transaction() as db:
            rows = db.execute(
                "SELECT b.id, b.batch, b.setup, b.place FROM batches b JOIN parts p ON"
                " p.batch = b.id WHERE b.federation = ? AND p.client = ? AND"
                " b.state = 'collecting' AND b.agreed != '' AND p.state = 'asked' ORDER BY b.id",
                (federation, client),
            ).fetchall()
            first = next((row for row in rows if row[2]), None)
            open_ = [row[0] for row in rows if not row[2] and (first is None or row[0] < first[0])]
            if first is None:
                return open_, None
            number, batch, setup, place = first
            query = "SELECT sealed FROM parts WHERE batch = ? AND client = ?"
            (sealed,) = db.execute(query, (number, client)).fetchone()
            return open_, Offer(batch, Keys(setup, place), bytes(sealed))

    def fitting(self, batch: Batch) -> str | None:
        """The newest set-up of just those that a batch asks, on its terms, with a place left.

        Of its own querier alone: places of another's would tell how often that one asks.
        """
        with self._store.transaction() as db:
            row = db.execute(
                "SELECT name FROM setups WHERE federation = ? AND querier = ? AND quorum = ? AND"
                " degree = ? AND members = ? AND taken < ? ORDER BY id DESC LIMIT 1",
                (
                    *(batch.federation, batch.querier, batch.quorum, batch.degree),
                    *(_listed(batch.clients), SUMS),
                ),
            ).fetchone()
            return None if row is None else str(row[0])

    def settle(self, batch: Batch, name: str | None) -> None:
        """Has a batch go on with a set-up, or make one; what was settled before stays.

        Args:
            batch: at work.
            name: of the set-up; None for a new one.
        """
        with self._store.transaction() as db:
            place = 0
            if name is not None:
                row = db.execute(
                    "SELECT taken FROM setups WHERE federation = ? AND name = ? AND taken < ?",
                    (batch.federation, name, SUMS),
                ).fetchone()
                name, place = (None, 0) if row is None else (name, int(row[0]))
            done = db.execute(
                "UPDATE batches SET setup = ?, place = ? WHERE id = ? AND setup = ''",
                (name or batch.name, place, batch.id),
            )
            if done.rowcount and name is not None:
                change = "UPDATE setups SET taken = taken + 1 WHERE federation = ? AND name = ?"
                db.execute(change, (batch.federation, name))

    def retire(self, federation: str, name: str) -> None:
        """Hands out no more places of a set-up that somebody does not hold any more."""
        with self._store.transaction() as db:
            change = "UPDATE setups SET taken = ? WHERE federation = ? AND name = ?"
            db.execute(change, (SUMS, federation, name))
            _sweep(db)

    def load(self, batch: Batch, parameters: Parameters) -> ServerSetUp:
        """The set-up that a batch goes on with.

        Args:
            batch: settled.
            parameters: of its sum.

        Raises:
            ProtocolError: it is gone, or damaged.
        """
        with self._store.transaction() as db:
            row = db.execute(
                "SELECT content FROM setups WHERE federation = ? AND name = ?",
                (batch.federation, batch.setup),
            ).fetchone()
        if row is None:
            raise ProtocolError("the set-up of keys that this batch goes on with is gone")
        return read_set_up(bytes(row[0]), parameters)

    def keep(self, db: sqlite3.Connection, batch: Batch, setup: ServerSetUp) -> None:
        """Within the transaction that ends a batch: its keys serve later ones, if all have them.

        Args:
            db: in the transaction.
            batch: answered now.
            setup: of its sum.
        """
        if Keys(batch.setup or batch.name, batch.place).new(batch.name) and (
            setup.members == set(batch.clients)
        ):
            row = batch.federation, batch.querier, batch.name, batch.quorum, batch.degree
            content = wire.encode(setup.dump(), kind=KIND)
            db.execute(
                "INSERT OR IGNORE INTO setups (federation, querier, name, quorum, degree, members,"
                " taken, content) VALUES (?, ?, ?, ?, ?, ?, 1, ?)",
                (*row, _listed(batch.clients), content),
            )
        _sweep(db)


def read_set_up(content: bytes, parameters: Parameters) -> ServerSetUp:
    """A set-up as it is kept.

    Args:
        content: bytes of the kind `KIND`.
        parameters: of a sum of the set-up.

    Raises:
        ProtocolError: it is damaged, or of another set-up.
    """
    source = "a set-up that was kept"
    try:
        state = wire.decode(content, kind=KIND, source=source)
    except (EnvelopeError, FederationError) as error:
        raise ProtocolError(str(error)) from None
    return ServerSetUp.load(parameters, state)


def _listed(clients: Collection[str]) -> str:
    return json.dumps(sorted(clients))


def _sweep(db: sqlite3.Connection) -> None:
    """Drops what is used up or too old, once no batch works with it."""
    db.execute(f"DELETE FROM setups WHERE taken >= ? AND NOT {_WORKING}", (SUMS,))
    db.execute(
        f"DELETE FROM setups WHERE NOT {_WORKING} AND (SELECT count(*) FROM setups s WHERE"
        " s.federation = setups.federation AND s.id > setups.id) >= ?",
        (HELD,),
    )
