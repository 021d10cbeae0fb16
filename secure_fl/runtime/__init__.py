"""Federations whose clients are other machines; see docs/deploy.md."""

from secure_fl.runtime.line import Exchange
from secure_fl.runtime.network import NetworkFederation
from secure_fl.runtime.node import Node
from secure_fl.runtime.terms import Terms

__all__ = ["Exchange", "NetworkFederation", "Node", "Terms"]
