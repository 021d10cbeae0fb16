"""Privacy statements in a run folder, read back.

What training wrote is JSON that anybody may have edited; lines for people are made anew from it.
"""

import math
from pathlib import Path
from typing import get_type_hints

import attrs

import dp
from secure_fl.errors import InputError
from secure_fl.files import read_json_object
from secure_fl.heads.typed_json import read_as, short

STATEMENT_FILES = ("statement.json", "statement.txt")
MAX_BYTES = 2**20
"""A statement is small; anything larger is not one."""
SUMMED = "none; machines of synthetic records around released discriminants"
"""What a statement says of smoothing where the head is one release of sums over all clients."""
SCALED = "the features were scaled by means and deviations that were released before"
"""How an assumption begins that holds for later releases of the same head too."""


def summed_statement(folder: Path) -> dp.Statement | None:
    """The statement of a head that `kahm-record-private` released; None for any other head.

    Args:
        folder: of the client, in a run folder.

    Raises:
        InputError: the statement cannot be used.
    """
    path = folder / STATEMENT_FILES[0]
    if not path.exists():
        return None
    found = load_statement(path)
    return found if found.smoothing == SUMMED else None


def load_statement(path: Path) -> dp.Statement:
    """Reads a statement that training wrote; its lines are made anew from its numbers.

    Raises:
        InputError: not JSON, too large, or with members missing, unknown or of another kind.
    """
    content = read_json_object(path, MAX_BYTES, "privacy statement")
    content.pop("promise", None)
    fields = {field.name: field for field in attrs.fields(dp.Statement)}
    if set(content) != set(fields):
        wrong = ", ".join(map(short, sorted(set(content) ^ set(fields))[:3]))
        raise InputError(f"{path}: members such as {wrong} are missing or unknown; train again")
    if content["guarantee"] is False:
        content["epsilon"] = content["delta"] = math.inf
    kinds = get_type_hints(dp.Statement)
    try:
        found = dp.Statement(**{name: read_as(kinds[name], content[name]) for name in fields})
        if not (found.epsilon >= 0 and found.delta >= 0):
            raise ValueError(f"epsilon {found.epsilon}, delta {found.delta} is below 0")
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(f"{path}: not a privacy statement ({error}); train again") from error
    return found
