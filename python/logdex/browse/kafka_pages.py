"""Pages about a Kafka log directory: partitions, segments, records, producers and transactions, the time index."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from logdex._core import TimeIndex, dump_file
from logdex.browse.body import FORMS, show_body
from logdex.browse.jobs import CheckPages
from logdex.browse.pictures import COLOURS, Chart, Piece, Series, bars, spans_of, strip
from logdex.browse.view import Download, Listing, NotThereError, Place, Query, View, call, command, rows_of
from logdex.errors import CorruptFileError, printable
from logdex.kafka import checkpoint
from logdex.kafka.files import LOG, TIME_INDEX, TopicPartition
from logdex.kafka.overview import TIMES, broker_state, times_and_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from logdex._types import Progress
    from logdex.kafka import Log, LogDir, LogSegment
    from logdex.report import Finding, Report


_COLUMNS = ("offset", "timestamp", "key", "producerId", "isTransactional", "isControl")
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
    """

    HEADS: ClassVar = ("topic", "partition", *_COLUMNS)

    topic: str
    partition: int
    rows: list[dict[str, Any]]
    next_position: int | None
    done: int
    total: int
    findings: tuple[Finding, ...]

    def listing(self) -> Listing:
        """Return the rows for JSON and CSV."""
        return Listing(
            self.HEADS, [(self.topic, self.partition, *(row[name] for name in _COLUMNS)) for row in self.rows]
        )


def read_page(
    log: Log, position: int | None, wanted: RecordFilter, *, limit: int, newest_first: bool, seconds: float
) -> RecordPage:
    """Read the records next to an offset; the page ends when its time is over."""
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
    return RecordPage(log.topic, log.partition, rows, next_position, abs(at - begin), high - low, tuple(findings))


