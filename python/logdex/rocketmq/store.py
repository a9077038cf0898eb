"""Read a broker's store directory. Messages found by key are checked against the log."""

from __future__ import annotations

import logging
import operator
import os
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from logdex import _core
from logdex._core import CommitLog, MessageFilter, RemotePath, ThreadLock, locate, locate_beside
from logdex._filesystem import all_in_filesystem, in_filesystem
from logdex._types import check_int64, check_queue_id, check_text
from logdex.arrow import BatchStream
from logdex.hash_index.query import CLOCK_SLACK_MS, TimeRange, check_clock_slack, check_max_num
from logdex.hash_index.sealed import check_sealed
from logdex.report import Damage, Report, merge
from logdex.rocketmq.broker_config import group_offsets
from logdex.rocketmq.check import StoreCheck
from logdex.rocketmq.find import ANY_TOPIC, BODY_BUDGET_BYTES, result_of, scan_bytes
from logdex.rocketmq.index_service import INDEXES_TAGS, IndexService
from logdex.rocketmq.layout import StoreLayout, configured_topics, find_layout
from logdex.rocketmq.message import MessagePage, is_msg_id, offset_in_msg_id
from logdex.rocketmq.overview import overview, store_times, usage
from logdex.rocketmq.queues import totals
from logdex.rocketmq.read import check_scan, planned_messages, with_warning_of_topics
from logdex.rocketmq.rebuild import build_index, build_queues
from logdex.rocketmq.sealed import open_store, seal
from logdex.source import Info, Kind, Source, Table, check_by, detect, grouped, is_topic_pattern, matching_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
    from datetime import tzinfo
    from pathlib import Path

    from arro3.core import Array, RecordBatch

    from logdex._core import ConsumeQueue, Pattern, SealedFiles, SealedStore
    from logdex._types import Access, Body, Compat, Progress, Scan, Sealed, Time
    from logdex.report import Finding
    from logdex.rocketmq.explain import Explanation
    from logdex.rocketmq.find import FindResult, KeyView
    from logdex.rocketmq.message import Message
    from logdex.rocketmq.queues import TopicTotals
    from logdex.rocketmq.read import Range
    from logdex.source import By, GroupOffset, Usage

_log = logging.getLogger("logdex")


