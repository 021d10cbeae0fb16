"""Local training on random Fourier features in machine code, where batches are small.

With batches of ten records most of the time of `closed_form` goes to calling the libraries. The
steps are the same to rounding. Import this module late: loading the compiler takes longer than the
command line may.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from secure_fl.trainers.networks.models import Array, FourierModel, check_size
from secure_fl.trainers.networks.regularizers import Regularization

_SUMS = {"reassoc", "contract", "nsz"}
"""Lets sums be made in any order, and leaves numbers that are not finite what they are."""


class Weights(NamedTuple):
    """Parameters as the loops take them, or a velocity of each.

    Attributes:
        phases: frequencies by input, shape (d, D).
        offsets: shape (1, D).
        head: W, shape (C, D).
        bias: shape (1, C).
    """

    phases: Array
    offsets: Array
    head: Array
    bias: Array


class Rates(NamedTuple):
    """Numbers of a step, float32."""

    learning: np.float32
    momentum: np.float32
    proximal: np.float32
    factor: np.float32
    trace: np.float32
    features: np.float32
    mmd: np.float32


class Descent:
    """A client's descent from the global parameters, in float32.

    Args:
        model: random Fourier features, at least as many as classes.
        parameters: of the global model, flat; unchanged.
        rates: learning rate, momentum and proximal weight of a step.
        regularization: FedAvgR's terms, or None.
        centres: see `Regularization.penalty`.

    Raises:
        ValueError: the vector's length is not the model's.
    """

    def __init__(
        self,
        model: FourierModel,
        parameters: Array,
        rates: tuple[float, float, float],
        regularization: Regularization | None,
        centres: Array | None,
    ) -> None:
        self._shape = model.classes, model.features, model.width
        terms = regularization or Regularization()
        mmd = 0.0 if centres is None else terms.mmd
        numbers = *rates, model.factor, terms.trace, terms.features, mmd
        self._rates = Rates(*map(np.float32, numbers))
        self._centres = np.zeros((1, model.width), np.float32) if centres is None else centres
        self._start = self._taken_apart(parameters)
        self._values = Weights(*(part.copy() for part in self._start))
        self._velocity = Weights(*map(np.zeros_like, self._start))

    def run(self, records: Array, labels: Array, order: Array, size: int) -> None:
        """One pass over the records in that order, in batches of that size."""
        weights = self._start, self._values, self._velocity
        descend(records, labels, order, size, *weights, self._rates, self._centres)

    def change(self) -> Array:
        """What the steps added to the parameters, flat."""
        phases, *others = (now - then for now, then in zip(self._values, self._start, strict=True))
        return np.concatenate([phases.T.reshape(-1), *(each.reshape(-1) for each in others)])

    def _taken_apart(self, parameters: Array) -> Weights:
        classes, inputs, width = self._shape
        sizes = np.cumsum([inputs * width, width, classes * width, classes])
        check_size(parameters, int(sizes[-1]))
        flat = np.split(parameters.astype(np.float32), sizes[:-1])
        phases = np.ascontiguousarray(flat[0].reshape(width, inputs).T)
        return Weights(phases, flat[1][None], flat[2].reshape(classes, width), flat[3][None])


def _compiled(function: Any) -> Any:
    return njit(nogil=True, cache=True, fastmath=_SUMS, error_model="numpy")(function)


TEN = 10
"""Records that `move` takes at once: by ones and fives it is half as fast. Batches are padded."""


@_compiled
def descend(
    records: Array,
    labels: Array,
    order: Array,
    size: int,
    start: Weights,
    values: Weights,
    velocity: Weights,
    rates: Rates,
    centres: Array,
) -> None:
    """Steps through one pass; changes `values` and `velocity`."""
    classes, width = values.head.shape
    room = (size + TEN - 1) // TEN * TEN
    batch = np.zeros((room, records.shape[1]), np.float32)
    features = np.zeros((room, width), np.float32)
    slopes, upstream = np.empty_like(features), np.zeros_like(features)
    residual, ones = np.zeros((room, classes), np.float32), np.ones((room, 1), np.float32)
    pull = np.zeros((classes if rates.trace > 0 else 0, width), np.float32)
    for first in range(0, len(order), size):
        rows = order[first : first + size]
        n = len(rows)
        residual[n:].fill(0.0)
        upstream[n:].fill(0.0)
        for i in range(n):
            for j in range(records.shape[1]):
                batch[i, j] = records[rows[i], j]
        map_records(batch[:n], values, rates.factor, features, slopes)
        for i in range(n):
            residual_of(features[i], labels[rows[i]], values, n, residual[i])
        send_back(labels[rows], residual, values.head, features, slopes, rates, centres, upstream)
        if len(pull):
            trace_pull(values.head, rates.trace, pull)
        move(residual, features, pull, start.head, values.head, velocity.head, rates)
        move(ones, residual, pull[:0], start.bias, values.bias, velocity.bias, rates)
        move(ones, upstream, pull[:0], start.offsets, values.offsets, velocity.offsets, rates)
        move(batch, upstream, pull[:0], start.phases, values.phases, velocity.phases, rates)


@_compiled
def map_records(
    batch: Array, values: Weights, factor: np.float32, features: Array, slopes: Array
) -> None:
    """Writes the features of a batch, shape (n, d), and their derivatives by the angle.

    What is one-hot is 0 mostly: then it is faster to find what is not.
    """
    inputs = batch.shape[1]
    count = 0
    for i in range(len(batch)):
        for j in range(features.shape[1]):
            features[i, j] = values.offsets[0, j]
        for k in range(inputs):
            count += batch[i, k] != 0
    if 2 * count > batch.size:
        add_all(batch, values.phases, features)
    else:
        places, numbers = np.empty(inputs, np.int64), np.empty(inputs, np.float32)
        for i in range(len(batch)):
            count = 0
            for k in range(inputs):
                places[count], numbers[count] = k, batch[i, k]
                count += batch[i, k] != 0
            add_up(places, numbers, count, values.phases, features[i])
    for i in range(len(batch)):
        waves(features[i], factor, slopes[i])


@_compiled
def add_all(batch: Array, rows: Array, out: Array) -> None:
    """Adds batch @ rows to `out`, five rows at a time, and to all records while they are near.

    Writing and reading `out` for each takes longer than the sums.
    """
    inputs, width = rows.shape
    k = 0
    while k + 5 <= inputs:
        for i in range(len(batch)):
            x = batch[i]
            a, b, c, d, e = x[k], x[k + 1], x[k + 2], x[k + 3], x[k + 4]
            for j in range(width):
                first = a * rows[k, j] + b * rows[k + 1, j] + c * rows[k + 2, j]
                out[i, j] += first + d * rows[k + 3, j] + e * rows[k + 4, j]
        k += 5
    for left in range(k, inputs):
        for i in range(len(batch)):
            for j in range(width):
                out[i, j] += batch[i, left] * rows[left, j]


@_compiled
def add_up(places: Array, numbers: Array, count: int, rows: Array, out: Array) -> None:
    """Adds so many rows times their numbers to `out`, shape (D,), five at a time as `add_all`."""
    q = 0
    while q + 5 <= count:
        a, b, c, d, e = numbers[q], numbers[q + 1], numbers[q + 2], numbers[q + 3], numbers[q + 4]
        r, s, t, u, v = places[q], places[q + 1], places[q + 2], places[q + 3], places[q + 4]
        for j in range(len(out)):
            first = a * rows[r, j] + b * rows[s, j] + c * rows[t, j]
            out[j] += first + d * rows[u, j] + e * rows[v, j]
        q += 5
    for left in range(q, count):
        a, r = numbers[left], places[left]
        for j in range(len(out)):
            out[j] += a * rows[r, j]


FAR = 8192
"""Angles above it lose digits in `waves`, and go to the library's functions."""
QUARTERS = np.float32(2 / np.pi)
HALF_PI = tuple(map(np.float32, (1.5703125, 4.837512969970703e-4, 7.54978995489188e-8)))
"""Its parts: whole multiples of the first two are exact in single precision."""
SINE = tuple(map(np.float32, (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)))
COSINE = tuple(map(np.float32, (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)))
"""Of odd and even polynomials on a quarter turn, from r^7 and r^8 down."""


