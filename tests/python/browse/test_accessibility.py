"""Every page by the rules of axe-core, at two widths and in both colour schemes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browsing import INDEX, KAFKA, STORE

if TYPE_CHECKING:
    from collections.abc import Callable

    from browsing import Site, Visitor

AXE = (Path(__file__).resolve().parents[1] / "support" / "axe" / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("store_site", STORE),
        ("kafka_site", KAFKA),
        ("index_site", INDEX),
        ("decoded_site", ("/messages", "/message?at=0", "/messages/tail")),
        ("hostile_site", ("/messages", "/message?at=0", "/messages?counts=1")),
    ],
)
def test_no_page_has_a_finding(  # noqa: PLR0917 -- fixtures and parameters
    request: pytest.FixtureRequest,
    visit: Callable[..., Visitor],
    name: str,
    paths: tuple[str, ...],
    width: int,
    scheme: str,
) -> None:
    site: Site = request.getfixturevalue(name)
    # Only for axe, which is put into the page.
    visitor = visit(viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True)
    for path in paths:
        page = visitor.open(site, path)
        page.wait_for_load_state("networkidle")
        visitor.errors[:] = [error for error in visitor.errors if "404" not in error]
        page.evaluate(AXE)
        found = page.evaluate("axe.run(document)")
        assert len(found["passes"]) > 15, path
        violations = [(each["id"], each["impact"], each["nodes"][0]["html"]) for each in found["violations"]]
        assert not violations, path
        # The page itself is not wider than the screen; a table scrolls in its place.
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
