"""The rule `masked`: the global minimum as one secure sum, with no key that opens a contribution.

Easy layer: `MaskedRule` runs all parties in one process. Underneath: `RowCoding`, a contributor's
integers as rows of words, and `Told`, what contributors of one sum must have been told alike.
"""

from secure_fl.masked.agreement import Told
from secure_fl.masked.rows import RowCoding, Smallest
from secure_fl.masked.rule import MaskedAnswer, MaskedRule

__all__ = ["MaskedAnswer", "MaskedRule", "RowCoding", "Smallest", "Told"]
