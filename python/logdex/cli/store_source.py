"""A RocketMQ store, for the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logdex.cli.messages import MESSAGE_COLUMNS, message_json, message_text
from logdex.cli.source import Description, Filters, Listing, Source
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from logdex.report import Report


class StoreSource(Source):
    """A store and what belongs to it."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store

    def describe(self) -> Description:
        """Count files and topics, and give the ranges of offsets and times."""
        overview = self.store.overview()
        listings = [
            Listing("topics", ("topic", "queues", "messages"), overview.pop("topics")),
            Listing(
                "index files", ("name", "entries", "begin_timestamp", "end_timestamp"), overview.pop("index_files")
            ),
        ]
        return Description("RocketMQ message store", overview, [listing for listing in listings if listing.rows])

    def rows(self, filters: Filters, *, body: bool) -> Any:  # noqa: ANN401 -- an Arrow stream
        """Read messages."""
        columns = MESSAGE_COLUMNS if body else [name for name in MESSAGE_COLUMNS if not name.startswith("body")]
        return self.store.messages(
            topic=filters.topic, queue_id=filters.queue, begin=filters.begin, end=filters.end, columns=columns
        )

    def as_text(self, row: dict[str, Any]) -> str:
        """Write one message for people."""
        return message_text(row)

    def as_json(self, row: dict[str, Any]) -> dict[str, Any]:
        """Turn one message into what JSON holds."""
        return message_json(row)

    def verify(self, progress: Callable[[int, int], None]) -> Report:
        """Check log, queues and index against each other."""
        return self.store.verify(progress=progress)

    def close(self) -> None:
        """Let the files go."""
        self.store.close()


def recognise(path: Path, **options: Any) -> StoreSource | None:  # noqa: ANN401 -- those of MessageStore.open
    """Open a path that is a store, or the commit log of one."""
    if not options.get("commit_log") and not MessageStore.lies_at(path):
        return None
    return StoreSource(MessageStore.open(path, **options))
