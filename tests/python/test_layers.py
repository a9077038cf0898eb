"""The layers of the package: which module imports which, and what runs without the optional packages."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from graphlib import CycleError, TopologicalSorter
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

# Each layer may import itself and the layers named here. A module directly in the package is a layer of one file.
BASE = {"_core", "_files", "_filesystem", "_types", "errors", "report", "source", "statistics"}
LAYERS = {
    "errors": set(),
    "report": {"_core", "errors"},
    "_types": set(),
    "source": {"_core", "_files", "_types", "report"},
    "_files": {"_core"},
    "statistics": {"_core"},
    "_filesystem": {"_core"},
    "_schema_registry": set(),
    "arrow": {"_core", "_types"},
    "pushdown": BASE | {"hash_index"},
    "polars": {"pushdown", "source"},
    "duckdb": {"_core", "errors", "hash_index", "pushdown", "source"},
    "hash_index": BASE | {"arrow"},
    "rocketmq": BASE | {"arrow", "hash_index"},
    "kafka": BASE | {"arrow", "hash_index"},
    "spark": BASE | {"arrow", "hash_index", "rocketmq", "kafka"},
    "broker": BASE | {"hash_index", "rocketmq"},
    "browse": BASE | {"arrow", "hash_index", "rocketmq", "kafka"},
    "cli": BASE | {"arrow", "duckdb", "hash_index", "rocketmq", "kafka", "browse", "pushdown"},
}
# The names of the brokers in the library: types for the type checker, imported on first use.
LAZY = {"rocketmq/__init__.py": {"broker"}}
# These two import everything.
ENTRY_POINTS = {"__init__", "__main__"}
REQUIRED = {"arro3"}
WEB = {"starlette", "uvicorn", "jinja2", "markupsafe"}
OPTIONAL = {
    "pyspark",
    "pyarrow",
    "py4j",
    "pandas",
    "polars",
    "numpy",
    "duckdb",
    "matplotlib",
    "shtab",
    "argparse_manpage",
    *WEB,
}
# Commands that name the package they need.
OPTIONAL_IN = {
    "_filesystem.py": {"pyarrow"},
    "arrow.py": {"pandas", "polars", "pyarrow"},
    "polars.py": {"polars"},
    "duckdb.py": {"duckdb", "pyarrow"},
    # For types.
    "kafka/find.py": {"pandas", "polars"},
    "rocketmq/find.py": {"pandas", "polars"},
    "cli/__init__.py": {"shtab", "argparse_manpage"},
    "cli/commands/export.py": {"pyarrow"},
    "cli/commands/stats.py": {"matplotlib"},
}

SOURCES = [
    file
    for pattern in ("*.rs", "*.py", "*.pyi", "*.toml", "*.sh", "*.java", "Makefile")
    for folder in ("src", "python", "tests", "benches", "examples", "scripts", ".")
    for file in sorted((HOME / folder).glob(pattern) if folder == "." else (HOME / folder).rglob(pattern))
    if not {"target", "__pycache__", "golden"} & set(file.relative_to(HOME).parts)
]


class _WithoutTypes(ast.NodeTransformer):
    """Removes the imports that only a type checker runs."""

    def visit_If(self, node: ast.If) -> ast.If | None:
        return None if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" else node


def _imports(module: Path, *, when_it_runs: bool = False) -> Iterator[tuple[str, int]]:
    """Iterate over imported names and their lines; `from a import b` is a.b. Imports in functions count."""
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


def _layer(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _name(module: Path) -> str:
    parts = ("logdex", *module.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# Modules whose tests are in the files of others, below tests/python.
TESTED_ELSEWHERE = {
    "_files": "test_closed_handles.py",
    "_filesystem": "storage/test_file_systems.py",
    "broker/replica/master": "broker/replica/test_replication.py",
    "broker/rocketmq/handlers/administration": "broker/rocketmq/test_tables.py",
    "broker/rocketmq/handlers/consumers": "broker/rocketmq/test_tables.py",
    "broker/rocketmq/handlers/name_server": "broker/rocketmq/test_broker.py",
    "broker/rocketmq/handlers/transactions": "broker/rocketmq/handlers/test_sends.py",
    "browse/body": "browse/test_safety.py",
    "browse/index_pages": "browse/test_flows.py",
    "browse/jobs": "browse/test_shared_work.py",
    "browse/kafka_pages": "browse/test_flows.py",
    "browse/message_pages": "browse/test_flows.py",
    "browse/pictures": "browse/test_shared_work.py",
    "browse/server": "browse/test_safety.py",
    "browse/store_pages": "browse/test_flows.py",
    "cli/sources/kafka": "cli/test_sources.py",
    "cli/sources/opened": "cli/test_sources.py",
    "cli/sources/rocketmq": "cli/test_sources.py",
    "cli/commands/browse": "browse/test_safety.py",
    "cli/commands/build_index": "cli/test_commands.py",
    "cli/commands/build_queues": "cli/test_commands.py",
    "cli/commands/copy": "cli/test_store_commands.py",
    "cli/commands/explain": "cli/test_commands.py",
    "cli/commands/info": "cli/test_commands.py",
    "cli/commands/recover": "cli/test_store_commands.py",
    "cli/commands/replicate": "broker/replica/test_replication.py",
    "cli/commands/seal": "rocketmq/test_sealed.py",
    "cli/commands/serve": "broker/rocketmq/test_server.py",
    "cli/commands/stats": "cli/test_commands.py",
    "errors": "test_values.py",
    "hash_index/query": "test_types.py",
    "hash_index/sealed": "rocketmq/test_sealed.py",
    "kafka/groups": "cli/commands/test_groups.py",
    "kafka/log_dir": "kafka/test_find.py",
    "kafka/overview": "cli/test_sources.py",
    "pushdown": "test_polars.py",
    "rocketmq/broker_config": "broker/rocketmq/test_tables.py",
    "rocketmq/fastjson": "broker/rocketmq/test_tables.py",
    "rocketmq/layout": "rocketmq/test_store.py",
    "rocketmq/message": "rocketmq/test_commit_log.py",
    "rocketmq/overview": "cli/test_commands.py",
    "rocketmq/rebuild": "cli/test_commands.py",
    "spark/kafka_index": "spark/test_remote.py",
    "spark/messages/filter": "spark/messages/test_plan_pushdown.py",
    "spark/schema": "spark/messages/test_source.py",
    "statistics": "rocketmq/write/test_store_writer.py",
}


def test_modules_are_found() -> None:
    assert set(LAYERS) | ENTRY_POINTS == {_layer(module) for module in MODULES}
    assert len(SOURCES) > len(MODULES)


@pytest.mark.parametrize(
    "module",
    [module for module in MODULES if _layer(module) not in ENTRY_POINTS],
    ids=lambda module: module.relative_to(PACKAGE).as_posix(),
)
def test_modules_import_only_lower_layers(module: Path) -> None:
    layer = _layer(module)
    allowed = LAYERS[layer] | {layer}
    lazy = LAZY.get(module.relative_to(PACKAGE).as_posix(), set())
    assert not lazy & {name.split(".")[1] for name, _ in _imports(module, when_it_runs=True) if "." in name}
    for name, line in _imports(module):
        if name.split(".")[0] == "logdex":
            target = name.split(".")[1]
            # `from logdex import open` takes a public name, not a layer.
            assert target in allowed | lazy or (
                target not in LAYERS and layer in {"spark", "cli", "browse", "pushdown"}
            ), f"{module}:{line} imports {name}"


def test_each_module_has_tests_under_its_name() -> None:
    tests = HOME / "tests" / "python"
    without = set()
    for module in MODULES:
        place = module.relative_to(PACKAGE).with_suffix("")
        name = place.name.removeprefix("_")
        if place.name in ("__init__", "__main__"):
            continue
        files = {file.stem for file in (tests / place.parent).glob(f"test_{name}*.py")}
        # A module may have several files: test_name.py, test_name_aspect.py.
        if not any(stem == f"test_{name}" or stem.startswith(f"test_{name}_") for stem in files):
            without.add(place.as_posix())
    assert without == TESTED_ELSEWHERE.keys()
    assert all((tests / file).is_file() for file in TESTED_ELSEWHERE.values())


def _packages(name: str) -> list[str]:
    """Return the packages whose `__init__` runs before a module, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _graph() -> dict[str, set[str]]:
    """Return the modules that each module imports, also by imports in functions.

    The `__init__` of a package runs before its modules. It counts as imported unless the importing module is in the package.
    """
    names = {_name(module): module for module in MODULES}
    graph: dict[str, set[str]] = {}
    for name, module in names.items():
        targets: set[str] = set()
        for imported, _ in _imports(module, when_it_runs=True):
            # a.b is the module a.b, or the name b of the module a.
            found = imported if imported in names else imported.rpartition(".")[0]
            if found in names and not imported.startswith("logdex._core"):
                targets |= {found} | ({*_packages(found)} - {*_packages(name)})
        graph[name] = targets - {name}
    return graph


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = _graph()
    assert sum(map(len, graph.values())) > len(graph)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.relative_to(PACKAGE).as_posix())
