"""Consumer groups: how far each has read, and how far it is behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logdex.browse.jobs import Shared
from logdex.browse.view import Listing, NotThereError, Query, View

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from logdex.browse.pictures import Chart
    from logdex.browse.view import Place
    from logdex.kafka import LogDir
    from logdex.rocketmq import MessageStore
    from logdex.source import GroupOffset

_HEADS = ("group", "topic", "queue_id", "offset", "end_offset", "lag", "commit_timestamp")


@dataclass(frozen=True, slots=True)
class _Group:
    """A group: its topics, the queues or partitions that it reads, its lag in all of them, and its last commit in ms."""

    name: str
    topics: Sequence[str]
    parts: int
    lag: int
    last: int | None


class GroupPages:
    """The pages about the consumer groups of a store or log directory.

    `link` returns the address of what is next for a group in a queue or partition, and `history` draws the lag of a group.
    """

    def __init__(
        self,
        source: MessageStore | LogDir,
        place: Place,
        python: str,
        link: Callable[[GroupOffset], str],
        history: Callable[[Sequence[GroupOffset]], Chart | None] | None = None,
    ) -> None:
        self._rows = Shared(source.groups)
        self._place = place
        self._python = python
        self._link = link
        self._history = history

    @property
    def views(self) -> Mapping[str, Callable[[Query], View]]:
        """Return the pages by address."""
        return {"/groups": self.groups, "/group": self.group}

    def groups(self, query: Query) -> View:
        """Show the groups, those with the largest lag first."""
        rows = self._rows.get(query.patience)
        if rows is None:
            return View("counting.html", "Consumer groups", command=self._place.command("groups"))
        by_name: dict[str, list[GroupOffset]] = {}
        for row in rows:
            by_name.setdefault(row.group, []).append(row)
        groups = sorted((_group(name, own) for name, own in by_name.items()), key=lambda each: (-each.lag, each.name))
        first, most = query.number("from") or 0, query.rows()
        values = {
            "groups": groups[first : first + most],
            "count": len(groups),
            "first": first,
            "next": first + most if first + most < len(groups) else None,
            "kept": query.given("rows"),
            "most": groups[0].lag if groups else 0,
            "has_times": any(group.last is not None for group in groups),
        }
        return View(
            "groups.html", "Consumer groups", values, _listing(rows), self._place.command("groups"), self._python
        )

    def group(self, query: Query) -> View:
        """Show the queues or partitions of one group."""
        name = query.needed("group")
        shell = self._place.command("groups", name)
        rows = self._rows.get(query.patience)
        if rows is None:
            return View("counting.html", f"Consumer group {name}", command=shell)
        own = [row for row in rows if row.group == name]
        if not own:
            raise NotThereError(f"there is no consumer group {name!r} here")
        first, most = query.number("from") or 0, query.rows()
        values: dict[str, Any] = {
            "group": _group(name, own),
            "rows": own[first : first + most],
            "count": len(own),
            "first": first,
            "next": first + most if first + most < len(own) else None,
            "kept": query.given("group", "rows"),
            "most": max(row.lag or 0 for row in own),
            "link": self._link,
            "chart": None if self._history is None else self._history(own),
        }
        return View("group.html", f"Consumer group {name}", values, _listing(own), shell, self._python)


def _group(name: str, rows: Sequence[GroupOffset]) -> _Group:
    times = [row.commit_timestamp for row in rows if row.commit_timestamp is not None]
    lag = sum(row.lag or 0 for row in rows)
    return _Group(name, sorted({row.topic for row in rows}), len(rows), lag, max(times, default=None))


def _listing(rows: Sequence[GroupOffset]) -> Listing:
    return Listing(_HEADS, [tuple(getattr(row, head) for head in _HEADS) for row in rows])
