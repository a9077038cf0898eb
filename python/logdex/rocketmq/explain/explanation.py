"""The answer of `MessageStore.explain`: the way from a key to its messages, and the likely causes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from logdex._core import time_text
from logdex.errors import printable
from logdex.notebook import SHOWN_ROWS, html_table

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN_LINKS = 12
_SHOWN_CANDIDATES = 20

CAUSES = {
    "broker-cap": "more candidates than the 64 that a broker's answer holds",
    "broker-time": "a broker misses it: its index has whole seconds, and searches end early after clock steps",
    "clock-difference": "the range asked for fits the producer's clock, not the broker's",
    "cut-off": "a broker cut the message off when it started after a crash; it is still on the disk",
    "damaged-message": "the index leads to it, but no valid message begins there",
    "delayed": "the message waits for its delivery under a topic of the broker's own",
    "expired-file": "the index still knows it, but the log file that held it was deleted",
    "half-message": "a message of a transaction that was not committed",
    "hash-collision": "only messages of other keys with the same hash exist",
    "index-behind": "the broker had yet to index the end of the log",
    "index-lost": "index files are missing, as after an unclean stop",
    "missing-file": "a file inside of the log is missing: deleted, renamed or compressed",
    "not-here": "no trace of it: never stored here, another broker's, or older than log and index",
    "offset-id": "this is the broker's id of a message, which contains its offset; no index has it",
    "other-topic": "a message with this key is stored under another topic",
    "out-of-range": "messages carry the key, but their store time is outside of the range",
    "not-indexed": "the message is there, but no index entry leads to it: brokers index no rolled-back message",
    "retry-topic": "the message is stored under a retry or dead-letter topic",
    "spelling": "a message carries the key in another spelling",
    "split-key": "keys are split at spaces; each piece is a key",
    "stale-entry": "the index leads to another message: the log was truncated and written again",
    "tags-not-indexed": "tags are indexed by 5.5.0 and later only",
    "unknown-topic": "the store has no such topic",
    "unread-log": "parts of the log are neither indexed nor read",
}
"""The closed list of causes and their meanings."""


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of a chain; `time_diff` is in seconds, as stored, and `prev_index` is 0 at the end of the chain."""

    position: int
    key_hash: int
    phy_offset: int
    time_diff: int
    prev_index: int


@dataclass(frozen=True, slots=True)
class Chain:
    """The entries of a slot: `links` has the newest of the `length` entries.

    `slot_value` is the number of the newest entry, as stored. `broken_by` says what ends the chain before its last entry.
    """

    slot: int
    slot_value: int
    links: tuple[Link, ...]
    length: int
    broken_by: str | None


