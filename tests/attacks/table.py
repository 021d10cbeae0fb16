"""What an attack file says of its attack: one line of the table on docs/attacks.md."""

from attrs import frozen


@frozen
class Attack:
    """One attack with its variations; a file of `tests/attacks` has one, named ATTACK.

    Attributes:
        name: what is done, in a few words.
        holds: who the attacker is and what it has.
        before: what it got from the version that had no defence.
        after: what it gets now.
    """

    name: str
    holds: str
    before: str
    after: str
