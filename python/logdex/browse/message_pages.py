"""Messages of a store: a list that is read by position, its live tail, one message with all its parts, a search by key or id."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from logdex import _core
from logdex._core import MessageFilter
from logdex.browse import facets
from logdex.browse.body import Decoders, Preview, previews
from logdex.browse.view import Download, Listing, NotThereError, Query, View, call, file_name, is_internal, rows_of
from logdex.hash_index.query import TimeRange
from logdex.rocketmq.find import ANY_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from arro3.core import RecordBatch

    from logdex.browse.view import Place
    from logdex.rocketmq import FindResult, Message, MessageStore
    from logdex.rocketmq.explain import Explanation
    from logdex.rocketmq.message import MessagePage

_COLUMNS = (
    "store_timestamp",
    "topic",
    "queue_id",
    "queue_offset",
    "phy_offset",
    "uniq_key",
    "tags",
    "keys",
    "store_size",
)
_FURTHER = ("born_timestamp", "born_host", "reconsume_times")
SHOWN = ("stored", "topic", "queue", "keys", "tags", "body", "size", "uniq_key", *_FURTHER)
"""Columns of a list to choose from; the offset is always shown."""
_USUAL = ("stored", "topic", "queue", "keys", "tags", "body", "size")
"""Columns without a choice; the topic only if it is not a filter."""
_FILTERS = ("topic", "queue", "key", "tag", "grep", "begin", "end")
_FACETS = {"topic": "topic", "queue": "queue_id", "tag": "tags", "key": "keys", "hour": "store_timestamp"}
_MOST_KEYS = 32
_WALKED_KEYS, _MOST_SAME = 4, 256
"""Keys of a message whose other messages are looked for, and how many of each."""
_MOST_LINKS = 1_000
_SEARCHED_TOGETHER = 16
"""Bodies that are searched in one call; each may have 64 MiB."""
_PAGE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class MessagePages:
    """Pages about the messages of a store."""

    store: MessageStore
    place: Place
    decoders: Decoders

    @property
    def views(self) -> Mapping[str, Callable[[Query], View]]:
        """Return the pages by address."""
        return {
            "/messages": self.messages,
            "/messages/tail": self.tail,
            "/messages/new": self.new,
            "/message": self.message,
            "/body": self.body,
            "/search": self.search,
            "/search/steps": self.steps,
        }

    def messages(self, query: Query) -> View:
        """Show the messages next to a position."""
        filters = self._filters(query)
        is_oldest = query.text("order") == "oldest"
        position = query.number("position")
        shown = _shown(query)
        page = self._page(filters, position, _read(shown), limit=query.rows(), newest_first=not is_oldest)
        rows = rows_of(page.batch)
        kept = query.given(*_FILTERS, "order", "rows", "columns")
        values = {
            "rows": rows,
            "page": page,
            "position": position,
            "is_oldest": is_oldest,
            "filters": query.given(*_FILTERS),
            "kept": kept,
            "topics": self.topics(),
            "previews": self.previews(page.batch, filters["grep"]) if "body" in shown else {},
            "columns": SHOWN,
            "shown": shown,
            "counts": None,
        }
        if query.text("counts") is not None:
            values["counts"] = self._counts(filters, position, kept, newest_first=not is_oldest)
        topic = filters["topic"]
        return View(
            "messages.html",
            f"Messages of {topic}" if topic else "Messages",
            values,
            page.batch,
            self._cat(page, rows, position, filters),
            self._page_call(position, filters, limit=query.rows(), is_oldest=is_oldest),
        )

    def _filters(self, query: Query) -> dict[str, Any]:
        numbers = {"queue": query.number("queue", high=(1 << 31) - 1)}
        times = {name: query.time(name) for name in ("begin", "end")}
        return {name: query.text(name) for name in ("topic", "key", "tag", "grep")} | numbers | times

    def _page(
        self,
        filters: Mapping[str, Any],
        position: int | None,
        columns: Sequence[str],
        *,
        limit: int,
        newest_first: bool,
    ) -> MessagePage:
        key, tag = filters["key"], filters["tag"]
        return self.store.page(
            position,
            topic=filters["topic"],
            queue_id=filters["queue"],
            begin=filters["begin"],
            end=filters["end"],
            keys=None if key is None else [key],
            tags=None if tag is None else [tag],
            matches=filters["grep"],
            columns=columns,
            limit=limit,
            newest_first=newest_first,
            seconds=_PAGE_SECONDS,
        )

    def previews(self, batch: RecordBatch, grep: str | None) -> Mapping[int, Preview | None]:
        """Return the previews of the bodies of some messages, by their offsets."""
        offsets = batch.column("phy_offset")
        read = self.store.commit_log.message_batches(offsets, columns=("phy_offset", "body"))
        return previews(read, "phy_offset", "body", grep, self.decoders)

    def _counts(
        self, filters: Mapping[str, Any], position: int | None, kept: Mapping[str, Any], *, newest_first: bool
    ) -> tuple[MessagePage, list[facets.Facet]]:
        """Return the messages whose values are counted, and the values of each filter that is not used yet."""
        wanted = {name: column for name, column in _FACETS.items() if filters.get(name) is None}
        if "topic" in wanted:
            # Queues of different topics have the same numbers.
            wanted.pop("queue", None)
        columns = tuple(_FACETS.values())
        page = self._page(filters, position, columns, limit=facets.MOST_ROWS, newest_first=newest_first)
        return page, facets.facets(page.batch, wanted, "/messages", {**kept, "counts": 1})

    def tail(self, query: Query) -> View:
        """Show the newest messages; the page adds those that are written from now on."""
        return self._new_messages("tail.html", query, None)

    def new(self, query: Query) -> View:
        """Show only the messages after a position, for a page that polls them."""
        return self._new_messages("tail_rows.html", query, query.needed_number("position"))

    def _new_messages(self, template: str, query: Query, position: int | None) -> View:
        filters, shown = self._filters(query), _shown(query)
        end = self.store.commit_log.max_offset
        page = self._page(filters, position, _read(shown), limit=query.rows(), newest_first=position is None)
        rows = rows_of(page.batch)
        is_behind = position is not None and page.next_position is not None
        if position is not None:
            rows.reverse()
        if not is_behind:
            # The page may have read messages that came after `end` was read.
            position = max([end, *(row["phy_offset"] + row["store_size"] for row in rows[:1])])
        else:
            position = page.next_position
        values = {
            "rows": rows,
            "filters": query.given(*_FILTERS),
            "kept": query.given(*_FILTERS, "rows", "columns"),
            "previews": self.previews(page.batch, filters["grep"]) if "body" in shown else {},
            "shown": shown,
            "page": page,
            "position": position,
            "is_behind": is_behind,
        }
        topic = filters["topic"]
        return View(template, f"Live tail of {topic}" if topic else "Live tail", values, page.batch)

    def _cat(
        self, page: MessagePage, rows: Sequence[Mapping[str, Any]], position: int | None, filters: Mapping[str, Any]
    ) -> str | None:
        """Return the command that prints the messages of a page in the order of the log; None if there is none.

        It starts at the oldest message of the page and prints as many as the page has.
        """
        if not rows:
            # Without a position, or if nothing is left to read, the command prints nothing either.
            is_whole = position is None and page.next_position is None
            return self.place.command("cat", **filters) if is_whole else None
        oldest = min(rows, key=lambda row: row["phy_offset"])
        offset = oldest["phy_offset"]
        if filters["topic"] is not None and filters["queue"] is not None:
            # With both, `--offset` is a queue offset.
            if not page.by_queues:
                return None
            offset = oldest["queue_offset"]
        return self.place.command("cat", **filters, offset=offset, limit=len(rows))

    def _page_call(self, position: int | None, filters: Mapping[str, Any], *, limit: int, is_oldest: bool) -> str:
        key, tag = filters["key"], filters["tag"]
        options = {"topic": filters["topic"], "queue_id": filters["queue"], "begin": filters["begin"]}
        options |= {"end": filters["end"], "keys": key and [key], "tags": tag and [tag], "matches": filters["grep"]}
        options |= {"limit": limit, "newest_first": False if is_oldest else None}
        page = call("store.page", *(() if position is None else (position,)), **options)
        return self._python(f"page = {page}", "print(page.batch, page.next_position)")

    def _python(self, *lines: str) -> str:
        opened = f"store = {self.place.opened('MessageStore.open')}"
        return "\n".join(["from logdex.rocketmq import MessageStore", "", opened, *lines])

    def topics(self) -> list[str]:
        """Return the names to choose from."""
        return sorted(self.store.topics, key=lambda topic: (is_internal(topic), topic))

    def _at(self, query: Query) -> Message:
        at = query.needed_number("at")
        message = self.store.message(at)
        if message is None:
            text = f"no valid message begins at offset {at:,} of the log"
            for begin, end, finding in self.store.commit_log.damage([at]):
                text += f"; offsets {begin:,} to {end:,} are missing or damaged: {finding}"
            raise NotThereError(text)
        return message

    def message(self, query: Query) -> View:
        """Show one message."""
        message = self._at(query)
        fields = asdict(message)
        for name in ("body", "properties", "body_error"):
            del fields[name]
        at = message.phy_offset
        form = query.text("form")
        shown = (
            None if message.body is None else self.decoders.show("body", message.body, form, query.number("byte") or 0)
        )
        values = {
            "message": message,
            "fields": fields,
            "shown": shown,
            "forms": self.decoders.forms("body"),
            "file": self.store.commit_log.place(at),
            "entries": self._entries(message),
            "neighbours": self._neighbours(message),
            "same_keys": self._same_keys(message),
        }
        row = Listing(
            (*fields, "properties", "body_bytes"),
            [(*fields.values(), message.properties, None if message.body is None else len(message.body))],
        )
        return View(
            "message.html",
            f"Message at {at:,}",
            values,
            row,
            self.place.command("find", ANY_TOPIC, message.msg_id, body=True),
            self._python(f"message = {call('store.message', at)}", "print(message.body)"),
        )

    def _neighbours(self, message: Message) -> dict[str, int | None]:
        """Return the offsets of the messages before and after, in the queue and in the log."""
        found: dict[str, int | None] = dict.fromkeys(("queue_before", "queue_after", "log_before", "log_after"))
        try:
            queue = self.store.queue(message.topic, message.queue_id)
        except OSError:
            queue = None
        if queue is not None:
            for name, number in (("queue_before", message.queue_offset - 1), ("queue_after", message.queue_offset + 1)):
                if queue.min_offset <= number < queue.max_offset:
                    units = queue.units(number, number + 1)
                    found[name] = units.column("phy_offset")[0].as_py() if units.num_rows else None
        at = message.phy_offset
        for name, position, newest in (("log_before", at, True), ("log_after", at + message.store_size, False)):
            if not newest and position >= self.store.commit_log.max_offset:
                continue
            page = self.store.page(position, limit=1, columns=["phy_offset"], newest_first=newest, seconds=0.5)
            if page.batch.num_rows:
                found[name] = page.batch.column(0)[0].as_py()
        return found

    def _same_keys(self, message: Message) -> list[tuple[str, int | None, int | None]]:
        """Return the first keys of a message, each with the offsets of the messages before and after that carry it.

        Only the index is asked. Of a key with very many messages the newest ones are known.
        """
        found, until = [], time.monotonic() + _PAGE_SECONDS
        for key in _keys(message)[:_WALKED_KEYS]:
            if time.monotonic() >= until:
                break
            result = self.store.find(message.topic, key, max_num=_MOST_SAME, scan=False, body_budget=0)
            offsets = [row["phy_offset"] for row in rows_of(_batch(result))] if result else []
            before = max((at for at in offsets if at < message.phy_offset), default=None)
            after = min((at for at in offsets if at > message.phy_offset), default=None)
            is_known = not result.truncated or message.phy_offset in offsets
            found.append((key, before, after if is_known else None))
        return found

    def _entries(self, message: Message) -> list[dict[str, Any]]:
        """Return the index entries of each key of a message: file, slot and number; without them if there is none."""
        index = self.store.index
        files = [] if index is None else [file for file in index.files if len(file)]
        files = [f for f in files if f.header.begin_phy_offset <= message.phy_offset <= f.header.end_phy_offset]
        entries = []
        for key in _keys(message)[:_MOST_KEYS]:
            key_hash = _core.key_hash(_core.index_key(message.topic, key))
            found: dict[str, Any] = {"key": key, "hash": key_hash, "file": None, "slot": None, "position": None}
            for file in files:
                slot, _, links, _, _ = _core.read_chain(file, key_hash, _MOST_LINKS)
                number = next((link[0] for link in links if link[2] == message.phy_offset), None)
                if number is not None:
                    found |= {"file": file.path.name, "slot": slot, "position": number}
            entries.append(found)
        return entries

    def body(self, query: Query) -> View:
        """Send the whole body as a file."""
        message = self._at(query)
        if message.body is None:
            raise NotThereError(f"the body cannot be decoded: {message.body_error}")
        name = file_name(message.topic, message.queue_id, message.queue_offset, message.phy_offset)
        raise Download(message.body, name)

    def search(self, query: Query) -> View:
        """Search a key or an id, and show each step."""
        key, topic = query.text("key"), query.text("topic")
        begin, end, grep = query.time("begin"), query.time("end"), query.text("grep")
        filters = query.given("key", "topic", "begin", "end", "grep")
        shown = _shown(query)
        values: dict[str, Any] = {"topics": self.topics(), "filters": filters, "result": None, "explanation": None}
        values |= {"rows": [], "by_id": None, "key": key, "is_slow": False, "columns": SHOWN, "shown": shown}
        values |= {"kept": {**filters, **query.given("rows", "columns")}}
        if key is None:
            return View("search.html", "Search", values)
        limit = query.rows()
        times = TimeRange.of(begin, end)
        result = self.store.find(topic, key, begin=begin, end=end, max_num=limit, body_budget=0, progress=query.go_on)
        batch = _batch(result, _read(shown))
        by_id = None
        if self.store.is_msg_id(key) and not result:
            by_id = self.store.message(key)
            if by_id is not None and topic in (None, by_id.topic) and times.holds(by_id.store_timestamp):
                batch = self.store.commit_log.messages([by_id.phy_offset], columns=_read(shown))
            else:
                by_id = None
        found = batch.num_rows
        if grep is not None:
            batch, values["searched"] = self._with_match(batch, grep, _read(shown), query)
        rows = rows_of(batch)
        values |= {"found": found, "previews": self.previews(batch, grep) if "body" in shown else {}}
        # Only a search of all topics accepts an offset id.
        asked_topic = ANY_TOPIC if by_id is not None else topic or ANY_TOPIC
        values |= {"result": result, "rows": rows, "by_id": by_id}
        asked = topic or next((row["topic"] for row in rows), None)
        if asked is not None and result:
            values["explanation"] = self._explain(asked, key, begin, end)
        # To find out why nothing is found may take seconds, so the page comes first.
        values["is_slow"] = asked is not None and not found
        if grep is None:
            shell = self.place.command("find", asked_topic, key, begin=begin, end=end, max=limit)
            ask, each = call("store.find", topic, key, begin=begin, end=end, max_num=limit), "message"
        else:
            # A command that searches all messages with the key, not the newest ones alone.
            shell = self.place.command("cat", topic=topic, key=key, grep=grep, begin=begin, end=end)
            ask = call("store.messages", topic=topic, keys=[key], matches=grep, begin=begin, end=end)
            each = "batch"
        python = self._python(f"for {each} in {ask}:", f"    print({each})")
        return View("search.html", f"Search: {key}", values, batch, shell, python)

    def _with_match(
        self, batch: RecordBatch, grep: str, columns: Sequence[str], query: Query
    ) -> tuple[RecordBatch, int]:
        """Return the messages in whose body a regular expression is found, and how many were searched in the time."""
        log, wanted, until = self.store.commit_log, MessageFilter(matches=grep), time.monotonic() + _PAGE_SECONDS
        places, offsets, searched = batch.column("phy_offset"), [], 0
        while searched < batch.num_rows and time.monotonic() < until:
            query.go_on()
            part = places.slice(searched, min(_SEARCHED_TOGETHER, batch.num_rows - searched))
            for found in log.message_batches(part, columns=["phy_offset"], selection=wanted):
                offsets += [row["phy_offset"] for row in rows_of(found)]
            searched += len(part)
        return log.messages(offsets, columns=columns), searched

    def steps(self, query: Query) -> View:
        """Show the steps of a search alone."""
        topic, key = query.needed("topic"), query.needed("key")
        begin, end = query.time("begin"), query.time("end")
        explanation = self._explain(topic, key, begin, end)
        return View(
            "steps.html",
            f"Search: {key}",
            {"explanation": explanation, "is_part": query.text("part") is not None},
            Listing(("explanation",), [(explanation.to_dict(),)]),
            self.place.command("explain", topic, key, begin=begin, end=end),
            self._python(f"print({call('store.explain', topic, key, begin=begin, end=end)})"),
        )

    def _explain(self, topic: str, key: str, begin: int | None, end: int | None) -> Explanation:
        return self.store.explain(topic, key, begin=begin, end=end)


def _keys(message: Message) -> list[str]:
    """Return the keys of a message and its unique key, each once."""
    return list(dict.fromkeys(key for key in (*(message.keys or "").split(" "), message.uniq_key) if key))


def _shown(query: Query) -> list[str]:
    """Return the columns of a list of messages."""
    return query.columns(SHOWN, [name for name in _USUAL if name != "topic" or query.text("topic") is None])


def _read(shown: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of messages that a list with these columns needs."""
    return (*_COLUMNS, *(name for name in _FURTHER if name in shown))


def _batch(result: FindResult, columns: Sequence[str] = _COLUMNS) -> RecordBatch:
    """Return the messages of a result as one batch, without bodies."""
    batch: RecordBatch = result.heads().select(list(columns)).combine_chunks().to_batches()[0]
    return batch
