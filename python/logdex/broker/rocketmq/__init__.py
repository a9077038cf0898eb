"""A RocketMQ broker and its name server over one store."""
