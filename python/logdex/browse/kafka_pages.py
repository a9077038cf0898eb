"""Pages about a Kafka log directory: partitions, segments, records, producers and transactions, the time index."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from arro3.core import Table

from logdex._core import GroupOffsets, TimeIndex, dump_file, read_records
from logdex.browse import facets
from logdex.browse.body import Decoders, Preview, previews, show_body
from logdex.browse.group_pages import GroupPages
from logdex.browse.jobs import CheckPages
from logdex.browse.pictures import COLOURS, Chart, Piece, Series, bars, spans_of, strip
from logdex.browse.view import (
    Download,
    Listing,
    NotThereError,
    Place,
    Query,
    View,
    address,
    call,
    command,
    file_name,
    is_internal,
    rows_of,
)
from logdex.errors import CorruptFileError, printable
from logdex.kafka import checkpoint
from logdex.kafka.files import LOG, TIME_INDEX, TopicPartition
from logdex.kafka.groups import OFFSETS_TOPIC
from logdex.kafka.overview import TIMES, broker_state, times_and_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from logdex._core import SegmentReader
    from logdex._types import Progress
    from logdex.browse.body import ShownBody
    from logdex.kafka import Log, LogDir, LogSegment
    from logdex.report import Finding, Report
    from logdex.source import GroupOffset


_COLUMNS = ("offset", "timestamp", "key", "producerId", "isTransactional", "isControl")
SHOWN = ("timestamp", "key", "value", "size", "kind", "producer")
"""Columns of a list to choose from; the offset is always shown."""
_USUAL = ("timestamp", "key", "value", "size", "kind")
_FACETS = {"key": "key", "hour": "timestamp"}
_COUNTED_BYTES = 64 << 20
"""Of keys and times that are counted."""
_FIRST_WINDOW, _MOST_WINDOW = 256, 262_144
_LONG_STEP_SECONDS = 0.2
"""While a pattern is searched, windows grow only if one takes less: a stranger may have chosen a slow pattern."""
_SHOWN_KEY = 120


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The conditions of a page, all of which must hold; None: no condition."""

    keys: Sequence[str] | None
    matches: str | None
    begin: int | None
    end: int | None
    is_committed: bool


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Some records next to an offset.

    Attributes:
        rows: The records by name of column, in the requested order.
        next_position: Where the next page begins; None: nothing is left in this direction.
        done: Offsets from where the order begins to where this page ends.
        total: Offsets of the partition.
        findings: The damage that this page skipped.
        previews: The start of each value, by offset.
    """

    HEADS: ClassVar = ("topic", "partition", *_COLUMNS)

    topic: str
    partition: int
    rows: list[dict[str, Any]]
    next_position: int | None
    done: int
    total: int
    findings: tuple[Finding, ...]
    previews: Mapping[int, Preview | None]

    def listing(self) -> Listing:
        """Return the rows for JSON and CSV."""
        return Listing(
            self.HEADS, [(self.topic, self.partition, *(row[name] for name in _COLUMNS)) for row in self.rows]
        )


def read_page(
    log: Log,
    position: int | None,
    wanted: RecordFilter,
    *,
    limit: int,
    newest_first: bool,
    seconds: float,
    decoders: Decoders | None = None,
) -> RecordPage:
    """Read the records next to an offset; the page ends when its time is over. With decoders it has previews of the values."""
    until = time.monotonic() + seconds
    log = log.pinned()
    low, high = log.log_start_offset, log.log_end_offset
    begin, end = (high, low) if newest_first else (low, high)
    at = begin if position is None else max(low, min(position, high))
    rows: list[dict[str, Any]] = []
    findings: list[Finding] = []
    window, has_begun = _FIRST_WINDOW, False
    while at != end and len(rows) < limit and (not has_begun or time.monotonic() < until):
        begun, has_begun = time.monotonic(), True
        span = (max(low, at - window), at) if newest_first else (at, min(high, at + window))
        need = limit - len(rows)
        found, damage = _read(log, span, wanted, need + 1, newest_first=newest_first)
        findings += damage
        rows += found[:need]
        at = span[0] if newest_first else span[1]
        if len(found) > need:
            at = rows[-1]["offset"] + (0 if newest_first else 1)
        if wanted.matches is None or time.monotonic() - begun < _LONG_STEP_SECONDS:
            window = min(window * 2, _MOST_WINDOW)
    next_position = None if at == end else at
    shown = _previews(log, rows, wanted.matches, decoders) if decoders is not None and rows else {}
    done = abs(at - begin)
    return RecordPage(log.topic, log.partition, rows, next_position, done, high - low, tuple(findings), shown)


def _previews(
    log: Log, rows: Sequence[Mapping[str, Any]], matches: str | None, decoders: Decoders
) -> Mapping[int, Preview | None]:
    """Return the previews of the values of some records, by offset."""
    offsets = sorted(row["offset"] for row in rows)
    parts = log.parts(offsets[0], offsets[-1] + 1)
    columns = ["offset", "value"]
    read = read_records(parts, columns=columns, offsets=offsets, control=True, on_error="skip", warn=False)
    return previews(read, "offset", "value", matches, decoders)


def _read(
    log: Log, span: tuple[int, int], wanted: RecordFilter, most: int, *, newest_first: bool
) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Return at most `most` records of a span of offsets, and the damage in it."""
    reader = _records(log, span, wanted, _COLUMNS, control=True)
    batches = list(reader)
    rows: list[dict[str, Any]] = []
    for batch in reversed(batches) if newest_first else batches:
        length = min(most - len(rows), batch.num_rows)
        part = rows_of(batch.slice(batch.num_rows - length if newest_first else 0, length))
        rows += reversed(part) if newest_first else part
    for row in rows:
        row["key"] = None if row["key"] is None else key_text(row["key"])
    return rows, list(reader.damage)


