"""The result of a check (`Report` and its `Finding` rows), and the damage that a read skipped (`Damage`)."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from logdex._core import finding_kinds
from logdex.errors import DamageWarning, UnknownTopicWarning, printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


SHOWN_ROWS = 20
_SHOWN_BYTES = 64


def html_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], more: int = 0) -> str:
    """Return a table for `_repr_html_`, with the number of rows that it leaves out."""
    from html import escape  # noqa: PLC0415 -- for notebooks

    cells = ("".join(f"<td>{escape(printable(_text(value)))}</td>" for value in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in cells)
    titles = "".join(f"<th>{escape(head)}</th>" for head in heads)
    rest = f"<tfoot><tr><td colspan={len(heads)}>and {more:,} more</td></tr></tfoot>" if more > 0 else ""
    text = escape(printable(caption))
    return f"<table><caption>{text}</caption><thead><tr>{titles}</tr></thead><tbody>{body}</tbody>{rest}</table>"


def short_bytes(value: bytes | None) -> str:
    """Return the repr of bytes; of many only the first, and their number."""
    if value is None or len(value) <= _SHOWN_BYTES:
        return repr(value)
    return f"<{len(value):,} bytes, {value[:_SHOWN_BYTES]!r}...>"


def _text(value: object) -> str:
    if value is None:
        return "-"
    return short_bytes(value) if isinstance(value, bytes) else str(value)


_log = logging.getLogger("logdex")
_KINDS = frozenset(finding_kinds())
Severity: TypeAlias = Literal["harmless", "rebuilt", "hidden", "lost"]
MEANINGS: dict[Severity, str] = {
    "lost": "messages or records are damaged or missing",
    "hidden": "queues, indexes or epochs are wrong, so a broker misses messages or answers wrongly until a repair",
    "rebuilt": "a broker repairs it once it starts",
    "harmless": "no message and no answer of a broker is affected",
}
"""The meaning of each severity, the worst first."""
_OF_SEVERITY: dict[Severity, tuple[str, ...]] = {
    "lost": (
        *("batch-crc", "batch-magic", "batch-offset", "batch-size", "file-gap", "log-body", "log-end", "log-frame"),
        *("log-message", "records", "remote-chunk", "unreadable"),
    ),
    "hidden": (
        *(
            "begin-phy-offset",
            "end-phy-offset",
            "entry-hash",
            "file-missing",
            "file-overlap",
            "file-size",
            "header-time",
        ),
        *("index-count", "index-entry", "index-hole", "index-missing", "index-order", "leader-epoch", "prev-index"),
        *("queue-message", "queue-missing", "queue-name", "queue-order", "queue-tags", "queue-unit", "sealed-row"),
        *("segment-overlap", "slot-value", "time-diff", "time-index-end"),
    ),
    "rebuilt": (
        *("checkpoint", "file-content", "file-empty", "index-size", "index-tail", "orphan-index", "torn-batch"),
        "zero-tail",
    ),
    "harmless": ("file-name", "log-blank", "log-ghost", "not-a-file", "queue-offset", "sealed-file"),
}
SEVERITIES: dict[str, Severity] = {kind: severity for severity, kinds in _OF_SEVERITY.items() for kind in kinds}
"""The severity of each kind of finding; docs/findings.md has the same. A broker may still not start: a file stops it."""
_SHOWN_NAMES = 8
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_UNIT = 1024
_COLUMNS = ("kind", "path", "offset", "expected", "found")


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault at the byte `offset` of a file (or in a directory): a kind of the closed list in docs/findings.md."""

    path: str
    offset: int
    kind: str
    expected: str
    found: str

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"kind={self.kind!r}: expected a word of docs/findings.md")

    @property
    def severity(self) -> Severity:
        """The severity of its kind: "harmless", "rebuilt", "hidden" or "lost"; see docs/findings.md."""
        return SEVERITIES[self.kind]

    def __str__(self) -> str:
        return printable(f"{self.path} at byte {self.offset}: expected {self.expected}, found {self.found}")


def size_text(size: float) -> str:
    """Return a number of bytes with a unit."""
    value = float(size)
    unit = 0
    while value >= _UNIT and unit + 1 < len(_UNITS):
        value /= _UNIT
        unit += 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{size:.0f} bytes"


def near_names(wanted: str, names: Iterable[str]) -> str:
    """Return a text with the names that are similar to a missing name, or else the first names."""
    lowered = {name.lower(): name for name in sorted(names)}
    from difflib import get_close_matches  # noqa: PLC0415 -- after an error

    near = [lowered[name] for name in get_close_matches(wanted.lower(), lowered)]
    if near:
        return f"near spellings: {', '.join(near)}"
    more = f" and {len(lowered) - _SHOWN_NAMES} more" if len(lowered) > _SHOWN_NAMES else ""
    return f"there are: {', '.join(list(lowered.values())[:_SHOWN_NAMES]) or 'none'}{more}"