# No sums in any order here: the parts of pi / 2 must not be added up before they are subtracted.
@njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")
def waves(angles: Array, factor: np.float32, slopes: Array) -> None:
    """Puts factor cos(.) in place of the angles, shape (D,), and -factor sin(.) into the slopes.

    The single-precision sine and cosine of the Cephes library (Moshier), to a rounding. The
    compiler makes vector instructions of them and none of calls, which are half the time of a step.
    """
    far = 0
    for j in range(len(angles)):
        far += abs(angles[j]) > FAR
    if far:
        for j in range(len(angles)):
            slopes[j] = -factor * np.sin(angles[j])
            angles[j] = factor * np.cos(angles[j])
        return
    for j in range(len(angles)):
        turns = np.rint(angles[j] * QUARTERS)
        r = angles[j] - turns * HALF_PI[0]
        r -= turns * HALF_PI[1]
        r -= turns * HALF_PI[2]
        z = r * r
        sine = ((SINE[0] * z + SINE[1]) * z + SINE[2]) * z * r + r
        even = (COSINE[0] * z + COSINE[1]) * z + COSINE[2]
        cosine = even * z * z - np.float32(0.5) * z + np.float32(1)
        quarter = np.int32(turns) & 3
        c, s = (sine, cosine) if quarter & 1 else (cosine, sine)
        angles[j] = -factor * c if quarter in (1, 2) else factor * c
        slopes[j] = factor * s if quarter >= 2 else -factor * s


