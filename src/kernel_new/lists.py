"""The files of a repository that list its ops, and how an op is added to each without touching the rest."""

import ast
import json
import re
from pathlib import PurePosixPath

import tomlkit
from tomlkit.items import Array

from kernel_new.errors import KernelNewError

MODULE = re.compile(r"^(?:#\[cfg\(.*\)\]\n)?(?:pub )?mod (\w+);$", re.MULTILINE)
GATE = '#[cfg(feature = "cuda")]\n'
EXPORT = re.compile(r"^tvm_ffi::tvm_ffi_dll_export_typed_func!\((\w+), .*\);$", re.MULTILINE)
METADATA = re.compile(r"^(?:#.*\n)*\[package\.metadata(?:.|\n)*?(?=\n\[|\Z)", re.MULTILINE)
FEATURES = re.compile(r"^#!\[feature\((.*)\)\]$", re.MULTILINE)
FUNCTION = re.compile(r"^(?:(?:///|#\[).*\n)*pub fn (\w+)\((?:.|\n)*?\n}$", re.MULTILINE)
IMPORT = re.compile(r"^ *from \.\w+ import .*$", re.MULTILINE)
ALL = re.compile(r"^( *)__all__ = (\[[^\]]*\])$", re.MULTILINE)
PYTHON_WIDTH = 88
"""Where ruff breaks a line of Python."""


def add_modules(text: str, donor: str) -> str:
    """`lib.rs` with each `mod` and export line of another one that it lacks, and the unstable features of both."""
    for line in MODULE.finditer(donor):
        found = list(MODULE.finditer(text))
        if line[1] in [module[1] for module in found]:
            continue
        # Shared modules are public and stand together; ops are not.
        found = [module for module in found if ("pub mod" in module[0]) == ("pub mod" in line[0])]
        later = next((module for module in found if module[1] > line[1]), None)
        text = _inserted(text, line[0], later, found)
    exports = [export[1] for export in EXPORT.finditer(text)]
    for line in EXPORT.finditer(donor):
        if line[1] in exports:
            raise KernelNewError(f"the library exports {line[1]} already", "Choose another name for the op.")
        text = _inserted(text, line[0], None, list(EXPORT.finditer(text)))
    ours, theirs = FEATURES.search(text), FEATURES.search(donor)
    if ours and theirs:
        features = sorted({*ours[1].split(", "), *theirs[1].split(", ")})
        text = text.replace(ours[0], f"#![feature({', '.join(features)})]")
    return text


def add_rust_functions(text: str, donor: str) -> str:
    """A module with each public function of another one that it lacks."""
    there = {function[1] for function in FUNCTION.finditer(text)}
    missing = [function[0] for function in FUNCTION.finditer(donor) if function[1] not in there]
    return "\n\n".join([text.rstrip(), *missing]) + "\n"


def dispatched(text: str, both: str) -> str:
    """`lib.rs` with the export lines of one for two backends, where it exports the same ops."""
    theirs = {line[1]: line[0] for line in EXPORT.finditer(both)}
    return EXPORT.sub(lambda line: theirs.get(line[1], line[0]), text)


def renewed(text: str, before: str, both: str) -> str:
    """A TOML file with those lines `key = value` of one for two backends that `before` has once with another value."""
    values = re.compile(r"^([\w-]+) = .*$", re.MULTILINE)
    old, new = (list(values.finditer(part)) for part in (before, both))
    for line in new:
        same = [other for other in old if other[1] == line[1]]
        if len(same) == len([other for other in new if other[1] == line[1]]) == 1:
            text = text.replace(f"\n{same[0][0]}\n", f"\n{line[0]}\n")
    return text


def gated(text: str, both: str) -> str:
    """`lib.rs` with what the author added under the feature `cuda`, where the modules of one for two backends are."""
    modules = {line[1]: line[0] for line in MODULE.finditer(both)}
    if not any(line.startswith(GATE) and "cuda;" not in line for line in modules.values()):
        return text
    ops = exports(both)
    text = MODULE.sub(lambda line: line[0] if "#[cfg" in line[0] or line[1] in modules else GATE + line[0], text)
    return EXPORT.sub(lambda line: line[0] if line[1] in ops else GATE + line[0], text)


def restricted(test: str, device: str) -> str:
    """A test module that says for which device its op is; its fixtures then use no other."""
    imports = [node.end_lineno or 0 for node in ast.parse(test).body if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = test.splitlines(keepends=True)
    place = max(imports, default=0)
    return "".join([*lines[:place], f'\n# Where this op is.\nDEVICES = ["{device}"]\n', *lines[place:]])


def exports(text: str) -> list[str]:
    """What a library with this `lib.rs` exports."""
    return [export[1] for export in EXPORT.finditer(text)]


def functions(text: str) -> list[str]:
    """What a Python package with this `__init__.py` holds.

    Raises:
        KernelNewError: It has no `__all__` of strings.
    """
    found = ALL.search(text)
    try:
        return [str(name) for name in json.loads(re.sub(r",\s*\]", "]", found[2]))] if found else []
    except ValueError as error:
        raise KernelNewError(f"__all__ in __init__.py is no list of strings: {error}") from error


def add_functions(text: str, donor: str) -> str:
    """`__init__.py` with the imports and names of another one: that of the package, or that of its layers."""
    for line in IMPORT.finditer(donor):
        if line[0] not in text:
            found = list(IMPORT.finditer(text))
            later = next((ours for ours in found if ours[0] > line[0]), None)
            text = _inserted(text, line[0], later, found)
    names = sorted({*functions(text), *functions(donor)})
    place = ALL.search(text)
    indent = place[1] if place else ""
    listed = f"{indent}__all__ = {json.dumps(names)}"
    if len(listed) > PYTHON_WIDTH:
        listed = f"{indent}__all__ = [\n" + "".join(f'{indent}    "{name}",\n' for name in names) + f"{indent}]"
    return ALL.sub(lambda _: listed, text)


def add_metadata(text: str, donor: str) -> str:
    """A Cargo.toml with the `[package.metadata]` of another one, where it has none: flags for the compiler."""
    found = METADATA.search(donor)
    return f"{text.rstrip()}\n\n{found[0].rstrip()}\n" if found and not METADATA.search(text) else text


def add_sources(text: str, sources: list[str], backend: str) -> str:
    """build.toml with more sources in the table of a backend, each behind the last of its directory.

    Raises:
        KernelNewError: There is no such table.
    """
    document = tomlkit.parse(text)
    tables = [table for table in document["kernel"].values() if table.get("backend") == backend]
    if not tables:
        raise KernelNewError(f"build.toml has no [kernel.*] table with backend = {backend!r}")
    listed = tables[0]["src"]
    assert isinstance(listed, Array)  # noqa: S101
    for source in sources:
        if source in listed.unwrap():
            continue
        directory = PurePosixPath(source).parent
        places = [i for i, other in enumerate(listed.unwrap()) if PurePosixPath(other).parent == directory]
        listed.insert(places[-1] + 1 if places else len(listed), source)
    return tomlkit.dumps(document)


def _inserted(text: str, line: str, before: re.Match[str] | None, found: list[re.Match[str]]) -> str:
    """`text` with a line before a match, or behind the last of those found, or at the end."""
    if before:
        return f"{text[: before.start()]}{line}\n{text[before.start() :]}"
    if found:
        return f"{text[: found[-1].end()]}\n{line}{text[found[-1].end() :]}"
    return f"{text.rstrip()}\n\n{line}\n"
