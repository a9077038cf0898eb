"""Schemas of a registry with the interface of Confluent's: `GET /schemas/ids/{number}`."""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request

_TIMEOUT_S = 30.0
_MOST_BYTES = 16 << 20
_PIECE_BYTES = 1 << 16


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Redirects are not followed: another server would receive the credentials of the first."""

    def redirect_request(self, *_: object) -> None:
        return None


def read_schema(url: str, number: int) -> str:
    """Return the text of the Avro schema with a number.

    Args:
        url: The URL of the registry, perhaps with user name and password.
        number: The number.

    Raises:
        LookupError: The registry has no Avro schema with this number, or the schema needs others.
        OSError: No answer, or an unexpected one. No text has the user name or the password.
    """
    answer = _get(url, f"/schemas/ids/{number}")
    if answer is None:
        raise LookupError(f"no schema with the number {number}")
    kind = answer.get("schemaType", "AVRO")
    if kind != "AVRO":
        raise LookupError(f"schema {number}: expected one of Avro, found {kind}")
    if answer.get("references"):
        raise LookupError(f"schema {number} refers to others, which are not read: write it with them into NUMBER.avsc")
    text = answer.get("schema")
    if not isinstance(text, str):
        raise OSError(f"/schemas/ids/{number}: expected an object with a schema")
    return text


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
    except (http.client.HTTPException, ValueError) as error:
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
