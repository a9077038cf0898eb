"""Settings of the documentation site, which `make docs` builds into build/docs."""

from __future__ import annotations

import argparse
import os
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sphinx.util import logging

import logdex
from logdex.cli import parser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

project = "logdex"
copyright = "the logdex authors"  # noqa: A001 -- Sphinx asks for this name
release = version = logdex.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "sphinx_inline_tabs"]

os.environ["COLUMNS"] = "100"  # the width of help texts

myst_enable_extensions = ["colon_fence", "fieldlist"]
myst_heading_anchors = 4
# A name in single backticks is a link where it is a name of the package, and plain code elsewhere.
default_role = "py:obj"
# `.log` is the suffix of a file, and two classes have a method of this name.
suppress_warnings = ["ref.python"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Source", "notes_style")]

html_theme = "furo"
html_title = f"logdex {release}"
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"

PUBLIC_MODULES = ("logdex", "logdex.kafka", "logdex.rocketmq", "logdex.spark", "logdex.browse")
_INCLUDED = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Documents outside of docs, and the pages that include them."""

_OWN_MODULES = re.compile(r"\blogdex\._core\.")
_LABELLED_BLOCK = re.compile(r"^\*\*([^*\n]+)\*\*\n\n(```.*?^```)$", re.DOTALL | re.MULTILINE)
_LINK_OUT = re.compile(r"\[([^]]+)\]\(((?:\.\./)+)([^)#]+)(#[^)]*)?\)")


def _shorten_signature(*arguments: Any) -> tuple[str, str] | None:  # noqa: ANN401 -- the event's arguments
    """Write the extension's names without the private module that they are compiled into."""
    signature, result = arguments[5:7]
    return None if signature is None else (_OWN_MODULES.sub("", signature), _OWN_MODULES.sub("", result or ""))


def _link_to_pages(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Point links out of docs to the pages that include those files; other files of the repository are named only."""

    def link(match: re.Match[str]) -> str:
        text, up, path, anchor = match.groups()
        if up.count("/") <= docname.count("/"):
            return match[0]
        page = _INCLUDED.get(path)
        if page is None:
            return text if text.strip("`") == path else f"{text} (`{path}`)"
        return f"[{text}]({'../' * docname.count('/')}{page}{anchor or ''})"

    source[0] = _LINK_OUT.sub(link, source[0])


def _make_tabs(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Show the blocks of code under labels in bold, which plain Markdown has one after the other, as tabs of the first page."""
    if docname == "index":
        source[0] = _LABELLED_BLOCK.sub(r":::{tab} \1\n\2\n:::", source[0])


def _add_commands(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Add the help text of every command to the page of the command line."""
    if docname == "reference/cli":
        source[0] += "".join(_help_sections(parser(), "logdex"))


def _help_sections(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    yield f"\n## {name}\n\n```text\n{parser.format_help()}```\n"
    for action in parser._actions:  # noqa: SLF001 -- argparse has no public way to its commands
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 -- as above
            for command, sub_parser in action.choices.items():
                yield from _help_sections(sub_parser, f"{name} {command}")


class _AttributeLines:
    """Keeps napoleon from reading `Text: more text` of an attribute as a type and a description."""

    lines: list[str]

    def save(self, *arguments: Any) -> None:  # noqa: ANN401 -- as above
        self.lines = list(arguments[5])

    def restore(self, *arguments: Any) -> None:  # noqa: ANN401 -- as above
        if arguments[1] in ("attribute", "property"):
            arguments[5][:] = self.lines


def _check_public_names(_app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of each public name that no page documents; warnings fail `make docs`."""
    documented = env.domains["py"].objects
    for module in map(import_module, PUBLIC_MODULES):
        for name in module.__all__:
            # A class of two modules has one page.
            home = getattr(getattr(module, name), "__module__", module.__name__)
            if (
                not {f"{module.__name__}.{name}", f"{home}.{name}"} & documented.keys()
                and not name.startswith("__")
                and name not in ("kafka", "rocketmq")
            ):
                logging.getLogger(__name__).warning("no page documents %s.%s", module.__name__, name)


def setup(app: Sphinx) -> None:
    """Register the hooks of this page with Sphinx."""
    app.connect("autodoc-process-signature", _shorten_signature)
    attributes = _AttributeLines()
    app.connect("autodoc-process-docstring", attributes.save, priority=400)
    app.connect("autodoc-process-docstring", attributes.restore, priority=600)
    app.connect("env-check-consistency", _check_public_names)
    app.connect("source-read", _link_to_pages)
    app.connect("source-read", _add_commands)
    app.connect("source-read", _make_tabs)
