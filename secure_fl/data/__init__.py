"""Client files, class lists and partitions."""

from secure_fl.data.assembly import assemble
from secure_fl.data.dataset import Dataset, Records, as_float, class_counts
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
from secure_fl.data.readers import (
    ReadOptions,
    client_files,
    read_all,
    read_client,
    read_clients,
    read_records,
    read_targets,
    width_is_private,
)
from secure_fl.data.remarks import label_remarks
from secure_fl.data.scaling import (
    SCALINGS,
    Scale,
    Scaling,
    check_scale,
    scaled_features,
    scaling_of,
)
from secure_fl.data.table import Columns, read_csv
from secure_fl.data.targets import TargetSet, assemble_targets

__all__ = [
    "SCALINGS",
    "ClassList",
    "Columns",
    "Dataset",
    "ReadOptions",
    "Records",
    "Scale",
    "Scaling",
    "TargetSet",
    "as_float",
    "assemble",
    "assemble_targets",
    "by_group",
    "check_scale",
    "class_counts",
    "client_files",
    "describe",
    "dirichlet",
    "group_names",
    "iid",
    "label_remarks",
    "long_tailed",
    "pathological",
    "read_all",
    "read_client",
    "read_clients",
    "read_csv",
    "read_libsvm",
    "read_npz",
    "read_records",
    "read_targets",
    "scaled_features",
    "scaling_of",
    "shards",
    "width_is_private",
    "within",
    "write_clients",
]
