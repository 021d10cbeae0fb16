"""Ridge regression on the pooled records, from one sum of second moments: a reference.

The pooled Gram matrix is the sum of the clients' (fednewton.txt, proposition 1), so the exact
centralised solution takes one round and d^2 numbers a client. FedNewton's point is to need only
d C a round; this trainer tells what that costs.
"""

from collections.abc import Iterator

from secure_fl.errors import InputError
from secure_fl.federation import Client, Federation, Tree, client_step
from secure_fl.objectives import SquaredLoss
from secure_fl.objectives.base import Array, add_to_diagonal, gram
from secure_fl.trainers.linear._client import records
from secure_fl.trainers.linear.fedavg import AveragingState
from secure_fl.trainers.linear.private_ridge import ridge_solution


@client_step
def local_moments(client: Client, objective: SquaredLoss) -> Tree:
    """X'X / n, shape (d, d), and X'Y / n, shape (d, C)."""
    X, y = records(client)
    zeros = objective.zeros(X.shape[1])
    cross = -objective.gradient(zeros, X, y)
    return {"gram": gram(X) / X.shape[0], "cross": cross}


def krr(fed: Federation, objective: SquaredLoss) -> Iterator[AveragingState]:
    """Yields one state: the exact minimiser over the pooled records (fednewton.txt, eq. 2).

    Under client-level privacy it is that of the noisy moments, projected to what moments can be.

    Args:
        fed: the participating clients; the server sees only the mean of their moments.
        objective: squared loss with a ridge above 0.

    Raises:
        InputError: another objective, or a ridge of 0.
        QuorumError: fewer clients survived than the threshold.
    """
    if not (isinstance(objective, SquaredLoss) and objective.ridge > 0):
        raise InputError("krr: needs the squared loss with a ridge above 0")
    from scipy.linalg import solve

    moments = fed.mean(local_moments, objective)
    if fed.clip is not None:
        yield AveragingState(_of_noisy(moments["gram"], moments["cross"], objective.ridge), 1)
        return
    matrix = add_to_diagonal(moments["gram"].copy(), objective.ridge)
    yield AveragingState(solve(matrix, moments["cross"], assume_a="pos"), 1)


def _of_noisy(gram: Array, cross: Array, ridge: float) -> Array:
    """The solution where noise has left no Gram matrix: of the nearest one that could be.

    The nearest symmetric, positive semidefinite matrix in Frobenius norm (Higham 1988) is symmetric
    part with eigenvalues below 0 taken for 0. It is made of the noisy sum alone, so it costs no
    privacy.
    """
    return ridge_solution((gram + gram.T) / 2, cross, ridge)
