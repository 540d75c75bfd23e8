"""Run as a program, in a process of its own: loads a build variant through `kernels` and says what it found.

`python -m kernel_new.loading DIRECTORY` prints one JSON document: the module's functions, the symbols that its
library exports and the libraries that it needs.
"""

import json
import sys
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile


def symbols(library: Path) -> tuple[list[str], list[str]] | None:
    """The symbols that a library exports and the libraries that it needs; None if it is not an ELF file."""
    with library.open("rb") as file:
        try:
            elf = ELFFile(file)
        except ELFError:
            return None
        table, dynamic = elf.get_section_by_name(".dynsym"), elf.get_section_by_name(".dynamic")
        exported = [
            symbol.name
            for symbol in table.iter_symbols()
            if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] in ("STB_GLOBAL", "STB_WEAK")
        ]
        needed = [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")]
    return sorted(exported), needed


def main(directory: Path) -> None:
    """Load the variant in `directory` and print the report."""
    import kernels

    module = kernels.get_local_kernel(directory)
    library = next(file for file in directory.iterdir() if file.suffix in (".so", ".dylib"))
    found = symbols(library)
    report = {
        "functions": sorted(getattr(module, "__all__", [])),
        "exports": found[0] if found else None,
        "needed": found[1] if found else None,
    }
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
