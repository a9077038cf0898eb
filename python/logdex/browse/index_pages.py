"""Pages about index files: headers, use, chain lengths; and about an index directory without a store."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from logdex._core import index_key, key_hash, time_text
from logdex.browse.jobs import CheckPages, Job
from logdex.browse.pictures import Series, bars, histogram
from logdex.browse.view import Listing, NotThereError, Place, Query, View, call, command
from logdex.hash_index.index_directory import measure
from logdex.report import merge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from logdex._core import IndexFile
    from logdex._types import Progress
    from logdex.report import Report
    from logdex.rocketmq import IndexService

_HEADS = ("name", "entries", "begin_timestamp", "end_timestamp", "begin_phy_offset", "end_phy_offset")
_WAIT_SECONDS = 1.5
"""A small file is measured within this time; for a large file the page polls the result."""
_KEPT = 16
_MOST_LENGTHS = 40


class IndexViews:
    """The pages about the files of an index; `name` is its path as the user wrote it."""

    def __init__(self, index: Callable[[], IndexService | None], name: str) -> None:
        self._index = index
        self._name = name
        self._measured: dict[tuple[str, int], Job[tuple[dict[str, Any], list[int]]]] = {}

    @property
    def views(self) -> Mapping[str, Callable[[Query], View]]:
        """Return the pages by address."""
        return {"/index": self.index, "/index-file": self.file}

    def _files(self) -> list[IndexFile]:
        index = self._index()
        return [] if index is None else index.files

    def index(self, query: Query) -> View:
        """Show the files, the newest first."""
        files = self._files()[::-1]
        first, most = query.number("from") or 0, query.rows()
        shown = files[first : first + most]
        rows = [(file.path.name, len(file), *(getattr(file.header, name) for name in _HEADS[2:])) for file in shown]
        listing = Listing(_HEADS, rows)
        index = self._index()
        values = {
            "files": listing.dicts(),
            "count": len(files),
            "entries": sum(map(len, files)),
            "first": first,
            "next": first + most if first + most < len(files) else None,
            "hash_slots": files[0].hash_slots if files else None,
            "max_entries": files[0].max_entries if files else None,
            "is_missing": index is None,
        }
        python = _python(self._name, "print(index.files)")
        return View("index.html", "Index files", values, listing, command("info", self._name), python)

    def file(self, query: Query) -> View:
        """Show one file: its header and, once it is measured, its chains, slots and times."""
        name = query.needed("name")
        file = next((each for each in self._files() if each.path.name == name), None)
        if file is None:
            raise NotThereError(f"there is no index file {name!r} here")
        job = self._job(file)
        header = {field: getattr(file.header, field) for field in _HEADS[2:]}
        header |= {"hash_slot_count": file.header.hash_slot_count, "index_count": file.header.index_count}
        header |= {"hash_slots": file.hash_slots, "max_entries": file.max_entries}
        values = {
            "name": name,
            "header": header,
            "entries": len(file),
            "is_full": file.is_full,
            "job": job,
            "statistics": None,
            "charts": {},
        }
        rows = None
        if job.result is not None:
            statistics, regions = job.result
            values |= {"statistics": statistics, "charts": _charts(statistics, regions)}
            rows = Listing(("length", "slots", "expected"), [tuple(each.values()) for each in statistics["chains"]])
        python = f"from logdex.rocketmq import IndexFile\n\nfile = {call('IndexFile.open', str(file.path))}\nprint(file.header)"
        return View("index_file.html", f"Index file {name}", values, rows, command("stats", str(file.path)), python)

    def _job(self, file: IndexFile) -> Job[tuple[dict[str, Any], list[int]]]:
        """Return the measurement of a file as it is now; it begins here, and has a moment to end."""
        key = (file.path.name, len(file))
        job = self._measured.get(key)
        if job is None:
            job = self._measured[key] = Job(partial(_measure, file))
            for old in list(self._measured)[:-_KEPT]:
                self._measured.pop(old, None)
            job.start()
        job.wait(_WAIT_SECONDS)
        return job


def _python(path: str, *lines: str) -> str:
    opened = f"index = {call('IndexService.open', path)}"
    return "\n".join(["from logdex.rocketmq import IndexService", "", opened, *lines])


def _measure(file: IndexFile, progress: Progress) -> tuple[dict[str, Any], list[int]]:
    return measure([file], progress)


def _charts(statistics: dict[str, Any], regions: list[int]) -> dict[str, Any]:
    chains = [(each["length"], each["slots"], each["expected"]) for each in statistics["chains"][:_MOST_LENGTHS]]
    times = statistics["times"]
    ticks = (
        [(time_text(times[at]["begin_timestamp"]) or "")[:19] for at in sorted({0, len(times) - 1})] if times else []
    )
    over_time = [Series("entries", [each["entries"] for each in times], 0)]
    parts = [f"slots part {number + 1} of {len(regions)}" for number in range(len(regions))]
    return {
        "chains": histogram(chains, "slots by the length of their chain"),
        "slots": bars(
            [Series("entries", regions, 0)], ["first slot", "last slot"], "entries by part of the slots", parts
        ),
        "times": bars(
            over_time, ticks, "entries by store time", [time_text(each["begin_timestamp"]) or "" for each in times]
        ),
    }


class IndexPages:
    """The pages about an index directory without its store."""

    kind = "RocketMQ index directory"
    menu = (("/", "Files"), ("/search", "Search"), ("/verify", "Check"))

    def __init__(self, index: IndexService, path: str) -> None:
        self.path = path
        self._opened = index
        self._files = IndexViews(lambda: index, path)
        self._check = CheckPages.of(Place(path), self._verify, _python(path, "print(index.verify())"))

    @property
    def views(self) -> Mapping[str, Callable[[Query], View]]:
        """Return the pages by address."""
        return {"/": self._files.index, **self._files.views, **self._check.views, "/search": self.search}

    @property
    def actions(self) -> Mapping[str, Callable[[], str]]:
        """Return what changes the state of the check."""
        return self._check.actions

    def close(self) -> None:
        """Close the files."""
        self._opened.close()

    def _verify(self, progress: Progress) -> Report:
        """Check one file after the other, so that the check can be cancelled between them."""
        files = self._opened.files
        total = sum(map(len, files))
        done, reports = 0, []
        for file in files:
            progress(done, total)
            reports.append(file.verify())
            done += len(file)
        return merge(reports)

    def search(self, query: Query) -> View:
        """Search the candidates of a key: without the log, no message can be compared."""
        topic, key = query.text("topic"), query.text("key")
        begin, end = query.time("begin"), query.time("end")
        filters = query.given("topic", "key", "begin", "end")
        if topic is None or key is None:
            return View("candidates.html", "Search", {"found": None, "filters": filters, "key_hash": None})
        found = self._opened.query_offset(topic, key, query.rows(), begin, end)
        listing = Listing(("phy_offset",), [(offset,) for offset in found.phy_offsets])
        values = {"found": found, "filters": filters, "key_hash": key_hash(index_key(topic, key))}
        ask = call("index.query_offset", topic, key, begin=begin, end=end)
        python = (
            f"from logdex.rocketmq import IndexService\n\nindex = {call('IndexService.open', self.path)}\nprint({ask})"
        )
        return View("candidates.html", f"Search: {key}", values, listing, None, python)
