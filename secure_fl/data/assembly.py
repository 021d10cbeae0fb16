"""Clients' records made one federation's: the same classes, the same features in one order."""

from collections.abc import Sequence

import numpy as np

from secure_fl.data.dataset import Dataset, Features, Records, schema_shown
from secure_fl.data.labels import ClassList
from secure_fl.errors import ClientError, FeatureError, LabelError, whose


def assemble(
    records: Sequence[Records],
    *,
    classes: ClassList | None = None,
    n_features: int | None = None,
    features: tuple[str, ...] | None = None,
    manifest: str = "federation.json",
) -> tuple[Dataset, ...]:
    """Checks clients against each other, or against the federation, and codes their labels.

    Named features are brought into the federation's order.

    Args:
        records: one entry a client, with distinct names; texts must be encoded already.
        classes: the federation's class list; None makes it of the clients' labels.
        n_features: the federation's d; None takes the first client's (LIBSVM files, which do
            not say theirs, are widened with zeros to the widest).
        features: the federation's feature names; None takes the first client's.
        manifest: where the federation's values come from, for messages.

    Returns:
        One data set a client, in the order given, all with the same classes and d.

    Raises:
        ClientError: no clients, a name twice, or a client without records.
        FeatureError: texts not encoded, another number of features, other feature names, or
            another schema.
        LabelError: a label unknown to `classes`, or only one class in the whole federation.
    """
    check_together(records)
    known = classes or ClassList.union(map(_labels, records))
    if len(known) < 2:
        raise LabelError(
            f"all {sum(map(len, records))} records of the federation ({records[0].source}) have the"
            f' class "{known.names[0]}"; a classifier needs at least two classes'
        )
    width, names, origin = common_features(records, n_features, features, manifest)
    return tuple(_dataset(client, known, width, names, origin) for client in records)


def check_together(records: Sequence[Records]) -> None:
    """Refuses clients that make no federation.

    Raises:
        ClientError: no clients, a name twice, or a client without records.
        FeatureError: prepared by different schemas.
    """
    if not records:
        raise ClientError("no clients; give at least one client file")
    _check_names(records)
    for client in records:
        if not len(client):
            raise ClientError(
                f"{whose(client.name)}: no records in {client.source}; add some or remove the file"
            )
    _check_schemas(records)


def common_features(
    records: Sequence[Records],
    n_features: int | None,
    features: tuple[str, ...] | None,
    manifest: str,
) -> tuple[int, tuple[str, ...] | None, str]:
    """Number and names of the features that all clients must have, and whose they are.

    Args:
        records, n_features, features, manifest: as `assemble`.
    """
    if features is not None:
        return len(features), features, manifest
    if n_features is not None:
        return n_features, None, manifest
    model = _model(records)
    return model.n_features, model.features, f'client "{model.name}", {model.source}'


def _labels(client: Records) -> tuple[str, ...]:
    if client.labels is None:
        raise LabelError(
            f"{whose(client.name)}: no labels in {client.source}; give each record one"
        )
    return client.labels


def _model(records: Sequence[Records]) -> Records:
    """The client whose features the others must match: the first, or the widest if all are open."""
    fixed = [client for client in records if not client.open_width]
    return fixed[0] if fixed else max(records, key=lambda client: client.n_features)


def _check_names(records: Sequence[Records]) -> None:
    seen: dict[str, Records] = {}
    for client in records:
        # Names become folder names, and some file systems ignore case.
        other = seen.setdefault(client.name.casefold(), client)
        if other is not client:
            raise ClientError(
                f"{whose(client.name)}: named by both {other.source} and {client.source};"
                " rename one of the files"
            )


def _check_schemas(records: Sequence[Records]) -> None:
    first = records[0]
    for client in records:
        if client.schema != first.schema:
            raise FeatureError(
                f"{whose(client.name)}: {client.source} was prepared by {schema_shown(client)},"
                f" {first.source} by {schema_shown(first)}; prepare all files by one schema"
                " (securefl data prepare)"
            )


def _dataset(
    client: Records,
    classes: ClassList,
    n_features: int,
    features: tuple[str, ...] | None,
    origin: str,
) -> Dataset:
    X = aligned(client, n_features, features, origin)
    y = classes.codes(_labels(client), client=client.name, where=client.where)
    return Dataset(
        X,
        y,
        classes.names,
        client.name,
        client.source,
        features or client.features,
        client.groups,
        client.schema,
    )


def aligned(
    client: Records, n_features: int, features: tuple[str, ...] | None, origin: str
) -> Features:
    """A client's features in the federation's number and order.

    Args:
        client: as read.
        n_features: d.
        features: d names, or None.
        origin: where both come from, for messages.

    Raises:
        FeatureError: texts, another number of features, or other names.
    """
    if client.X is None:
        raise FeatureError(
            f"{whose(client.name)}: {client.source} holds texts, not features; embed it first"
            " (securefl data embed)"
        )
    X = client.X
    if client.open_width and client.n_features < n_features:
        X = _widened(X, n_features)
    if X.shape[1] != n_features:
        raise FeatureError(
            f"{whose(client.name)}: {client.n_features} features in {client.source}, the"
            f" federation has {n_features} ({origin}); re-encode the file with the federation's"
            " encoder"
        )
    if features is not None and client.features is not None and features != client.features:
        X = X[:, _order(client, features, origin)]
    return X


def _widened(X: Features, width: int) -> Features:
    if isinstance(X, np.ndarray):
        return np.pad(X, ((0, 0), (0, width - X.shape[1])))
    wide = X.copy()
    wide.resize((X.shape[0], width))
    return wide


def _order(client: Records, features: tuple[str, ...], origin: str) -> list[int]:
    assert client.features is not None
    place = {name: i for i, name in enumerate(client.features)}
    missing = [name for name in features if name not in place]
    if missing:
        extra = [name for name in client.features if name not in set(features)]
        raise FeatureError(
            f'{whose(client.name)}: no feature "{missing[0]}" in {client.source} (it has'
            f' "{extra[0]}"), the federation has it ({origin}); name the columns alike'
        )
    return [place[name] for name in features]
