"""Pages about a message store: overview, topics, queues, and the files of its log."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logdex._core import MessageFilter
from logdex.browse.body import Decoders
from logdex.browse.group_pages import GroupPages
from logdex.browse.index_pages import IndexViews
from logdex.browse.jobs import CheckPages, Shared
from logdex.browse.message_pages import MessagePages
from logdex.browse.pictures import COLOURS, Chart, Piece, Series, Spans, bars, spans_of, strip
from logdex.browse.view import Listing, NotThereError, Query, View, address, call, command, is_internal, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from logdex._core import ConsumeQueue
    from logdex.browse.view import Place
    from logdex.rocketmq import MessageStore
    from logdex.source import GroupOffset

_COUNT_SECONDS = 2.0
"""Time limit for counting messages for the pictures, in seconds. No page waits for it, and omitted topics are named."""
_SIZE_SECONDS = 0.3
"""Time limit for measuring the queues of topics for a page, in seconds."""
_UNITS = 50
_TOPIC_ORDERS: Mapping[str, Callable[[tuple[str, int, int]], Any]] = {
    "name": lambda row: row[0],
    "queues": lambda row: (-row[1], row[0]),
    "messages": lambda row: (-row[2], row[0]),
}


@dataclass(frozen=True, slots=True)
class _Facts:
    """Data of the first page: the overview, the time of the newest message, and the first valid message after damage."""

    overview: dict[str, Any]
    last_timestamp: int | None
    after_damage: int | None

    def busiest(self) -> list[tuple[str, int, int]]:
        """Return the rows of the topics with the most messages, the broker's own last."""
        return sorted(self.overview["topics"], key=lambda row: (is_internal(row[0]), -row[2]))[:COLOURS]


@dataclass(frozen=True, slots=True)
class _Pictures:
    """Data that takes longer: messages over time, the topics that were not counted, and the bytes of the busiest topics."""

    chart: Chart | None
    left_out: list[str]
    sizes: dict[str, int | None]


