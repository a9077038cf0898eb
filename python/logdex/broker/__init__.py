"""Brokers: servers with a broker's protocol, and clients of one. The library does not import this package."""
