"""Client files, class lists and partitions."""

from secure_fl.data.dataset import Dataset, Records, assemble
from secure_fl.data.labels import ClassList
from secure_fl.data.libsvm import read_libsvm
from secure_fl.data.npz import read_npz, write_clients
from secure_fl.data.partition import (
    by_group,
    describe,
    dirichlet,
    group_names,
    iid,
    long_tailed,
    pathological,
    shards,
    within,
)
from secure_fl.data.readers import ReadOptions, client_files, read_client, read_clients
from secure_fl.data.table import Columns, read_csv

__all__ = [
    "ClassList",
    "Columns",
    "Dataset",
    "ReadOptions",
    "Records",
    "assemble",
    "by_group",
    "client_files",
    "describe",
    "dirichlet",
    "group_names",
    "iid",
    "long_tailed",
    "pathological",
    "read_client",
    "read_clients",
    "read_csv",
    "read_libsvm",
    "read_npz",
    "shards",
    "within",
    "write_clients",
]