def _records(
    log: Log, span: tuple[int, int], wanted: RecordFilter, columns: Sequence[str], *, control: bool
) -> SegmentReader:
    return log.records(
        *span,
        wanted.begin,
        wanted.end,
        columns,
        keys=wanted.keys,
        matches=wanted.matches,
        isolation="read_committed" if wanted.is_committed else "read_uncommitted",
        control=control and wanted.keys is None and wanted.matches is None and not wanted.is_committed,
        on_error="skip",
    )


def key_text(key: bytes) -> str:
    """Return a key as text, or as hex if it is not UTF-8."""
    try:
        text = printable(key.decode())
    except UnicodeDecodeError:
        text = "0x" + key.hex()
    return text if len(text) <= _SHOWN_KEY else text[:_SHOWN_KEY] + "..."


def _next_records(row: GroupOffset) -> str:
    words = {"topic": row.topic, "partition": row.queue_id, "order": "oldest", "position": row.offset}
    return address("/records", words)


def _word(key: bytes | None) -> str | None:
    """Return a key as the text of a filter; None if it cannot be one."""
    try:
        return None if key is None else key.decode() or None
    except UnicodeDecodeError:
        return None


def _neighbours(log: Log, at: int, key: str | None) -> tuple[RecordPage, RecordPage]:
    """Return pages of the record before an offset and of the one after it, of a key if one is given."""
    wanted = RecordFilter(None if key is None else [key], None, None, None, is_committed=False)
    before = read_page(log, at, wanted, limit=1, newest_first=True, seconds=_NEIGHBOUR_SECONDS)
    return before, read_page(log, at + 1, wanted, limit=1, newest_first=False, seconds=_NEIGHBOUR_SECONDS)


