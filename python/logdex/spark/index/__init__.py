"""Index files on Spark: the format `rocketmq_index`, and the parallel build from a commit log."""
