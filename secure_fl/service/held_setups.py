"""The set-ups of keys that a contributor holds for masked sums to come; in memory and nowhere else.

A contributor that was killed has lost them, and with them the secrets of every row that it sent.
It says so by itself: whenever it asks for a sum it names what it holds.
"""

from collections import OrderedDict

from secure_fl.crypto.keys import Member as SumMember
from secure_fl.errors import InputError
from secure_fl.federation.secagg import Parameters
from secure_fl.federation.secagg.setup import SetUp
from secure_fl.service.masked_offer import HELD


class HeldSetUps:
    """Set-ups by the batch that made them, at most `HELD`; the oldest goes first."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, tuple[SumMember, SetUp]] = OrderedDict()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the set-ups that have a place left."""
        return tuple(self._found)

    def keep(self, name: str, member: SumMember, setup: SetUp) -> None:
        """Keeps a set-up whose shares are here."""
        self._found[name] = member, setup
        while len(self._found) > HELD:
            self._found.popitem(last=False)

    def of(self, name: str, parameters: Parameters) -> tuple[SumMember, SetUp]:
        """The set-up of a sum, whose place was not taken.

        Raises:
            InputError: it is not held here, was made on other terms, or served that place before.
        """
        found = self._found.get(name)
        if found is None:
            raise InputError(
                "keys: the evaluator goes on with a set-up that this client does not hold; ask"
                " again"
            )
        _, setup = found
        if not setup.serves(parameters):
            raise InputError("keys: the set-up was made with another quorum or degree; ask again")
        if setup.took(parameters.place):
            raise InputError(
                f"keys: place {parameters.place} of the set-up served a batch before; a mask that"
                " serves twice hides nothing"
            )
        return found

    def release(self, name: str) -> None:
        """Drops a set-up whose places are all taken."""
        found = self._found.get(name)
        if found is not None and found[1].spent:
            del self._found[name]
