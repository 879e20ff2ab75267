"""What the tests about the repository itself look at: its files, functions and types."""

import ast
import dataclasses
import importlib
import pkgutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "inferometer"


def tracked_files() -> list[Path]:
    """Files git knows, or would with the next `git add`: ignored ones are left out."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file()]


def sources(*roots: Path) -> list[Path]:
    """Python files below `roots`, in a fixed order."""
    return sorted(path for root in roots for path in root.rglob("*.py"))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield (name, lines from `def` to the last one, docstring included) of every function in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def value_types(namespace: object) -> list[type]:
    """Structs and dataclasses defined in (not imported into) a module."""
    classes = [value for value in vars(namespace).values() if isinstance(value, type)]
    own = [cls for cls in classes if cls.__module__ == getattr(namespace, "__name__", None)]
    return [cls for cls in own if issubclass(cls, msgspec.Struct) or dataclasses.is_dataclass(cls)]


@cache
def package_types() -> tuple[type, ...]:
    """Every struct and dataclass of the package."""
    package = importlib.import_module("inferometer")
    names = ["inferometer", *(m.name for m in pkgutil.walk_packages(package.__path__, "inferometer."))]
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    return tuple(cls for module in modules for cls in value_types(module))
