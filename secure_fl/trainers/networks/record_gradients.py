"""Gradients of single records, whose bits no other record moves.

Opacus computes them in single precision, of several records at a time. Were the last bits of a
record's gradient moved by who else is in its group, a record that is added or removed would move
the codes of others, too. They are not. Libraries choose the order of a sum by shapes and threads,
never by values; so groups are always of `AT_ONCE` rows, filled up where records are fewer, and
before a network is used (`group_size`) it is tried that at this shape neither the place nor the
company of a record moves a bit: sums of thousands of made-up numbers in two orders would differ.
Where one moves, groups are of one record.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from secure_fl.federation import Client, PrivacyError
from secure_fl.federation.privacy import GRID_BITS, Grid
from secure_fl.trainers.networks.local import as_vectors
from secure_fl.trainers.networks.models import Model, Network, to_tensor

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Of features and classes of some records: the sum of their losses."""

AT_ONCE = 16
"""Records whose gradients are held at a time; on a CPU they should fit its cache."""
SHORTER = 1 - 2.0**-20
"""Of the clip: room for rounding errors of norms and products."""
REPLACEMENTS: tuple[tuple[tuple[type[nn.Module], ...], str], ...] = (
    ((nn.modules.batchnorm._BatchNorm,), "torch.nn.GroupNorm"),
    ((nn.LSTM,), "opacus.layers.DPLSTM"),
    ((nn.GRU,), "opacus.layers.DPGRU"),
    ((nn.RNN,), "opacus.layers.DPRNN"),
    ((nn.MultiheadAttention,), "opacus.layers.DPMultiheadAttention"),
)
"""Layers whose records cannot be told apart by hooks, and what does the same without that."""


def private_network_of(client: Client, model: Model, device: str) -> Network:
    """The client's module with opacus's hooks for gradients of single records, built once.

    Raises:
        PrivacyError: a layer that mixes the records of a batch.
    """
    from opacus import GradSampleModule

    key = f"private network {model} {device}"
    if key not in client.cache:
        network = model.build()
        refuse_mixing_layers(network)
        _refuse_mixed_records(network, model.inputs)
        client.cache[key] = GradSampleModule(network.to(device), loss_reduction="sum")
    found: Network = client.cache[key]._module
    return found


def refuse_mixing_layers(network: nn.Module) -> None:
    """Raises PrivacyError for a layer that opacus cannot handle, and names what can replace it."""
    from opacus.validators import ModuleValidator

    for name, layer in network.named_modules():
        for kinds, instead in REPLACEMENTS:
            if isinstance(layer, kinds):
                raise PrivacyError(
                    f'layer "{name}": {type(layer).__name__} has no gradients of single records;'
                    f" replace it by {instead}"
                )
        if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
            raise PrivacyError(
                f'layer "{name}": {type(layer).__name__} keeps statistics of all records; replace'
                " it by the same with track_running_stats=False"
            )
    others = ModuleValidator.validate(network, strict=False)
    if others:
        raise PrivacyError(f"network: opacus cannot handle it ({others[0]})")


def _refuse_mixed_records(network: Network, inputs: int) -> None:
    # Made-up records: scores of one must not depend on who else is in its batch.
    x = torch.linspace(-1, 1, 3 * inputs).reshape(3, inputs)
    with torch.no_grad():
        together, alone = network(x), torch.cat([network(row[None]) for row in x])
    if not torch.allclose(together, alone, rtol=1e-3, atol=1e-4):
        raise PrivacyError(
            "network: a record's scores depend on the others of its batch, or on chance; clipping"
            " single gradients would not bound what one record changes"
        )


def filled(part: Tensor, size: int) -> Tensor:
    """The indices, the last one repeated until there are `size`: every group has one shape."""
    return torch.cat([part, part[-1:].expand(size - len(part))])


