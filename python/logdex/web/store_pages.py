"""A message store: what it is, its topics and queues, the files of its log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from logdex._core import MessageFilter
from logdex.rocketmq.find import covered_ranges
from logdex.web.check_pages import CheckPages
from logdex.web.commands import call, command
from logdex.web.index_pages import IndexViews
from logdex.web.message_pages import MessagePages
from logdex.web.pictures import COLOURS, Chart, Piece, Series, bars, strip
from logdex.web.spans import Spans, spans_of
from logdex.web.view import Listing, NotThereError, Query, View, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from logdex._core import ConsumeQueue
    from logdex.rocketmq import MessageStore

_COUNT_SECONDS = 2.0
"""How long a page counts for its pictures. What is left out is named."""
_UNITS = 50


class StorePages:
    """The pages about a store; `path` is its path as the user wrote it."""

    kind = "RocketMQ message store"
    menu = (
        ("/", "Overview"),
        ("/topics", "Topics"),
        ("/messages", "Messages"),
        ("/search", "Search"),
        ("/index", "Index"),
        ("/log", "Log"),
        ("/verify", "Check"),
    )

    def __init__(self, store: MessageStore, path: str) -> None:
        self.path = path
        self._store = store
        self._messages = MessagePages(store, path)
        self._index = IndexViews(lambda: store.index, f"{path.rstrip('/')}/index")
        self._check = CheckPages.of(path, store.verify, self._python("print(store.verify())"))
        self._bytes: dict[tuple[Path, int], int] = {}
        self._chart: tuple[int, Chart, list[str]] | None = None

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
        return {**own, **self._messages.views, **self._index.views, **self._check.views}

    @property
    def actions(self) -> Mapping[str, Callable[[], str]]:
        """Return what changes the state of this process, by address."""
        return self._check.actions

    def close(self) -> None:
        """Close the files."""
        self._store.close()

    def _python(self, *lines: str) -> str:
        opened = f"store = {call('MessageStore.open', self.path)}"
        return "\n".join(["from logdex.rocketmq import MessageStore", "", opened, *lines])

    def overview(self, _: Query) -> View:
        """Show what is here."""
        facts = self._store.overview()
        topics, index_files = facts.pop("topics"), facts.pop("index_files")
        begin, end = facts["min_offset"], facts["max_offset"]
        times = self._store.times()
        chart, left_out = self._over_time(topics, times)
        busiest = sorted(topics, key=lambda row: row[2], reverse=True)[:COLOURS]
        values = {
            "facts": facts,
            "first": min(times, default=facts["first_message_timestamp"]),
            "last": max(times, default=None),
            "topics": busiest,
            "topic_count": len(topics),
            "messages": sum(row[2] for row in topics),
            "sizes": self._sizes([row[0] for row in busiest]),
            "index_files": len(index_files),
            "chart": chart,
            "left_out": left_out,
            "map": self._log_map(begin, end),
            "gaps": self._store.commit_log.gaps(),
            "job": self._check.job,
            "report": self._check.job.result,
        }
        rows = Listing(("name", "value"), [*facts.items(), ("topics", len(topics)), ("index_files", len(index_files))])
        python = self._python("print(store.overview())")
        return View("store.html", "Overview", values, rows, command("info", self.path), python)

    def _queues(self, topic: str) -> list[tuple[int, ConsumeQueue]]:
        return [(number, self._store.queue(topic, number)) for number in self._store.queue_ids(topic)]

    def _sizes(self, topics: Sequence[str]) -> dict[str, int | None]:
        """Return the bytes of each topic in the log; None where time did not suffice."""
        until = time.monotonic() + _COUNT_SECONDS
        sizes: dict[str, int | None] = {}
        for topic in topics:
            total: int | None = 0
            for _, queue in self._queues(topic):
                key = (queue.path, queue.max_offset)
                if key not in self._bytes and time.monotonic() < until:
                    _, self._bytes[key] = queue.measure()
                known = self._bytes.get(key)
                total = None if total is None or known is None else total + known
            sizes[topic] = total
        return sizes

    def _over_time(
        self, topics: Sequence[tuple[str, int, int]], times: Sequence[int]
    ) -> tuple[Chart | None, list[str]]:
        """Return the messages of each time by topic, and the topics that were not counted."""
        end = self._store.commit_log.max_offset
        if self._chart is not None and self._chart[0] == end:
            return self._chart[1:]
        spans = spans_of(min(times, default=0), max(times, default=0))
        if not topics or spans is None:
            return None, []
        ordered = sorted(topics, key=lambda row: row[2], reverse=True)
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
        chart = bars(series, spans.ticks(), f"messages per {spans.word} by topic", spans.titles())
        if not left_out:
            self._chart = (end, chart, left_out)
        return chart, left_out

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
        indexed = [
            Piece(low, high, "c1", f"offsets {low:,} to {high:,}") for low, high in covered_ranges(self._store.index)
        ]
        return strip([("log", log), ("indexed", indexed)], begin, end, "the log, and what is indexed of it")

    def topics(self, query: Query) -> View:
        """Show the topics."""
        rows = sorted(self._store.overview()["topics"], key=lambda row: row[2], reverse=query.text("sort") != "name")
        if query.text("sort") == "name":
            rows.sort()
        first, most = query.number("from") or 0, query.rows()
        shown = rows[first : first + most]
        sizes = self._sizes([row[0] for row in shown])
        listing = Listing(("topic", "queues", "messages", "bytes"), [(*row, sizes[row[0]]) for row in shown])
        values = {
            "rows": listing.dicts(),
            "count": len(rows),
            "first": first,
            "next": first + most if first + most < len(rows) else None,
            "kept": query.given("sort", "rows"),
        }
        python = self._python("print(store.overview()['topics'])")
        return View("topics.html", "Topics", values, listing, command("info", self.path), python)

    def topic(self, query: Query) -> View:
        """Show the queues of a topic."""
        topic = query.needed("topic")
        queues = self._queues(topic)
        if not queues:
            raise NotThereError(f"the store has no queue of topic {topic!r}")
        self._sizes([topic])
        rows = []
        for number, queue in queues:
            first, last = queue.min_offset, queue.max_offset
            size = self._bytes.get((queue.path, last))
            rows.append((number, queue.kind, first, last, last - first, size, *self._ends(queue)))
        heads = ("queue", "kind", "min_offset", "max_offset", "messages", "bytes", "first_timestamp", "last_timestamp")
        listing = Listing(heads, rows)
        values = {"topic": topic, "rows": listing.dicts()}
        python = self._python(
            f"queue = {call('store.queue', topic, queues[0][0])}", "print(queue.min_offset, queue.max_offset)"
        )
        return View("topic.html", f"Topic {topic}", values, listing, command("cat", self.path, topic=topic), python)

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
            "low": low,
            "high": high,
            "at": at,
            "before": max(low, begin - query.rows()) if begin > low else None,
            "after": end if end < high else None,
            "begin": begin,
            "end": end,
            "kind": queue.kind,
            "files": len(queue.files),
        }
        python = self._python(f"queue = {call('store.queue', topic, number)}", f"print(queue.units({begin}, {end}))")
        shell = command("info", f"{self.path.rstrip('/')}/consumequeue/{topic}/{number}")
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
        return View("log.html", "Files of the log", values, listing, command("info", self.path), python)

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
        covered = [part for part in covered_ranges(self._store.index) if part[0] < end and part[1] > begin]
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


def _counts(queues: Sequence[ConsumeQueue], spans: Spans) -> list[int]:
    """Return how many messages the queues have in each span."""
    counts = [0] * spans.number
    for queue in queues:
        edges = [queue.min_offset, *queue.offsets_near_times(spans.begins()[1:]), queue.max_offset]
        for at in range(spans.number):
            counts[at] += max(0, edges[at + 1] - edges[at])
    return counts