_NEIGHBOUR_SECONDS = 0.3
_COUNT_SECONDS = 2.0
_SEARCH_SECONDS = 4.0
_MOST_TRANSACTIONS = 200
_MOST_PARTITION = (1 << 31) - 1
_CHECKPOINTS = {
    "high_watermark": checkpoint.HIGH_WATERMARK,
    "recovery_point": checkpoint.RECOVERY_POINT,
    "compacted_up_to": checkpoint.CLEANER,
}
_RECORD_COLUMNS = (
    *("offset", "timestamp", "timestampType", "key", "value", "headers", "producerId", "producerEpoch", "sequence"),
    *("isTransactional", "isControl", "partitionLeaderEpoch", "batchPosition"),
)


class KafkaPages:
    """The pages about a log directory; `path` is its path as the user wrote it."""

    kind = "Kafka log directory"
    menu = (
        ("/", "Overview"),
        ("/partitions", "Partitions"),
        ("/records", "Records"),
        ("/search", "Search"),
        ("/groups", "Groups"),
        ("/verify", "Check"),
    )

    def __init__(self, logs: LogDir, place: Place, decode: Mapping[str, str] | None = None) -> None:
        self.path = place.path
        self._decoders = Decoders(decode, ("value", "key"))
        self._place = place
        self._logs = logs
        self._groups = GroupPages(logs, place, self._python("print(logs.groups())"), _next_records, self._lag_over_time)
        self._check = CheckPages.of(place, self._verify, self._python("print(logs.verify())"))

    @property
    def views(self) -> Mapping[str, Callable[[Query], View]]:
        """Return the pages by address."""
        own = {
            "/": self.overview,
            "/partitions": self.partitions,
            "/partition": self.partition,
            "/segment": self.segment,
            "/records": self.records,
            "/records/tail": self.tail,
            "/records/new": self.new,
            "/record": self.record,
            "/value": self.value,
            "/search": self.search,
        }
        return {**own, **self._groups.views, **self._check.views}

    @property
    def actions(self) -> Mapping[str, Callable[[], str]]:
        """Return what changes the state of this process, by address."""
        return self._check.actions

    def close(self) -> None:
        """Close the files."""
        self._logs.close()

    def _python(self, *lines: str) -> str:
        opened = f"logs = {self._place.opened('LogDir.open')}"
        return "\n".join(["from logdex.kafka import LogDir", "", opened, *lines])

    def _verify(self, progress: Progress) -> Report:
        all_logs = [self._logs.log(each.topic, each.partition) for each in self._logs.partitions()]
        total, done = sum(log.size for log in all_logs), 0

        def after(segment: LogSegment) -> None:
            nonlocal done
            done += segment.size
            progress(done, total)

        progress(0, total)
        return self._logs.verify(progress=after)

    def _log(self, query: Query) -> Log:
        return self._logs.log(query.needed("topic"), query.needed_number("partition", high=_MOST_PARTITION))

    def _partitions(self, topic: str | None = None) -> list[TopicPartition]:
        """Return the partitions, those of the broker's own topics last."""
        return sorted(self._logs.partitions(topic), key=lambda each: is_internal(each.topic))

    def _topics(self) -> list[str]:
        return list(dict.fromkeys(each.topic for each in self._partitions()))

    def _rows(self, partitions: Sequence[TopicPartition]) -> list[dict[str, Any]]:
        """Return facts of partitions that are cheap to read."""
        rows = []
        for each in partitions:
            log = self._logs.log(each.topic, each.partition)
            row: dict[str, Any] = {"topic": each.topic, "partition": each.partition, "segments": len(log.segments)}
            try:
                row |= {"begin_offset": log.log_start_offset, "end_offset": log.log_end_offset, "error": None}
            except CorruptFileError as error:
                row |= {"begin_offset": None, "end_offset": None, "error": str(error)}
            row |= times_and_size(log.segments)
            row["missing"] = len(log.missing_segments()) if row["error"] is None else 0
            rows.append(row)
        return rows

    def overview(self, _: Query) -> View:
        """Show the overview."""
        rows = self._rows(self._logs.partitions())
        topics: dict[str, dict[str, int]] = {}
        for row in rows:
            topic = topics.setdefault(row["topic"], {"partitions": 0, "records": 0, "bytes": 0})
            topic["partitions"] += 1
            topic["records"] += (row["end_offset"] or 0) - (row["begin_offset"] or 0)
            topic["bytes"] += row["log_bytes"]
        ordered = sorted(topics.items(), key=lambda item: (is_internal(item[0]), -item[1]["bytes"]))
        begins, ends = ([row[name] for row in rows if row[name] is not None] for name in TIMES[:2])
        first, last = min(begins, default=None), max(ends, default=None)
        chart, left_out = self._over_time([topic for topic, _ in ordered], first, last)
        values = {
            "topics": ordered[:COLOURS],
            "topic_count": len(topics),
            "partition_count": len(rows),
            "records": sum(each["records"] for each in topics.values()),
            "bytes": sum(row["log_bytes"] for row in rows),
            "segments": sum(row["segments"] for row in rows),
            "first": first,
            "last": last,
            "broker": broker_state(self._logs.path),
            "missing": [row for row in rows if row["missing"]],
            "broken": [row for row in rows if row["error"]],
            "chart": chart,
            "left_out": left_out,
            "job": self._check.job,
            "report": self._check.job.result,
        }
        heads = ("topic", "partitions", "offsets", "bytes")
        listing = Listing(heads, [(topic, *numbers.values()) for topic, numbers in ordered])
        return View(
            "kafka.html",
            "Overview",
            values,
            listing,
            self._place.command("info"),
            self._python("print(logs.topics)"),
        )

    def _over_time(self, topics: Sequence[str], first: int | None, last: int | None) -> tuple[Chart | None, list[str]]:
        """Return the records of each time by topic, and the topics that were not counted."""
        spans = None if first is None or last is None else spans_of(max(first, 0), max(last, 0))
        if spans is None:
            return None, []
        until = time.monotonic() + _COUNT_SECONDS
        series: list[Series] = []
        left_out: list[str] = []
        for topic in topics[:COLOURS]:
            if time.monotonic() >= until:
                left_out.append(topic)
                continue
            counts = [0] * spans.number
            for each in self._logs.partitions(topic):
                edges = self._edges(self._logs.log(topic, each.partition), spans.begins())
                for at in range(spans.number if edges else 0):
                    counts[at] += max(0, edges[at + 1] - edges[at])
            series.append(Series(topic, counts, len(series)))
        left_out += topics[COLOURS:]
        return bars(series, spans.ticks(), f"offsets per {spans.word} by topic", spans.titles()), left_out

    def _lag_over_time(self, own: Sequence[GroupOffset]) -> Chart | None:
        """Return the lag of a group at the end of each span, as far as its commits are kept; None if that takes too long."""
        group, until = own[0].group, time.monotonic() + _COUNT_SECONDS
        partitions = self._logs.partitions(OFFSETS_TOPIC)
        # All partitions of the topic are here, or the group is in another one.
        place = GroupOffsets.partition_of(group, max(each.partition for each in partitions) + 1)
        committed = GroupOffsets(group)
        for each in partitions:
            if each.partition != place:
                continue
            log = self._logs.log(each.topic, place)
            for batch in log.records(columns=["key", "value"], isolation="read_committed", on_error="skip"):
                committed.add(batch)
                if time.monotonic() >= until:
                    return None
        times = committed.watched_times()
        spans = None if times is None else spans_of(*times)
        if spans is None or spans.number == 1:
            return None
        nexts, lags = [begin + spans.length for begin in spans.begins()], [0] * spans.number
        here = {(each.topic, each.partition) for each in self._logs.partitions()}
        for topic, partition, offsets in committed.watched_offsets([after - 1 for after in nexts]):
            if time.monotonic() >= until:
                return None
            edges = self._edges(self._logs.log(topic, partition), [0, *nexts]) if (topic, partition) in here else []
            for at, (offset, end) in enumerate(zip(offsets, edges[1:], strict=False)):
                lags[at] += 0 if offset is None else max(0, end - offset)
        series = [Series("offsets behind", lags, 2)]
        return bars(series, spans.ticks(), f"lag at the end of each {spans.word}", spans.titles())

    @staticmethod
    def _edges(log: Log, begins: Sequence[int]) -> list[int]:
        """Return the first offset of each time, and the end; nothing if the log is damaged."""
        try:
            end = log.log_end_offset
            found = [log.offset_for_timestamp(begin, special=False) for begin in begins[1:]]
            return [log.log_start_offset, *(end if each is None else each[1] for each in found), end]
        except CorruptFileError:
            return []

    def partitions(self, query: Query) -> View:
        """Show the partitions."""
        topic = query.text("topic")
        partitions = self._partitions(topic)
        first, most = query.number("from") or 0, query.rows()
        rows = self._rows(partitions[first : first + most])
        heads = ("topic", "partition", "segments", "begin_offset", "end_offset", *TIMES)
        listing = Listing(heads, [[row[name] for name in heads] for row in rows])
        values = {
            "rows": rows,
            "topic": topic,
            "count": len(partitions),
            "first": first,
            "next": first + most if first + most < len(partitions) else None,
            "kept": query.given("topic", "rows"),
        }
        title = f"Partitions of {topic}" if topic else "Partitions"
        return View(
            "partitions.html",
            title,
            values,
            listing,
            self._place.command("info"),
            self._python("print(logs.topics)"),
        )

    def partition(self, query: Query) -> View:
        """Show one partition: its segments, producers and transactions."""
        log = self._log(query)
        segments = log.segments
        rows = [
            {"base_offset": segment.base_offset, "name": segment.path.name, **times_and_size([segment])}
            for segment in segments
        ]
        facts: dict[str, Any] = {"log_start_offset": log.log_start_offset, "log_end_offset": log.log_end_offset}
        facts["last_stable_offset"] = log.last_stable_offset
        here = TopicPartition(log.topic, log.partition)
        facts |= {name: checkpoint.recorded(self._logs.path, file, here) for name, file in _CHECKPOINTS.items()}
        snapshots = sorted(log.path.glob("*.snapshot"), key=lambda path: path.name)
        aborted = log.aborted_transactions()
        first, most = query.number("from") or 0, query.rows()
        values = {
            "topic": log.topic,
            "number": log.partition,
            "facts": {name: value for name, value in facts.items() if value is not None},
            "rows": rows[::-1][first : first + most],
            "count": len(rows),
            "first": first,
            "next": first + most if first + most < len(rows) else None,
            "missing": log.missing_segments(),
            "snapshot": snapshots[-1].name if snapshots else None,
            "producers": _producers(snapshots[-1]) if snapshots else [],
            "aborted": aborted[:_MOST_TRANSACTIONS],
            "aborted_count": len(aborted),
            "epochs": checkpoint.read_leader_epochs(log.path),
        }
        listing = Listing(
            ("name", "base_offset", *TIMES), [[row[n] for n in ("name", "base_offset", *TIMES)] for row in rows]
        )
        python = self._python(f"log = {call('logs.log', log.topic, log.partition)}", "print(log.segments)")
        return View(
            "partition.html",
            f"Partition {here}",
            values,
            listing,
            command("info", str(log.path), **self._place.options),
            python,
        )

    def segment(self, query: Query) -> View:
        """Show a map of one segment with its damage, and its time index."""
        log = self._log(query)
        base = query.needed_number("base")
        segment = next((each for each in log.segments if each.base_offset == base), None)
        if segment is None:
            raise NotThereError(f"the partition has no segment that begins at offset {base}")
        report = segment.verify(deep=False)
        found = [each for each in report.findings if each.path.endswith(LOG)]
        pieces = [Piece(0, segment.size, "ok", "batches")]
        pieces += [
            Piece(
                each.offset,
                each.offset + 1,
                "bad",
                f"byte {each.offset:,}: expected {each.expected}, found {each.found}",
            )
            for each in found
        ]
        path = segment.path.with_suffix(TIME_INDEX)
        entries, count, first = [], 0, query.number("from") or 0
        if path.exists():
            with TimeIndex.open(path) as index:
                count = len(index)
                entries = [index.entry(at) for at in range(first, min(first + query.rows(), count))]
        listing = Listing(("timestamp", "offset"), entries)
        values = {
            "topic": log.topic,
            "number": log.partition,
            "segment": segment,
            "report": report,
            "map": strip([("batches", pieces)], 0, segment.size, f"map of the segment {segment.path.name}"),
            "entries": entries,
            "count": count,
            "first": first,
            "next": first + len(entries) if first + len(entries) < count else None,
            "kept": query.given("topic", "partition", "base", "rows"),
        }
        python = f"from logdex.kafka import LogSegment\n\nprint({call('LogSegment.open', str(segment.path))}.verify())"
        shell = command("kafka dump", str(segment.path))
        return View("segment.html", f"Segment {segment.path.name}", values, listing, shell, python)

    def records(self, query: Query) -> View:
        """Show the records of a partition next to an offset."""
        values = self._list_values(query)
        topic, number = values["filters"]["topic"], values["filters"]["partition"]
        if topic is None or number is None:
            return View("records.html", "Records", values)
        page = self._page(self._logs.log(topic, number), query, query.rows(), query.text("key"), _COUNT_SECONDS)
        values["page"] = page
        if query.text("counts") is not None:
            values["counts"] = self._counts(self._logs.log(topic, number), query, values["kept"])
        key, begin, end = query.text("key"), query.time("begin"), query.time("end")
        grep = query.text("grep")
        ask = call("log.records", begin=begin, end=end, keys=None if key is None else [key], matches=grep)
        python = self._python(f"log = {call('logs.log', topic, number)}", f"for batch in {ask}:", "    print(batch)")
        # `cat` prints the records of this page from its lowest offset on, without control records.
        offsets = [row["offset"] for row in page.rows if not row["isControl"]]
        shell = None
        if offsets:
            filters = {"topic": topic, "queue": number, "key": key, "grep": grep, "begin": begin, "end": end}
            filters |= {"isolation": query.text("isolation"), "skip_damaged": bool(page.findings)}
            shell = self._place.command("cat", **filters, offset=min(offsets), limit=len(offsets))
        return View("records.html", f"Records of {topic}-{number}", values, page.listing(), shell, python)

    def _list_values(self, query: Query) -> dict[str, Any]:
        """Return the values of a list of records without its records: the first partition if none is chosen."""
        partitions = self._partitions()
        topic, number = query.text("topic"), query.number("partition", high=_MOST_PARTITION)
        if topic is None and partitions:
            topic = partitions[0].topic
        of_topic = [each.partition for each in partitions if each.topic == topic]
        if number is None and of_topic:
            number = of_topic[0]
        filters = query.given("key", "grep", "begin", "end") | {"topic": topic, "partition": number}
        return {
            "filters": filters,
            "topics": self._topics(),
            "page": None,
            "of_topic": of_topic,
            "is_oldest": query.text("order") == "oldest",
            "position": query.number("position"),
            "isolation": query.text("isolation") or "read_uncommitted",
            "kept": filters | query.given("order", "rows", "isolation", "columns"),
            "columns": SHOWN,
            "shown": query.columns(SHOWN, _USUAL),
            "counts": None,
        }

    def _counts(
        self, log: Log, query: Query, kept: Mapping[str, Any]
    ) -> tuple[tuple[int, int, int], list[facets.Facet]]:
        """Return the number of counted records with their range of offsets, and the values of each unused filter."""
        log = log.pinned()
        wanted = self._filter(query, query.text("key"))
        low, high = log.log_start_offset, log.log_end_offset
        position = query.number("position")
        newest_first = query.text("order") != "oldest"
        if wanted.end is not None:
            after = log.offset_for_timestamp(wanted.end + 1, special=False)
            high = high if after is None else after.offset
        if newest_first:
            high = high if position is None else max(low, min(position, high))
            low = max(low, high - facets.MOST_ROWS)
        else:
            low = low if position is None else max(low, min(position, high))
            high = min(high, low + facets.MOST_ROWS)
        until, batches, spent = time.monotonic() + _COUNT_SECONDS, [], 0
        reader = _records(log, (low, high), wanted, ("offset", *_FACETS.values()), control=False)
        for batch in reader:
            batches.append(batch)
            spent += batch.nbytes
            if spent > _COUNTED_BYTES or time.monotonic() > until:
                high = rows_of(batch.slice(batch.num_rows - 1, 1))[0]["offset"] + 1 if batch.num_rows else high
                break
        whole = Table.from_batches(batches, schema=reader.schema).combine_chunks().to_batches()
        if not whole:
            return (0, low, high), []
        names = {name: column for name, column in _FACETS.items() if kept.get(name) is None}
        return (whole[0].num_rows, low, high), facets.facets(whole[0], names, "/records", {**kept, "counts": 1})

    def tail(self, query: Query) -> View:
        """Show the newest records of a partition; the page adds those that are written from now on."""
        return self._new_records("record_tail.html", query)

    def new(self, query: Query) -> View:
        """Show only the records from an offset on, for a page that polls them."""
        query.needed_number("position")
        return self._new_records("record_tail_rows.html", query)

    def _new_records(self, template: str, query: Query) -> View:
        values = self._list_values(query)
        topic, number = values["filters"]["topic"], values["filters"]["partition"]
        if topic is None or number is None:
            raise NotThereError("there is no such partition here")
        log, position = self._logs.log(topic, number).pinned(), query.number("position")
        end, wanted = log.log_end_offset, self._filter(query, query.text("key"))
        newest_first, seconds = position is None, _COUNT_SECONDS
        page = read_page(
            log,
            position,
            wanted,
            limit=query.rows(),
            newest_first=newest_first,
            seconds=seconds,
            decoders=self._decoders,
        )
        if not newest_first:
            page.rows.reverse()
            end = end if page.next_position is None else page.next_position
        values |= {"page": page, "position": end, "is_behind": not newest_first and page.next_position is not None}
        return View(template, f"Live tail of {topic}-{number}", values, page.listing())

    def _page(
        self, log: Log, query: Query, limit: int, key: str | None, seconds: float, *, is_previewed: bool = True
    ) -> RecordPage:
        columns = query.columns(SHOWN, _USUAL)
        return read_page(
            log,
            query.number("position"),
            self._filter(query, key),
            limit=limit,
            newest_first=query.text("order") != "oldest",
            seconds=seconds,
            decoders=self._decoders if is_previewed and not {"value", "size"}.isdisjoint(columns) else None,
        )

    @staticmethod
    def _filter(query: Query, key: str | None) -> RecordFilter:
        isolation = query.text("isolation") or "read_uncommitted"
        if isolation not in ("read_uncommitted", "read_committed"):
            raise ValueError(f"isolation: expected read_uncommitted or read_committed, found {isolation!r}")
        return RecordFilter(
            None if key is None else [key],
            query.text("grep"),
            query.time("begin"),
            query.time("end"),
            isolation == "read_committed",
        )

    def _record(self, query: Query) -> tuple[Log, dict[str, Any]]:
        log, at = self._log(query), query.needed_number("offset")
        for batch in log.records(at, at + 1, columns=_RECORD_COLUMNS, control=True):
            if batch.num_rows:
                return log, rows_of(batch)[0]
        raise NotThereError(
            f"{log.topic}-{log.partition} has no record at offset {at:,}: deleted, compacted, or not written yet"
        )

    def record(self, query: Query) -> View:
        """Show one record."""
        log, row = self._record(query)
        at, value, key = row["offset"], row["value"], row["key"]
        shown = None
        if value is not None:
            shown = self._decoders.show("value", value, query.text("form"), query.number("byte") or 0)
        fields = {name: each for name, each in row.items() if name not in ("value", "key", "headers")}
        values = {
            "topic": log.topic,
            "number": log.partition,
            "fields": fields,
            "key": None if key is None else self._shown_key(key),
            "headers": [(each["key"], show_body(each["value"] or b"", "text")) for each in row["headers"] or ()],
            "shown": shown,
            "forms": self._decoders.forms("value"),
            "at": at,
            "neighbours": _neighbours(log, at, None),
            "same_key": None,
        }
        if (word := _word(key)) is not None:
            values["same_key"] = word, _neighbours(log, at, word)
        listing = Listing(tuple(fields), [tuple(fields.values())])
        python = self._python(
            f"log = {call('logs.log', log.topic, log.partition)}", f"print(log.records({at}, {at + 1}).read_all())"
        )
        one = {"topic": log.topic, "queue": log.partition, "offset": at, "limit": 1}
        shell = None if row["isControl"] else self._place.command("cat", **one, body=True)
        return View("record.html", f"Record {at:,} of {log.topic}-{log.partition}", values, listing, shell, python)

    def _shown_key(self, key: bytes) -> ShownBody:
        if "key" in self._decoders:
            return self._decoders.show("key", key, None)
        return show_body(key, None if key[:1] not in b"[{" else "text")

    def value(self, query: Query) -> View:
        """Send the whole value, or the whole key, as a file."""
        log, row = self._record(query)
        part = "key" if query.text("part") == "key" else "value"
        raise Download(row[part] or b"", file_name(log.topic, log.partition, row["offset"], part))

    def search(self, query: Query) -> View:
        """Search the records of a topic by key or value; what time leaves out is named."""
        topic, key, grep = query.text("topic"), query.text("key"), query.text("grep")
        filters = query.given("topic", "key", "begin", "end", "grep")
        values: dict[str, Any] = {
            "filters": filters,
            "topics": self._topics(),
            "parts": None,
            "kept": filters | query.given("rows", "columns"),
            "columns": SHOWN,
            "shown": query.columns(SHOWN, _USUAL),
        }
        if topic is None or (key is None and grep is None):
            return View("kafka_search.html", "Search", values)
        partitions = self._logs.partitions(topic)
        if not partitions:
            raise NotThereError(f"there is no topic {topic!r} here")
        parts, seconds = [], _SEARCH_SECONDS / len(partitions)
        until = time.monotonic() + 2 * _SEARCH_SECONDS
        for each in partitions:
            query.go_on()
            log, is_previewed = self._logs.log(each.topic, each.partition), time.monotonic() < until
            page = self._page(log, query, query.rows(), key, seconds, is_previewed=is_previewed)
            parts.append((each.partition, page))
        values |= {"parts": parts, "found": sum(len(page.rows) for _, page in parts)}
        listing = Listing(RecordPage.HEADS, [row for _, page in parts for row in page.listing().rows])
        begin, end = query.time("begin"), query.time("end")
        if key is not None and grep is None:
            shell = self._place.command("kafka find", topic, key, begin=begin, end=end)
            search = call("logs.find", topic, key, begin=begin, end=end)
            python = self._python(f"for record in {search}:", "    print(record)")
        else:
            shell = self._place.command("cat", topic=topic, key=key, grep=grep, begin=begin, end=end)
            ask = call("logs.records", topic, begin=begin, end=end, keys=key and [key], matches=grep)
            python = self._python(f"for batch in {ask}:", "    print(batch)")
        return View("kafka_search.html", f"Search: {key or grep}", values, listing, shell, python)


def _producers(path: Any) -> list[dict[str, Any]]:  # noqa: ANN401 -- a local or a remote path
    """Return the producers of a snapshot."""
    lines: list[str] = []
    dump_file(path, lines.append, json=True)
    rows = [json.loads(line) for line in "".join(lines).splitlines()]
    return [row for row in rows if row.get("type") == "producer"]
