"""`logdex.Pattern`: a frozen value that pickles, and refuses what cannot be searched."""

from __future__ import annotations

import pickle

import pytest

import logdex
from logdex import Pattern


def test_it_is_a_value() -> None:
    pattern = Pattern("a+", fields=("headers", "value", "headers"), ignore_case=True, invert=True)
    assert (pattern.text, pattern.fields) == ("a+", ("properties", "body"))
    assert (pattern.literal, pattern.ignore_case, pattern.word, pattern.invert) == (False, True, False, True)
    assert repr(pattern) == "Pattern('a+', fields=('properties', 'body'), ignore_case=True, invert=True)"
    assert repr(Pattern(b"\xff")) == r"Pattern(b'\xff')"
    assert Pattern("a") == Pattern("a", fields=["body"]) != Pattern(b"a")
    assert len({Pattern("a"), Pattern("a"), Pattern("a", word=True)}) == 2


@pytest.mark.parametrize("text", ["\u00e9.", b"\xff\x00."])
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_it_pickles(text: str | bytes, protocol: int) -> None:
    pattern = Pattern(text, fields=("keys",), literal=True, word=True)
    assert pickle.loads(pickle.dumps(pattern, protocol)) == pattern  # noqa: S301 -- our own bytes


def test_refusals_name_the_pattern_and_the_position() -> None:
    with pytest.raises(ValueError, match=r'matches="ab\(c": .* found at position 2: unclosed group'):
        Pattern("ab(c")
    with pytest.raises(ValueError, match=r"at most 4096 bytes, found 5000"):
        Pattern("x" * 5_000)
    with pytest.raises(ValueError, match="bytes when compiled, found a larger one"):
        Pattern(r"\w{1000}")
    with pytest.raises(ValueError, match="look-around"):
        Pattern("(?=a)")
    with pytest.raises(ValueError, match='fields="topic": expected body'):
        Pattern("a", fields=("topic",))
    with pytest.raises(ValueError, match="fields: expected one or more"):
        Pattern("a", fields=())
    with pytest.raises(TypeError, match="fields: expected an iterable of str, found one str"):
        Pattern("a", fields="body")
    with pytest.raises(TypeError, match="matches: expected str, bytes or Pattern, got int"):
        Pattern(1)  # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        Pattern("\ud800")
    assert logdex.Pattern is Pattern
