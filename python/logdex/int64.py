"""The least and the greatest value of a Java `long`, as which brokers store times and offsets."""

from __future__ import annotations

MIN_INT64 = -(1 << 63)
MAX_INT64 = (1 << 63) - 1