@dataclass(frozen=True, slots=True)
class FileStep:
    """One index file of a search, and why it was searched or skipped.

    Times are in ms. `candidates` are the offsets of entries with the key's hash, newest first.
    """

    name: str
    begin_timestamp: int
    end_timestamp: int
    begin_phy_offset: int
    end_phy_offset: int
    entries: int
    searched: bool
    why: str
    chain: Chain | None
    candidates: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SealedStep:
    """The sealed index of a search: its directory, the index files that it stands for, and its candidates, newest first."""

    path: str
    files: int
    entries: int
    candidates: tuple[int, ...]

    def lines(self) -> Iterator[str]:
        """Iterate over lines for people."""
        asked = f"{self.files:,} index files with {self.entries:,} entries"
        yield f"  sealed index: asked in place of {asked}: {len(self.candidates):,} candidates; {self.path}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One place in the log that the index, or a scan of a range that no index file covers, leads to, and its message.

    Attributes:
        source: Name of the index file, or `log` if it was read from the log.
        verdict: `match`, `out-of-range`, `other-key`, `other-topic`, `stale-entry`, `expired`, `missing-file`,
            `beyond-log`, `cut-off`, `damaged`.
    """

    phy_offset: int
    source: str
    verdict: str
    topic: str | None = None
    keys: str | None = None
    uniq_key: str | None = None
    store_timestamp: int | None = None
    born_timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason (a word of `CAUSES`) why a key is not found, or why a broker does not find it; with what to do."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """The way from a key to its messages.

    Attributes:
        begin: First store time asked for, ms; None: no bound.
        end: Last store time, ms; None: no bound.
        index_key: The text that is hashed.
        files: The index files, newest first.
        sealed: The sealed index that was asked in place of index files; None: each index file was asked.
        candidates: The places that the files and the log lead to, newest first, each once.
        found: Offsets of the messages that `find` returns.
        broker_found: Those of them that a 4.9.3 broker finds in its index; None without an index.
        indexed_up_to: Offset of the message of the last index entry; None without one.
        lag_bytes: Bytes of the log after that message; all of the log without one.
        scanned_bytes: Bytes of the log that were read because no index file covers them.
        unscanned: Ranges of the log that are neither indexed nor read, or cannot be read.
        unreadable: Those of them that cannot be read: the file is missing, or the bytes are no valid message.
        causes: Why the key is not found, the likeliest first; if it is found, why a broker might not find it.
        read_by: Consumer groups of the topic whose committed offset is after the newest message found.
        not_read_by: Those whose offset is not.
    """

    topic: str
    key: str
    begin: int | None
    end: int | None
    index_key: str
    key_hash: int
    files: tuple[FileStep, ...]
    sealed: SealedStep | None
    candidates: tuple[Candidate, ...]
    found: tuple[int, ...]
    broker_found: tuple[int, ...] | None
    min_offset: int
    max_offset: int
    indexed_up_to: int | None
    lag_bytes: int
    scanned_bytes: int
    unscanned: tuple[tuple[int, int], ...]
    unreadable: tuple[tuple[int, int], ...]
    causes: tuple[Cause, ...]
    read_by: tuple[str, ...] = ()
    not_read_by: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        """Return the question and the answer, not the steps."""
        causes = "".join(f", {cause.kind}" for cause in self.causes)
        return f"Explanation(topic={self.topic!r}, key={self.key!r}: {len(self.found)} found{causes})"

    def _repr_html_(self) -> str:
        """Return the causes and the candidates as tables."""
        candidates = [
            (c.phy_offset, c.source, c.verdict, c.topic, c.keys, c.uniq_key, time_text(c.store_timestamp))
            for c in self.candidates[:SHOWN_ROWS]
        ]
        heads = ("phy_offset", "source", "verdict", "topic", "keys", "uniq_key", "stored")
        causes = [(cause.kind, cause.text) for cause in self.causes]
        more = len(self.candidates) - len(candidates)
        return html_table(repr(self), ("cause", "why"), causes) + html_table("candidates", heads, candidates, more)

    def __str__(self) -> str:
        return self.text()

    def text(self, *, files: bool = True) -> str:
        """Return lines for people: the verdict, how far log and index were searched, the candidates, the index files."""
        return "\n".join(map(printable, self._lines(files=files)))

    def _verdict(self, within: str) -> Iterator[str]:
        missed = ""
        if self.broker_found is not None and len(self.broker_found) < len(self.found):
            missed = f"; a 4.9.3 broker would find {len(self.broker_found)}"
        yield f"key {self.key!r} of topic {self.topic!r}{within}: {len(self.found):,} found{missed}"
        for cause in self.causes:
            yield f"  {cause.kind}: {cause.text}"
        for groups, words in ((self.read_by, "read by"), (self.not_read_by, "not yet read by")):
            if groups:
                yield f"  the newest is {words} the group{'s' if len(groups) > 1 else ''} {', '.join(groups)}"

    def _lines(self, *, files: bool) -> Iterator[str]:
        within = ""
        if self.begin is not None or self.end is not None:
            within = f", stored from {time_text(self.begin) or 'the beginning'} to {time_text(self.end) or 'the end'}"
        yield from self._verdict(within)
        yield ""
        yield f"  hashed as {self.index_key!r}: {self.key_hash}"
        lag = f"{self.lag_bytes:,} bytes behind the log's end" if self.lag_bytes else "up to the log's end"
        how_far = "no entries" if self.indexed_up_to is None else lag
        yield f"  log: offsets {self.min_offset:,} to {self.max_offset:,}; index: {how_far}"
        if self.scanned_bytes or self.unscanned:
            unread = sum(end - begin for begin, end in self.unscanned)
            yield f"  not indexed: {self.scanned_bytes:,} bytes read from the log, {unread:,} bytes not read"
        for begin, end in self.unreadable:
            yield f"  cannot be read: offsets {begin:,} to {end:,}, missing or damaged"
        yield from () if self.sealed is None else self.sealed.lines()
        searched = sum(file.searched for file in self.files)
        yield f"  index files: {searched:,} of {len(self.files):,} searched{'' if files else ' (--verbose shows each)'}"
        yield ""
        yield f"candidates: {len(self.candidates)}"
        for candidate in self.candidates[:_SHOWN_CANDIDATES]:
            yield _candidate_line(candidate)
        if len(self.candidates) > _SHOWN_CANDIDATES:
            yield f"  ... and {len(self.candidates) - _SHOWN_CANDIDATES:,} more"
        if files:
            yield ""
            yield f"index files, newest first: {len(self.files)}"
            for file in self.files:
                yield from _file_lines(file)


def _file_lines(file: FileStep) -> Iterator[str]:
    window = f"{time_text(file.begin_timestamp)} to {time_text(file.end_timestamp)}"
    yield f"  {file.name}  {file.entries:,} entries, {window}: {'searched' if file.searched else 'skipped'}, {file.why}"
    if file.chain is None:
        return
    links = [f"{link.position}{'*' if link.phy_offset in file.candidates else ''}" for link in file.chain.links]
    shown = " > ".join(links[:_SHOWN_LINKS]) + (" > ..." if file.chain.length > _SHOWN_LINKS else "")
    walk = f"entries {shown}" if links else "empty"
    yield f"      slot {file.chain.slot:,}: {walk}; {len(file.candidates)} of {file.chain.length} with this hash (*)"
    if file.chain.broken_by:
        yield f"      the chain is broken by {file.chain.broken_by}"


def _candidate_line(candidate: Candidate) -> str:
    what = "no message"
    if candidate.topic is not None:
        keys = f" keys={candidate.keys!r}" if candidate.keys else ""
        uniq_key = f" id={candidate.uniq_key}" if candidate.uniq_key else ""
        what = f"{candidate.topic!r}{keys}{uniq_key} stored {time_text(candidate.store_timestamp) or '-'}"
    return f"  phy {candidate.phy_offset:,} ({candidate.source}): {candidate.verdict}; {what}"