def _read(
    log: Log, span: tuple[int, int], wanted: RecordFilter, most: int, *, newest_first: bool
) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Return at most `most` records of a span of offsets, and the damage in it."""
    reader = log.records(
        *span,
        wanted.begin,
        wanted.end,
        _COLUMNS,
        keys=wanted.keys,
        matches=wanted.matches,
        isolation="read_committed" if wanted.is_committed else "read_uncommitted",
        control=wanted.keys is None and wanted.matches is None and not wanted.is_committed,
        on_error="skip",
    )
    batches = list(reader)
    rows: list[dict[str, Any]] = []
    for batch in reversed(batches) if newest_first else batches:
        length = min(most - len(rows), batch.num_rows)
        part = rows_of(batch.slice(batch.num_rows - length if newest_first else 0, length))
        rows += reversed(part) if newest_first else part
    for row in rows:
        row["key"] = None if row["key"] is None else key_text(row["key"])
    return rows, list(reader.damage)


def key_text(key: bytes) -> str:
    """Return a key as text, or as hex if it is not UTF-8."""
    try:
        text = printable(key.decode())
    except UnicodeDecodeError:
        text = "0x" + key.hex()
    return text if len(text) <= _SHOWN_KEY else text[:_SHOWN_KEY] + "..."


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
        ("/verify", "Check"),
    )

    def __init__(self, logs: LogDir, path: str) -> None:
        self.path = path
        self._logs = logs
        self._check = CheckPages.of(Place(path), self._verify, self._python("print(logs.verify())"))

    @property
    def views(self) -> Mapping[str, Callable[[Query], View]]:
        """Return the pages by address."""
        own = {
            "/": self.overview,
            "/partitions": self.partitions,
            "/partition": self.partition,
            "/segment": self.segment,
            "/records": self.records,
            "/record": self.record,
            "/value": self.value,
            "/search": self.search,
        }
        return {**own, **self._check.views}

    @property
    def actions(self) -> Mapping[str, Callable[[], str]]:
        """Return what changes the state of this process, by address."""
        return self._check.actions

    def close(self) -> None:
        """Close the files."""
        self._logs.close()

    def _python(self, *lines: str) -> str:
        return "\n".join(["from logdex.kafka import LogDir", "", f"logs = {call('LogDir.open', self.path)}", *lines])

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
        ordered = sorted(topics.items(), key=lambda item: item[1]["bytes"], reverse=True)
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
            command("info", self.path),
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
        partitions = self._logs.partitions(topic)
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
            command("info", self.path),
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
        return View("partition.html", f"Partition {here}", values, listing, command("info", str(log.path)), python)

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
        partitions = self._logs.partitions()
        topic, number = query.text("topic"), query.number("partition", high=_MOST_PARTITION)
        if topic is None and partitions:
            topic = partitions[0].topic
        of_topic = [each.partition for each in partitions if each.topic == topic]
        if number is None and of_topic:
            number = of_topic[0]
        filters = query.given("key", "grep", "begin", "end") | {"topic": topic, "partition": number}
        values: dict[str, Any] = {
            "filters": filters,
            "topics": sorted({each.topic for each in partitions}),
            "page": None,
        }
        values |= {
            "of_topic": of_topic,
            "is_oldest": query.text("order") == "oldest",
            "position": query.number("position"),
        }
        values["isolation"] = query.text("isolation") or "read_uncommitted"
        values["kept"] = filters | query.given("order", "rows", "isolation")
        if topic is None or number is None:
            return View("records.html", "Records", values)
        page = self._page(self._logs.log(topic, number), query, query.rows(), query.text("key"), _COUNT_SECONDS)
        values["page"] = page
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
            shell = command("cat", self.path, **filters, offset=min(offsets), limit=len(offsets))
        return View("records.html", f"Records of {topic}-{number}", values, page.listing(), shell, python)

    def _page(self, log: Log, query: Query, limit: int, key: str | None, seconds: float) -> RecordPage:
        isolation = query.text("isolation") or "read_uncommitted"
        if isolation not in ("read_uncommitted", "read_committed"):
            raise ValueError(f"isolation: expected read_uncommitted or read_committed, found {isolation!r}")
        wanted = RecordFilter(
            None if key is None else [key],
            query.text("grep"),
            query.time("begin"),
            query.time("end"),
            isolation == "read_committed",
        )
        newest_first = query.text("order") != "oldest"
        return read_page(log, query.number("position"), wanted, limit=limit, newest_first=newest_first, seconds=seconds)

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
        shown = None if value is None else show_body(value, query.text("form"), query.number("byte") or 0)
        fields = {name: each for name, each in row.items() if name not in ("value", "key", "headers")}
        values = {
            "topic": log.topic,
            "number": log.partition,
            "fields": fields,
            "key": None if key is None else show_body(key, None if key[:1] not in b"[{" else "text"),
            "headers": [(each["key"], show_body(each["value"] or b"", "text")) for each in row["headers"] or ()],
            "shown": shown,
            "forms": FORMS,
            "at": at,
            "begin": log.log_start_offset,
            "end": log.log_end_offset,
        }
        listing = Listing(tuple(fields), [tuple(fields.values())])
        python = self._python(
            f"log = {call('logs.log', log.topic, log.partition)}", f"print(log.records({at}, {at + 1}).read_all())"
        )
        one = {"topic": log.topic, "queue": log.partition, "offset": at, "limit": 1}
        shell = None if row["isControl"] else command("cat", self.path, **one, body=True)
        return View("record.html", f"Record {at:,} of {log.topic}-{log.partition}", values, listing, shell, python)

    def value(self, query: Query) -> View:
        """Send the whole value as a file."""
        _, row = self._record(query)
        raise Download(row["value"] or b"", f"value-{row['offset']}.bin")

    def search(self, query: Query) -> View:
        """Search the records of a topic by key; what time leaves out is named."""
        topic, key = query.text("topic"), query.text("key")
        topics = sorted(self._logs.topics)
        values: dict[str, Any] = {
            "filters": query.given("topic", "key", "begin", "end"),
            "topics": topics,
            "parts": None,
        }
        if topic is None or key is None:
            return View("kafka_search.html", "Search", values)
        partitions = self._logs.partitions(topic)
        if not partitions:
            raise NotThereError(f"there is no topic {topic!r} here")
        parts = []
        for each in partitions:
            log = self._logs.log(topic, each.partition)
            parts.append((each.partition, self._page(log, query, query.rows(), key, _SEARCH_SECONDS / len(partitions))))
        values |= {"parts": parts, "found": sum(len(page.rows) for _, page in parts)}
        listing = Listing(RecordPage.HEADS, [row for _, page in parts for row in page.listing().rows])
        begin, end = query.time("begin"), query.time("end")
        shell = command("kafka find", self.path, topic, key, begin=begin, end=end)
        search = call("logs.find", topic, key, begin=begin, end=end)
        python = self._python(f"for record in {search}:", "    print(record)")
        return View("kafka_search.html", f"Search: {key}", values, listing, shell, python)


def _producers(path: Any) -> list[dict[str, Any]]:  # noqa: ANN401 -- a local or a remote path
    """Return the producers of a snapshot."""
    lines: list[str] = []
    dump_file(path, lines.append, json=True)
    rows = [json.loads(line) for line in "".join(lines).splitlines()]
    return [row for row in rows if row.get("type") == "producer"]
