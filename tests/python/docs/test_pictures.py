"""The diagrams are those of their descriptions."""

from __future__ import annotations

import draw_pictures
import pytest


def test_the_pictures_are_current() -> None:
    assert draw_pictures.outdated() == []
    assert len(list(draw_pictures.PICTURES.glob("*.txt"))) == len(list(draw_pictures.PICTURES.glob("*.svg"))) > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [("row\nbox", "line 2: expected a title, row, box or arrow"), ("row\na: A\narrow a -> b", "'b': there is no such")],
)
def test_a_wrong_description_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw_pictures.parse(text)
