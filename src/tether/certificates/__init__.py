"""Certificates turn a contract and knowledge of the system into safe sets of actions."""

from tether.certificates.lipschitz import LipschitzCertificate, LipschitzState, Rule

__all__ = ["LipschitzCertificate", "LipschitzState", "Rule"]
