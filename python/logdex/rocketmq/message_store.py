"""A broker's store directory, for reading: finds messages by key, checked against the messages themselves."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from logdex._types import check_int64
from logdex.hash_index.query import TimeRange
from logdex.rocketmq.check import StoreCheck
from logdex.rocketmq.explain import explain
from logdex.rocketmq.find import KeySearch
from logdex.rocketmq.index_service import INDEXES_TAGS
from logdex.rocketmq.message import is_msg_id, offset_in_msg_id
from logdex.rocketmq.message_scan import Filter, MessageScan
from logdex.rocketmq.opened_store import OpenedStore
from logdex.rocketmq.overview import overview
from logdex.rocketmq.rebuild import build_index, build_queues
from logdex.rocketmq.sound import warn
from logdex.rocketmq.topics import configured_topics, topics_in_log

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from datetime import tzinfo

    from logdex._core import ConsumeQueue
    from logdex._types import Body, Progress, Scan, Time
    from logdex.arrow import BatchStream
    from logdex.report import Finding, Report
    from logdex.rocketmq.explain import Explanation
    from logdex.rocketmq.find import FindResult
    from logdex.rocketmq.layout import StoreLayout
    from logdex.rocketmq.message import Message


class MessageStore(OpenedStore):
    """The store of a broker, a backup of it, or what a dead broker left; nothing in it is created, locked or changed.

    Open it with `MessageStore.open`. It may be used from several threads, and pickles by path and options.

    Example:
        >>> from logdex.rocketmq import MessageStore
        >>> with MessageStore.open("/var/lib/rocketmq/store") as store:  # doctest: +SKIP
        ...     for message in store.find("TopicTest", "order-1001"):
        ...         print(message.phy_offset, message.body)
    """

    def __init__(self, layout: StoreLayout, options: dict[str, Any]) -> None:
        """Open the parts; `open` is the way in."""
        super().__init__(layout, options)
        salvage = options["compat"] is None
        self._scan = MessageScan(layout, self._commit_log, self._queues, salvage=salvage)
        self._search = KeySearch(self._commit_log, lambda: self.index, self._known_topics, salvage=salvage)
        self._topics_in_log: list[str] | None = None

    @staticmethod
    def is_msg_id(text: str) -> bool:
        """Say whether a text has the shape of an offset id; a client's unique key may have it, too."""
        return is_msg_id(text)

    def find(
        self,
        topic: str | None,
        key: str,
        *,
        begin: Time | None = None,
        end: Time | None = None,
        max_num: int | None = None,
        scan: Scan = "auto",
        progress: Progress | None = None,
    ) -> FindResult:
        """Find the messages that carry a key, the newest first, each once.

        Candidates of the index are checked against the messages. Ranges of the log that no index file covers, because
        the broker has yet to index them or index files were lost, are read by the rules that a broker indexes by.

        Args:
            topic: The topic, as stored; None tries every topic of the store, for a unique key whose topic is not known.
            key: The unique key (the client's message id), or one of the space-separated keys. Where the broker indexed
                tags (5.5.0), `"T#"` and the tags of a message lead to it, too.
            begin: First store time, ms or an aware datetime; None: no bound.
            end: Last store time, included.
            max_num: The most messages to give; None: all.
            scan: How much of what no index file covers is read: "auto" up to 1 GiB a call, True all, False nothing. What
                one call read, the next calls remember and search, whatever they read themselves.
            progress: Called now and then with the bytes of the log that were read, and those that will be.

        Raises:
            ValueError: `max_num` is negative.
            TypeError: A bound is no integer, or a datetime without time zone.
        """
        self._check_open()
        times = TimeRange.of(begin, end)
        return self._search.find(topic, key, times=times, max_num=max_num, scan=scan, progress=progress)

    def find_batch(
        self,
        topics: Any,  # noqa: ANN401 -- anything with the PyCapsule interface
        keys: Any,  # noqa: ANN401 -- as above
        *,
        begin: Time | None = None,
        end: Time | None = None,
        max_num: int | None = None,
        scan: Scan = "auto",
        batch_size: int = 1_024,
    ) -> BatchStream:
        """Find the messages of many keys.

        Args:
            topics: One topic for all, or one a key: a sequence or Arrow.
            keys: The keys: a sequence or Arrow. A null key finds nothing.
            begin: First store time, ms or an aware datetime; None: no bound.
            end: Last store time, included.
            max_num: The most messages a key; None: all.
            scan: As for `find`.
            batch_size: The most rows of a batch.

        Returns:
            An Arrow stream of the message columns after query_row (int64, the place of the key), in the order of the keys,
            the newest message of each first.
        """
        self._check_open()
        times = TimeRange.of(begin, end)
        return self._search.find_batch(topics, keys, times=times, max_num=max_num, scan=scan, batch_size=batch_size)

    def message(self, key: str | int) -> Message | None:
        """Read one message; None where none is.

        Args:
            key: The offset id of the message (`msg_id`, as the broker returns it), or its commit-log offset in bytes. A
                unique key goes through `find`.

        Raises:
            ValueError: The text is no offset id: 32 hexadecimal digits, 56 with an IPv6 address.
        """
        self._check_open()
        if not isinstance(key, str):
            return self._commit_log.message(operator.index(key))
        if not is_msg_id(key):
            raise ValueError(f"an offset id has 32 or 56 hexadecimal digits, this has {len(key)} characters: {key!r}")
        message = self._commit_log.message(offset_in_msg_id(key))
        return message if message is not None and message.msg_id == key.upper() else None

    def messages(
        self,
        topic: str | None = None,
        queue_id: int | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        columns: Iterable[str] | None = None,
        *,
        scan: Scan = "auto",
        body: Body = "decoded",
        on_damage: Callable[[Finding], None] = warn,
    ) -> BatchStream:
        """Read messages in the order of the log, also those behind damage, which is logged.

        Log files whose time cannot match are not read. A topic's messages can be had from its queues instead of the log;
        queues do not lead to messages of the raw transaction types PREPARED and ROLLBACK (before 4.3.0), nor to those of a
        topic that was deleted. What the queues do not cover, because the broker crashed or had yet to dispatch it, is read
        from the log in any case, and so is the rest where a queue turns out to be damaged.

        Args:
            topic: Only this topic, as stored; None: all.
            queue_id: Only this queue of the topic, or of every topic.
            begin: First store time, ms or an aware datetime; None: no bound.
            end: Last store time, included.
            columns: Names of message columns, in the order wanted; all where not given.
            scan: Whether the log is read for a topic: "auto" where 1 GiB of it at most may match, else the queues; True
                always; False never.
            body: "decoded", or "stored": as the log holds it, perhaps compressed.
            on_damage: Called for each place of the log that is no good message, behind the rows around it; logs it where not
                given.

        Returns:
            An Arrow stream.

        Raises:
            ValueError: An unknown column.
            OSError: The system refuses; from the reader, too.
        """
        self._check_open()
        check_int64(queue_id=queue_id)
        filters = Filter(topic, queue_id, TimeRange.of(begin, end))
        slack = self._options["clock_slack_ms"]
        return self._scan.messages(filters, columns, scan, slack, body=body, on_damage=on_damage)

    @property
    def topics(self) -> list[str]:
        """Topics with messages, sorted: those that have queues; in a store without queues those that the log holds.

        Linear in the log where there are no queues, the first time.
        """
        self._check_open()
        topics = self._queues.topics()
        if topics:
            return topics
        if self._topics_in_log is None:
            self._topics_in_log = topics_in_log(self._commit_log, salvage=self._options["compat"] is None)
        return self._topics_in_log

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Open the consume queue of a topic.

        Raises:
            FileNotFoundError: The store has no files of it.
            TypeError: The topic is no text, or the number no integer.
        """
        self._check_open()
        return self._queues.queue(topic, queue_id)

    def explain(self, topic: str, key: str, *, begin: Time | None = None, end: Time | None = None) -> Explanation:
        """Tell why a key is found, or why not: the whole way, and the likely causes.

        What no index file covers is read from the log, up to 1 GiB a call.

        Args:
            topic: The topic asked for.
            key: What was looked for.
            begin: First store time, ms or an aware datetime; None: no bound.
            end: Last store time, included.

        Returns:
            Something to print, or to take apart.
        """
        self._check_open()
        return explain(self, topic, key, TimeRange.of(begin, end), self._options["clock_slack_ms"])

    @property
    def indexes_tags(self) -> bool:
        """Whether messages are found by their tags: a 5.5.0 broker indexes them, and what is read from the log has them."""
        self._check_open()
        return self._search.has_tags()

    def overview(self) -> dict[str, Any]:
        """Give files, ranges of offsets and times, topics and index files, as `logdex info` shows them.

        Cheap: of the log only the newest file is walked.
        """
        self._check_open()
        return overview(self._layout, self._commit_log, self._queues, self.index)

    def verify(self, progress: Progress | None = None) -> Report:
        """Check log, queues and index, each by itself and against the others, both ways; linear in all of them.

        Every message must have its unit and its keys their entries, every unit and entry must lead to its message. What a
        broker had yet to dispatch when it ended is no fault.

        Args:
            progress: Called now and then with the bytes of the log that are done, and those there are.

        Returns:
            The findings, of the kinds that docs/findings.md lists; never raises for what it finds.

        Raises:
            OSError: The system refuses to read.
        """
        self._check_open()
        return StoreCheck(self._layout, self._commit_log, self._queues, self.index).run(progress)

    def build_index(
        self,
        directory: str | os.PathLike[str],
        *,
        hash_slots: int | None = None,
        max_entries: int | None = None,
        zone: str | tzinfo | None = None,
        tags: bool | None = None,
        threads: int = 2,
        progress: Progress | None = None,
    ) -> Report:
        """Make the index files of the log, byte for byte those of a broker; the store itself is only read.

        The log is read by threads beside the one that puts.

        Args:
            directory: Where the files go; made where it is not there. It must be empty.
            hash_slots: Slots of each file; None: as the store's own index has, or a broker's default, 5,000,000.
            max_entries: Entries of each file plus one; None: likewise, 20,000,000.
            zone: Time zone of the file names, the broker's, by name or as tzinfo; None: the machine's.
            tags: Index tags, too, as a 5.5.0 broker does; None: as the store's own index does, or `compat` says.
            threads: Threads that read the log.
            progress: Called now and then with the bytes of the log that are done, and those there are.

        Returns:
            A report that counts messages, entries and index files. A finding is where the log is damaged: a broker's walk
            ends there, and so does the index; `checked["log_bytes_behind_damage"]` says how much of the log it leaves out.

        Raises:
            FileExistsError: The directory is not empty.
            LockedError: The directory is the index of a running broker.
            OSError: The system refuses.
        """
        self._check_open()
        if (hash_slots is None) != (max_entries is None):
            raise ValueError("give both hash_slots and max_entries, or neither")
        index = self.index
        files = index.files if index is not None else []
        own = (files[0].hash_slots, files[0].max_entries) if files else None
        if tags is None:
            tags = self._search.has_tags() if files else self._options["compat"] == INDEXES_TAGS
        return build_index(
            self._commit_log,
            directory,
            geometry=own if hash_slots is None or max_entries is None else (hash_slots, max_entries),
            zone=zone,
            tags=tags,
            threads=threads,
            progress=progress,
        )

    def build_queues(
        self, directory: str | os.PathLike[str], *, threads: int = 2, progress: Progress | None = None
    ) -> Report:
        """Make the consume queues of the log anew; the store itself is only read.

        Their files are as long as the store's own, else as a broker's by default. Where the store has extension files, the
        new queues have them, too, with empty bit maps: which consumers' filters take a message the log does not tell.

        Args:
            directory: Where `consumequeue`, `batchconsumequeue` and `consumequeue_ext` go; made where it is not there.
            threads: Threads that read the log.
            progress: Called now and then with the bytes of the log that are done, and those there are.

        Returns:
            A report that counts messages, units and queues. A finding is where the log is damaged, and where queue offsets
            jump or repeat, as after a topic was deleted.

        Raises:
            FileExistsError: The directory holds queues.
            OSError: The system refuses.
        """
        self._check_open()
        return build_queues(self._commit_log, self._queues, directory, threads=threads, progress=progress)

    def _known_topics(self) -> list[str]:
        """Give what a message's topic may be, with topics that have no queue any more."""
        return sorted({*self.topics, *configured_topics(self._layout.config)})