def test_only_spark_imports_optional_packages(module: Path) -> None:
    found = {name.split(".")[0] for name, _ in _imports(module)} & OPTIONAL
    allowed = OPTIONAL_IN.get(module.relative_to(PACKAGE).as_posix(), set())
    allowed = allowed | (WEB if _layer(module) == "browse" else set())
    assert not found - allowed or _layer(module) == "spark", f"{module} imports {sorted(found)}"


def _loaded(program: str) -> set[str]:
    """Return the modules that a new interpreter has loaded after a program."""
    program = f"import sys; {program}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_the_library_loads_no_broker() -> None:
    loaded = _loaded("import logdex.rocketmq, logdex.kafka; dir(logdex.rocketmq)")
    assert "logdex.rocketmq.store" in loaded
    assert not {name for name in loaded if name.startswith("logdex.broker")} | {"asyncio", "ssl"} & loaded


def test_a_replica_needs_no_server() -> None:
    """A program that copies a store does not import the server."""
    loaded = _loaded("from logdex.rocketmq import replicate")
    assert "logdex.broker.replica.replication" in loaded
    assert not {"asyncio", "logdex.broker.listener", "logdex.broker.replica.log_server"} & loaded
    assert not {name for name in loaded if name.startswith("logdex.broker.rocketmq")}


