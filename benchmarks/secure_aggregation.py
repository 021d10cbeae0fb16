"""What does one secure sum cost, beside Flower's SecAgg+ on the same machine?

Both run offline with all parties in this process, on one core, with the same number of neighbours
and the same share threshold; the clock runs for clients and server apart, encoding of the messages
included. Flower's own functions for the client's four stages are called as its modifier calls them,
the server's stages with the building blocks of its workflow.

Flower's masks come from a 32-bit seed of a Mersenne twister; ours are AES-256 keystreams. Ours
signs advertisements and confirms the survivors' list, Flower does neither: it is a peer in speed,
not in security.
"""

import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._harness import Run, benchmark
from secure_fl.federation.secagg import (
    FixedPoint,
    Identity,
    Member,
    Parameters,
    ProtocolClient,
    ProtocolServer,
)
from secure_fl.federation.secagg.parameters import AGREED, SESSION

CLIP = 8.0
TARGET_RANGE = 2**22
MODULUS = 2**32
"""Flower's defaults; ours spends what the modulus of 32 bits leaves for so many clients."""

Vectors = Sequence[NDArray[np.float64]]


@dataclass
class Cost:
    """What one sum took.

    Attributes:
        clients: seconds of all clients together.
        server: seconds.
        up: bytes of all clients to the server.
        down: bytes from the server to all clients.
        error: largest deviation of the mean of the survivors from the plain one.
    """

    clients: float = 0.0
    server: float = 0.0
    up: int = 0
    down: int = 0
    error: float = 0.0

    @contextmanager
    def client(self) -> Iterator[None]:
        """The clock of the clients."""
        start = time.perf_counter()
        yield
        self.clients += time.perf_counter() - start

    @contextmanager
    def serve(self) -> Iterator[None]:
        """The clock of the server."""
        start = time.perf_counter()
        yield
        self.server += time.perf_counter() - start


# -------------------------------------------------------------------------------------------- ours


def ours(vectors: Vectors, n_lost: int, degree: int, threshold: int, bits: int) -> Cost:
    """One sum by this project's protocol; the first `n_lost` clients drop out before masking."""
    n, cost = len(vectors), Cost()
    names = tuple(f"client{i:03}" for i in range(n))
    identities = {name: Identity() for name in names}
    directory = {name: identity.public for name, identity in identities.items()}
    session, agreed = os.urandom(SESSION), os.urandom(AGREED)
    parameters = Parameters(
        session, 0, 0, names, n // 2 + 1, degree, threshold, bits, agreed=agreed
    )
    encoding = FixedPoint(CLIP, n, bits)
    with cost.serve():
        server = ProtocolServer(parameters)
    with cost.client():
        # A first sum of a session: every signature is checked and every secret agreed.
        members = [Member(n, identities[n], directory, parameters.session) for n in names]
        clients = {each.name: ProtocolClient(each, parameters) for each in members}

    def step(asked: Sequence[str], answer: Callable[[str], bytes]) -> None:
        for name in asked:
            with cost.client():
                message = answer(name)
            cost.up += len(message)
            with cost.serve():
                server.receive(name, message)

    def close() -> dict[str, bytes]:
        with cost.serve():
            replies = server.close_step()
        cost.down += sum(map(len, replies.values()))
        return replies

    def masked(name: str) -> bytes:
        codes, _ = encoding.encode(vectors[names.index(name)])
        return clients[name].mask(replies[name], codes)

    step(names, lambda name: clients[name].advertise())
    replies = close()
    step(names, lambda name: clients[name].share(replies[name]))
    replies = close()
    step(names[n_lost:], masked)
    replies = close()
    step(names[n_lost:], lambda name: clients[name].confirm(replies[name]))
    replies = close()
    step(names[n_lost:], lambda name: clients[name].unmask(replies[name]))
    with cost.serve():
        total = encoding.decode(server.total())
    cost.error = _deviation(total / (n - n_lost), vectors[n_lost:])
    return cost


