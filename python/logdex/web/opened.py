"""Opens a path with the pages for its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logdex.detection import Kind, kind_to_open, refusal
from logdex.web.commands import Place

if TYPE_CHECKING:
    from pathlib import Path

    from logdex.web.site import Pages


def open_pages(path: Path, name: str, **options: Any) -> Pages:  # noqa: ANN401 -- those of the open calls
    """Open a path and return the pages about it; `name` is the path as the user wrote it.

    Raises:
        OSError: The path does not exist or cannot be read.
        ValueError: The path is not a store, an index directory or a log directory.
        TypeError: The call that opens this kind of path has no such option.
    """
    given = {option: value for option, value in options.items() if value is not None}
    kind = kind_to_open(path, given)
    # Only the pages of one broker are imported.
    if kind is Kind.STORE:
        from logdex.rocketmq import MessageStore  # noqa: PLC0415 -- as above
        from logdex.web.store_pages import StorePages  # noqa: PLC0415 -- as above

        return StorePages(MessageStore.open(path, **given), Place(name, given))
    if kind is Kind.INDEX:
        from logdex.rocketmq import IndexService  # noqa: PLC0415 -- as above
        from logdex.web.index_pages import IndexPages  # noqa: PLC0415 -- as above

        return IndexPages(IndexService.open(path, **given), name)
    if kind is Kind.LOG_DIR:
        from logdex.kafka import LogDir  # noqa: PLC0415 -- as above
        from logdex.web.kafka_pages import KafkaPages  # noqa: PLC0415 -- as above

        return KafkaPages(LogDir.open(path, **given), name)
    if kind is Kind.PARTITION:
        raise ValueError(f"{path}: this is a partition's directory; give its log directory, {path.absolute().parent}")
    raise refusal(path, kind)