class StorePages:
    """Pages about a store."""

    kind = "RocketMQ message store"
    menu = (
        ("/", "Overview"),
        ("/topics", "Topics"),
        ("/messages", "Messages"),
        ("/search", "Search"),
        ("/groups", "Groups"),
        ("/index", "Index"),
        ("/log", "Log"),
        ("/verify", "Check"),
    )

    def __init__(self, store: MessageStore, place: Place, decode: Mapping[str, str] | None = None) -> None:
        self.path = place.path
        self._place = place
        self._store = store
        self._messages = MessagePages(store, place, Decoders(decode, ("body",)))
        self._index = IndexViews(lambda: store.index, str(store.layout.index))
        self._groups = GroupPages(store, place, self._python("print(store.groups())"), _next_unit)
        self._check = CheckPages.of(place, store.verify, self._python("print(store.verify())"))
        self._facts = Shared(self._read_facts)
        self._pictures = Shared(self._draw)
        self._bytes: dict[str, tuple[int, int]] = {}
        """Number of measured messages and their bytes, by topic."""
        self._measuring = threading.Lock()

    @property
    def views(self) -> Mapping[str, Callable[[Query], View]]:
        """Return the pages by address."""
        own = {
            "/": self.overview,
            "/topics": self.topics,
            "/topic": self.topic,
            "/queue": self.queue,
            "/log": self.log,
            "/log-file": self.log_file,
        }
        return {**own, **self._messages.views, **self._groups.views, **self._index.views, **self._check.views}

    @property
    def actions(self) -> Mapping[str, Callable[[], str]]:
        """Return what changes the state of this process, by address."""
        return self._check.actions

    def close(self) -> None:
        """Close the files."""
        self._store.close()

    def _python(self, *lines: str) -> str:
        opened = f"store = {self._place.opened('MessageStore.open')}"
        return "\n".join(["from logdex.rocketmq import MessageStore", "", opened, *lines])

    def overview(self, query: Query) -> View:
        """Show the overview."""
        facts = self._facts.get(query.patience)
        if facts is None:
            return View("counting.html", "Overview", command=self._place.command("info"))
        pictures = self._pictures.get(query.patience / 2)
        shown = dict(facts.overview)
        topics, index_files = shown.pop("topics"), shown.pop("index_files")
        values = {
            "facts": shown,
            "first": shown["first_message_timestamp"],
            "last": facts.last_timestamp,
            "topics": facts.busiest(),
            "topic_count": len(topics),
            "messages": sum(row[2] for row in topics),
            "sizes": {} if pictures is None else pictures.sizes,
            "index_files": len(index_files),
            "chart": None if pictures is None else pictures.chart,
            "left_out": [] if pictures is None else pictures.left_out,
            "is_counting": pictures is None,
            "after_damage": facts.after_damage,
            "map": self._log_map(shown["min_offset"], shown["max_offset"]),
            "gaps": self._store.commit_log.gaps(),
            "job": self._check.job,
            "report": self._check.job.result,
        }
        rows = Listing(("name", "value"), [*shown.items(), ("topics", len(topics)), ("index_files", len(index_files))])
        python = self._python("print(store.overview())")
        return View("store.html", "Overview", values, rows, self._place.command("info"), python)

    def _read_facts(self) -> _Facts:
        overview = self._store.overview()
        newest = self._store.page(limit=1, columns=["store_timestamp"], seconds=_COUNT_SECONDS)
        (last,) = [row["store_timestamp"] for row in rows_of(newest.batch)] or [None]
        return _Facts(overview, last, self._after_damage(overview["max_offset"]))

    def _after_damage(self, end: int) -> int | None:
        """Return the offset of the first valid message after a damaged end of the log; None if there is none."""
        scan = self._store.commit_log.scan
        for batch in scan(begin_phy_offset=end, columns=("phy_offset",), stop="valid", batch_size=1):
            for row in rows_of(batch):
                offset: int = row["phy_offset"]
                return offset
        return None

    def _draw(self) -> _Pictures:
        """Count messages by time and by size, for a limited time."""
        facts = self._facts.get(_COUNT_SECONDS)
        if facts is None:
            return _Pictures(None, [], {})
        chart, left_out = self._over_time(facts)
        return _Pictures(chart, left_out, self._sizes(facts.busiest()))

    def _queues(self, topic: str) -> list[tuple[int, ConsumeQueue]]:
        return [(number, self._store.queue(topic, number)) for number in self._store.queue_ids(topic)]

    def _sizes(self, topics: Sequence[tuple[str, int, int]]) -> dict[str, int | None]:
        """Return the bytes of each topic in the log; None after the time limit. `topics` are rows of the overview."""
        # One request at a time measures, and the others use its results.
        if self._measuring.acquire(blocking=False):
            try:
                until = time.monotonic() + _SIZE_SECONDS
                for topic, _, messages in topics:
                    known = self._bytes.get(topic)
                    if time.monotonic() >= until:
                        break
                    if known is None or known[0] != messages:
                        for found in self._store.topic_totals([topic], measure=True):
                            self._bytes[topic] = messages, found.log_bytes or 0
            finally:
                self._measuring.release()
        return {topic: known[1] if (known := self._bytes.get(topic)) else None for topic, _, _ in topics}

    def _over_time(self, facts: _Facts) -> tuple[Chart | None, list[str]]:
        """Return the messages of each time by topic, and the topics that were not counted."""
        first, last = facts.overview["first_message_timestamp"], facts.last_timestamp
        spans = None if first is None or last is None else spans_of(min(first, last), max(first, last))
        ordered = sorted(facts.overview["topics"], key=lambda row: row[2], reverse=True)
        if not ordered or spans is None:
            return None, []
        until = time.monotonic() + _COUNT_SECONDS
        counts, left_out = [], []
        for topic, _, _ in ordered:
            if time.monotonic() >= until:
                left_out.append(topic)
                continue
            counts.append((topic, _counts([queue for _, queue in self._queues(topic)], spans)))
        series = [Series(name, values, at) for at, (name, values) in enumerate(counts[: COLOURS - 1])]
        if rest := [values for _, values in counts[COLOURS - 1 :]]:
            series.append(Series("of other topics", [sum(column) for column in zip(*rest, strict=True)], COLOURS - 1))
        return bars(series, spans.ticks(), f"messages per {spans.word} by topic", spans.titles()), left_out

    def _log_map(self, begin: int, end: int) -> Any:  # noqa: ANN401 -- markup
        gaps = [(low, high) for low, high, _ in self._store.commit_log.gaps()]
        log = [Piece(begin, end, "ok", "files of the log")]
        log += [Piece(low, high, "bad", f"offsets {low:,} to {high:,}: a file is missing") for low, high in gaps]
        found = self._check.job.result
        for finding in found.findings if found is not None else ():
            name = finding.path.rpartition("/")[2]
            if finding.kind.startswith("log-") and name.isdecimal():
                at = int(name) + finding.offset
                log.append(
                    Piece(at, at + 1, "bad", f"offset {at:,}: expected {finding.expected}, found {finding.found}")
                )
        indexed = [Piece(low, high, "c1", f"offsets {low:,} to {high:,}") for low, high in self._store.indexed_ranges]
        return strip([("log", log), ("indexed", indexed)], begin, end, "the log, and its indexed ranges")

    def topics(self, query: Query) -> View:
        """Show the topics."""
        facts = self._facts.get(query.patience)
        if facts is None:
            return View("counting.html", "Topics", command=self._place.command("info"))
        sort = query.text("sort") or "messages"
        if sort not in _TOPIC_ORDERS:
            raise ValueError(f"sort: expected one of {', '.join(_TOPIC_ORDERS)}, found {sort!r}")
        rows = sorted(facts.overview["topics"], key=lambda row: (is_internal(row[0]), _TOPIC_ORDERS[sort](row)))
        first, most = query.number("from") or 0, query.rows()
        shown = rows[first : first + most]
        sizes = self._sizes(shown)
        listing = Listing(("topic", "queues", "messages", "bytes"), [(*row, sizes[row[0]]) for row in shown])
        values = {
            "rows": listing.dicts(),
            "count": len(rows),
            "first": first,
            "next": first + most if first + most < len(rows) else None,
            "kept": query.given("sort", "rows"),
            "sort": sort,
        }
        python = self._python("print(store.overview()['topics'])")
        return View("topics.html", "Topics", values, listing, self._place.command("info"), python)

    def topic(self, query: Query) -> View:
        """Show the queues of a topic."""
        topic = query.needed("topic")
        queues = self._queues(topic)
        if not queues:
            raise NotThereError(f"the store has no queue of topic {topic!r}")
        rows = []
        until = time.monotonic() + _SIZE_SECONDS
        for number, queue in queues:
            query.go_on()
            first, last = queue.min_offset, queue.max_offset
            size = queue.measure()[1] if time.monotonic() < until else None
            rows.append((number, queue.kind, first, last, last - first, size, *self._ends(queue)))
        heads = ("queue", "kind", "min_offset", "max_offset", "messages", "bytes", "first_timestamp", "last_timestamp")
        listing = Listing(heads, rows)
        values = {"topic": topic, "rows": listing.dicts(), "gaps": [gap for _, queue in queues for gap in queue.gaps()]}
        python = self._python(
            f"queue = {call('store.queue', topic, queues[0][0])}", "print(queue.min_offset, queue.max_offset)"
        )
        shell = command("info", str(queues[0][1].path.parent))
        return View("topic.html", f"Topic {topic}", values, listing, shell, python)

    def _ends(self, queue: ConsumeQueue) -> tuple[int | None, int | None]:
        """Return the store times of the first and the last message of a queue."""
        first, last = queue.min_offset, queue.max_offset
        if first >= last:
            return None, None
        offsets = [queue.units(at, at + 1).column("phy_offset") for at in (first, last - 1)]
        places = [column[0].as_py() if len(column) else -1 for column in offsets]
        begin, end = rows_of(self._store.commit_log.messages(places, columns=["store_timestamp"]))
        return begin["store_timestamp"], end["store_timestamp"]

    def queue(self, query: Query) -> View:
        """Show units of a queue around one of them."""
        topic, number = query.needed("topic"), query.needed_number("queue", high=(1 << 31) - 1)
        queue = self._store.queue(topic, number)
        low, high = queue.min_offset, queue.max_offset
        at = query.number("at")
        begin = query.number("from")
        if begin is None:
            begin = low if at is None else at - _UNITS // 2
        begin = max(low, min(begin, high - 1))
        end = min(begin + query.rows(), high)
        batch = queue.units(begin, end)
        values = {
            "topic": topic,
            "number": number,
            "rows": rows_of(batch),
            "previews": self._messages.previews(batch, None),
            "low": low,
            "high": high,
            "at": at,
            "before": max(low, begin - query.rows()) if begin > low else None,
            "after": end if end < high else None,
            "begin": begin,
            "end": end,
            "kind": queue.kind,
            "files": len(queue.files),
            "gaps": queue.gaps(),
        }
        python = self._python(f"queue = {call('store.queue', topic, number)}", f"print(queue.units({begin}, {end}))")
        shell = self._place.command("cat", topic=topic, queue=number, offset=begin, limit=batch.num_rows)
        return View("queue.html", f"Queue {number} of {topic}", values, batch, shell, python)

    def log(self, query: Query) -> View:
        """Show the files of the log, the newest first."""
        log = self._store.commit_log
        files = log.files[::-1]
        first, most = query.number("from") or 0, query.rows()
        shown = files[first : first + most]
        begins = [int(path.name) for path in shown]
        times = rows_of(log.messages(begins, columns=["store_timestamp"]))
        sizes = [path.stat().st_size for path in shown]
        rows = [
            (path.name, begin, size, row["store_timestamp"])
            for path, begin, size, row in zip(shown, begins, sizes, times, strict=True)
        ]
        listing = Listing(("name", "begin_phy_offset", "file_bytes", "first_timestamp"), rows)
        low, high = log.min_offset, log.max_offset
        values = {
            "rows": listing.dicts(),
            "count": len(files),
            "first": first,
            "next": first + most if first + most < len(files) else None,
            "map": self._log_map(low, high),
            "begin": low,
            "end": high,
            "gaps": log.gaps(),
        }
        python = self._python("log = store.commit_log", "print(log.files, log.min_offset, log.max_offset)")
        return View("log.html", "Files of the log", values, listing, self._place.command("info"), python)

    def log_file(self, query: Query) -> View:
        """Show a map of one file of the log, with its damage."""
        name = query.needed("name")
        log = self._store.commit_log
        path = next((each for each in log.files if each.name == name), None)
        if path is None:
            raise NotThereError(f"the log has no file {name!r}")
        begin = int(name)
        end = begin + path.stat().st_size
        # No message passes this filter, but every one is checked.
        reader = log.scan(
            begin_phy_offset=begin,
            end_phy_offset=end,
            columns=("phy_offset",),
            stop="valid",
            selection=MessageFilter(topics=[]),
            threads=None,
        )
        for _ in reader:
            pass
        findings = reader.report.findings
        reached = min(end, log.max_offset) if end >= log.max_offset >= begin else end
        parts = log.damage([begin + finding.offset for finding in findings if finding.kind == "log-frame"])
        last = max((high for _, high, _ in parts), default=reached)
        pieces = [Piece(begin, max(reached, last if last < end else reached), "ok", "valid messages")]
        if reached < end:
            pieces.append(Piece(reached, end, "empty", f"from offset {reached:,} on: nothing is written"))
        pieces += [
            Piece(low, high, "bad", f"offsets {low:,} to {high:,}: expected {each.expected}, found {each.found}")
            for low, high, each in parts
        ]
        covered = [part for part in self._store.indexed_ranges if part[0] < end and part[1] > begin]
        indexed = [Piece(low, high, "c1", f"offsets {low:,} to {high:,}") for low, high in covered]
        values = {
            "name": name,
            "path": str(path),
            "begin": begin,
            "end": end,
            "reached": reached,
            "parts": parts,
            "map": strip([("log", pieces), ("indexed", indexed)], begin, end, f"map of the file {name}"),
        }
        rows = Listing(
            ("begin", "end", "expected", "found"), [(low, high, f.expected, f.found) for low, high, f in parts]
        )
        python = self._python(
            f"reader = {call('store.commit_log.scan', begin_phy_offset=begin, end_phy_offset=end, stop='valid')}"
        )
        return View("log_file.html", f"File {name} of the log", values, rows, command("info", str(path)), python)


def _next_unit(row: GroupOffset) -> str:
    return address("/queue", topic=row.topic, queue=row.queue_id, at=row.offset)


def _counts(queues: Sequence[ConsumeQueue], spans: Spans) -> list[int]:
    """Return the number of messages of the queues in each span."""
    counts = [0] * spans.number
    for queue in queues:
        edges = [queue.min_offset, *queue.offsets_near_times(spans.begins()[1:]), queue.max_offset]
        for at in range(spans.number):
            counts[at] += max(0, edges[at + 1] - edges[at])
    return counts
