"""Brokers: servers that speak a broker's protocol, and clients of one. The library does not import this package."""
