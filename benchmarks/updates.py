"""Updating many repositories at once against updating one: `python benchmarks/updates.py [--repositories 30]`.

Repositories of the first release are updated to the newest that this checkout knows, without proof.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kernel_new import process, questions, releases


def emit(template: releases.Releases, path: Path) -> None:
    job = {
        "url": questions.constant("template_url"),
        "recorded": template.versions[0],
        "answers": {"name": "kernel"},
        "path": str(path),
    }
    command = [sys.executable, "-m", "kernel_new.updating", json.dumps(job)]
    subprocess.run(command, env=process.environment(template.environment()), check=True, capture_output=True)
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run(["git", *identity, *arguments], cwd=path, check=True, stderr=subprocess.DEVNULL)


def timed(paths: list[Path]) -> float:
    command = [sys.executable, "-m", "kernel_new", "update", "--defaults", "--verify=none", "--quiet"]
    started = time.perf_counter()
    subprocess.run([*command, *map(str, paths)], check=True)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repositories", type=int, default=30)
    count = parser.parse_args().repositories
    with tempfile.TemporaryDirectory() as directory, releases.known(None) as template:
        os.environ["COPIER_CACHE_DIR"] = f"{directory}/copier"
        paths = [Path(directory, f"kernel-{index}") for index in range(count + 2)]
        for path in paths:
            emit(template, path)
        timed(paths[:1])
        one, many = timed(paths[1:2]), timed(paths[2:])
        print(f"{template.versions[0]} to {template.versions[-1]}, {os.cpu_count()} cores")
        print(f"one: {one:.2f} s; {count}: {many:.2f} s, {many / one:.1f} times one")


if __name__ == "__main__":
    main()
