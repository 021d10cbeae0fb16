"""Encrypted queries over a network: an evaluator that serves, contributors and a querier.

The evaluator is the one party that listens. Contributors and the querier call it, so no hospital
opens a port. Every message is signed by a member of the federation; queries are sealed to each
contributor and pass the evaluator unread. `docs/service.md` tells what each party sees.
"""

from secure_fl.errors import ServiceError
from secure_fl.service.members import Member, enrol, make_member_keys, read_member

__all__ = ["Member", "ServiceError", "enrol", "make_member_keys", "read_member"]
