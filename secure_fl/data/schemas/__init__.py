"""Tables of many parties brought to one form: the schema that they share, its draft, its use."""

from secure_fl.data.schemas.columns import Category, Column, Date, Number
from secure_fl.data.schemas.drafting import Draft, draft_schema
from secure_fl.data.schemas.preparing import Counts, Prepared, prepare_clients
from secure_fl.data.schemas.schema import Label, Schema, load_schema, save_schema

__all__ = [
    "Category",
    "Column",
    "Counts",
    "Date",
    "Draft",
    "Label",
    "Number",
    "Prepared",
    "Schema",
    "draft_schema",
    "load_schema",
    "prepare_clients",
    "save_schema",
]
