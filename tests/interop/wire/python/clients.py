"""Asks a name server's address with the C++ client, by its Python binding: one JSON object a line on standard input and output.

`op` names the operation, as in Clients.java and Producers.java. A message is answered by where it is in the log.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage


class Clients:
    """The consumers and the producer of an address."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._producer: Producer | None = None

    def push(
        self, *, topic: str, group: str, want: int, seconds: int, linger: int, tags: str = "*", orderly: bool = False
    ) -> list[list[int]]:
        """Consume until enough messages came."""
        consumer = PushConsumer(group, orderly=orderly)
        consumer.set_namesrv_addr(self._address)
        consumer.set_instance_name(group)
        got: list[int] = []

        def take(message: RecvMessage) -> None:
            got.append(message.commit_log_offset)

        consumer.subscribe(topic, take, tags)
        consumer.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end and len(got) < want:
            time.sleep(0.02)
        # What comes twice would come now.
        time.sleep(linger / 1000)
        consumer.shutdown()
        return [got]

    def pull_all(self, topic: str, group: str, tags: str = "*") -> list[int]:
        """Pull the queues of a topic, from begin to end."""
        consumer = PullConsumer(group)
        consumer.set_namesrv_addr(self._address)
        consumer.start()
        found = [message.commit_log_offset for message in consumer.pull(topic, tags)]
        consumer.shutdown()
        return found

    @staticmethod
    def _message(topic: str, tags: str, key: str, body: str, number: int) -> Message:
        message = Message(topic)
        message.set_tags(tags)
        message.set_keys(key)
        message.set_body(f"{body}-{number}")
        return message

    def _started(self) -> Producer:
        if self._producer is None:
            self._producer = Producer("python-producer", timeout=20_000)
            self._producer.set_namesrv_addr(self._address)
            self._producer.start()
        return self._producer

    def send(self, n: int = 1, **message: Any) -> list[Any]:
        """Send one after the other."""
        return [list(self._started().send_sync(self._message(number=number, **message))) for number in range(n)]

    def oneway(self, n: int, **message: Any) -> int:
        """Send without an answer."""
        for number in range(n):
            self._started().send_oneway(self._message(number=number, **message))
        return n


def main() -> None:
    """Answer standard input line by line until it ends."""
    clients = Clients(sys.argv[1])
    # The library writes to standard output.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            said = {"result": getattr(clients, question.pop("op"))(**question)}
        except Exception as error:  # noqa: BLE001 -- the asker judges
            said = {"refused": type(error).__name__, "text": str(error)}
        output.write(json.dumps(said) + "\n")
        output.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
