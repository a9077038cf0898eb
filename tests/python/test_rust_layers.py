"""The modules under src use only those of lower layers, and none uses itself by way of others.

A module is a file. It uses another module when it names one of its items by a path that begins with `crate::`, `super::` or
`self::`, in a `use` or anywhere else. An item that a package re-exports counts as used where it is defined: importing
`super::Thing` uses the sibling that defines `Thing`. The re-export itself is a use of that sibling by the package. `mod` lines
are no uses, and tests are left out.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"

_BASE = {"batch_size", "error", "java_text", "matcher", "report", "time_range", "time_text"}
_CORE = _BASE | {"arrow", "decompress", "io"}
# A package at the top of src, and what it may use besides itself.
LAYERS = {
    "batch_size": set[str](),
    "error": set[str](),
    "java_text": set[str](),
    "matcher": {"error"},
    "time_range": set[str](),
    "time_text": set[str](),
    "report": {"error"},
    "io": _BASE,
    "arrow": _BASE | {"io"},
    "decompress": _BASE | {"io"},
    "decode": _BASE | {"arrow"},
    "hash_index": _CORE,
    "kafka": _CORE | {"hash_index"},
    "rocketmq": _CORE | {"hash_index"},
    "python": _CORE | {"decode", "hash_index", "kafka", "rocketmq"},
}
# The modules of a package that may use only those before them in the list.
PACKAGE_LAYERS = {
    "hash_index": ["format", "key_hash", "write", "read", "repair", "file", "directory", "sealed"],
    "kafka": [
        "compat",
        "format",
        "index",
        "read",
        "log",
        "tiered",
        "verify",
        "recover",
        "dump",
        "write",
        "seal",
        "key_index",
        "find",
    ],
}

Module = tuple[str, ...]


@cache
def _code(file: Path) -> str:
    """Return the code of a file without comments and without what only tests compile."""
    text = re.sub(r"//[^\n]*", "", file.read_text(encoding="utf-8"))
    text = re.sub(r"#\[cfg\(test\)\](?:\s*#\[[^\]]*\])*\s*(?:pub\S* )?(?:mod|use|fn|impl)\b[^;{]*;", "", text)
    while found := re.search(
        r"#\[cfg\(test\)\](?:\s*#\[[^\]]*\])*\s*(?:pub\S* )?(?:const )?(?:mod|fn|impl)\b[^;{]*\{", text
    ):
        at, depth = found.end(), 1
        while depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        text = text[: found.start()] + text[at:]
    return text


@cache
def _modules() -> dict[Module, Path]:
    """Return the file of each module that is not for tests alone; the crate itself is ()."""
    found: dict[Module, Path] = {(): SRC / "lib.rs"}
    queue: list[Module] = [()]
    while queue:
        module = queue.pop()
        folder = SRC.joinpath(*module)
        for name in re.findall(r"^(?:pub(?:\([^)]*\))? )?mod (\w+);", _code(found[module]), re.MULTILINE):
            child = (*module, name)
            file = folder / f"{name}.rs"
            found[child] = file if file.is_file() else folder / name / "mod.rs"
            queue.append(child)
    return found


def _leaves(tree: str, path: str = "") -> list[tuple[str, str]]:
    """Return the (path, name it gets) of each leaf of a `use` tree."""
    depth, start, parts = 0, 0, []
    for at, letter in enumerate(tree):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append(tree[start:at])
            start = at + 1
    leaves = []
    for part in (part.strip() for part in [*parts, tree[start:]]):
        if part.endswith("}"):
            head, _, rest = part.partition("{")
            leaves += _leaves(rest[:-1], path + head.strip())
        elif part:
            whole, _, name = part.partition(" as ")
            whole = path + whole.strip()
            leaves.append((whole.removesuffix("::self"), name.strip() or whole.removesuffix("::self").split("::")[-1]))
    return leaves


def _absolute(module: Module, path: str) -> list[str] | None:
    """Return the segments of a path from the crate on, or None for one of another crate."""
    first, *rest = path.split("::")
    if first == "crate":
        return rest
    if first == "self":
        return [*module, *rest]
    if first == "super":
        above = module[:-1]
        while rest and rest[0] == "super":
            above, rest = above[:-1], rest[1:]
        return [*above, *rest]
    return [*module, first, *rest] if (*module, first) in _modules() else None


@cache
def _exports(module: Module) -> dict[str, list[str]]:
    """Return the names that a module re-exports, and what they stand for."""
    found = {}
    for tree in re.findall(r"\bpub(?:\([^)]*\))? use ([^;]+);", _code(_modules()[module])):
        for path, name in _leaves(tree):
            if (target := _absolute(module, path)) is not None:
                found[name] = target
    return found


def _defined_in(segments: list[str]) -> Module:
    """Return the module that defines what a path from the crate on names."""
    for _ in range(20):
        module: Module = ()
        rest = list(segments)
        while rest and (*module, rest[0]) in _modules():
            module, rest = (*module, rest[0]), rest[1:]
        if not rest or rest[0] not in _exports(module) or _exports(module)[rest[0]] == segments:
            return module
        segments = [*_exports(module)[rest[0]], *rest[1:]]
    raise AssertionError(segments)


@cache
def _uses() -> dict[Module, set[Module]]:
    graph = {}
    for module, file in _modules().items():
        code = _code(file)
        paths = [path for tree in re.findall(r"\buse ([^;]+);", code) for path, _ in _leaves(tree)]
        paths += re.findall(r"(?<![\w:])(?:crate|super|self)(?:::\w+)+", re.sub(r"\buse [^;]+;", "", code))
        targets = (_absolute(module, path) for path in paths)
        graph[module] = {_defined_in(target) for target in targets if target is not None} - {module}
    return graph


def _cycles() -> list[list[str]]:
    """Return the groups of modules that reach each other (strongly connected, after Tarjan)."""
    graph = _uses()
    numbers: dict[Module, int] = {}
    lowest: dict[Module, int] = {}
    stack: list[Module] = []
    groups: list[list[str]] = []

    def visit(module: Module) -> None:
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for target in graph[module]:
            if target not in numbers:
                visit(target)
            if target in stack:
                lowest[module] = min(lowest[module], lowest[target])
        if lowest[module] == numbers[module]:
            at = stack.index(module)
            group = ["::".join(member) for member in stack[at:]]
            del stack[at:]
            if len(group) > 1:
                groups.append(sorted(group))

    for module in graph:
        if module not in numbers:
            visit(module)
    return groups


def test_modules_and_uses_are_found() -> None:
    assert len(_modules()) == len({*_modules().values()}) > 100
    assert all(file.is_file() for file in _modules().values())
    assert {module[0] for module in _modules() if module} == LAYERS.keys()
    # By a path, through the re-export of a package, and by a `super::` path.
    assert ("hash_index", "file", "index_file") in _uses()["python", "index_file"]
    assert ("io", "source") in _uses()["hash_index", "read", "select"]
    assert ("hash_index", "write", "put") in _uses()["hash_index", "write", "bulk"]


def test_there_is_no_cycle() -> None:
    assert _cycles() == []


@pytest.mark.parametrize("package", LAYERS)
def test_a_package_uses_only_lower_layers(package: str) -> None:
    allowed = LAYERS[package] | {package}
    for module, targets in _uses().items():
        if module[:1] == (package,):
            assert {target[0] for target in targets if target} <= allowed, "::".join(module)


@pytest.mark.parametrize("package", PACKAGE_LAYERS)
def test_the_modules_of_a_package_use_only_lower_ones(package: str) -> None:
    layers = PACKAGE_LAYERS[package]
    for module, targets in _uses().items():
        if module[:1] == (package,) and len(module) > 1:
            level = layers.index(module[1])
            used = {layers.index(target[1]) for target in targets if target[0] == package and len(target) > 1}
            assert max(used, default=0) <= level, "::".join(module)


def test_only_the_binding_knows_python() -> None:
    for module, file in _modules().items():
        if module[:1] != ("python",):
            assert not re.search(r"\bpyo3(_arrow)?::", _code(file)), file