# ------------------------------------------------------------------------------------------ Flower


@dataclass
class FlowerServer:
    """The data that Flower's workflow keeps between its stages."""

    neighbours: list[list[int]]
    keys: dict[int, list[bytes]] = field(default_factory=dict)
    sealed: dict[int, dict[int, bytes]] = field(default_factory=dict)
    total: list[Any] | None = None
    shares: dict[int, list[bytes]] = field(default_factory=dict)


def flower(vectors: Vectors, n_lost: int, degree: int, threshold: int) -> Cost:
    """One sum by the functions of Flower's SecAgg+; the first `n_lost` drop out before masking."""
    from flwr.common import bytes_to_ndarray, ndarrays_to_parameters
    from flwr.common.secure_aggregation import ndarrays_arithmetic as arithmetic
    from flwr.common.secure_aggregation.secaggplus_constants import Key

    # The package has a function of the module's name.
    mod: Any = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
    n, cost = len(vectors), Cost()
    half = degree // 2
    ring = [
        sorted({(i + o) % n for o in range(-half, half + 1)} if degree < n - 1 else range(n))
        for i in range(n)
    ]
    server = FlowerServer(ring)
    states = [mod.SecAggPlusState(current_stage="setup", nid=i) for i in range(n)]
    setting = {
        Key.SAMPLE_NUMBER: n,
        Key.SHARE_NUMBER: len(ring[0]),
        Key.THRESHOLD: threshold,
        Key.CLIPPING_RANGE: CLIP,
        Key.TARGET_RANGE: TARGET_RANGE,
        Key.MOD_RANGE: MODULUS,
        Key.MAX_WEIGHT: 1.0,
    }
    for i in range(n):
        with cost.client():
            answer = mod._setup(states[i], setting)
        cost.up += _size(answer)
        server.keys[i] = [answer[Key.PUBLIC_KEY_1], answer[Key.PUBLIC_KEY_2]]
    for i in range(n):
        request: dict[str, Any] = {str(j): server.keys[j] for j in ring[i]}
        cost.down += _size(request)
        with cost.client():
            answer = mod._share_keys(states[i], request)
        cost.up += _size(answer)
        for j, sealed in zip(
            answer[Key.DESTINATION_LIST], answer[Key.CIPHERTEXT_LIST], strict=True
        ):
            server.sealed.setdefault(j, {})[i] = sealed
    for i in range(n_lost, n):
        request = {
            Key.SOURCE_LIST: list(server.sealed[i]),
            Key.CIPHERTEXT_LIST: list(server.sealed[i].values()),
        }
        cost.down += _size(request)
        update = ndarrays_to_parameters([vectors[i]])
        with cost.client():
            answer = mod._collect_masked_vectors(states[i], request, 1, update)
        cost.up += _size(answer)
        with cost.serve():
            masked = [bytes_to_ndarray(each) for each in answer[Key.MASKED_PARAMETERS]]
            if server.total is None:
                server.total = masked
            else:
                server.total = arithmetic.parameters_addition(server.total, masked)
    with cost.serve():
        assert server.total is not None
        server.total = arithmetic.parameters_mod(server.total, MODULUS)
    for i in range(n_lost, n):
        request = {
            Key.ACTIVE_NODE_ID_LIST: [j for j in ring[i] if j >= n_lost],
            Key.DEAD_NODE_ID_LIST: [j for j in ring[i] if j < n_lost],
        }
        cost.down += _size(request)
        with cost.client():
            answer = mod._unmask(states[i], request)
        cost.up += _size(answer)
        for owner, share in zip(answer[Key.NODE_ID_LIST], answer[Key.SHARE_LIST], strict=True):
            server.shares.setdefault(owner, []).append(share)
    with cost.serve():
        mean = _flower_mean(server, n_lost, n)
    cost.error = _deviation(mean, vectors[n_lost:])
    return cost


