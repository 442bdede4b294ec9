"""Tasks in partitions, past one memory and past one machine: one more engine."""

from tacit.cluster.fitting import fit_partitions
from tacit.cluster.workers import InThisProcess, OnCluster, connected

__all__ = ["InThisProcess", "OnCluster", "connected", "fit_partitions"]
