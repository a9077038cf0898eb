"""Copies of a running broker's store, made as its slave, and the log stream for slaves of `serve`."""
