"""Federations whose clients are other machines; see docs/deploy.md."""

from secure_fl.flower.network import NetworkFederation
from secure_fl.flower.node import Node
from secure_fl.flower.policy import NodePolicy
from secure_fl.flower.transport import Transport

__all__ = ["NetworkFederation", "Node", "NodePolicy", "Transport"]
