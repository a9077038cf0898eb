"""Frames of the protocol, in both encodings of headers."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

import wire
from logdex._core import RemotingCommand
from logdex.rocketmq import fastjson

RECORDED = [*wire.vectors("remoting-read"), *wire.vectors("client-traffic"), *wire.vectors("acl")]


@pytest.mark.parametrize("vector", RECORDED, ids=lambda vector: vector["name"])
def test_recorded_requests_decode(vector: dict[str, Any]) -> None:
    frame = bytes.fromhex(vector["requestHex"])
    assert RemotingCommand.frame_length(frame[:4]) == len(frame)
    command = RemotingCommand.decode(frame)
    if "requestCode" in vector:
        assert command.code == vector["requestCode"]
        assert command.ext == (vector["requestExtFields"] or {})
        body = vector.get("requestBody")
        assert body is None or command.body.decode() == body
    assert (command.is_answer, command.language) == (False, "JAVA")


def test_both_encodings_say_the_same() -> None:
    ext = {"topic": "\u8ba2\u5355", "queueId": "1", "empty": ""}
    plain, binary = (
        RemotingCommand.decode(wire.request(11, ext, opaque=7)),
        RemotingCommand.decode(wire.binary_request(11, ext, opaque=7)),
    )
    assert plain.ext == binary.ext == ext
    assert (plain.code, plain.opaque, plain.version) == (binary.code, binary.opaque, binary.version) == (11, 7, 399)


def test_an_answer_to_a_binary_request_has_a_json_header() -> None:
    request = RemotingCommand.decode(wire.binary_request(11, {}, opaque=9))
    header, body = wire.split(request.answer(19, {"minOffset": "0"}, b"body", "r\u00e9mark"))
    assert (header["opaque"], header["code"], header["remark"], body) == (9, 19, "r\u00e9mark", b"body")


def test_a_json_answer_leaves_out_what_is_not_set() -> None:
    request = RemotingCommand.decode(wire.request(105, {"topic": "T"}, opaque=3))
    header, body = wire.split(request.answer(0, None, b"{}"))
    assert header == {
        "code": 0,
        "flag": 1,
        "language": "PYTHON",
        "opaque": 3,
        "serializeTypeCurrentRPC": "JSON",
        "version": 399,
    }
    assert body == b"{}"
    header, _ = wire.split(request.answer(1, {}, remark="no"))
    assert (header["extFields"], header["remark"]) == ({}, "no")


def test_a_notice_is_one_way() -> None:
    command = RemotingCommand.decode(RemotingCommand.request(40, 5, {"consumerGroup": "g"}, one_way=True))
    assert (command.code, command.opaque, command.is_one_way, command.is_answer) == (40, 5, True, False)


def test_members_that_are_no_texts_are_taken_as_their_json() -> None:
    header = json.dumps({"code": 34, "extFields": {"a": 1, "b": True, "c": None, "d": "x"}, "new": [1]}).encode()
    frame = struct.pack(">iI", 4 + len(header), len(header)) + header
    assert RemotingCommand.decode(frame).ext == {"a": "1", "b": "true", "d": "x"}


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b'{"code":"a"}',
        b'{"code":1.5}',
        b'{"code":true}',
        b'{"code":99999999999}',
        b'{"code":1,"extFields":[1]}',
        b'{"code":1,"opaque":1e400}',
        b'{"code":1,"flag":null}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_a_header_that_is_none_is_refused(header: bytes) -> None:
    with pytest.raises(ValueError):
        RemotingCommand.decode(struct.pack(">iI", 4 + len(header), len(header)) + header)


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_binary_header_that_is_cut_is_refused(cut: int) -> None:
    frame = wire.binary_request(11, {"topic": "T", "queueId": "1"})
    header = frame[8:-cut]
    with pytest.raises(ValueError):
        RemotingCommand.decode(struct.pack(">iI", 4 + len(header), 1 << 24 | len(header)) + header)


def test_lengths_outside_of_the_limits_are_refused() -> None:
    for length in (-1, 0, 3, RemotingCommand.MAX_FRAME - 3, 0x7FFFFFFF):
        with pytest.raises(ValueError):
            RemotingCommand.frame_length(struct.pack(">i", length))
    assert RemotingCommand.frame_length(struct.pack(">i", RemotingCommand.MAX_FRAME - 4)) == RemotingCommand.MAX_FRAME
    assert RemotingCommand.frame_length(struct.pack(">i", 4)) == 8


def test_a_header_longer_than_its_frame_and_an_unknown_type_are_refused() -> None:
    for word in (3, 2 << 24 | 2, 255 << 24):
        with pytest.raises(ValueError):
            RemotingCommand.decode(struct.pack(">iI", 6, word) + b"{}")


def test_maps_with_bare_keys_are_read_and_written() -> None:
    text = '{"offsetTable":{"T@G":{0:16,-1:2}},"text":"{0:1, \\"1:2"}'
    assert fastjson.loads(text) == {"offsetTable": {"T@G": {"0": 16, "-1": 2}}, "text": '{0:1, "1:2'}
    queue = fastjson.MessageQueue("b", 1, "\u8ba2")
    assert fastjson.dumps({0: [queue, None, True], queue: 1.5}) == (
        '{0:[{"brokerName":"b","queueId":1,"topic":"\u8ba2"},null,true],{"brokerName":"b","queueId":1,"topic":"\u8ba2"}:1.5}'
    )
    assert fastjson.loads(fastjson.dumps({1: {2: "x"}})) == {"1": {"2": "x"}}


def test_what_java_takes_and_json_does_not_is_read() -> None:
    text = '{\'a\':1,,"b":[1,2,],c:"\\ud800|\\ud83d\\ude00"}'
    assert fastjson.loads(text) == {"a": 1, "b": [1, 2], "c": "?|\U0001f600"}


@pytest.mark.parametrize("text", ["", "{", "{{1:2}:3}", "9" * 50_000, "[" * 100_000, '{"a":1e999}', "nul"])
def test_what_java_would_not_take_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"at byte .*: expected"):
        fastjson.loads(text)
