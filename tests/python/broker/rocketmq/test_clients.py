"""The groups and locks of clients, and their limits."""

from __future__ import annotations

import pytest

from logdex.broker.rocketmq import clients
from logdex.broker.rocketmq.clients import Clients, Member
from logdex.broker.rocketmq.requests import Peer
from logdex.rocketmq.fastjson import MessageQueue


def test_the_locks_of_all_are_searched_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_MOST_LOCKS", 3)
    sweeps = []
    forget_locks = Clients.forget_locks

    def note(self: Clients, now: float) -> None:
        sweeps.append(now)
        forget_locks(self, now)

    monkeypatch.setattr(Clients, "forget_locks", note)
    known, queues = Clients(), [MessageQueue("b", number, "T") for number in range(3)]
    known.lock("g", "c", queues, 100.0)
    for now in (100.0, 100.4, 100.9, 101.0, 101.5):
        with pytest.raises(ValueError, match="more than 3 locks"):
            known.lock("h", "c", queues[:1], now)
    assert sweeps == [100.0, 101.0]
    assert known.lock("h", "c", queues[:1], 161.0) == queues[:1]


def test_a_refused_producer_leaves_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_MOST_MEMBERS", 2)
    known, peer, member = Clients(), Peer("127.0.0.1:1"), Member("c", "JAVA", 1, 0.0)
    known.produce("a", peer, member)
    known.produce("b", peer, member)
    with pytest.raises(ValueError, match="more than 2 members"):
        known.produce("c", peer, member)
    assert {*known.producers} == {"a", "b"}
    monkeypatch.setattr(clients, "_MOST_MEMBERS", 9)
    monkeypatch.setattr(clients, "_MOST_GROUPS", 2)
    with pytest.raises(ValueError, match="more than 2 producer groups"):
        known.produce("c", peer, member)
    known.produce("a", Peer("127.0.0.1:2"), member)
    known.leave(peer)
    assert {*known.producers} == {"a"}
