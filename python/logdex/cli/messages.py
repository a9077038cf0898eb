"""How one RocketMQ message is printed."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from logdex.cli.output import body_text, json_bytes, printable, time_text
from logdex.rocketmq import Message

MESSAGE_COLUMNS = tuple(field.name for field in fields(Message))
_SHOWN_BODY = 2_000


def message_text(row: dict[str, Any]) -> str:
    """Write a message for people: one line, and its body below where it was read."""
    head = [
        time_text(row["store_timestamp"]) or "-",
        f"{printable(row['topic'])}/{row['queue_id']}@{row['queue_offset']}",
        f"phy {row['phy_offset']}",
    ]
    head += [f"{name}={printable(row[name])}" for name in ("tags", "keys", "uniq_key") if row[name] is not None]
    lines = ["  ".join(head)]
    if row.get("body_error"):
        lines.append(f"    ({printable(row['body_error'])})")
    elif row.get("body") is not None:
        lines += _body_lines(row["body"])
    return "\n".join(lines)


def message_json(row: dict[str, Any]) -> dict[str, Any]:
    """Turn a message into what JSON holds: times in ms, a body that is no text as base64 under another name."""
    shown = {name: value for name, value in row.items() if name not in ("body", "body_error")}
    if "body" in row:
        shown |= {**json_bytes("body", row["body"]), "body_error": row.get("body_error")}
    return shown


def _body_lines(body: bytes) -> list[str]:
    text = body_text(body)
    if text is None:
        shown = body[: _SHOWN_BODY // 2].hex(" ")
        rest = len(body) - _SHOWN_BODY // 2
        lines = [f"({len(body):,} bytes, no text) {shown}"]
    else:
        rest = len(text) - _SHOWN_BODY
        lines = [printable(line) for line in text[:_SHOWN_BODY].splitlines()]
    if rest > 0:
        lines.append(f"({rest:,} more; --json gives all)")
    return [f"    {line}" for line in lines]