def test_no_module_of_the_brokers_imports_itself_in_a_circle() -> None:
    """Imports for types count here, and folders are taken as one."""
    brokers = [module for module in MODULES if _layer(module) == "broker"]
    names = {_name(module): module for module in brokers}
    modules: dict[str, set[str]] = {name: set() for name in names}
    folders: dict[str, set[str]] = {}
    for name, module in names.items():
        folder = name if module.name == "__init__.py" else name.rpartition(".")[0]
        for imported, _ in _imports(module):
            found = imported if imported in names else imported.rpartition(".")[0]
            if found in names and found != name:
                modules[name] |= {found}
                target = found if names[found].name == "__init__.py" else found.rpartition(".")[0]
                folders.setdefault(folder, set()).update({target} - {folder})
    assert sum(map(len, modules.values())) > len(modules)
    assert len(folders) > 2
    TopologicalSorter(modules).prepare()
    # A package and the package in it are one: handlers use the broker, and the service uses the handlers.
    inside = {folder: {each for each in targets if not each.startswith(folder)} for folder, targets in folders.items()}
    inside = {folder: {each for each in targets if not folder.startswith(each)} for folder, targets in inside.items()}
    TopologicalSorter(inside).prepare()


def test_imported_packages_are_declared() -> None:
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


def test_five_files_may_hold_unsafe_code() -> None:
    """The compiler denies it everywhere else (`unsafe_code` in Cargo.toml)."""
    cargo = tomllib.loads((HOME / "Cargo.toml").read_text(encoding="utf-8"))
    assert cargo["lints"]["rust"]["unsafe_code"] == "deny"
    lifted = re.compile(r"^\s*#!?\[(allow|expect|warn)\([^\]]*unsafe_code", re.MULTILINE)
    found = {file.name for file in (HOME / "src").rglob("*.rs") if lifted.search(file.read_text(encoding="utf-8"))}
    assert found == {"mmap.rs", "kernels.rs", "fork.rs", "signals.rs", "deflate.rs"}


def test_package_runs_without_optional_packages() -> None:
    program = f"""
        import sys

        class Blocked:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in {sorted(OPTIONAL)!r}:
                    raise ModuleNotFoundError(name, name=name)
                return None

        sys.meta_path.insert(0, Blocked())
        import logdex
        import logdex.cli
        import logdex.kafka
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


def test_development_group_includes_the_dependencies_of_users() -> None:
    project = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    needed = [*project["project"]["dependencies"], *(line for extra in extras.values() for line in extra)]
    assert set(project["dependency-groups"]["run"]) == {line for line in needed if not line.startswith("tzdata")}


def test_lock_file_pins_versions_without_addresses() -> None:
    lines = (HOME / "requirements-dev.lock").read_text(encoding="utf-8").splitlines()
    pinned = [line for line in lines if line and not line.lstrip().startswith("#")]
    assert pinned
    for line in pinned:
        assert re.fullmatch(r"[a-z0-9.-]+==[0-9a-z.]+( ; .+)?", line), line
    assert not any("://" in line for line in lines)
