"""Copy the store of a running broker, as its slave does: the log as it grows, its queues and index, the broker's tables."""

from logdex.rocketmq.replica.replication import Replication, replicate

__all__ = ["Replication", "replicate"]
