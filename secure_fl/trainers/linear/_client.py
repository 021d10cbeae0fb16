"""Client steps that several trainers share: gradients at the server's weights."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.federation import Client, Tree, client_step
from secure_fl.objectives import Objective
from secure_fl.objectives.base import Array, Features


def records(client: Client) -> tuple[Features, NDArray[Any]]:
    """Features as float64, converted once, and class codes."""
    if client.features.dtype == np.float64:
        return client.features, client.targets
    if "float64" not in client.cache:
        client.cache["float64"] = client.features.astype(np.float64)
    return client.cache["float64"], client.targets


@client_step
def local_gradient(client: Client, objective: Objective, weights: Array) -> Tree:
    """Gradient of the client's own objective."""
    return objective.gradient(weights, *records(client))


@client_step
def local_value(client: Client, objective: Objective, weights: Array) -> Tree:
    """Value of the client's own objective, shape ()."""
    return np.array(objective.value(weights, *records(client)))


@client_step
def local_value_and_gradient(client: Client, objective: Objective, weights: Array) -> Tree:
    """Value, shape (), and gradient of the client's own objective."""
    value, gradient = objective.value_and_gradient(weights, *records(client))
    return {"value": np.array(value), "gradient": gradient}