def unknown_topic(wanted: str, topics: Iterable[str]) -> str:
    """Return the message for an unknown topic, with similar names."""
    return printable(f"no topic {wanted!r} here; {near_names(wanted, topics)}")


def warn_of_topics(wanted: Iterable[str], topics: Collection[str], stacklevel: int = 2) -> None:
    """Issue one `UnknownTopicWarning` for the requested topics that do not exist, if there are any."""
    unknown = [unknown_topic(each, topics) for each in sorted({*wanted}.difference(topics))]
    if unknown:
        warnings.warn(UnknownTopicWarning("; ".join(unknown)), stacklevel=stacklevel + 1)


@dataclass(slots=True)
class Damage:
    """The missing and damaged data that one call skips. Each finding is logged, and one warning at the end has all of them."""

    findings: list[Finding] = field(default_factory=list)

    @classmethod
    def of(cls, found: Iterable[Finding | tuple[int, int, Finding]]) -> Damage:
        """Log findings, or parts of a log (begin, end and finding), and keep them."""
        damage = cls()
        for each in found:
            damage.add(each if isinstance(each, Finding) else each[2])
        return damage

    def add(self, finding: Finding) -> None:
        """Log a finding and keep it."""
        _log.warning("%s", finding)
        self.findings.append(finding)

    def extend(self, findings: Iterable[Finding]) -> None:
        """Log findings and keep them."""
        for finding in findings:
            self.add(finding)

    def warn(self, stacklevel: int = 2) -> None:
        """Issue one `DamageWarning` for all findings, if there are any."""
        if self.findings:
            warnings.warn(DamageWarning(self.findings), stacklevel=stacklevel + 1)


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """The result of a check.

    Attributes:
        findings: What is wrong, in the order of the files and their offsets.
        checked: The number of checked items by name, such as `entries`, `slots`, `files`.
        absent: Optional parts that are missing, and so were not checked.

    Example:
        >>> from logdex.report import Finding, Report
        >>> Report([Finding("f", 36, "index-count", "at most 256", "768")], {"files": 1}).ok
        False
    """

    findings: list[Finding] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if there are no findings."""
        return not self.findings

    @property
    def kinds(self) -> dict[str, int]:
        """The number of findings of each kind, the most frequent first."""
        return dict(Counter(finding.kind for finding in self.findings).most_common())

    @property
    def severities(self) -> dict[Severity, dict[str, int]]:
        """The number of findings of each kind, by their severity, the worst first."""
        kinds = self.kinds
        found = {each: {kind: n for kind, n in kinds.items() if SEVERITIES[kind] == each} for each in MEANINGS}
        return {severity: kinds for severity, kinds in found.items() if kinds}

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        values = asdict(self)
        return {"ok": self.ok, "findings": values.pop("findings"), "kinds": self.kinds, **values}

    def __repr__(self) -> str:
        """Return the counts, not the findings."""
        return f"Report({self._summary})"

    def _repr_html_(self) -> str:
        """Return a table of the first findings."""
        rows = [(f.kind, f.path, f.offset, f.expected, f.found) for f in self.findings[:SHOWN_ROWS]]
        return html_table(self._summary, _COLUMNS, rows, len(self.findings) - len(rows))

    @property
    def _summary(self) -> str:
        return self.heading.replace("\n", "; ")

    @property
    def heading(self) -> str:
        """Return the checked parts, and the number of findings of each kind, as text."""
        counts = "checked " + (", ".join(f"{n:,} {name}" for name, n in self.checked.items()) or "nothing")
        if self.absent:
            counts = f"missing, not checked: {', '.join(self.absent)}; {counts}"
        if self.ok:
            return f"valid; {counts}"
        head = f"{len(self.findings):,} finding{'s' if len(self.findings) > 1 else ''}; {counts}"
        return head + "\n" + ", ".join(f"{n:,} {kind}" for kind, n in self.kinds.items())

    def __str__(self) -> str:
        if self.ok:
            return self.heading
        rows = [_COLUMNS]
        rows += [
            (f.kind, printable(f.path), str(f.offset), printable(f.expected), printable(f.found)) for f in self.findings
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)
        return "\n".join([self.heading, *lines])


def merge(reports: list[Report]) -> Report:
    """Combine reports: findings and absent parts in order, counts added up."""
    total = Report()
    for report in reports:
        total.findings.extend(report.findings)
        total.absent.extend(report.absent)
        for name, count in report.checked.items():
            total.checked[name] = total.checked.get(name, 0) + count
    return total
