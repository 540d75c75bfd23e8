"""Prove emitted rust-cuda relu repositories on a machine with NVIDIA GPUs.

    python tests/gpu/prove_gpu.py REPOSITORY... [--report FILE.json] [--page FILE.md] [--only NAME...] [--skip NAME...]

REPOSITORY holds a built `build/<variant>/`, or is such a variant. Needs torch, kernels and apache-tvm-ffi;
`compute-sanitizer` where it is found. Each check has a line in the report; the exit code is 1 if one failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kernels
import refusals  # noqa: F401  (adds its checks)
import torch
from checks import CHECKS, CHILD_CHECKS, SkipCheck


def variant(repository: Path) -> Path:
    if (repository / "metadata.json").exists():
        return repository
    return sorted(repository.glob("build/*cu*/metadata.json"))[-1].parent


def child(name: str, paths: list[Path], command: list[str], **environment: str) -> Any:
    arguments = [sys.executable, __file__, *map(str, paths), "--only", name, "--child"]
    done = subprocess.run(
        [*command, *arguments], env=os.environ | environment, capture_output=True, text=True, timeout=240
    )
    lines = done.stdout.strip().splitlines()
    if any(line.startswith("SKIP ") for line in lines):
        raise SkipCheck(next(line for line in lines if line.startswith("SKIP "))[5:])
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return lines[-1] if lines else None


def tested(repository: Path) -> str:
    """The closing line of pytest in the repository, on the variant that is there: nothing is built."""
    build = tomllib.loads((repository / "build.toml").read_text(encoding="utf-8"))
    local = f"{build['general']['hub']['repo-id']}={repository.resolve()}"
    # Others use the GPU at the same time.
    environment = {"LOCAL_KERNELS": local, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=repository, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    lines = done.stdout.strip().splitlines()
    print(*(f"{repository.name}: {line}" for line in lines if line.startswith("SKIPPED")), sep="\n", flush=True)
    return f"{repository.name}: {lines[-1].strip('= ')}"


def emitted_tests(repositories: list[Path]) -> str:
    """The repositories' own tests."""
    for repository in repositories:
        if not (repository / "tests").is_dir():
            raise SkipCheck(f"{repository} is a variant without its repository")
    with ThreadPoolExecutor(max_workers=5) as pool:
        return "; ".join(pool.map(tested, repositories))


def sanitizer(tool: str, paths: list[Path]) -> Any:
    if not shutil.which("compute-sanitizer"):
        raise SkipCheck("no compute-sanitizer here")
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
    return child("small_calls", paths, command, PYTORCH_NO_CUDA_MEMORY_CACHING="1")


def driver_version() -> str:
    """Of the NVIDIA driver, by the file that it has on Linux."""
    file = Path("/proc/driver/nvidia/version")
    found = re.search(r"\d+\.\d+(\.\d+)?", file.read_text(encoding="utf-8")) if file.exists() else None
    return found[0] if found else "unknown"


def markdown(machine: dict[str, Any], results: dict[str, Any]) -> str:
    """The report as a page: the machine, a row for each check, and the measured speeds."""
    lines = [
        "# Proof on a GPU",
        "",
        f"{date.today()}, by `python tests/gpu/prove_gpu.py`.",
        "",
        "| | |",
        "| --- | --- |",
    ]
    lines += [
        f"| {name} | {', '.join(value) if isinstance(value, list) else value} |" for name, value in machine.items()
    ]
    lines += ["", "## Checks", "", "| check | result | seconds | |", "| --- | --- | ---: | --- |"]
    tables = {name: result["detail"] for name, result in results.items() if isinstance(result["detail"], dict)}
    for name, result in results.items():
        detail = "" if name in tables or result["detail"] in (None, "None") else str(result["detail"])
        row = (name.replace("_", " "), result["state"], str(result["seconds"]), detail.replace("\n", " ")[:200])
        lines.append(f"| {' | '.join(row)} |")
    if speeds := tables.get("bandwidth"):
        lines += ["", "## Bandwidth at 2^26 elements, bytes read and written, medians of one run", ""]
        lines += ["| dtype | | TB/s | of torch | of a device copy |", "| --- | --- | ---: | ---: | ---: |"]
        for dtype, rows in speeds.items():
            lines += [
                f"| {dtype} | {who} | {' | '.join(str(value) for value in row.values())} |" for who, row in rows.items()
            ]
    if calls := tables.get("time_of_a_call"):
        lines += ["", "## Time of one call from Python, 256 elements", "", "| | microseconds |", "| --- | ---: |"]
        lines += [f"| {who} | {value} |" for who, value in calls.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repositories", nargs="+", type=Path)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--page", type=Path, help="the report as Markdown")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--skip", nargs="*", default=[])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    paths = [variant(path) for path in options.repositories]
    modules = [kernels.get_local_kernel(path) for path in paths]
    if options.child:
        try:
            print(CHILD_CHECKS[options.only[0]](modules))
        except SkipCheck as reason:
            print(f"SKIP {reason}")
        return 0

    steps: dict[str, Callable[[], Any]] = {name: partial(run, modules) for name, run in CHECKS.items()}
    for name in CHILD_CHECKS:
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if name == "no_device" else {}
        steps[name] = partial(child, name, paths, [], **hidden)
    steps["emitted_tests"] = partial(emitted_tests, options.repositories)
    steps["memcheck"] = partial(sanitizer, "memcheck", paths)
    steps["racecheck"] = partial(sanitizer, "racecheck", paths)
    results = {}
    for name, step in steps.items():
        if name in options.skip or (options.only and name not in options.only):
            continue
        began = time.perf_counter()
        try:
            state, detail = "passed", step()
        except SkipCheck as reason:
            state, detail = "skipped", str(reason)
        except Exception:
            state, detail = "FAILED", traceback.format_exc()
        seconds = round(time.perf_counter() - began, 1)
        results[name] = {"state": state, "seconds": seconds, "detail": detail}
        print(f"{state:8} {name} ({seconds} s) {'' if detail in (None, 'None') else detail}", flush=True)
    machine = {
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "driver": driver_version(),
        **{package: version(package) for package in ("torch", "apache-tvm-ffi", "kernels")},
        "modules": [module.__name__ for module in modules],
    }
    if options.report:
        options.report.write_text(json.dumps({"machine": machine, "checks": results}, indent=1))
    if options.page:
        options.page.write_text(markdown(machine, results))
    return int(any(result["state"] == "FAILED" for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
