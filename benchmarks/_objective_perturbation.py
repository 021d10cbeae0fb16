"""Objective perturbation: multinomial logistic regression with a random linear term, pooled.

The released weights minimise, over theta of shape (d, C),

    sum_i -log softmax(theta' x_i)[y_i] + ridge / 2 |theta|^2 + <b, theta>,  b ~ N(0, sigma^2),

(Chaudhuri, Monteleoni, Sarwate 2011, algorithm 2, with Gaussian b as Kifer, Smith, Thakurta 2012).
A minimum that a computer finds is not exact, so Gaussian noise that hides how far off it is is
added to it (approximate minima perturbation: Iyengar, Near, Song, Thakkar, Thakurta, Wang 2019,
algorithm 1). The privacy loss is bounded as Redberg, Koskela, Wang 2023 ("Improving the privacy and
practicality of objective perturbation", theorem 3.1) do for losses of one margin, here for C
scores; the steps, for records of norm at most 1:

1. b is a smooth bijection of theta, so densities of neighbours D and D' at theta differ by a
   Jacobian and by exp((|b'|^2 - |b|^2) / (2 sigma^2)), where b' - b is single records' gradient.
2. Jacobian: a record adds (diag(p) - pp') (x) xx' to the Hessian, of trace at most 1 - 1/C and rank
   C - 1, above ridge * I; so its log is at most (C - 1) log(1 + 1 / (C ridge)).
3. A record's gradient is (p - e_y) (x) x. |b'|^2 is convex in p, so over the simplex it is largest
   at a corner p = e_j, where the loss is that of a Gaussian that moves by |e_j - e_y| |x| / sigma
   at most. delta is at most the sum of the corners' (`_corners`): this union, and that all corners
   are as far as the farthest, is what is approximated, from above.
4. The noise on the minimum is one more Gaussian, independent of the first, whichever the corner.

Not private, as with all peers here: floating-point noise.
"""

import math

import numpy as np
from numpy.typing import NDArray

from benchmarks._data import Split
from dp.loss_distribution import gaussian_log_delta
from secure_fl.objectives.base import Array
from secure_fl.privacy.promises import Neighbours

TOLERANCE = 1e-3
"""Norm of the gradient, over sigma, at which a minimum is found well enough."""
OUTPUT = 0.1
"""Shift of the noise on the minimum over that of the farthest corner: half a percent of noise."""
MOST_STEPS = 2000


def objective_perturbation(
    data: Split,
    epsilon: float,
    delta: float,
    ridge: float,
    neighbours: Neighbours,
    rng: np.random.Generator,
) -> Array:
    """Weights, shape (d, C).

    Args:
        data: records of norm at most 1.
        epsilon: above what the Jacobian alone costs, about 1 / ridge.
        delta: in (0, 1).
        ridge: on the sum of losses, above 0.
        neighbours: which data sets are hidden from each other.
        rng: of the noise.

    Raises:
        ValueError: the ridge is too small for epsilon, or the minimum was not found.
    """
    shape = (data.X_train.shape[1], len(data.classes))
    sigma = perturbation_noise(epsilon, delta, ridge, shape[1], neighbours)
    b = sigma * rng.standard_normal(shape)
    tolerance = TOLERANCE * sigma
    theta = perturbed_minimum(data.X_train.astype(float), data.y_train, b, ridge, tolerance)
    # A minimum is within tolerance / ridge of the exact one under either of two neighbours.
    farthest = max(norm for norm, _ in _corners(shape[1], neighbours))
    apart = 2 * tolerance / ridge
    return theta + apart * sigma / (OUTPUT * farthest) * rng.standard_normal(shape)


def perturbation_noise(
    epsilon: float, delta: float, ridge: float, classes: int, neighbours: Neighbours
) -> float:
    """Least standard deviation of b, from above, that keeps the promise.

    Raises:
        ValueError: none does: the Jacobian alone costs more than epsilon.
    """
    if jacobian_cost(ridge, classes) >= epsilon:
        raise ValueError(f"ridge {ridge:g} is too small for epsilon {epsilon:g}; take a larger one")
    low, high = 1e-3, 1e6
    while high > low * (1 + 1e-6):
        middle = math.sqrt(low * high)
        kept = perturbation_delta(epsilon, middle, ridge, classes, neighbours) <= delta
        low, high = (low, middle) if kept else (middle, high)
    return high


def perturbation_delta(
    epsilon: float, sigma: float, ridge: float, classes: int, neighbours: Neighbours
) -> float:
    """delta at epsilon, from above, the noise on the minimum included; see the module."""
    left = epsilon - jacobian_cost(ridge, classes)
    corners = _corners(classes, neighbours)
    beside = OUTPUT * max(norm for norm, _ in corners)
    return sum(
        count * math.exp(gaussian_log_delta(math.hypot(norm, beside) / sigma, left))
        for norm, count in corners
        if count
    )


def jacobian_cost(ridge: float, classes: int) -> float:
    """What the change of variables adds to the privacy loss at most."""
    return (classes - 1) * math.log1p(1 / (classes * ridge))


def _corners(classes: int, neighbours: Neighbours) -> list[tuple[float, int]]:
    """Norm of the change of b, and how many corners of the simplex are as far at most.

    One record replaced changes it by (e_j - e_y) (x) x - (e_k - e_z) (x) x'. The inner product of
    the vectors of classes is 2 in size for one pair (j, k) a j at most, and 1 otherwise, whatever
    labels and records are; where j = y or k = z one of the two terms is 0.
    """
    others = classes - 1
    if neighbours == "add-remove":
        return [(math.sqrt(2), others)]
    return [
        (math.sqrt(8), others),
        (math.sqrt(6), others * (others - 1)),
        (math.sqrt(2), 2 * others),
    ]


def perturbed_minimum(
    X: NDArray[np.float64], y: NDArray[np.int64], b: Array, ridge: float, tolerance: float
) -> Array:
    """Where the perturbed objective's gradient is at most `tolerance` long, shape (d, C).

    Args:
        X: records, shape (n, d).
        y: class codes, shape (n,).
        b: the linear term, shape (d, C).
        ridge: above 0.
        tolerance: above 0.

    Raises:
        ValueError: it was not found.
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    truth = np.zeros((len(y), b.shape[1]))
    truth[np.arange(len(y)), y] = 1.0

    def value(flat: Array) -> tuple[float, Array]:
        theta = flat.reshape(b.shape)
        logarithms = log_softmax(X @ theta, axis=1)
        gradient = X.T @ (np.exp(logarithms) - truth) + ridge * theta + b
        lost = -(logarithms * truth).sum()
        total = lost + ridge / 2 * (flat @ flat) + (b * theta).sum()
        return float(total), gradient.ravel()

    # The solver looks at the gradient's largest entry.
    options = {"maxiter": MOST_STEPS, "maxfun": 2 * MOST_STEPS, "ftol": 0.0, "maxcor": 20}
    options["gtol"] = tolerance / math.sqrt(b.size)
    found = minimize(value, np.zeros(b.size), jac=True, method="L-BFGS-B", options=options)
    length = float(np.linalg.norm(value(found.x)[1]))
    if not length <= tolerance:
        raise ValueError(
            f"perturbed objective: found a gradient of {length:.3g}, expected {tolerance:.3g} at"
            " most; take a larger tolerance"
        )
    theta: Array = found.x.reshape(b.shape)
    return theta
