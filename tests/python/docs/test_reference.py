"""The reference describes each public name, and each class that a public signature names."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import logdex

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = Path(__file__).parents[3]
_OWN = Path(logdex.__file__).parent


def described() -> dict[str, Any]:
    """Return what the directives of the pages describe."""
    found: dict[str, Any] = {}
    for page in sorted((HOME / "docs" / "reference").glob("python-*.md")):
        text = page.read_text(encoding="utf-8")
        for name, options in re.findall(r"^\.\. automodule:: (\S+)\n((?:   :.*\n)*)", text, re.MULTILINE):
            module = import_module(name)
            chosen = dict(re.findall(r":([a-z-]+): (.*)", options))
            left_out = chosen.get("exclude-members", "").split(", ")
            names = chosen["members"].split(", ") if "members" in chosen else module.__all__
            found.update({f"{name}.{each}": getattr(module, each) for each in names if each not in left_out})
        for name in re.findall(r"^\.\. auto(?:class|exception|function):: (\S+)", text, re.MULTILINE):
            module_name, _, each = name.rpartition(".")
            found[name] = getattr(import_module(module_name), each)
    return found


def public_modules() -> Iterator[str]:
    """Return the modules that are no private ones."""
    yield "logdex"
    for module in pkgutil.walk_packages(logdex.__path__, "logdex."):
        if not any(part.startswith("_") for part in module.name.split(".")):
            yield module.name


def signatures(value: Any, stubs: dict[str, set[str]]) -> Iterator[str]:
    """Return the capitalised names in the annotations of a function, or of the public members of a class."""
    if isinstance(value, type) and value.__module__.startswith("logdex"):
        yield from stubs.get(value.__name__, ())
        for name, member in vars(value).items():
            if not name.startswith("_"):
                yield from signatures(getattr(member, "fget", getattr(member, "__func__", member)), stubs)
        annotated = [text for name, text in inspect.get_annotations(value).items() if not name.startswith("_")]
    elif inspect.isfunction(value):
        annotated = list(inspect.get_annotations(value).values())
    else:
        annotated = []
    yield from re.findall(r"\b[A-Z]\w+", " ".join(map(str, annotated)))


def stub_names() -> dict[str, set[str]]:
    """Return the capitalised names in the annotations of each class of the extension."""
    tree = ast.parse((_OWN / "_core.pyi").read_text(encoding="utf-8"))
    return {
        node.name: {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and part.id[0].isupper()}
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def test_each_public_name_is_described() -> None:
    objects = [*described().values()]
    names = [
        (f"{module}.{name}", value)
        for module in public_modules()
        for name in getattr(import_module(module), "__all__", ())
        if inspect.isclass(value := getattr(import_module(module), name)) or inspect.isroutine(value)
    ]
    assert len(names) > 70
    assert [name for name, value in names if not any(value is each for each in objects)] == []


def test_each_class_of_a_public_signature_is_described() -> None:
    objects = [*described().values()]
    stubs = stub_names()
    named = {name for value in objects for name in signatures(value, stubs)}
    classes = {
        value
        for module in ["logdex._core", *public_modules()]
        # Classes of these have the names of some in signatures of others.
        if not module.startswith(("logdex.spark.", "logdex.cli"))
        for name, value in vars(import_module(module)).items()
        if inspect.isclass(value) and name in named and value.__module__.startswith("logdex")
    }
    assert len(classes) > 40
    assert sorted(f"{each.__module__}.{each.__name__}" for each in classes if each not in objects) == []
