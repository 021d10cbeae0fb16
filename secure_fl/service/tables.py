"""The tables of the evaluator's store, and how those of earlier releases become them.

`sealed_file` and `sent_file` are digests of files (`blobs`), where a batch has bodies too large for
a database; `room` is the bytes that all of them take at most, and `patience` the querier's seconds,
which begin when the last sealed query is there.
"""

import sqlite3

from secure_fl.crypto.identities import QUERIER

_BATCHES = f"""
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA secure_delete = ON;
PRAGMA foreign_keys = ON;
CREATE TABLE IF NOT EXISTS batches (
    id INTEGER PRIMARY KEY,
    federation TEXT NOT NULL, batch TEXT NOT NULL, opening TEXT NOT NULL,
    queries INTEGER NOT NULL, quorum INTEGER NOT NULL,
    patient_until REAL NOT NULL, expires REAL NOT NULL,
    state TEXT NOT NULL DEFAULT 'collecting', reason TEXT NOT NULL DEFAULT '',
    attempts INTEGER NOT NULL DEFAULT 0,
    done INTEGER NOT NULL DEFAULT 0, total INTEGER NOT NULL DEFAULT 0,
    present TEXT NOT NULL DEFAULT '[]', answer BLOB, answered REAL,
    agreed TEXT NOT NULL DEFAULT '', degree INTEGER NOT NULL DEFAULT 0,
    querier TEXT NOT NULL DEFAULT '{QUERIER}',
    room INTEGER NOT NULL DEFAULT 0, patience REAL NOT NULL DEFAULT 0,
    setup TEXT NOT NULL DEFAULT '', place INTEGER NOT NULL DEFAULT 0,
    UNIQUE (federation, batch)
);
CREATE TABLE IF NOT EXISTS exchanges (
    batch INTEGER NOT NULL REFERENCES batches, step INTEGER NOT NULL, client TEXT NOT NULL,
    message BLOB NOT NULL, PRIMARY KEY (batch, step, client)
);
"""
# What is looked at often stands first, and rows have numbers: behind a sealed query, or where rows
# are their own index, each look reads sealed queries, and every request of a hundred contributors
# looks at the states of all of them.
_PARTS = """
CREATE TABLE IF NOT EXISTS parts (
    batch INTEGER NOT NULL REFERENCES batches, client TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'asked', refusal BLOB, sealed_file TEXT, sent_file TEXT,
    sealed BLOB, contribution BLOB,
    PRIMARY KEY (batch, client)
);
"""
_LATER = (
    ("parts", "refusal", "BLOB"),
    ("batches", "agreed", "TEXT NOT NULL DEFAULT ''"),
    ("batches", "degree", "INTEGER NOT NULL DEFAULT 0"),
    ("batches", "querier", f"TEXT NOT NULL DEFAULT '{QUERIER}'"),
    ("batches", "room", "INTEGER NOT NULL DEFAULT 0"),
    ("batches", "patience", "REAL NOT NULL DEFAULT 0"),
    ("batches", "setup", "TEXT NOT NULL DEFAULT ''"),
    ("batches", "place", "INTEGER NOT NULL DEFAULT 0"),
    ("parts", "sealed_file", "TEXT"),
    ("parts", "sent_file", "TEXT"),
)
"""Columns that databases of earlier releases have not."""
SCHEMA = _BATCHES + _PARTS


def take_over(db: sqlite3.Connection) -> None:
    """Gives tables of earlier releases what they lack."""
    for table, column, kind in _LATER:
        if column not in {row[1] for row in db.execute(f"PRAGMA table_info({table})")}:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
    (made,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'parts'").fetchone()
    if "WITHOUT ROWID" in made:
        names = ", ".join(row[1] for row in db.execute("PRAGMA table_info(parts)"))
        db.execute("ALTER TABLE parts RENAME TO earlier")
        db.execute(_PARTS)
        db.execute(f"INSERT INTO parts ({names}) SELECT {names} FROM earlier")
        db.execute("DROP TABLE earlier")
