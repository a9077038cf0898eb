"""What the streams of both formats have in common."""

from __future__ import annotations

import logging

from logdex.errors import LogdexError

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ModuleNotFoundError:  # before pyspark 4.2, which does not ask

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for what Spark lacks."""


__all__ = ["SupportsTriggerAvailableNow", "report_loss"]

logger = logging.getLogger("logdex.spark")


def report_loss(what: str, *, fail: bool) -> None:
    """Say that something was gone before a stream read it.

    Args:
        what: What is gone, and where.
        fail: The option `failOnDataLoss`; when it is false, a warning is logged.

    Raises:
        LogdexError: It is to be an error.
    """
    if fail:
        msg = f"{what}; the option failOnDataLoss=false goes on all the same"
        raise LogdexError(msg)
    logger.warning("%s", what)
