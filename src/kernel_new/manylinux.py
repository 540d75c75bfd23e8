"""Whether a library runs wherever manylinux_2_28 does, by the symbols that the dynamic linker looks for.

kernel-abi-check reads the versions of symbols from `.symtab`. Libraries that lld linked have none there, and stripped
ones have no such section: it passes them, whatever they need.
"""

from collections.abc import Iterator
from pathlib import Path

from elftools.elf.elffile import ELFFile
from packaging.version import InvalidVersion, Version

NAME = "manylinux_2_28"
NEWEST = {"GLIBC": "2.28", "GLIBCXX": "3.4.24", "CXXABI": "1.3.11", "GCC": "7.0.0"}
"""The newest versions of symbols that it has, by the Hub's requirements for kernels."""

LIBRARIES = ("libc.", "libm.", "libdl.", "libpthread.", "librt.", "libgcc_s.", "libstdc++.", "ld-linux", "libtvm_ffi.")
"""How the names of libraries begin that are there wherever a kernel is loaded."""


def problems(library: Path) -> Iterator[str]:
    """What an ELF library needs that such a machine, or the process that loads it, need not have."""
    with library.open("rb") as file:
        elf = ELFFile(file)
        versions = _needed_versions(elf)
        numbers, table = elf.get_section_by_name(".gnu.version"), elf.get_section_by_name(".dynsym")
        needed = [tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")]
        symbols = [symbol.name for symbol in table.iter_symbols() if symbol["st_shndx"] == "SHN_UNDEF"]
        of_symbols = {
            table.get_symbol(index).name: versions.get(numbers.get_symbol(index)["ndx"], "")
            for index in range(numbers.num_symbols() if numbers else 0)
        }
    too_new: dict[str, list[str]] = {}
    for name, version in of_symbols.items():
        if version and not _is_there(version):
            too_new.setdefault(version, []).append(name)
    for version, names in sorted(too_new.items()):
        yield f"needs {version}, which {NAME} has not, for {', '.join(sorted(names)[:3])}"
    for name in sorted(set(needed)):
        if not name.startswith(LIBRARIES):
            yield f"needs {name}, which need not be where it is loaded"
    for name in sorted(name for name in symbols if name.startswith(("Py", "_Py"))):
        yield f"needs {name} of Python, whose version it is then bound to"


def _needed_versions(elf: ELFFile) -> dict[int, str]:
    """The versions that the library's symbols are bound to, by the number that stands for each."""
    section = elf.get_section_by_name(".gnu.version_r")
    if section is None:
        return {}
    return {aux["vna_other"]: aux.name for _, auxiliaries in section.iter_versions() for aux in auxiliaries}


def _is_there(version: str) -> bool:
    """Whether manylinux_2_28 has a version such as GLIBC_2.17. Of libraries that it does not know, anything goes."""
    of, _, number = version.partition("_")
    if of not in NEWEST:
        return True
    try:
        return Version(number) <= Version(NEWEST[of])
    except InvalidVersion:
        return False  # GLIBC_PRIVATE
