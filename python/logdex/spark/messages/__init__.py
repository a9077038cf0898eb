"""Format `rocketmq`: the messages of a store, as a table and as a stream."""
