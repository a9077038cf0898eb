"""Schemas of a registry with the interface of Confluent's: `GET /schemas/ids/N`; `/subjects/NAME/versions/N` for references."""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

_TIMEOUT_S = 30.0
_MOST_BYTES = 16 << 20
_PIECE_BYTES = 1 << 16
_MOST_REFERENCES = 200


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Redirects are not followed: another server would receive the credentials of the first."""

    def redirect_request(self, *_: object) -> None:
        return None


def read_schema(url: str, number: int, kind: str) -> list[tuple[str, str]]:
    """Return the text of the schema with a number, after those to which it refers.

    Args:
        url: The URL of the registry, perhaps with user name and password.
        number: The number.
        kind: `AVRO` or `PROTOBUF`.

    Returns:
        Each name with its text. Of Avro it is one text, which has the types to which it refers.

    Raises:
        LookupError: The registry has no schema of this kind with this number, or lacks one to which it refers.
        OSError: No answer, or an unexpected one. No text has the user name or the password.
    """
    path = f"/schemas/ids/{number}"
    answer = _get(url, path)
    if answer is None:
        raise LookupError(f"no schema with the number {number}")
    found = answer.get("schemaType", "AVRO")
    if found != kind:
        raise LookupError(f"schema {number}: expected one of {kind}, found {found}")
    try:
        known: dict[str, str] = {}
        _add_references(url, answer, known)
        text = _text(answer, path)
        if kind == "AVRO":
            return [(str(number), _joined(text, known) if known else text)]
        # No import has this name.
        return [*known.items(), (f"schema-{number}.proto", text)]
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise LookupError(f"schema {number}: {error}") from None


def _add_references(url: str, answer: dict[str, Any], known: dict[str, str]) -> None:
    """Add the texts of the schemas to which an answer refers, by the names that it gives them."""
    for each in answer.get("references") or ():
        name = each["name"]
        if name in known:
            continue
        if len(known) >= _MOST_REFERENCES:
            raise LookupError(f"expected at most {_MOST_REFERENCES} references")
        subject = urllib.parse.quote(each["subject"], safe="")
        path = f"/subjects/{subject}/versions/{int(each['version'])}"
        found = _get(url, path)
        if found is None:
            raise LookupError(
                f"the registry lacks version {each['version']} of {each['subject']!r}, to which it refers"
            )
        # Before its own references, which may lead back to it.
        known[name] = _text(found, path)
        _add_references(url, found, known)


def _text(answer: dict[str, Any], path: str) -> str:
    text = answer.get("schema")
    if not isinstance(text, str):
        raise OSError(f"{path}: expected an object with a schema")
    return text


def _joined(text: str, known: dict[str, str]) -> str:
    """Return a schema of Avro in which the first use of each referenced type is its definition."""
    return json.dumps(_with_types(json.loads(text), "", {name: json.loads(each) for name, each in known.items()}))


def _with_types(schema: Any, namespace: str, left: dict[str, Any]) -> Any:  # noqa: ANN401 -- JSON
    """Return a schema with the definitions of the types that it names. Those that are used are no longer in `left`."""
    if isinstance(schema, str):
        full_name = schema if "." in schema or not namespace else f"{namespace}.{schema}"
        definition = left.pop(full_name, None)
        if definition is None:
            return schema
        # The namespace around it is not its own.
        own = {"namespace": definition.get("namespace", "")} if isinstance(definition, dict) else {}
        return _with_types({**definition, **own} if own else definition, namespace, left)
    if isinstance(schema, list):
        return [_with_types(each, namespace, left) for each in schema]
    inside = _namespace(schema, namespace)
    found = dict(schema)
    for name in ("items", "values"):
        if name in found:
            found[name] = _with_types(found[name], inside, left)
    if not isinstance(found["type"], str):
        found["type"] = _with_types(found["type"], inside, left)
    if "fields" in found:
        found["fields"] = [{**each, "type": _with_types(each["type"], inside, left)} for each in found["fields"]]
    return found


def _namespace(schema: dict[str, Any], around: str) -> str:
    """Return the namespace inside of a schema."""
    if "name" not in schema:
        return around
    before, dot, _ = schema["name"].rpartition(".")
    return before if dot else str(schema.get("namespace", around))


def _get(url: str, path: str) -> dict[str, object] | None:
    """Return the JSON object at a path of a registry; None: there is none."""
    parts = urllib.parse.urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    place = urllib.parse.urlunsplit((parts.scheme, host, parts.path.rstrip("/") + path, "", ""))
    request = urllib.request.Request(place, headers={"Accept": "application/vnd.schemaregistry.v1+json"})  # noqa: S310 -- http, https
    if user:
        credentials = base64.b64encode(urllib.parse.unquote_to_bytes(user)).decode()
        request.add_unredirected_header("Authorization", f"Basic {credentials}")
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            text = _bounded(answer)
        found = json.loads(text)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.HTTPStatus.NOT_FOUND:
                return None
            raise OSError(f"{path}: the registry answered {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise OSError(f"{path}: {error.reason}") from None
    except (http.client.HTTPException, ValueError, RecursionError) as error:
        raise OSError(f"{path}: expected a JSON object: {error}") from None
    if not isinstance(found, dict):
        raise OSError(f"{path}: expected a JSON object, found {type(found).__name__}")
    return found


def _bounded(answer: http.client.HTTPResponse) -> bytes:
    """Read an answer that is neither too long nor too slow."""
    deadline = time.monotonic() + _TIMEOUT_S
    pieces, size = [], 0
    while piece := answer.read1(_PIECE_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > _MOST_BYTES:
            raise ValueError(f"at most {_MOST_BYTES:,} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError(f"expected an answer within {_TIMEOUT_S:g} s")
    return b"".join(pieces)
