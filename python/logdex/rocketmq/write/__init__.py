"""Writes a RocketMQ store: messages, queues, index, checkpoint, and the recovery that a start needs."""
