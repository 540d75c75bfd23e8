"""Compiled dependencies, shared between repositories: the second one does not compile them again.

A cargo package with the same lock and no code of its own is built once in the user's cache. Its target directory
is copied into each new repository, where cargo finds every dependency fresh. Whatever does not match (another
compiler, other flags) cargo itself sees and builds again, so a copy can cost time but never be wrong.
"""

import hashlib
import shutil
from contextlib import suppress
from pathlib import Path

import tomlkit
from filelock import FileLock
from platformdirs import user_cache_path

from kernel_new import cargo, process

PACKAGE = "kernel-new-dependencies"
KEPT = 3
"""How many sets of dependencies the cache holds: the least recently used are removed."""


def target(path: Path, progress: cargo.Progress | None = None) -> bool:
    """Give the new repository at `path` a target directory with its dependencies compiled; say if it did.

    A repository that already has one, or whose target directory is elsewhere, is left as it is. So is everything
    where anything is wrong: the repository's own build will then report it.
    """
    destination = path / "target"
    with suppress(Exception):
        if destination.exists() or cargo.target_directory(path) != destination.resolve():
            return False
        cache = user_cache_path("kernel-new") / "dependencies"
        if not cache.is_absolute():
            return False  # There is no home: `~` is then left as it is.
        files = _package(path)
        shared = cache / _key(path, files)
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{shared}.lock"):
            _write(files, shared)
            cargo.build(shared, progress)
            own = shutil.ignore_patterns(f"*{PACKAGE}*", f"*{PACKAGE.replace('-', '_')}*")
            try:
                # Modification times come along: cargo compares them.
                shutil.copytree(shared / "target", destination, ignore=own, symlinks=True)
            except BaseException:
                shutil.rmtree(destination, ignore_errors=True)
                raise
            shared.touch()
        _prune(cache)
        return True
    return False


def _package(path: Path) -> dict[str, str]:
    """The files of a package that depends on what the one in `path` depends on, and has no code."""
    return {"Cargo.toml": _manifest(path), "Cargo.lock": _lock(path), "src/lib.rs": ""}


def _key(path: Path, files: dict[str, str]) -> str:
    """A name for what the compiled dependencies depend on: the compiler, the lock and the profile."""
    compiler = process.run(["rustc", "-vV"], cwd=path).stdout
    return hashlib.sha256("\0".join([compiler, *files.values()]).encode()).hexdigest()[:16]


def _manifest(path: Path) -> str:
    """Cargo.toml of a package with the dependencies and profiles of the one in `path`, and no other member."""
    manifest = tomlkit.parse((path / "Cargo.toml").read_text(encoding="utf-8"))
    kept = {key: manifest[key] for key in ("lib", "dependencies", "profile") if key in manifest}
    package = {"name": PACKAGE, "version": "0.0.0", "edition": "2024"}
    return tomlkit.dumps({"package": package, "workspace": {}, **kept})


def _lock(path: Path) -> str:
    """Cargo.lock of that package: the same dependencies, and only itself beside them."""
    lock = tomlkit.parse((path / "Cargo.lock").read_text(encoding="utf-8")).unwrap()
    host = tomlkit.parse((path / "Cargo.toml").read_text(encoding="utf-8")).unwrap()["package"]["name"]
    packages = [package for package in lock["package"] if "source" in package]
    own = next(package for package in lock["package"] if package["name"] == host)
    packages.append({**own, "name": PACKAGE, "version": "0.0.0"})
    packages.sort(key=lambda package: (package["name"], package["version"]))
    return tomlkit.dumps({"version": lock["version"], "package": packages})


def _write(files: dict[str, str], shared: Path) -> None:
    (shared / "src").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        file = shared / name
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def _prune(cache: Path) -> None:
    sets = sorted((entry for entry in cache.iterdir() if entry.is_dir()), key=lambda entry: entry.stat().st_mtime)
    for stale in sets[:-KEPT]:
        shutil.rmtree(stale, ignore_errors=True)
