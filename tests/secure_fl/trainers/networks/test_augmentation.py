"""Shifted copies of a record: what they are, that they are one record, and what they draw from."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from dp import Ledger
from secure_fl.federation import Client, wire
from secure_fl.federation.privacy import Grid
from secure_fl.trainers.networks import (
    DPSGD,
    ConvNet,
    LinearModel,
    LocalTraining,
    Shifts,
    economical_batch,
    load,
    make_plan,
    record_gradients,
)
from secure_fl.trainers.networks.augmentation import Copies
from secure_fl.trainers.networks.dpsgd import clipped_sum, private_network_of, train_privately
from secure_fl.trainers.networks.local import as_vectors

GRID = Grid(0.5, 1 << 24)
IMAGE = (2, 3, 4)
SHIFTS = Shifts(IMAGE, copies=3, pixels=2)


def numbers(seed):
    """A source of bytes that is the same for the same seed."""
    return np.random.default_rng(seed).bytes


def a_client(tmp_path, n=20, d=24, name="a"):
    rng = np.random.default_rng(0)
    books = Ledger.create(tmp_path / f"{name}.jsonl", name)
    return Client(name, rng.normal(size=(n, d)), rng.integers(0, 3, n), ledger=books)


def slid(image, up, left):
    """By loops: the pixel at (r, c) comes from (r + up, c + left), or is 0."""
    moved = np.zeros_like(image)
    _, height, width = image.shape
    for r in range(height):
        for c in range(width):
            if 0 <= r + up < height and 0 <= c + left < width:
                moved[:, r, c] = image[:, r + up, c + left]
    return moved


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_a_copy_is_the_image_moved_and_filled_with_zeros(seed):
    X = np.random.default_rng(seed).normal(size=(6, 24)).astype(np.float32)
    moves = SHIFTS.moves(6, numbers(seed))
    assert moves.shape == (6, 3, 2)
    for k in range(3):
        found = SHIFTS.moved(torch.from_numpy(X), moves[:, k]).numpy()
        for i in range(6):
            up, left = (moves[i, k] - SHIFTS.pixels).tolist()
            assert np.array_equal(found[i].reshape(IMAGE), slid(X[i].reshape(IMAGE), up, left))


def test_moves_are_even_over_all_directions_and_a_records_own():
    """A record's moves follow from its place alone, not from how many come after it."""
    moves = SHIFTS.moves(5000, numbers(1))
    counts = torch.bincount(moves.reshape(-1), minlength=5)
    assert len(counts) == 5
    assert (counts - 6000).abs().max() < 5 * (30000 * 0.2 * 0.8) ** 0.5
    assert torch.equal(SHIFTS.moves(7, numbers(1)), moves[:7])


@pytest.mark.parametrize("groups", [0, 4])
def test_a_records_copies_are_averaged_before_the_clip_and_company_moves_no_bit(tmp_path, groups):
    """Oracle: one backward pass of all copies, without opacus. They are one clip at most."""
    model = ConvNet(3, (1, 10, 10), groups)
    client = a_client(tmp_path, d=100)
    network = private_network_of(client, model, "cpu")
    start = model.initial(np.random.default_rng(1))
    as_vectors(network, start)
    size = record_gradients.group_size(client, model, "cpu")
    as_vectors(network, start)
    X, y = torch.from_numpy(client.features.astype(np.float32)), torch.from_numpy(client.targets)
    X[3] *= 1e4
    shifts = Shifts((1, 10, 10), copies=3, pixels=2)
    copies = Copies(shifts, shifts.moves(20, numbers(2)))

    def loss(phi, y):
        return cross_entropy(network.head(phi), y, reduction="sum")

    def codes(chosen):
        return clipped_sum(network, X, y, np.array(chosen), loss, GRID, at_once=size, copies=copies)

    everybody = list(range(20))
    whole = codes(everybody)
    plain = model.build()
    load(plain, start)
    for i in (0, 3, 15, 19):
        own = codes([i])
        assert sum(int(c) ** 2 for c in own) <= GRID.steps**2
        assert np.array_equal(whole - own, codes([j for j in everybody if j != i]))
        plain.zero_grad()
        views = torch.cat(
            [shifts.moved(X[i : i + 1], copies.moves[i : i + 1, k]) for k in range(3)]
        )
        cross_entropy(plain(views), y[[i] * 3]).backward()
        gradient = np.concatenate([p.grad.numpy().ravel() for p in plain.parameters()])
        expected = gradient * min(1.0, GRID.clip / np.linalg.norm(gradient))
        assert np.allclose(GRID.values(own), expected, atol=2e-5)


def test_training_with_copies_repeats_its_message_and_learns_from_moved_images(tmp_path):
    """One pixel tells the class; weights reach the places where copies move it to."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    X = np.zeros((200, 25))
    X[:, 12] = 2.0 * y - 1
    promise = DPSGD(50.0, 1e-4, rounds=1, shifts=Shifts((1, 5, 5), copies=2, pixels=1))
    training = LocalTraining(1.0, steps=10, batch_size=100, privacy=promise)
    changes = {}
    for shifts in (promise.shifts, None):
        books = Ledger.create(tmp_path / f"{shifts}.jsonl", "a")
        client = Client("a", X, y, ledger=books)
        own = replace(training, privacy=replace(promise, shifts=shifts))
        first, again = (
            train_privately(client, LinearModel(2, 25), np.zeros(52, np.float32), own)
            for _ in range(2)
        )
        assert np.array_equal(first, again)
        assert len(books.events) == 1
        assert {e.gaussian for e in books.events} == {
            make_plan(200, training, features=False).steps
        }
        changes[shifts] = np.abs((first[25:50] - first[:25]).reshape(5, 5))
    around, centre = np.s_[[1, 1, 3, 3], [1, 3, 1, 3]], (2, 2)
    assert changes[promise.shifts][around].min() > 2 * changes[None][around].mean()
    assert changes[None][centre] > 2 * changes[promise.shifts][centre]


def test_a_promise_with_copies_crosses_the_wire_as_it_is():
    """A client's run is known by the promise in words: another spelling would be another run."""
    promise = DPSGD(1.0, 1e-5, rounds=2, shifts=SHIFTS)
    assert repr(wire.decode(wire.encode(promise))) == repr(promise)


def test_what_is_no_image_is_refused():
    for wrong in ({"image": (0, 3, 3)}, {"image": (3, 3)}, {"copies": 0}, {"pixels": 0}):
        with pytest.raises(ValueError, match="expected positive numbers, three of image"):
            Shifts(**({"image": IMAGE} | wrong))
    with pytest.raises(ValueError, match=r"found records of 5 features, images \(2, 3, 4\)"):
        SHIFTS.moved(torch.zeros(2, 5), torch.zeros(2, 2, dtype=torch.int64))


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 8.0])
def test_larger_batches_than_the_economical_one_gain_little_and_smaller_ones_lose_much(epsilon):
    """By the accountant that the books use: noise over the batch, against that of all records."""
    promise = DPSGD(epsilon, 1e-5, rounds=20)
    batch = economical_batch(10_000, promise, steps=5)

    def noise(size):
        training = LocalTraining(steps=5, batch_size=size, privacy=promise)
        return make_plan(10_000, training, features=False).steps.noise_multiplier / size

    least = noise(10_000)
    assert noise(batch) < 1.45 * least
    assert noise(batch // 8) > 2.0 * least
    assert economical_batch(10, replace(promise, epsilon=60.0), steps=1) == 10