def _flower_mean(server: FlowerServer, n_lost: int, n: int) -> NDArray[np.float64]:
    from flwr.common.secure_aggregation import ndarrays_arithmetic as arithmetic
    from flwr.common.secure_aggregation.crypto.shamir import combine_shares
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
    from flwr.common.secure_aggregation.quantization import dequantize
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
    from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

    total = server.total
    assert total is not None
    shapes = arithmetic.get_parameters_shape(total)
    for owner, shares in server.shares.items():
        secret = combine_shares(shares)
        if owner >= n_lost:
            mask = pseudo_rand_gen(secret, MODULUS, shapes)
            total = arithmetic.parameters_subtraction(total, mask)
            continue
        for other in server.neighbours[owner]:
            if other == owner:
                continue
            key = generate_shared_key(
                bytes_to_private_key(secret), bytes_to_public_key(server.keys[other][0])
            )
            mask = pseudo_rand_gen(key, MODULUS, shapes)
            if owner > other:
                total = arithmetic.parameters_addition(total, mask)
            else:
                total = arithmetic.parameters_subtraction(total, mask)
    factor, codes = arithmetic.factor_extract(arithmetic.parameters_mod(total, MODULUS))
    values = dequantize(codes, CLIP, TARGET_RANGE)[0] - (n - n_lost - 1) * CLIP
    return values * (TARGET_RANGE / factor)


def _size(value: Any) -> int:
    """Bytes of a message's contents: of Flower's encoding not even the framing is counted."""
    if isinstance(value, dict):
        return sum(_size(each) for each in value.values())
    if isinstance(value, list | tuple):
        return sum(_size(each) for each in value)
    return len(value) if isinstance(value, bytes) else 8


def _deviation(mean: NDArray[np.float64], vectors: Vectors) -> float:
    return float(np.abs(mean - np.mean(vectors, axis=0)).max())


@benchmark("what does one secure sum cost, beside Flower's SecAgg+?")
def main(run: Run) -> None:
    """Client and server seconds and bytes of one sum, with and without drop-outs."""
    (seed,) = run.seeds(0)
    n, lengths = (20, (10_000, 100_000)) if run.quick else (100, (100_000, 1_000_000))
    degree = 10 if run.quick else 50
    threshold = (degree + 1) // 2 + 1
    run.parameter(clients=n, neighbours=degree, share_threshold=threshold, modulus_bits=32)
    rng = np.random.default_rng(seed)
    table = run.table(
        f"one sum of {n} clients, {degree} neighbours each, one core",
        [
            "length",
            "drop-outs",
            "protocol",
            "seconds a client",
            "server seconds",
            "kB up a client",
            "kB down a client",
            "error of the mean",
        ],
    )
    has_flower = importlib.util.find_spec("flwr") is not None
    for length in lengths:
        vectors = [rng.uniform(-1, 1, length) for _ in range(n)]
        for n_lost in (0, n // 10):
            sizes = (vectors, n_lost, degree, threshold)
            methods = [
                ("securefl", partial(ours, *sizes, bits=32)),
                ("securefl, 64 bits", partial(ours, *sizes, bits=64)),
            ]
            if has_flower:
                methods.append(("Flower SecAgg+", partial(flower, *sizes)))
            for name, method in methods:
                run.progress(f"{length} entries, {n_lost} drop-outs: {name}")
                cost = method()
                table.add(
                    length,
                    n_lost,
                    name,
                    cost.clients / n,
                    cost.server,
                    cost.up / n / 1e3,
                    cost.down / n / 1e3,
                    cost.error,
                )
    if not has_flower:
        run.note("Flower is not installed (pip install securefl[flower]); it was left out")
    run.note("kB of Flower are the contents of its messages, without its encoding")
    run.note("seconds a client: time of all clients over their number, dropped ones included")


if __name__ == "__main__":
    main()
