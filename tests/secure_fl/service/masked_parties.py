"""Parties of a federation whose rule is masked: an evaluator's process, contributors in threads.

Contributors run here so that each can vanish at a chosen step, as one that is killed: nothing of
what it held in memory is left, and its outbox is.
"""

import json
import secrets
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np

from kahm import classify
from secure_fl.demo.service_parties import IDENTITY, Deployment, deployment
from secure_fl.heads.masked import MaskedPolicy
from secure_fl.service import masked_querier
from secure_fl.service.channel import Channel
from secure_fl.service.contributor import ContributorPolicy
from secure_fl.service.contributor_app import load_contributor
from secure_fl.service.contributor_loop import answer_listed
from secure_fl.service.desk import Desk
from secure_fl.service.masked_part import DroppedOut
from secure_fl.service.masked_querier import ask_masked
from secure_fl.service.members import read_member
from secure_fl.service.querier import BatchTerms, Querier
from tests.secure_fl.service.conftest import set_up_blobs

STEP = 4.0
"""Seconds for a message where somebody is silent: on a busy machine one second is short."""
UNHURRIED = 60.0
"""Where nobody is: then no machine is too slow."""


class Vanished(BaseException):
    """This contributor was killed."""


class Line(Channel):
    """A channel on which its member vanishes before a step's message, or does something first."""

    vanishes = 99
    also = staticmethod(lambda path, step, message: None)

    def call(self, method, path, body=b""):
        if method == "PUT" and "/exchange/" in path:
            step = int(path.partition("?")[0].rpartition("/")[2])
            if step >= self.vanishes:
                raise Vanished
            self.also(path, step, body)
        return super().call(method, path, body)


class Lasting:
    """A contributor that answers one batch after the other, as a process does, in a thread.

    It remembers the steps of every batch. What it holds in memory is gone when it ends.
    """

    def __init__(self, parties, name, **terms):
        self.contributor = parties.contributor(name, **terms)
        self.line = Line(parties.running.url(), parties.member(name), parties.manifest)
        self.line.also = self._note
        self.also = lambda batch, step: None
        self.steps = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _note(self, path, step, _):
        batch = path.split("/")[2]
        self.steps.setdefault(batch, []).append(step)
        self.also(batch, step)

    def _run(self):
        busy = threading.Lock()
        with self.line, suppress(Vanished):
            while not self._stop.is_set():
                answer_listed(self.contributor, self.line, self._stop, busy, lambda reached: None)
        self.contributor.outbox.close()

    def stop(self):
        self._stop.set()

    def end(self):
        self.stop()
        self._thread.join()


@dataclass
class Parties:
    """All parties of a federation whose rule is masked; the evaluator is a process."""

    running: Deployment
    manifest: object
    queries: np.ndarray
    codes: np.ndarray
    asks = "querier"

    def folder(self, name):
        return self.running.folder / name

    def member(self, name):
        return read_member(self.folder(name) / IDENTITY, name, self.manifest)

    def querier(self):
        channel = Channel(self.running.url(), self.member(self.asks), self.manifest)
        return Querier(self.member(self.asks), self.manifest, None, channel)

    def contributor(self, name, **terms):
        own = self.folder(name)
        policy = ContributorPolicy(**{"repeats": 1000, "quorum": 3, **terms})
        parts = (own, name, None, own / IDENTITY, own / "state", policy)
        return load_contributor(*parts, MaskedPolicy(exact_heads=True))

    def open(self, rows=slice(0, 6), known=None, *, quorum=3, patience=UNHURRIED, degree=0):
        """Opens a batch, as `ask_masked` does before it waits; returns its name."""
        batch, features = secrets.token_hex(8), self.queries[rows]
        queries = len(features) + (known.known if known else 0)
        terms = BatchTerms(quorum=quorum, patience=patience, lifetime=120.0, degree=degree)
        querier, desk = self.querier(), Desk(self.folder(self.asks))
        with querier.channel:
            masked_querier._open(querier, desk, features, queries, batch, known, terms)
        return batch

    def fetch(self, batch, rows=slice(0, 6), known=None):
        desk = Desk(self.folder(self.asks))
        common = {"batch": batch, "known": known, "terms": None}
        return ask_masked(self.querier(), desk, self.queries[rows], **common)

    def asked(self, name):
        with Channel(self.running.url(), self.member(name), self.manifest) as line:
            return json.loads(line.expect("GET", "/asked", what="asking"))["batches"]

    def clear(self, rows, names):
        there = [self.manifest.client_index(name) for name in names]
        codes = self.codes[rows][:, there]
        return classify(codes).tolist(), codes.min(axis=(1, 2)).tolist()

    def take_part(self, batch, name, vanishes=99, also=None, **terms):
        """One contributor's part in a batch, in a thread; on its owner's terms."""

        def run():
            line = Line(self.running.url(), self.member(name), self.manifest)
            line.vanishes = vanishes
            if also is not None:
                line.also = lambda _, step, message: also(step, message)
            contributor = self.contributor(name, **terms)
            with line:
                try:
                    sealed = line.expect("GET", f"/batches/{batch}/query", what="query")
                    contributor.part(sealed, batch, time.time()).run(line, threading.Event())
                except (Vanished, DroppedOut):
                    # The second where the others were too few.
                    return
                finally:
                    contributor.outbox.close()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def ask(self, rows=slice(0, 6), **terms):
        """A batch from end to end: its name and its answer, which is the clear rule's."""
        batch = self.open(rows, **terms)
        found = self.fetch(batch, rows)
        clear = self.clear(rows, found.present)
        assert (found.classes.tolist(), found.codes.tolist()) == clear
        return batch, found

    def all_take_part_when_asked(self, batch, **terms):
        """As `all_take_part`, from a thread, when a command has opened the batch."""

        def answer():
            while batch not in self.asked(self.manifest.clients[0]):
                time.sleep(0.05)
            self.all_take_part(batch, **terms)

        threading.Thread(target=answer, daemon=True).start()

    def all_take_part(self, batch, vanish=(), also=None, **terms):
        vanish = dict(vanish)
        for place, name in enumerate(self.manifest.clients):
            first = None if place else also
            self.take_part(batch, name, vanish.get(name, 99), first, **terms)


@contextmanager
def masked_parties(folder, clients, queriers=("querier",)):
    """Parties with clients that know overlapping blobs, and a running evaluator."""
    manifest, queries, codes = set_up_blobs(folder, 0, clients, queriers, rule="masked")
    with deployment(folder) as running:
        running.start("evaluator", "--step", str(UNHURRIED))
        yield Parties(running, manifest, queries, codes)


def restart(parties, step=UNHURRIED):
    """The evaluator is killed and started again; it waits for a message as long as `step`."""
    parties.running.kill("evaluator")
    parties.running.start("evaluator", "--step", str(step))
