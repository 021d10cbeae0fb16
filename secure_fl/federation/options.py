"""The options of a federation, checked against its number of clients."""

from typing import Any

from attrs import frozen

from secure_fl.federation.assembly import checked_seed, checked_threshold
from secure_fl.federation.participation import AllClients, DropOuts, NoDropOuts, Participation
from secure_fl.federation.privacy import ClientPrivacy
from secure_fl.federation.secure import SecureAggregation


@frozen
class Options:
    """The handle's options; see `Federation`."""

    seed: int
    participation: Participation
    threshold: int | None
    aggregation: SecureAggregation | None
    privacy: ClientPrivacy | None
    drop_outs: DropOuts
    description: Any = None
    """Of the federation, where clients elsewhere have one too; all must have been told the same."""

    @classmethod
    def checked(
        cls,
        clients: int,
        *,
        seed: int,
        participation: Participation | None,
        threshold: int | None,
        aggregation: SecureAggregation | None,
        privacy: ClientPrivacy | None,
        drop_outs: DropOuts | None = None,
        description: Any = None,
    ) -> "Options":
        """The options of a federation of so many clients, with the defaults filled in.

        Raises:
            FederationError: an option out of range.
        """
        takes_part = participation or AllClients()
        secure = aggregation is not None
        left = checked_threshold(threshold, clients, takes_part.expected(clients), secure=secure)
        return cls(
            checked_seed(seed),
            takes_part,
            left,
            aggregation,
            privacy,
            drop_outs or NoDropOuts(),
            description,
        )
