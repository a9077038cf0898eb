"""What the streams of both formats share."""

from __future__ import annotations

import logging

from logdex.errors import LogdexError

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ModuleNotFoundError:  # before pyspark 4.2, which does not ask

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Replaces the class that this Spark lacks."""


__all__ = ["SupportsTriggerAvailableNow", "report_loss"]

logger = logging.getLogger("logdex.spark")


def report_loss(what: str, *, fail: bool) -> None:
    """Report data that was gone before a stream read it.

    Args:
        what: What is gone, and where.
        fail: The option `failOnDataLoss`; if it is false, a warning is logged.

    Raises:
        LogdexError: `fail` is set.
    """
    if fail:
        raise LogdexError(f"{what}; the option failOnDataLoss=false continues with what is left")
    logger.warning("%s", what)
