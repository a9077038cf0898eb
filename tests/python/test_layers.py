"""The rooms keep their floors: who imports whom, where unsafe code lives, and what runs without the extras."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = Path(__file__).resolve().parents[2]
PACKAGE = HOME / "python" / "logdex"
MODULES = sorted(PACKAGE.rglob("*.py"))

# Each room stands on the rooms named here, and on itself. What lies directly in the package is a room of one file.
GROUND = {"_core", "_files", "_types", "errors", "report"}
FLOORS = {
    **{room: set() for room in GROUND},
    "arrow": {"_core"},
    "hash_index": GROUND | {"arrow"},
    "rocketmq": GROUND | {"arrow", "hash_index"},
    "kafka": GROUND | {"arrow", "hash_index"},
    "spark": GROUND | {"arrow", "hash_index", "rocketmq", "kafka"},
    "cli": GROUND | {"arrow", "hash_index", "rocketmq", "kafka"},
}
REQUIRED = {"arro3"}
OPTIONAL = {"pyspark", "pyarrow", "py4j", "pandas", "polars", "numpy", "duckdb", "matplotlib"}
# Where a command says which package it needs.
OPTIONAL_IN = {"cli/export.py": {"pyarrow"}, "cli/stats.py": {"matplotlib"}}

# Written by hand, so not in any lock or build folder.
SOURCES = [
    file
    for pattern in ("*.rs", "*.py", "*.pyi", "*.toml", "*.sh", "*.java", "Makefile")
    for folder in ("src", "python", "tests", "benches", "examples", "scripts", ".")
    for file in sorted((HOME / folder).glob(pattern) if folder == "." else (HOME / folder).rglob(pattern))
    if not {"target", "__pycache__", "golden"} & set(file.relative_to(HOME).parts)
]


class _WithoutTypes(ast.NodeTransformer):
    """Takes out what only a type checker sees."""

    def visit_If(self, node: ast.If) -> ast.If | None:
        return None if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" else node


def _imports(module: Path, *, when_it_runs: bool = False) -> Iterator[tuple[str, int]]:
    """Give every imported name in full, and its line; `from a import b` gives a.b."""
    package = ("logdex", *module.relative_to(PACKAGE).parts[:-1])
    tree = ast.parse(module.read_text(encoding="utf-8"), str(module))
    if when_it_runs:
        tree = _WithoutTypes().visit(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join((*above, *([node.module] if node.module else [])))
            yield from ((f"{source}.{alias.name}", node.lineno) for alias in node.names)


def _room(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_modules_are_found() -> None:
    assert {"errors", "report", "hash_index", "rocketmq", "spark", "__init__"} <= {_room(module) for module in MODULES}
    assert len(SOURCES) > len(MODULES)


# The face of the package stands on everything.
@pytest.mark.parametrize(
    "module",
    [module for module in MODULES if _room(module) not in {"__init__", "__main__"}],
    ids=lambda module: module.relative_to(PACKAGE).as_posix(),
)
def test_modules_import_only_lower_floors(module: Path) -> None:
    room = _room(module)
    allowed = FLOORS[room] | {room}
    for name, line in _imports(module):
        if name.split(".")[0] == "logdex":
            target = name.split(".")[1]
            # `from logdex import open` takes a name of the face, not a room.
            assert target in allowed or (target not in FLOORS and room in {"spark", "cli"}), (
                f"{module}:{line} imports {name}"
            )


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.relative_to(PACKAGE).as_posix())
def test_only_spark_imports_what_is_optional(module: Path) -> None:
    found = {name.split(".")[0] for name, _ in _imports(module)} & OPTIONAL
    allowed = OPTIONAL_IN.get(module.relative_to(PACKAGE).as_posix(), set())
    assert not found - allowed or _room(module) == "spark", f"{module} imports {sorted(found)}"


def test_what_is_imported_comes_with_the_package() -> None:
    known = sys.stdlib_module_names | OPTIONAL | REQUIRED | {"logdex"}
    found = {
        name.split(".")[0]: f"{module}:{line}"
        for module in MODULES
        for name, line in _imports(module, when_it_runs=True)
    }
    assert found.keys() >= REQUIRED
    assert not {name: where for name, where in found.items() if name not in known}


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.relative_to(HOME).as_posix())
def test_sources_are_ascii(file: Path) -> None:
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        assert line.isascii(), f"{file}:{number}"


def test_unsafe_code_lives_in_two_files() -> None:
    code = re.compile(
        r"^(?!\s*//).*\bunsafe\s*(\{|fn|impl|extern)|allow\(.*unsafe_code|expect\(.*unsafe_code", re.MULTILINE
    )
    found = {
        file.relative_to(HOME / "src").as_posix()
        for file in (HOME / "src").rglob("*.rs")
        if code.search(file.read_text())
    }
    assert found == {"io/mmap.rs", "hash_index/key_hash/kernels.rs"}


def test_rust_floors() -> None:
    """Nothing but the binding knows Python, and the two brokers' formats do not know each other."""
    found = 0
    for file in sorted((HOME / "src").rglob("*.rs")):
        room = file.relative_to(HOME / "src").parts[0]
        text = file.read_text(encoding="utf-8")
        found += 1
        if room not in {"python", "lib.rs"}:
            assert not re.search(r"\bpyo3(_arrow)?::|crate::python", text), file
        if room == "rocketmq":
            assert "crate::kafka" not in text, file
        if room in {"hash_index", "kafka"}:
            assert "crate::rocketmq" not in text, file
        if room in {"io", "time_range.rs", "error.rs", "java_text.rs"}:
            assert not re.search(r"crate::(hash_index|rocketmq|kafka)\b", text), file
    assert found


def test_package_runs_without_what_is_optional() -> None:
    program = f"""
        import sys

        class Blocked:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in {sorted(OPTIONAL)!r}:
                    raise ModuleNotFoundError(name, name=name)
                return None

        sys.meta_path.insert(0, Blocked())
        import logdex
        import logdex.rocketmq
        assert logdex.rocketmq.key_hash("polygenelubricants") == 0
        assert logdex.__version__
        print("ran", logdex.__version__)
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    cargo = tomllib.loads((HOME / "Cargo.toml").read_text(encoding="utf-8"))
    assert done.stdout == f"ran {cargo['package']['version']}\n"


def test_development_group_holds_what_users_install() -> None:
    project = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))
    needed = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["spark"]]
    assert set(project["dependency-groups"]["run"]) == {line for line in needed if not line.startswith("tzdata")}


def test_lock_names_no_place() -> None:
    lines = (HOME / "requirements-dev.lock").read_text(encoding="utf-8").splitlines()
    pinned = [line for line in lines if line and not line.lstrip().startswith("#")]
    assert pinned
    for line in pinned:
        assert re.fullmatch(r"[a-z0-9.-]+==[0-9a-z.]+( ; .+)?", line), line
    assert not any("://" in line for line in lines)
