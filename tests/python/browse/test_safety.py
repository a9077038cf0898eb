"""The pages are for one person on this machine, and nothing in a store reaches further than its text."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browsing import BIG_BODY, COOKIE, NAUGHTY, TOKEN, follow

if TYPE_CHECKING:
    from collections.abc import Callable

    from browsing import Site, Visitor

WEB = Path(__file__).resolve().parents[3] / "python" / "logdex" / "browse"


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8417", "localhost.evil.example", "", "[::2]:1", "127.0.0.2"]
)
def test_another_host_is_refused_with_the_token(store_site: Site, host: str) -> None:
    answer = store_site.ask(f"/?token={TOKEN}", headers={"Host": host})
    assert answer.status == 421
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9999", "LOCALHOST", "[::1]:80"])
def test_names_of_this_machine_are_accepted_with_any_port(store_site: Site, host: str) -> None:
    """A tunnel has a port of its own."""
    assert store_site.ask("/", headers={"Host": host}).status == 200


def test_without_the_token_nothing_is_shown(store_site: Site) -> None:
    for path in (
        "/",
        "/messages",
        "/message?at=0",
        "/static/style.css",
        "/?token=wrong",
        "/overview.json",
        "/body?at=0",
        "/nothing",
    ):
        answer = store_site.ask(path, cookie=False)
        assert answer.status == 403, path
        assert b"store" not in answer.body
        assert TOKEN not in answer.text
    for cookie in ("", "x", TOKEN + "x"):
        headers = {"Cookie": f"logdex-{store_site.port}={cookie}"}
        assert store_site.ask("/", cookie=False, headers=headers).status == 403


def test_the_token_moves_from_the_address_into_a_cookie(store_site: Site) -> None:
    answer = store_site.ask(f"/messages?token={TOKEN}&topic=a%26b&rows=3", cookie=False)
    assert answer.status == 303
    assert answer.headers["location"] == "/messages?topic=a%26b&rows=3"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(COOKIE.format(store_site.port))
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie


@pytest.mark.parametrize("path", ["//evil.example/", "///evil.example", "/%2Fevil.example/", "/%5Cevil.example", "//"])
def test_the_token_in_an_address_leads_to_no_other_host(store_site: Site, path: str) -> None:
    """A browser parses two slashes, or a slash and a backslash, as the start of a host name."""
    answer = store_site.ask(f"{path}?token={TOKEN}", cookie=False)
    assert answer.status == 303
    assert re.match(r"/(?![/\\])", answer.headers["location"])


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_only_reading_methods_are_answered(store_site: Site, method: str) -> None:
    assert store_site.ask("/verify/start", method=method).status == 405


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_cannot_load_a_part(store_site: Site, site: str) -> None:
    assert store_site.ask("/overview.json", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}).status == 403
    # But a link there, in a chat for example, leads here.
    assert store_site.ask("/", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}).status == 200


@pytest.mark.parametrize("action", ["start", "cancel"])
def test_an_address_without_the_key_of_a_page_acts_on_nothing(store_site: Site, action: str) -> None:
    for key in ("", "?key=", "?key=guess", f"?key={TOKEN}"):
        assert store_site.ask(f"/verify/{action}{key}").status == 403


def test_every_answer_has_the_headers_that_keep_it_here(store_site: Site) -> None:
    for path in ("/", "/nothing", "/messages.json", "/static/style.css", "/message?at=x", "/?token=wrong"):
        headers = store_site.ask(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_templates_have_neither_inline_code_nor_addresses_elsewhere() -> None:
    templates = list((WEB / "templates").glob("*.html"))
    assert len(templates) > 15
    for template in templates:
        text = template.read_text(encoding="utf-8")
        assert not re.search(r"\son\w+=|style=|<style|javascript:|\|\s*safe|https?://", text), template
        assert re.findall(r"<script[^>]*>", text) == re.findall(r'<script src="/static/[\w.]+" defer>', text)
    for file in ("style.css", "browse.js"):
        assert "://" not in (WEB / "static" / file).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path",
    [
        "/messages?queue=x", "/messages?rows=0", "/messages?rows=501", "/messages?rows=1e3", "/messages?position=-1",
        "/messages?begin=someday", "/message?at=99999999999999999999", "/message", "/queue?topic=TopicTest",
        "/message?at=0&form=exe", "/search?key=%ff", f"/search?key={'k' * 5000}", "/messages?position=" + "9" * 30,
    ],
)  # fmt: skip
def test_a_wrong_word_in_an_address_is_named(store_site: Site, path: str) -> None:
    answer = store_site.ask(path)
    assert answer.status == 400, answer.text
    assert "bug" not in answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/nothing", "/message?at=1",
        f"/queue?topic={'x' * 400}&queue=0", f"/topic?topic={'x' * 400}",
        "/queue?topic=../../..&queue=0", "/queue?topic=%00&queue=0", "/log-file?name=..%2fcheckpoint",
        "/index-file?name=..%2f..%2fcheckpoint", "/static/../site.py", "/static/%2e%2e/site.py", "/topic?topic=%2e%2e",
    ],
)  # fmt: skip
def test_what_is_not_there_is_said_and_no_other_file_is_read(store_site: Site, path: str) -> None:
    answer = store_site.ask(path)
    assert answer.status == 404, answer.text
    assert b"def " not in answer.body


def test_texts_of_messages_are_text(hostile_site: Site, visitor: Visitor) -> None:
    page = visitor.open(hostile_site, "/messages")
    assert NAUGHTY in page.locator("tbody").inner_text()
    for key in ("k0", "k1", "k3", "k4"):
        page.goto(f"{hostile_site.base}/search?topic=hostile&key={key}")
        follow(page.locator("tbody").get_by_role("link").first)
        for form in ("text", "json", "hex"):
            page.goto(re.sub(r"&form=.*", "", page.url) + f"&form={form}")
            assert page.title().endswith(" - logdex")
            assert page.locator("main img, main script").count() == 0
    page.goto(f"{hostile_site.base}/search?topic=hostile&key=k0")
    follow(page.locator("tbody").get_by_role("link").first)
    assert page.locator("pre.body").inner_text() == NAUGHTY
    assert page.get_by_role("table", name="Properties").locator("tbody").inner_text().count(NAUGHTY) >= 3
    # The page's own address is text as well.
    page.goto(f"{hostile_site.base}/search?topic=hostile&key=%3Cscript%3Edocument.title%3D1%3C%2Fscript%3E")
    assert page.title() == "Search: <script>document.title=1</script> - logdex"


def test_characters_that_turn_text_are_shown_as_codes(hostile_site: Site, visitor: Visitor) -> None:
    page = visitor.open(hostile_site, "/search?topic=hostile&key=k1")
    follow(page.locator("tbody").get_by_role("link").first)
    text = page.locator("pre.body").inner_text()
    assert "\\u202e" in text
    assert "\u202e" not in page.content()
    assert "\u05e9\u05dc\u05d5\u05dd" in text
    assert page.locator("pre.body").get_attribute("dir") == "auto"


def test_a_large_body_is_cut_on_the_page_and_whole_as_a_file(hostile_site: Site, visitor: Visitor) -> None:
    page = visitor.open(hostile_site, "/search?topic=hostile&key=k2")
    follow(page.locator("tbody").get_by_role("link").first)
    assert len(BIG_BODY) == 10 << 20
    assert f"{len(BIG_BODY):,} bytes, 65,536 shown" in page.locator("main").inner_text()
    assert len(page.content()) < 200_000
    with page.expect_download() as download:
        page.get_by_role("link", name="download").click()
    assert download.value.path().read_bytes() == BIG_BODY
    follow(page.get_by_role("link", name="hex", exact=True))
    follow(page.get_by_role("link", name="Next bytes"))
    assert "00001000  30 31 32 33" in page.locator("pre.hex").inner_text()


def test_bytes_that_are_no_text_are_shown_as_bytes(hostile_site: Site, visitor: Visitor) -> None:
    page = visitor.open(hostile_site, "/search?topic=hostile&key=k3")
    follow(page.locator("tbody").get_by_role("link").first)
    assert "62 65 66 6f 72 65 20 ff  fe 00 20" in page.locator("pre.hex").inner_text()
    follow(page.get_by_role("link", name="text", exact=True))
    assert "before \\xff\\xfe\\x00 after" in page.locator("pre.body").inner_text()
    assert "not valid UTF-8" in page.locator(".note").inner_text()


def test_json_is_folded_and_its_depth_is_bounded(hostile_site: Site, visitor: Visitor) -> None:
    page = visitor.open(hostile_site, "/search?topic=hostile&key=k4")
    follow(page.locator("tbody").get_by_role("link").first)
    assert page.locator(".json details").count() == 3
    assert page.locator(".json details[open]").count() == 2
    assert "owned" in page.locator(".json").inner_text()
    page.goto(f"{hostile_site.base}/search?topic=hostile&key=k5")
    follow(page.locator("tbody").get_by_role("link").first)
    follow(page.get_by_role("link", name="json", exact=True))
    assert "not shown as JSON" in page.locator(".note").inner_text()


def test_reading_changes_nothing(store_site: Site, kafka_site: Site) -> None:
    for site, paths in (
        (
            store_site,
            (
                "/",
                "/topics",
                "/messages",
                "/search?key=k1",
                "/index",
                "/log",
                "/message?at=0",
                "/log-file?name=" + "0" * 20,
            ),
        ),
        (
            kafka_site,
            ("/", "/partitions", "/records", "/partition?topic=tx-one&partition=0", "/search?topic=tx-one&key=a"),
        ),
    ):
        before = {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in sorted(site.root.rglob("*"))}
        for path in paths:
            assert site.ask(path).status == 200, path
        assert {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in sorted(site.root.rglob("*"))} == before


def test_a_check_can_be_cancelled(hostile_site: Site, visit: Callable[..., Visitor]) -> None:
    """The page of the check has the key; the check of a small store may end first, which is shown as well."""
    page = visit(java_script_enabled=False).open(hostile_site, "/verify")
    start = page.get_by_role("link", name="Check everything").get_attribute("href") or ""
    assert hostile_site.ask(start).status == 303
    assert hostile_site.ask(start.replace("start", "cancel")).headers["location"] == "/verify"
    until = time.monotonic() + 20
    while time.monotonic() < until:
        text = hostile_site.ask("/verify").text
        if "Valid." in text or "was cancelled" in text:
            return
    pytest.fail("the check neither ended nor was cancelled")


def test_without_the_extra_the_command_says_what_to_install(tmp_path: Path) -> None:
    program = """
        import sys

        class Blocked:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in ("starlette", "uvicorn"):
                    raise ModuleNotFoundError(name, name=name.split(".")[0])

        sys.meta_path.insert(0, Blocked())
        from logdex.cli import main
        sys.exit(main(["browse", sys.argv[1], "--no-open"]))
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 2
    assert "logdex browse needs uvicorn, which this Python lacks: pip install 'starlette" in ran.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--port", "65536"), "must be at most 65535"),
        (("--token", "short"), "token: expected 8 or more ASCII characters"),
        ((), "expected a store (holds commitlog), an index directory"),
    ],
)
def test_wrong_use_is_refused(tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    command = [sys.executable, "-m", "logdex", "browse", str(tmp_path), "--no-open", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 2
    assert text in ran.stderr


def test_a_port_that_is_taken_is_named(store_site: Site) -> None:
    command = [
        sys.executable,
        "-m",
        "logdex",
        "browse",
        str(store_site.root),
        "--no-open",
        "--port",
        str(store_site.port),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 2
    assert f"127.0.0.1:{store_site.port}: Address already in use" in ran.stderr
