"""Why a key is found, or why not: the way of a search step by step, and the likely causes."""

from logdex.rocketmq.explain.explanation import CAUSES, Explanation
from logdex.rocketmq.explain.search_path import explain

__all__ = ["CAUSES", "Explanation", "explain"]