def gradients_of(network: Network, X: Tensor, y: Tensor, loss: Loss) -> Tensor:
    """Gradients of single records, shape (n, parameters)."""
    own = list(network.parameters())
    # Torch warns of full backward hooks where no input of the network wants a gradient.
    loss(network.features(X.requires_grad_()), y).backward()  # type: ignore[no-untyped-call]  # torch leaves backward untyped
    found: list[Any] = [p.grad_sample for p in own]  # type: ignore[attr-defined]  # set by opacus
    rows = torch.cat([g.reshape(len(X), -1) for g in found], dim=1)
    for p in own:
        p.grad_sample = None  # type: ignore[attr-defined]  # as above
    return rows


def mean_gradients(network: Network, views: Sequence[Tensor], y: Tensor, loss: Loss) -> Tensor:
    """Mean gradients of single records over their copies, shape (n, parameters).

    Entry by entry and in the order of the copies, so that company moves no bit of them either.

    Args:
        network: from `private_network_of`.
        views: one copy of every record each, shape (n, d).
        y: the records' classes, shape (n,).
        loss: sum of the records' losses.
    """
    total = gradients_of(network, views[0], y, loss)
    for view in views[1:]:
        total += gradients_of(network, view, y, loss)
    return total / len(views) if len(views) > 1 else total


def group_size(client: Client, model: Model, device: str) -> int:
    """Rows of the groups in which a client computes gradients and features, found out once.

    `AT_ONCE` where every bit of a record's gradient and of its features is the same in every place
    of such a group and in any company, as tried on made-up records and parameters; otherwise 1.
    """
    key = f"group size {model} {device}"
    if key not in client.cache:
        network = private_network_of(client, model, device)
        as_vectors(network, model.initial(np.random.default_rng(0)))
        client.cache[key] = AT_ONCE if is_alone(network, model, device) else 1
    size: int = client.cache[key]
    return size


def is_alone(network: Network, model: Model, device: str) -> bool:
    """Whether neither place nor company moves a bit of a made-up record in a group of `AT_ONCE`."""
    rng = np.random.default_rng(1)
    X = to_tensor(rng.normal(size=(2 * AT_ONCE, model.inputs)), device)
    y = torch.from_numpy(rng.integers(0, model.classes, 2 * AT_ONCE)).to(device)
    with torch.no_grad():
        push = torch.ones_like(network.features(X[:1])[0])

    def rows(chosen: Tensor) -> Tensor:
        """Gradients and features, and what clipping makes of both."""
        found = gradients_of(network, X[chosen].clone(), y[chosen], _every_term(network, push))
        with torch.no_grad():
            both = torch.cat([found, network.features(X[chosen])], dim=1)
        return torch.cat([both.double(), placed(both, Grid(1.0, 1 << GRID_BITS))], dim=1)

    places = torch.arange(AT_ONCE, device=device)
    expected = rows(places)
    for stays in (places % 2 == 0, places % 2 == 1):
        # Half of them one place further, among others; the places of a chain are all alike.
        company = torch.where(stays, places, places + AT_ONCE).roll(1)
        found = rows(company).roll(-1, dims=0)
        if not torch.equal(found[stays], expected[stays]):
            return False
    return True


def _every_term(network: Network, push: Tensor) -> Loss:
    """A loss of all terms that `_loss` may have."""

    def loss(phi: Tensor, y: Tensor) -> Tensor:
        total = cross_entropy(network.head(phi), y, reduction="sum")
        return total + torch.linalg.vector_norm(phi, dim=1).sum() + (phi @ push).sum()

    return loss


def placed(rows: Tensor, grid: Grid) -> Tensor:
    """Rows of L2 norm at most `grid.steps`, of whole numbers: clipped one by one, rounded to zero.

    Rows that are not finite become zero. Squares of single-precision numbers do not overflow in
    double precision; the rounding errors of a norm of 2^24 entries are within 2^-29 of it, far
    inside what SHORTER takes away.

    Args:
        rows: float32, shape (n, entries).
        grid: of clip and steps.

    Returns:
        float64, shape (n, entries).
    """
    exact = rows.double()
    norms = exact.square().sum(dim=1, keepdim=True).sqrt_()
    finite = norms.isfinite()
    exact.mul_(SHORTER * grid.steps / norms.clamp_(min=grid.clip)).trunc_()
    return exact if bool(finite.all()) else exact.masked_fill_(~finite, 0.0)
