"""Puts the template's history into the wheel and the sdist."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent / "src"))
from kernel_new import history


class HistoryHook(BuildHookInterface):  # type: ignore[type-arg]
    """Makes the bundle from a full clone; an sdist carries it already."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable" or (root / "src/kernel_new" / history.BUNDLE).is_file():
            return
        if not history.is_whole(root):
            self.app.display_warning("not a full clone: without the template's history, updates need a network")
            return
        bundle = Path(self.directory) / history.BUNDLE
        bundle.parent.mkdir(parents=True, exist_ok=True)
        history.write_bundle(root, bundle)
        package = "src/kernel_new" if self.target_name == "sdist" else "kernel_new"
        build_data["force_include"][str(bundle)] = f"{package}/{history.BUNDLE}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        (Path(self.directory) / history.BUNDLE).unlink(missing_ok=True)