class MessageStore(Source):
    """The store of a broker, running or not, or a backup of it. Nothing in it is created, locked or changed.

    Open it with `MessageStore.open`. It may be used from several threads. It is pickled by path and options.

    Example:
        >>> from logdex.rocketmq import MessageStore
        >>> with MessageStore.open("/var/lib/rocketmq/store") as store:  # doctest: +SKIP
        ...     for message in store.find("TopicTest", "order-1001"):
        ...         print(message.phy_offset, message.body)
    """

    kind = Kind.STORE.value

    def __init__(self, layout: StoreLayout, options: dict[str, Any], sealed: SealedStore | None) -> None:
        self._layout = layout
        self._options = options
        self._lock = ThreadLock()
        self._index: IndexService | None = None
        reading = {"access": options["access"], "compat": options["compat"]}
        self._commit_log = CommitLog.open(layout.commit_log, **reading)
        slack_ms = options["clock_slack_ms"]
        self._queues = _core.Queues(layout.root, self._commit_log, **reading, clock_slack_ms=slack_ms)
        self._closed = False
        geometry = {name: options[name] for name in ("hash_slots", "max_entries")}
        self._search = _core.Store.open(self._queues, layout.index, sealed=sealed, **geometry)
        self._topics_in_log: tuple[int, list[str]] | None = None

    @classmethod
    def open(
        cls,
        root: str | os.PathLike[str],
        *,
        hash_slots: int | None = None,
        max_entries: int | None = None,
        clock_slack_ms: int = CLOCK_SLACK_MS,
        commit_log: str | os.PathLike[str] | None = None,
        access: Access = "auto",
        compat: Compat | None = None,
        sealed: Sealed = "auto",
        storage_options: Mapping[str, str] | None = None,
        filesystem: object | None = None,
    ) -> MessageStore:
        """Open a store directory; every part but the log may be missing.

        Args:
            root: The store's root, or a `commitlog` directory: a local path, or a URL (docs/guides/bucket.md).
            hash_slots: Slots of each index file (maxHashSlotNum); None: inferred from the fullest file.
            max_entries: Entries of each index file plus one (maxIndexNum); None: likewise.
            clock_slack_ms: How far the broker's clock may have stepped within one index file, in ms.
            commit_log: The directory of the log if it is not in the root (storePathCommitLog); several directories are
                separated by commas.
            access: "mmap", "pread", or "auto": mmap, and pread if mapping fails.
            compat: Search the index as this broker release does, faults included.
            sealed: "auto" uses the sealed index in the root if there is one (see `seal`), "never" none. Or the directory of one.
                It replaces the index files that are as they were, unless they are in memory and faster for a batch of keys;
                the others are searched as before.
            storage_options: Options of the store of a URL, such as `aws_region`, by the names of the object_store crate; what
                is not given comes from the environment.
            filesystem: A file system of fsspec or `pyarrow.fs`, or a store of obstore, in which `root` and `commit_log` are
                paths without a scheme; slower than a URL (docs/guides/bucket.md). The process keeps it, and nothing that is
                opened with it is pickled.

        Raises:
            OSError: There is no store at `root`, or another I/O error; nor a sealed index at the path that `sealed` is.
            CorruptFileError: `sealed` is a path, and the catalog of the sealed index there is damaged.
            GeometryError: Slots and entries were not passed and cannot be inferred from the index files.
            ValueError: The index files have other slots and entries than those passed; a negative slack; a path as `sealed`
                with `compat`.
        """
        check_int64(hash_slots=hash_slots, max_entries=max_entries)
        check_clock_slack(clock_slack_ms)
        check_sealed(sealed)
        if compat is not None and sealed not in ("auto", "never"):
            raise ValueError(f"sealed={os.fspath(sealed)!r}: a sealed index has no broker's answers; leave out compat")
        if filesystem is not None:
            root = in_filesystem(root, filesystem, storage_options)
            commit_log = None if commit_log is None else all_in_filesystem(commit_log, filesystem)
        # A broker's answers are left to the index files.
        is_searched = compat is None
        root = locate(root, storage_options)
        if storage_options and sealed not in ("auto", "never"):
            sealed = locate_beside(root, sealed, storage_options)
        # Of a remote store first, because this lists its directories with the same wait.
        is_remote = is_searched and isinstance(root, RemotePath)
        opened = open_store(sealed, root) if is_remote else None
        layout = find_layout(root, commit_log, storage_options, is_sealed=opened is not None)
        if is_searched and not is_remote:
            opened = open_store(sealed, layout.root)
        if opened is not None and hash_slots is not None and opened.geometry != (hash_slots, max_entries):
            # The index files have another geometry.
            opened = None
        options = {"hash_slots": hash_slots, "max_entries": max_entries, "clock_slack_ms": clock_slack_ms}
        return cls(layout, {**options, "access": access, "compat": compat, "sealed": sealed}, opened)

    @staticmethod
    def exists_at(path: str | os.PathLike[str]) -> bool:
        """Return whether `open` accepts a path: the root of a store or the directory of a commit log."""
        return detect(locate(path), sealed="never") is Kind.STORE

    @property
    def root(self) -> Path:
        """The root directory of the store. For a log without a store: the directory of the log."""
        return self._layout.root

    @property
    def layout(self) -> StoreLayout:
        """The paths of the store."""
        return self._layout

    @property
    def commit_log(self) -> CommitLog:
        """The log that holds the messages."""
        self._check_open()
        return self._commit_log

    @property
    def index(self) -> IndexService | None:
        """The key index; None while the store has no index directory."""
        self._check_open()
        with self._lock.hold():
            directory = self._layout.index
            if self._index is None and directory.is_dir():
                options = {name: value for name, value in self._options.items() if name != "sealed"}
                self._index = IndexService.open(directory, **options)
            return self._index

    def indexed_offsets(
        self, topics: Collection[str], keys: Collection[str], *, begin: Time | None = None, end: Time | None = None
    ) -> list[tuple[Range, Array]] | None:
        """Return where the key index leads: what a reader of only some messages needs.

        Args:
            topics: The topics.
            keys: Keys of the messages.
            begin: First store time, ms or an aware datetime; None: no bound.
            end: Last store time, included.

        Returns:
            The ranges of the log that the index covers, as (begin_phy_offset, end_phy_offset), ascending. Each has an int64 array
            of the offsets, ascending, at which messages with one of the keys may begin. The index stores hashes, so the messages
            must be checked. Messages in the rest of the log are not indexed. None: there is no index, more than a million
            pairs of a topic and a key, or a text that is not valid Unicode.

        Raises:
            OSError: An I/O error.
            CorruptFileError: An index file is damaged.
        """
        self._check_open()
        try:
            "".join(chain(topics, keys)).encode()
        except UnicodeEncodeError:
            return None
        times = TimeRange.of(begin, end)
        return self._search.indexed_offsets(list(topics), list(keys), begin=times.begin, end=times.end)

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the store is closed")

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._index is not None:
            self._index.close()
        self._search.close()
        self._queues.close()
        self._commit_log.close()

    @staticmethod
    def is_msg_id(text: str) -> bool:
        """Return whether a text has the form of an offset id; a client's unique key may have it as well."""
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
        body_budget: int = BODY_BUDGET_BYTES,
    ) -> FindResult:
        """Find the messages that carry a key, the newest first, each once.

        Candidates of the index are checked against the messages. If no index file covers a range of the log, the range is read
        with the broker's index rules. Reasons are lost index files, or a broker that has not indexed the range yet.

        Args:
            topic: The topic, as stored, or the topics that match a pattern: `Order*`, or a regular expression between slashes;
                None or "*" tries every topic of the store.
            key: The unique key (the client's message id), or one of the space-separated keys. If the broker indexed tags (5.5.0),
                also `"T#"` followed by the tags of a message.
            begin: First store time, ms or an aware datetime; None: no bound.
            end: Last store time, included.
            max_num: The most messages to return; None: all.
            scan: How much of the log that no index file covers is read: "auto" up to 1 GiB a call, True all, False nothing. Later
                calls also search what earlier calls read.
            progress: Called with the finished bytes of the log, and the total.
            body_budget: Bytes of bodies that the result keeps in memory. It reads the others when they are used.

        Raises:
            ValueError: `max_num` or `body_budget` is negative; a pattern is no regular expression.
            TypeError: The topic or the key is not a `str`; a bound is not an integer, or is a datetime without time zone.
        """
        self._check_open()
        check_text(key=key)
        topic = None if topic == ANY_TOPIC else topic
        if topic is not None:
            check_text(topic=topic)
        times = TimeRange.of(begin, end)
        check_int64(body_budget=body_budget)
        if body_budget < 0:
            raise ValueError(f"body_budget must not be negative: {body_budget}")
        check_max_num(max_num)
        if topic is None:
            topics = self._known_topics()
        elif is_topic_pattern(topic):
            topics = matching_topics([topic], lambda: self._topics_here(scan=True) or ())
        else:
            topics = [topic]
        found = self._search.find(
            topics,
            key,
            is_any_topic=topic is None,
            begin=times.begin,
            end=times.end,
            max_num=max_num,
            scan_bytes=scan_bytes(scan),
            progress=progress,
            body_budget=body_budget,
        )
        return result_of(found)

    def find_batch(
        self,
        topics: Any,  # noqa: ANN401 -- anything with the PyCapsule interface
        keys: Any,  # noqa: ANN401 -- as above
        *,
        begin: Time | None = None,
        end: Time | None = None,
        max_num: int | None = None,
        scan: Scan = "auto",
        columns: Iterable[str] | None = None,
        batch_size: int = 1_024,
    ) -> BatchStream:
        """Find the messages of many keys, at most `max_num` a key; the other options are those of `find`.

        `topics` is one topic for all, or one a key: a sequence or Arrow, as are the keys; no patterns. A null key finds nothing.
        `columns` are names of message columns, in the order wanted; None: all. Bodies that are not wanted are not decompressed.

        Returns:
            An Arrow stream of query_row (int64, the place of the key) and the message columns, in the order of the keys, the
            newest message of each first.
        """
        self._check_open()
        times = TimeRange.of(begin, end)
        if isinstance(topics, str) and is_topic_pattern(topics):
            raise ValueError(f"topics={topics!r}: expected the topic of each key; {_call_for(topics)} for one key")
        check_max_num(max_num)
        check_int64(batch_size=batch_size)
        found = self._search.find_batch(
            topics,
            keys,
            begin=times.begin,
            end=times.end,
            max_num=max_num,
            scan_bytes=scan_bytes(scan),
            columns=None if columns is None else list(columns),
            batch_size=batch_size,
        )
        damage = Damage.of(found.findings)

        def batches() -> Iterator[RecordBatch]:
            yield from found
            for finding in found.findings[len(damage.findings) :]:
                damage.add(finding)
            damage.warn()

        return BatchStream(found.schema, batches(), damage.findings)

    def key_view(self) -> KeyView:
        """Return log and index as they are now, for many searches at one moment: see `KeyView`."""
        self._check_open()
        return self._search.view(scan_bytes("auto"))

    def message(self, key: str | int) -> Message | None:
        """Read one message; return None if there is none. A `DamageWarning` reports a missing or damaged part of the log.

        Args:
            key: The offset id of the message (`msg_id`), or its commit-log offset. For a unique key use `find`.

        Raises:
            ValueError: The text is not an offset id: 32 hexadecimal digits, 56 with an IPv6 address.
        """
        self._check_open()
        if isinstance(key, str) and not is_msg_id(key):
            raise ValueError(f"an offset id has 32 or 56 hexadecimal digits, this has {len(key)} characters: {key!r}")
        offset = offset_in_msg_id(key) if isinstance(key, str) else operator.index(key)
        message = self._commit_log.message(offset)
        if message is None:
            Damage.of(self._commit_log.damage([offset])).warn()
        return None if message is None or (isinstance(key, str) and message.msg_id != key.upper()) else message

    def messages(
        self,
        topic: str | None = None,
        queue_id: int | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        columns: Iterable[str] | None = None,
        *,
        topics: str | Iterable[str] | None = None,
        keys: Iterable[str] | None = None,
        tags: Iterable[str] | None = None,
        matches: str | bytes | Pattern | None = None,
        begin_phy_offset: int | None = None,
        end_phy_offset: int | None = None,
        scan: Scan = "auto",
        body: Body = "decoded",
        batch_size: int | None = None,
        on_damage: Callable[[Finding], None] | None = None,
        threads: int | None = None,
        decode: Mapping[str, object] | None = None,
        progress: Progress | None = None,
    ) -> BatchStream:
        """Read messages in the order of the log, including those after damage and after missing files.

        All conditions must hold. Bodies of other messages are not decompressed. Log files whose time cannot match are not read.
        The messages of topics can be read through their queues. Queues have no units of messages of the raw transaction types
        PREPARED and ROLLBACK (before 4.3.0), nor of a deleted topic; the key index has no entries of ROLLBACK messages. The part
        of the log that queues or index do not cover is always read from the log. If a queue is damaged, the rest is read from
        the log.

        Args:
            topic: Only this topic, as stored, or the topics that match a pattern: `Order*`, or a regular expression between
                slashes; None: all.
            queue_id: Only this queue of the topic, or of every topic.
            begin: First store time, ms or an aware datetime; None: no bound.
            end: Last store time, included.
            columns: Names of message columns, in the order wanted; None: all.
            topics: Only this topic, or these topics; names and patterns as in `topic`.
            keys: Only messages that carry one of these: as their unique key, or as one of their space-separated keys.
            tags: Only messages with one of these tags.
            matches: Only messages in whose body this regular expression is found: a `str`, a `bytes`, or a `Pattern` with fields
                and options. A body is searched decompressed, whatever `body` is. One that cannot be decompressed is damage.
            begin_phy_offset: Where in the log to begin: the offset of a message; None: at the start of the log.
            end_phy_offset: The offset after the last message; None: the end of the log.
            scan: Whether to read the log for given topics or keys. "auto": keys of given topics are searched in the key index if
                more than 4 MiB of the log may match, keys of any topic and topics in index and queues if more than 1 GiB may.
                True: always. False: never; only what index and queues do not cover is read from the log.
            body: "decoded", or "stored": as the log holds it, possibly compressed.
            batch_size: The most rows of an Arrow batch, which ends earlier at 64 MiB. None: 8,192 rows, or fewer in 3 MiB, which
                stay in the processor's cache.
            on_damage: Called for each missing file of the log and each place that is not a valid message, after the rows around
                it. None: they are logged, one `DamageWarning` has all of them, and so has `findings` of the stream at its end.
            threads: Threads that check and decode; None: as many as there are processors, at most 4.
            decode: The formats of columns of bytes, such as `{"body": "json"}`. The column gets the type of the format; a value
                that does not decode is null, with the reason in `body_error`. "text": UTF-8. "json": objects with the fields that
                the objects of the first batch have, which is read at once; an object with another field does not decode. An
                Arrow schema: JSON objects, of which these fields are read. "msgpack": as "json", of MessagePack maps;
                `("msgpack", schema)` with an Arrow schema.
                "avro:FILE.avsc": values of an Avro schema. "avro:DIRECTORY": values with the number of their schema before
                them, as Confluent's serializers write them; the schemas are files `NUMBER.avsc`, and all values become values
                of that with the largest number. "avro:URL": the schemas are those of a registry; all values become values of
                that with the largest number in the first batch. "protobuf:FILE.desc:package.Message": messages of a type in a
                descriptor set. "protobuf:DIRECTORY:package.Message", "protobuf:URL:package.Message": those with the number of
                their schema before them, whose column has the fields of the largest number.
            progress: Called during the read, also while no message passes, with the bytes of the log that were passed and how
                many there are.

        Raises:
            TypeError: A text is not a `str`, or `keys` or `tags` is one `str`.
            ValueError: An unknown column; a pattern that is no regular expression; a negative queue id; an integer
                time that may be a number of seconds.
            OSError: An I/O error; the reader raises it, too.

        Warns:
            UnknownTopicWarning: At the end of the stream, if the store has no such topic.
        """
        self._check_open()
        check_int64(begin_phy_offset=begin_phy_offset, end_phy_offset=end_phy_offset)
        check_queue_id(queue_id)
        chosen = self._named_topics(_topics(topics))
        if topic is not None:
            named = self._named_topics(_texts("topic", [topic])) or []
            chosen = [each for each in named if chosen is None or each in chosen]
        check_scan(scan)
        conditions: dict[str, Any] = {"queue_id": queue_id, "begin": begin, "end": end, "keys": keys, "tags": tags}
        conditions["matches"] = matches
        conditions |= {"begin_phy_offset": begin_phy_offset, "end_phy_offset": end_phy_offset}
        wanted = None if columns is None else list(columns)
        if decode and wanted is not None and "body_error" not in wanted:
            wanted.append("body_error")
        stream = self._search.messages(
            _selection(chosen, **conditions),
            columns=wanted,
            body=body,
            scan=scan,
            batch_size=batch_size,
            threads=threads,
            known_topics=partial(self._topics_here, scan=False),
            decode=decode,
            progress=progress,
        )
        damage = Damage()

        def batches() -> Generator[RecordBatch, None, None]:
            yield from planned_messages(stream, on_damage or damage.add)
            damage.warn()

        read = batches()
        if chosen:
            may_scan = all(condition is None for condition in conditions.values())
            read = with_warning_of_topics(stream, read, chosen, self._topics_here, may_scan=may_scan)
        return BatchStream(stream.schema, read, damage.findings)

    def page(
        self,
        position: int | None = None,
        *,
        topic: str | None = None,
        queue_id: int | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        keys: Iterable[str] | None = None,
        tags: Iterable[str] | None = None,
        matches: str | bytes | Pattern | None = None,
        columns: Iterable[str] | None = None,
        limit: int = 50,
        newest_first: bool = True,
        seconds: float = 2.0,
    ) -> MessagePage:
        """Read some messages next to a position in the log, for a person who reads on from there.

        The filters are those of `messages`. The messages of a topic are found through its queues as far as these reach, others by
        a scan of parts of the log. The cost is that of what is returned and passed over, not of the whole log.

        Args:
            position: An offset of the log, such as `next_position` of the page before. None: the end of the log, or with
                `newest_first=False` its begin.
            topic: Only this topic, as stored.
            queue_id: Only this queue.
            begin: First store time, ms or an aware datetime; None: no bound. Times are found by bisection. If the broker's clock
                stepped back, messages of the range may be elsewhere in the log, and only `messages` reads them.
            end: Last store time, included.
            keys: Only messages that carry one of these.
            tags: Only messages with one of these tags.
            matches: Only messages in whose body this regular expression is found; see `messages`.
            columns: Names of message columns; None: all.
            limit: The most messages.
            newest_first: The messages before the position, the newest first. False: those at and after it, the oldest first.
            seconds: After this time the page ends with what it has.

        Raises:
            ValueError: `limit` is negative.
            TypeError: A text is not a `str`, or `keys` or `tags` is one `str`.
        """
        self._check_open()
        check_int64(position=position, limit=limit)
        if limit < 0:
            raise ValueError(f"limit={limit}: expected 0 or more")
        check_queue_id(queue_id)
        topics = None if topic is None else [topic]
        selection = _selection(topics, queue_id=queue_id, begin=begin, end=end, keys=keys, tags=tags, matches=matches)
        return MessagePage(
            *self._search.page(
                selection,
                position=position,
                columns=None if columns is None else list(columns),
                limit=limit,
                newest_first=newest_first,
                seconds=seconds,
            )
        )

    @property
    def topics(self) -> list[str]:
        """Return the topics with messages, sorted: those with queues. In a store without queues, those in the log.

        Without queues the first call, and the next one after the log has grown, is linear in the log.
        """
        self._check_open()
        topics = self._queues.topics()
        if not topics:
            topics, findings = self._read_topics()
            Damage.of(findings).warn()
        return topics

    def _named_topics(self, wanted: Iterable[str] | None) -> list[str] | None:
        """Return topics by names and patterns; None: all."""
        return None if wanted is None else matching_topics(wanted, lambda: self._topics_here(scan=True) or ())

    def _read_topics(self) -> tuple[list[str], list[Finding]]:
        """Return the topics of the log, and the findings of skipped data if it was read for them."""
        end = self._commit_log.max_offset
        if self._topics_in_log is not None and self._topics_in_log[0] == end:
            return self._topics_in_log[1], []
        topics, report = self._commit_log.topics(salvage=self._options["compat"] is None)
        self._topics_in_log = end, topics
        return topics, report.findings

    def _topics_here(self, *, scan: bool) -> list[str] | None:
        """Return the topics that a message may have, including those without a queue.

        If the store has no queues, the log is read with `scan`; without it the result is None.
        """
        if not self._queues.topics():
            if not scan:
                return None
            return sorted({*self._read_topics()[0], *configured_topics(self._layout.config)})
        return self._known_topics()

    @property
    def compat(self) -> Compat | None:
        """The broker release whose answers are returned, faults included."""
        compat: Compat | None = self._options["compat"]
        return compat

    def queues(self) -> list[tuple[str, int]]:
        """Return topic and queue id of each queue that has files."""
        self._check_open()
        return sorted(self._queues.directories())

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Open the consume queue of a topic.

        Raises:
            FileNotFoundError: The store has no files of it.
            TypeError: The topic is not text, or the number is not an integer.
        """
        self._check_open()
        if not isinstance(topic, str):
            raise TypeError(f"a topic is str, not {type(topic).__name__}")
        return self._queues.queue(topic, operator.index(queue_id))

    def queue_ids(self, topic: str) -> list[int]:
        """Return the ids of the queues that a topic has in the store, sorted."""
        self._check_open()
        return sorted(number for _, number in self._queues.directories([topic]))

    def explain(self, topic: str, key: str, *, begin: Time | None = None, end: Time | None = None) -> Explanation:
        """Explain why a key is found or not, in a range of store times: each step of the search, and the likely causes.

        If no index file covers a range of the log, it is read, up to 1 GiB a call.
        """
        self._check_open()
        check_text(topic=topic, key=key)
        if is_topic_pattern(topic):
            raise ValueError(f"topic={topic!r}: expected one topic; {_call_for(topic)}")
        from logdex.rocketmq.explain import explain  # noqa: PLC0415 -- few runs need it

        return explain(self, topic, key, TimeRange.of(begin, end), self._options["clock_slack_ms"])

    @property
    def indexes_tags(self) -> bool:
        """True if messages are found by their tags. A 5.5.0 broker indexes tags, and messages read from the log have them."""
        self._check_open()
        return self._search.has_tags()

    def start_of_last(
        self, num: int, *, topics: str | Iterable[str] | None = None, queue_id: int | None = None
    ) -> int | None:
        """Return where the last messages of some queues begin, for `messages(begin_phy_offset=...)`.

        Args:
            num: The number of messages, in all queues together.
            topics: Only queues of this topic, or of these; None: of all.
            queue_id: Only this queue of each topic.

        Returns:
            The commit-log offset of the first of them; None if the queues are missing or empty.
        """
        self._check_open()
        check_queue_id(queue_id)
        chosen = _topics(topics)
        return self._queues.start_of_last(num, chosen, queue_id)

    def times(self, topic: str | None = None) -> list[int]:
        """Return store times in ms of the first and the last messages of a topic's queues; None: of all topics, or of the log."""
        self._check_open()
        return store_times(self._commit_log, self._queues, topic)

    def groups(self, group: str | None = None) -> list[GroupOffset]:
        """Return how far each consumer group has read, or one of them, by the broker's tables in `config`.

        Raises:
            CorruptFileError: A table, and its copy, cannot be read.
        """
        self._check_open()
        return group_offsets(self._layout.config, self._queues, group)

    def topic_totals(self, topics: str | Iterable[str] | None = None, *, measure: bool = False) -> list[TopicTotals]:
        """Return the number of queues and messages of each topic from its queues; fast also for many thousand queues.

        Args:
            topics: Only this topic, or these; None: all.
            measure: Also add up the bytes of the messages in the log; this reads all units of the queues.
        """
        self._check_open()
        chosen = _topics(topics)
        return totals(self._queues, chosen, measure=measure).topics

    def usage(self, by: By = "topic") -> list[Usage]:
        """Return how many messages and bytes of the log each topic, queue or day (UTC, of the store time) has.

        The queues have it; the log is not read. Messages that no queue has are not counted: see `overview`.
        """
        self._check_open()
        check_by(by)
        return grouped(usage(self._commit_log, self._queues, by_day=by == "day"), by)

    def overview(self) -> dict[str, Any]:
        """Return files, ranges of offsets and times, topics and index files, as `logdex info` shows them.

        Only the newest file of the log is walked.
        """
        self._check_open()
        return overview(self._layout, self._commit_log, self._queues, self.index, self._search)

    def info(self) -> Info:
        """Return files, ranges of offsets and times, topics and index files. Only the newest file of the log is walked."""
        facts = self.overview()
        topics = Table("topics", ("topic", "queues", "messages"), facts.pop("topics"))
        names = ("name", "entries", "begin_timestamp", "end_timestamp")
        files = Table("index files", names, facts.pop("index_files"))
        return Info(self.kind, facts, [each for each in (topics, files) if each.rows])

    def verify(self, progress: Progress | None = None) -> Report:
        """Check log, queues and index, each by itself and against the others, in both directions; linear in all of them.

        Every message must have its unit, and each of its keys an entry. Every unit and entry must refer to its message. Messages
        that a broker had not dispatched when it ended are not a fault.

        `progress` is called with the finished bytes of the log, and the total. The report has findings of the kinds in
        docs/findings.md. Only errors of the system are raised.
        """
        self._check_open()
        report = StoreCheck(self._layout, self._commit_log, self._queues, self.index).run(progress)
        if not self._search.is_sealed:
            return report
        sealed = self._search.verify_sealed()
        absent = Report(absent=["sealed index (no index file is as it was, or it is damaged)"])
        return merge([report, absent if sealed is None else sealed])

    def seal(
        self,
        out: str | os.PathLike[str] | None = None,
        *,
        progress: Progress | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Report:
        """Write a sealed index: all index entries sorted by hash, with times from the log, and a catalog of the files.

        A later `open` finds it in the root of the store, or takes its directory as `sealed`. A search then costs one read in
        place of some in each index file. The store itself is not changed. Index files that are not whole, or have findings,
        are left out, and searched as before. A sealed index that is there is replaced when the new one is complete.

        Args:
            out: The directory, local or a URL, in which `_logdex` is written; None: the root of the store.
            progress: Called with the entries read, and all entries.
            storage_options: Options of the store of a URL; None: those of this store.

        Returns:
            A report that counts files, entries, and the bytes of the files of keys. Findings are index files that are not sealed.

        Raises:
            OSError: An I/O error.
        """
        self._check_open()
        place = None if out is None else locate_beside(self._layout.root, out, storage_options)
        return seal(self._layout, self._commit_log, self.index, place, progress)

    def ask_sealed(self, topic: str, key: str, times: TimeRange) -> tuple[Path, SealedFiles, list[int]] | None:
        """Return the sealed index that a search uses, its files and the candidates of a key; None without one."""
        self._check_open()
        return self._search.ask_sealed(topic, key, begin=times.begin, end=times.end)

    @property
    def indexed_ranges(self) -> list[Range]:
        """Ranges of the log whose messages are indexed, as (begin_phy_offset, end_phy_offset)."""
        self._check_open()
        return self._search.covered()

    @property
    def sealed(self) -> str | None:
        """The index files that a sealed index replaces, in words; None if each index file is searched."""
        self._check_open()
        return self._search.sealed_words

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
        """Build the index files of the log, byte for byte as a broker does; the store itself is only read.

        Args:
            directory: The directory of the new files; created if it is missing. It must be empty.
            hash_slots: Slots of each file; None: those of the store's own index, else 5,000,000.
            max_entries: Entries of each file plus one; None: likewise, 20,000,000.
            zone: Time zone of the file names (the broker's), by name or as tzinfo; None: the machine's.
            tags: Index tags, too, as a 5.5.0 broker does; None: as in the store's own index, or by `compat`.
            threads: Threads that read the log.
            progress: Called with the finished bytes of the log, and the total.

        Returns:
            A report that counts messages, entries and index files. If the log is damaged, the index ends there, as a broker's
            does. `checked["log_bytes_behind_damage"]` is the number of bytes of the log that it leaves out.

        Raises:
            FileExistsError: The directory is not empty.
            LockedError: The directory is the index of a running broker.
            OSError: An I/O error.
        """
        self._check_open()
        if (hash_slots is None) != (max_entries is None):
            raise ValueError("give both hash_slots and max_entries, or neither")
        index = self.index
        files = index.files if index is not None else []
        if hash_slots is None and files:
            hash_slots, max_entries = files[0].hash_slots, files[0].max_entries
        if tags is None:
            tags = self._search.has_tags() if files else self._options["compat"] == INDEXES_TAGS
        geometry = (hash_slots, max_entries)
        return build_index(self._commit_log, directory, geometry, zone, tags=tags, threads=threads, progress=progress)

    def build_queues(
        self, directory: str | os.PathLike[str], *, threads: int = 2, progress: Progress | None = None
    ) -> Report:
        """Build the consume queues from the log; the store itself is only read.

        The files have the size of the store's queue files, else the broker's default. If the store has extension files, so do the
        new queues. Their bit maps are empty: the log does not record which consumer filters match a message.

        Args:
            directory: The parent of `consumequeue`, `batchconsumequeue` and `consumequeue_ext`; created if it is missing.
            threads: Threads that read the log.
            progress: Called with the finished bytes of the log, and the total.

        Returns:
            A report that counts messages, units and queues. Findings are damage, and queue offsets that jump or repeat, as after
            a topic was deleted.

        Raises:
            FileExistsError: The directory holds queues.
            OSError: An I/O error.
        """
        self._check_open()
        return build_queues(self._commit_log, self._queues, directory, threads=threads, progress=progress)

    def _known_topics(self) -> list[str]:
        """Return the topics that a message may have, including those without a queue."""
        return sorted({*self.topics, *configured_topics(self._layout.config)})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._layout.root)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by path and options."""
        return _opened_again, (self._layout, self._options)


def _call_for(pattern: str) -> str:
    """Return the call that takes a pattern of topics."""
    return "find(None, key) tries every topic" if pattern == ANY_TOPIC else "find(topic, key) takes a pattern"


def _opened_again(layout: StoreLayout, options: dict[str, Any]) -> MessageStore:
    return MessageStore.open(layout.root, **options, commit_log=layout.commit_log)


def _topics(topics: str | Iterable[str] | None) -> list[str] | None:
    """Return one topic or several as a list; None: all topics."""
    return [topics] if isinstance(topics, str) else None if topics is None else list(_texts("topics", topics))


def _texts(name: str, values: Iterable[str]) -> Iterable[str]:
    """Check that the argument is several texts, not one str."""
    if isinstance(values, str):
        raise TypeError(f"{name}: expected an iterable of str, found one str; put it into a list")
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"{name}: expected str, found {type(value).__name__}")
        yield value


def _selection(
    topics: list[str] | None,
    *,
    queue_id: int | None,
    begin: Time | None,
    end: Time | None,
    keys: Iterable[str] | None,
    tags: Iterable[str] | None,
    matches: str | bytes | Pattern | None = None,
    begin_phy_offset: int | None = None,
    end_phy_offset: int | None = None,
) -> MessageFilter:
    """Return the conditions of a read as the core takes them."""
    times = TimeRange.of(begin, end)
    return MessageFilter(
        topics=topics,
        queue_ids=None if queue_id is None else [queue_id],
        begin=times.begin,
        end=times.end,
        keys=None if keys is None else list(_texts("keys", keys)),
        tags=None if tags is None else list(_texts("tags", tags)),
        matches=matches,
        begin_phy_offset=begin_phy_offset,
        end_phy_offset=end_phy_offset,
    )
