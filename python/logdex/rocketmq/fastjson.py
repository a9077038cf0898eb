"""The JSON of RocketMQ: fastjson writes the keys of a map as they are, integers and objects without quotes.

`{0:"a"}` and `{{"queueId":1}:{"maxOffset":7}}` are not JSON, but in the broker's config files and in its answers.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

# A text in quotes is skipped as a whole. Any other integer before a colon is a name.
_BARE_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<name>-?\d+)(?P<colon>\s*:)')


class MessageQueue(NamedTuple):
    """A queue of a topic at a broker; fastjson writes it as an object, also as the key of a map."""

    broker: str
    queue_id: int
    topic: str


def loads(text: str) -> Any:  # noqa: ANN401 -- what JSON holds
    """Return the value of a text. Bare integer keys become texts; object keys are not read.

    Raises:
        ValueError: It is no such text.
        RecursionError: It is nested too deeply.
    """
    return json.loads(_BARE_NAME.sub(_with_quotes, text))


def dumps(value: Any) -> str:  # noqa: ANN401 -- what JSON holds, and `MessageQueue`
    """Return a value as fastjson writes it, without spaces."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{dumps(key)}:{dumps(member)}" for key, member in value.items()) + "}"
    if isinstance(value, MessageQueue):
        return dumps({"brokerName": value.broker, "queueId": value.queue_id, "topic": value.topic})
    if isinstance(value, list):
        return "[" + ",".join(map(dumps, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _with_quotes(match: re.Match[str]) -> str:
    return match[0] if match["name"] is None else f'"{match["name"]}"{match["colon"]}'
