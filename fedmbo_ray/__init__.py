"""Federated bilevel optimization on Ray: FedMBO and the methods it is compared with."""

__version__ = "0.1.0"