@_compiled
def residual_of(features: Array, label: int, values: Weights, n: int, out: Array) -> None:
    """(softmax - one-hot) / n of one record."""
    highest = np.float32(-np.inf)
    for k in range(len(out)):
        score = values.bias[0, k]
        for j in range(len(features)):
            score += values.head[k, j] * features[j]
        out[k] = score
        highest = max(highest, score)
    total = np.float32(0.0)
    for k in range(len(out)):
        out[k] = np.exp(out[k] - highest)
        total += out[k]
    for k in range(len(out)):
        out[k] = (out[k] / total - (1 if k == label else 0)) / n


@_compiled
def send_back(
    labels: Array,
    residual: Array,
    head: Array,
    features: Array,
    slopes: Array,
    rates: Rates,
    centres: Array,
    out: Array,
) -> None:
    """The gradient by the angles, of the loss and of the terms that see the features.

    The MMD pulls all records of a group alike: a class's where `centres` has a row for each, or
    else all records.
    """
    n, groups = len(labels), len(centres)
    classes, width = head.shape
    common = np.zeros((groups, width), np.float32)
    if rates.mmd > 0:
        members = np.zeros(groups, np.int64)
        for i in range(n):
            g = labels[i] if groups > 1 else 0
            members[g] += 1
            for j in range(width):
                common[g, j] += features[i, j]
        for g in range(groups):
            told = members[g] > 0 and not np.isnan(centres[g, 0])
            for j in range(width):
                gap = common[g, j] / members[g] - centres[g, j] if told else np.float32(0.0)
                common[g, j] = 2 * rates.mmd / n * gap
    shrink = np.float32(0.0)
    if rates.features > 0:
        total = np.float32(0.0)
        for i in range(n):
            for j in range(width):
                total += features[i, j] * features[i, j]
        if total != 0:
            shrink = rates.features / np.sqrt(total)
    for i in range(n):
        pull = common[labels[i] if groups > 1 else 0]
        for j in range(width):
            out[i, j] = pull[j] + shrink * features[i, j]
        for k in range(classes):
            for j in range(width):
                out[i, j] += residual[i, k] * head[k, j]
        for j in range(width):
            out[i, j] *= slopes[i, j]


EPSILON = float(np.finfo(np.float32).eps)


@_compiled
def trace_pull(head: Array, weight: np.float32, out: Array) -> None:
    """The trace norm's subgradient; see `regularizers.trace_subgradient`."""
    classes, width = head.shape
    gram, root = np.zeros((classes, classes)), np.zeros((classes, classes))
    total = 0.0
    for a in range(classes):
        for b in range(classes):
            for j in range(width):
                gram[a, b] += np.float64(head[a, j]) * np.float64(head[b, j])
            total += gram[a, b]
    out[:] = 0.0 if np.isfinite(total) else np.nan
    if not np.isfinite(total):
        return  # the decomposition would raise
    squares, vectors = np.linalg.eigh(gram)
    least = np.sqrt(max(squares[-1], 0.0)) * width * EPSILON
    for q in range(classes):
        s = np.sqrt(max(squares[q], 0.0))
        if s > least:
            for a in range(classes):
                for b in range(classes):
                    root[a, b] += vectors[a, q] * vectors[b, q] / s
    for a in range(classes):
        for b in range(classes):
            for j in range(width):
                out[a, j] += weight * np.float32(root[a, b]) * head[b, j]


@_compiled
def move(
    inputs: Array,
    sent: Array,
    pull: Array,
    start: Array,
    values: Array,
    velocity: Array,
    rates: Rates,
) -> None:
    """A step with momentum, towards where it began by the proximal weight.

    Args:
        inputs: what the weights were multiplied by, shape (n, K), n a multiple of `TEN`.
        sent: gradients by what came out, shape (n, D); inputs.T @ sent is the weights'.
        pull: added to it, shape (K, D), or without rows.
        start: weights, shape (K, D), at the beginning of the round.
        values, velocity: now, and of them; changed.
        rates: of the step.
    """
    last, width = len(inputs) - TEN, values.shape[1]
    keep = rates.momentum
    if rates.proximal > 0 or len(pull):
        for k in range(len(values)):
            for j in range(width):
                back = rates.proximal * (values[k, j] - start[k, j])
                velocity[k, j] = keep * velocity[k, j] + back
        keep = np.float32(1.0)
    for k in range(len(pull)):
        for j in range(width):
            velocity[k, j] += pull[k, j]
    for i in range(0, len(inputs), TEN):
        step = rates.learning if i == last else np.float32(0.0)
        x, s = inputs[i : i + TEN], sent[i : i + TEN]
        for k in range(len(values)):
            a, b, c, d, e = x[0, k], x[1, k], x[2, k], x[3, k], x[4, k]
            f, g, h, u, v = x[5, k], x[6, k], x[7, k], x[8, k], x[9, k]
            for j in range(width):
                one = a * s[0, j] + b * s[1, j] + c * s[2, j] + d * s[3, j] + e * s[4, j]
                two = f * s[5, j] + g * s[6, j] + h * s[7, j] + u * s[8, j] + v * s[9, j]
                speed = keep * velocity[k, j] + one + two
                velocity[k, j] = speed
                values[k, j] -= step * speed
        keep = np.float32(1.0)
