"""Rules of one secure sum, with no key that opens a contribution: `masked` and `votes`.

Easy layer: `MaskedRule` runs all parties in one process. Underneath: `RowCoding`, a contributor's
integers as rows of words, `VoteCoding`, its noisy votes, and `Told`, what contributors of one sum
must have been told alike.
"""

from secure_fl.masked.agreement import Told
from secure_fl.masked.rows import Opened, RowCoding
from secure_fl.masked.rule import MaskedAnswer, MaskedRule
from secure_fl.masked.votes import Coding, VoteCoding

__all__ = ["Coding", "MaskedAnswer", "MaskedRule", "Opened", "RowCoding", "Told", "VoteCoding"]
