"""What the evaluator hands to a contributor of a masked sum: the sealed query, and whose keys.

The evaluator is not trusted with the choice of keys. Contributors that were told different ones
have no sum, and each takes part in a place of a set-up once, with keys that it holds itself.
"""

from typing import Self

from attrs import field, frozen

from fhe.envelope import pack, unpack
from fhe.errors import InputError as EnvelopeError
from secure_fl.errors import FormatError
from secure_fl.service.masked_words import SUMS
from secure_fl.service.sealed_query import BATCH

KIND = "service offered sum"
HELD = 4
"""Set-ups that a contributor keeps, and the evaluator of one federation: the newest ones."""


@frozen
class Keys:
    """Whose keys a sum uses.

    Attributes:
        setup: the batch that made them.
        place: of the sum among those of the set-up.

    Raises:
        FormatError: such ones cannot be.
    """

    setup: str
    place: int

    def __attrs_post_init__(self) -> None:
        named = type(self.setup) is str and BATCH.fullmatch(self.setup)
        if not named or type(self.place) is not int or not 0 <= self.place < SUMS:
            raise FormatError("set-up of keys: its name or the place in it cannot be")

    def new(self, batch: str) -> bool:
        """Whether a batch makes them itself.

        Raises:
            FormatError: the first place of another batch's, or a later one of its own.
        """
        if (self.setup == batch) != (self.place == 0):
            raise FormatError(f"set-up of keys: place {self.place} of it is not this batch's")
        return self.place == 0


@frozen
class Offer:
    """A batch for one contributor.

    Attributes:
        batch: its name.
        keys: of its sum.
        sealed: the query, sealed to the contributor.
    """

    batch: str
    keys: Keys
    sealed: bytes = field(repr=False)

    def to_bytes(self) -> bytes:
        """The offer as an envelope."""
        header = {"batch": self.batch, "setup": self.keys.setup, "place": self.keys.place}
        return pack(KIND, header, self.sealed)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Reads what `to_bytes` made.

        Raises:
            FormatError: it is none.
        """
        try:
            envelope = unpack(data, KIND, source="offered sum")
        except EnvelopeError as error:
            raise FormatError(str(error)) from None
        if set(envelope.header) != {"batch", "setup", "place"}:
            raise FormatError("offered sum: header members are missing or unknown")
        batch, setup, place = (envelope.header[name] for name in ("batch", "setup", "place"))
        # It becomes part of a path.
        if type(batch) is not str or not BATCH.fullmatch(batch):
            raise FormatError("offered sum: not the name of a batch")
        keys = Keys(setup, place)
        keys.new(batch)
        return cls(batch, keys, envelope.payload)
