"""Bodies of messages without markup that a browser would interpret: previews; a part as text, JSON to unfold, or bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from arro3.core import Array, DataType, RecordBatch
from markupsafe import Markup, escape

from logdex import _core
from logdex.browse.view import rows_of
from logdex.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SHOWN_BYTES = 64 << 10
"""Of a body as text or as bytes on a page; the download has all."""
_JSON_BYTES = 256 << 10
_MOST_NODES = 5_000
_MOST_DEPTH = 64
_LINE = 16
_HEX_BYTES = 4 << 10
_OPEN_DEPTH = 2
FORMS = ("text", "json", "hex")
DECODED = "decoded"
"""The form of a body with a decoder."""


@dataclass(frozen=True, slots=True)
class ShownBody:
    """A body on a page.

    Attributes:
        form: One of `FORMS`.
        markup: The shown text as HTML.
        shown: Bytes of the body that are shown.
        size: Bytes of the body.
        note: A remark on unusual content; None: nothing unusual.
        begin: The first byte that is shown.
        is_decoded: The text is what the body decodes to.
    """

    form: str
    markup: Markup
    shown: int
    size: int
    note: str | None
    begin: int = 0
    is_decoded: bool = False

    @property
    def name(self) -> str:
        """Return the word that chooses this form."""
        return DECODED if self.is_decoded else self.form

    @property
    def before(self) -> int | None:
        """Return where the bytes before the shown ones begin; None at the start."""
        return max(0, self.begin - _HEX_BYTES) if self.begin else None

    @property
    def after(self) -> int | None:
        """Return where the bytes after the shown ones begin; None at the end, and where text is cut."""
        end = self.begin + self.shown
        return end if self.form == "hex" and end < self.size else None


def show_body(body: bytes, form: str | None, at: int = 0) -> ShownBody:
    """Return a body in a form; None: JSON if it is that, else text, else bytes. `at` is the first byte of the bytes."""
    if form not in (None, *FORMS):
        raise ValueError(f"form: expected one of {', '.join(FORMS)}, found {form!r}")
    note = None
    if form in (None, "json"):
        try:
            return ShownBody("json", _json(body), len(body), len(body), None)
        except ValueError as error:
            note = None if form is None else f"not shown as JSON: {error}"
        except RecursionError:
            note = "not shown as JSON: it is nested too deep"
    part = body[:SHOWN_BYTES]
    if form != "hex":
        text, is_text = _text(part, is_whole=len(part) == len(body))
        if is_text or form is not None:
            odd = None if is_text else "it is not valid UTF-8: each wrong byte is shown as \\x.."
            return ShownBody("text", text, len(part), len(body), note or odd)
    begin = min(at, max(0, len(body) - 1)) // _LINE * _LINE
    part = body[begin : begin + _HEX_BYTES]
    return ShownBody("hex", Markup("\n").join(_hex_lines(part, begin)), len(part), len(body), note, begin)


class Decoders:
    """Decoders of columns of bytes. They keep the schemas of a registry."""

    def __init__(self, formats: Mapping[str, str] | None, known: Sequence[str]) -> None:
        """Open the schemas of formats by column.

        Raises:
            OSError: A schema cannot be read.
            ValueError: A format or a schema is invalid, or a column is not one of the known ones.
        """
        formats = formats or {}
        for name in formats:
            if name not in known:
                raise ValueError(f"decode: {name}: expected {' or '.join(known)}")
        self._decoders = {name: _core.Decoder({name: form}) for name, form in formats.items()}

    def __contains__(self, column: str) -> bool:
        """Return whether a column has a decoder."""
        return column in self._decoders

    def texts(self, column: str, values: Array) -> tuple[Array, list[str | None]]:
        """Return the texts that the values of a column decode to, and for each value why it does not decode."""
        try:
            batch = self._decoders[column].texts(RecordBatch.from_arrays([values], names=[column]))
        except OSError as error:
            # A registry that does not answer must not hide the messages.
            return Array([None] * len(values), type=DataType.binary()), [str(error)] * len(values)
        return batch.column(column), [row["body_error"] for row in rows_of(batch.select(["body_error"]))]

    def forms(self, column: str) -> tuple[str, ...]:
        """Return the forms of a column."""
        return (DECODED, *FORMS) if column in self else FORMS

    def show(self, column: str, value: bytes, form: str | None, at: int = 0) -> ShownBody:
        """Return a value as `show_body` does, by default as what it decodes to."""
        if column not in self or form not in (None, DECODED):
            return show_body(value, form, at)
        texts, [flaw] = self.texts(column, Array([value], type=DataType.binary()))
        [text] = [row["text"] for row in rows_of(RecordBatch.from_arrays([texts], names=["text"]))]
        if text is None:
            return replace(show_body(value, None), note=f"it does not decode: {flaw}")
        shown = show_body(text, None)
        part = shown.shown if shown.shown < shown.size else len(value)
        return replace(shown, is_decoded=True, shown=part, size=len(value))


_PREVIEW_BYTES = 32 << 20
"""Of bodies that are read for the previews of a page. The rows after them have none."""


class Preview(NamedTuple):
    """The start of a body on one line.

    `size` is of the body in bytes. `pieces` are the parts of the line, each with whether it is a match.
    `flaw` is why the body does not decode.
    """

    is_text: bool
    size: int
    pieces: Sequence[tuple[str, bool]]
    flaw: str | None = None


def previews(
    batches: Iterable[RecordBatch], place: str, column: str, matches: str | None, decoders: Decoders
) -> Mapping[int, Preview | None]:
    """Return the previews of a column by another one; None: it is null. What is too much for a page is left out."""
    found: dict[int, Preview | None] = {}
    left = _PREVIEW_BYTES
    for batch in batches:
        shown = _previews(batch.column(column), column, matches, decoders)
        found |= {row[place]: each for row, each in zip(rows_of(batch.select([place])), shown, strict=True)}
        left -= sum(each.size for each in shown if each is not None)
        if left < 0:
            break
    return found


def _previews(values: Array, column: str, matches: str | None, decoders: Decoders) -> list[Preview | None]:
    """Return the previews of values: of what they decode to, if there is a decoder."""
    shown = [each and Preview(*each) for each in _core.previews(values, matches=matches)]
    if column not in decoders:
        return shown
    texts, flaws = decoders.texts(column, values)
    decoded = zip(shown, _core.previews(texts, matches=matches), flaws, strict=True)
    return [
        stored and (stored._replace(flaw=flaw) if text is None else Preview(text[0], stored.size, text[2]))
        for stored, text, flaw in decoded
    ]


def _text(part: bytes, *, is_whole: bool) -> tuple[Markup, bool]:
    """Return a body as text, and whether it is valid UTF-8. Control characters are escaped, except line breaks and tabs."""
    try:
        text = part.decode()
        is_text = True
    except UnicodeDecodeError as error:
        # The cut may be inside of a character.
        is_text = not is_whole and error.start > len(part) - 4
        text = part[: error.start].decode() if is_text else part.decode(errors="backslashreplace")
    text = text.replace("\r\n", "\n")
    return escape("\n".join(_printable_line(line) for line in text.split("\n"))), is_text


def _printable_line(line: str) -> str:
    return "\t".join(map(printable, line.split("\t")))


def _hex_lines(part: bytes, begin: int) -> list[Markup]:
    lines = []
    for at in range(0, len(part), _LINE):
        row = part[at : at + _LINE]
        numbers = f"{row[:8].hex(' ')}  {row[8:].hex(' ')}"
        letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)  # noqa: PLR2004 -- printable ASCII
        lines.append(escape(f"{begin + at:08x}  {numbers:<48}  {letters}"))
    return lines


def _json(body: bytes) -> Markup:
    """Return a body as JSON to unfold.

    Raises:
        ValueError: It is not JSON, or too large to be shown.
    """
    if len(body) > _JSON_BYTES:
        raise ValueError(f"it has more than {_JSON_BYTES >> 10} KiB")
    if body.lstrip()[:1] not in (b"{", b"["):
        raise ValueError("it is neither an object nor an array")
    left = [_MOST_NODES]
    return _node(json.loads(body, object_pairs_hook=_Pairs), left, 0)


class _Pairs(list[tuple[str, Any]]):
    """The members of an object, as written: names may repeat."""


def _node(value: Any, left: list[int], depth: int) -> Markup:  # noqa: ANN401 -- JSON
    left[0] -= 1
    if left[0] < 0:
        raise ValueError(f"it has more than {_MOST_NODES} values")
    if depth > _MOST_DEPTH:
        raise ValueError("it is nested too deep")
    if not isinstance(value, list):
        kind = "s" if isinstance(value, str) else "n"
        text = json.dumps(value, ensure_ascii=False)
        return Markup('<bdi class="{}">{}</bdi>').format(kind, printable(text))
    is_object = isinstance(value, _Pairs)
    members = [
        Markup("<li><b>{}</b>: {}</li>").format(
            printable(json.dumps(name, ensure_ascii=False)), _node(each, left, depth + 1)
        )
        if is_object
        else Markup("<li>{}</li>").format(_node(each, left, depth + 1))
        for name, each in (value if is_object else ((None, each) for each in value))
    ]
    if not members:
        return Markup("{}") if is_object else Markup("[]")
    what = "{...}" if is_object else "[...]"
    count = f"{len(members)} {'members' if is_object else 'values'}"
    is_open = Markup(" open") if depth < _OPEN_DEPTH else Markup()
    head = Markup("<details{}><summary>{} <small>{}</small></summary>").format(is_open, what, count)
    return head + Markup("<ul>") + Markup().join(members) + Markup("</ul></details>")
