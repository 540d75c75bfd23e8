"""Updates: the template's improvements arrive, and nothing of the author's is lost."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from conftest import tree
from template_history import NEXT, URL, Template, _own_cache, commit, edit, git, replace, template, whole  # noqa: F401

from kernel_new import history

pytestmark = whole


def author_edits(path: Path) -> None:
    """A day's work: an op, a dependency, the README and a test."""
    replace(path / "README.md", "## License", "## Thanks\n\nTo Ada.\n\n## License")
    replace(path / "Cargo.toml", 'tvm-ffi = "=0.1.15"', 'tvm-ffi = "=0.1.15"\nlibm = "0.2"')
    replace(path / "src/lib.rs", "mod relu;", "mod relu;\nmod twice;")
    edit(
        path / "src/lib.rs",
        (path / "src/lib.rs").read_text() + "tvm_ffi::tvm_ffi_dll_export_typed_func!(twice, twice::twice);\n",
    )
    replace(path / "build.toml", '  "build.rs",', '  "build.rs",\n  "src/twice.rs",')
    edit(path / "src/twice.rs", "pub fn twice(x: f64) -> tvm_ffi::Result<f64> {\n    Ok(libm::fabs(x) * 2.0)\n}\n")
    module = path / "tvm-ffi-ext/demo_kernel"
    replace(module / "__init__.py", '__all__ = ["relu"]', '__all__ = ["relu", "twice"]')
    replace(module / "__init__.py", "from .relu import relu", "from .relu import relu\nfrom .twice import twice")
    edit(module / "twice.py", "from ._ops import ops\n\ntwice = ops.twice\n")
    edit(path / "tests/test_twice.py", "def test_twice(kernel):\n    assert kernel.twice(-2.0) == 4.0\n")
    replace(
        path / "tests/test_relu.py",
        "def test_needs_out",
        "def test_mine(kernel):\n    assert kernel\n\n\ndef test_needs_out",
    )
    subprocess.run(["cargo", "metadata", "--format-version=1"], cwd=path, check=True, capture_output=True)
    commit(path)


def test_releases_are_the_commits_that_raised_the_version(template: Template) -> None:
    found = history.releases(template.checkout)
    assert list(found)[-1] == NEXT
    for tag, commit_of in found.items():
        assert f'version = "{tag[1:]}"' in git(template.checkout, "show", f"{commit_of}:pyproject.toml")
        assert f"default: {tag}\n" in git(template.checkout, "show", f"{commit_of}:copier.yml")
    assert tuple(found) == template.releases.versions


def test_an_authors_day_survives_an_update_and_plain_copier_does_the_same(template: Template, tmp_path: Path) -> None:
    ours = template.emit(tmp_path / "ours" / "demo-kernel")
    author_edits(ours)
    theirs = tmp_path / "theirs" / "demo-kernel"
    shutil.copytree(ours, theirs, symlinks=True)

    finished = template.run("update", ours, "--defaults", "--verify=test")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "passed" in finished.stderr
    assert template.plain_copier_update(theirs).returncode == 0
    for name in ("build", "target", ".pytest_cache"):
        shutil.rmtree(ours / name)
    assert tree(ours) == tree(theirs)

    assert "To Ada." in (ours / "README.md").read_text()
    assert "test it well" in (ours / "README.md").read_text()
    assert "What tensor arguments must be." in (ours / "src/checks.rs").read_text()
    assert (ours / "NEWS.md").read_text() == "A new file of demo-kernel.\n"
    assert "test_mine" in (ours / "tests/test_relu.py").read_text()
    assert 'name = "libm"' in (ours / "Cargo.lock").read_text()
    assert f"_commit: {NEXT}" in (ours / ".copier-answers.yml").read_text()


@pytest.mark.parametrize("backend", ["rust-cpu", "rust-cuda"])
def test_an_update_of_an_untouched_repository_is_a_new_render(backend: str, template: Template, tmp_path: Path) -> None:
    old = template.emit(tmp_path / "old" / "demo-kernel", backend=backend)
    new = template.emit(tmp_path / "new" / "demo-kernel", NEXT, backend=backend)
    finished = template.update(old)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    kept, fresh = tree(old), tree(new)
    ptx = [file for file in fresh if file.startswith("kernels-ptx/")]
    assert {file: text for file, text in kept.items() if file not in ptx} == {
        file: text for file, text in fresh.items() if file not in ptx
    }


def test_a_conflict_is_marked_listed_and_fails(template: Template, tmp_path: Path) -> None:
    path = template.emit(tmp_path / "demo-kernel")
    replace(path / "README.md", "| test it |", "| try it |")
    commit(path)
    finished = template.update(path)
    assert finished.returncode == 1
    assert "conflicts in README.md" in finished.stdout
    text = (path / "README.md").read_text()
    assert text.count("<<<<<<<") == text.count(">>>>>>>") == 1
    assert "| try it |" in text
    assert "| test it well |" in text
    result = json.loads(template.update(path, "--json").stdout)["repositories"][0]
    assert "uncommitted changes" in result["error"], "what is in conflict counts as such"


def test_a_file_that_diverged_heals_or_is_shown(template: Template, tmp_path: Path) -> None:
    path = template.emit(tmp_path / "demo-kernel")
    assert template.run("diff", path).stdout == ""
    replace(path / "README.md", "| test it |", "| try it |")
    edit(path / "mine.txt", "mine\n")
    shown = template.run("diff", path)
    assert shown.returncode == 0, shown.stderr
    assert "+| try it |" in shown.stdout
    assert "+mine" in shown.stdout
    assert "-| test it |" in shown.stdout
    before = git(path, "status", "--porcelain")
    assert before == git(path, "status", "--porcelain")


def test_check_and_dry_run_change_nothing(template: Template, tmp_path: Path) -> None:
    path = template.emit(tmp_path / "demo-kernel")
    before, head = tree(path), git(path, "rev-parse", "HEAD")
    assert template.run("update", path, "--check").returncode == 1
    shown = template.run("update", path, "--dry-run")
    assert shown.returncode == 0
    assert "+| test it well |" in shown.stdout
    assert "+A new file of demo-kernel." in shown.stdout
    assert tree(path) == before
    assert git(path, "rev-parse", "HEAD") == head
    assert git(path, "status", "--porcelain", "--ignored") == ""
    template.update(path)
    commit(path)
    edit(path / "mine.txt", "not committed\n")
    current = template.run("update", path, path, "--check")
    assert (current.returncode, "up to date" in current.stdout) == (0, True)


def test_a_lock_in_conflict_is_resolved_with_the_authors_versions(template: Template, tmp_path: Path) -> None:
    """The author and the template moved the same crate: the author's version stays, and the lock holds."""
    path = template.emit(tmp_path / "demo-kernel")
    subprocess.run(["cargo", "update", "--precise=1.15.0", "either"], cwd=path, check=True, capture_output=True)
    theirs = (path / "Cargo.lock").read_text()
    subprocess.run(["cargo", "update", "--precise=1.14.0", "either"], cwd=path, check=True, capture_output=True)
    commit(path)
    checkout = tmp_path / "template"
    git(template.checkout, "clone", "--quiet", str(template.checkout), str(checkout))
    crates = [crate for crate in theirs.split("\n\n")[1:] if 'name = "demo-kernel"' not in crate]
    edit(checkout / "templates/lock/rust-cpu.packages", "\n\n".join(crates) + "\n")
    for file, text in (("pyproject.toml", f'version = "{NEXT[1:]}"'), ("copier.yml", f"default: {NEXT}")):
        replace(checkout / file, text, text.replace("99.0.0", "99.1.0"))
    commit(checkout)
    plain = Template(checkout, template.releases)
    finished = plain.update(path)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    lock = (path / "Cargo.lock").read_text()
    assert "<<<<" not in lock
    assert 'name = "either"\nversion = "1.14.0"' in lock
    subprocess.run(["cargo", "metadata", "--locked", "--format-version=1"], cwd=path, check=True, capture_output=True)


def test_what_is_built_or_ignored_is_not_touched(template: Template, tmp_path: Path) -> None:
    path = template.emit(tmp_path / "demo-kernel", backend="rust-cuda")
    ptx = path / "kernels-ptx/demo_kernel_device.ptx"
    edit(ptx, "// mine\n" + ptx.read_text())
    edit(path / "kernels-ptx/another.ptx", "// another\n")
    commit(path)
    for file in ("build/variant/x.so", "target/release/x", ".venv/x", "__pycache__/x.pyc"):
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        edit(path / file, "built\n")
    kept = {file: hashlib.sha256(text).hexdigest() for file, text in tree(path).items() if built(file)}
    assert len(kept) == 6
    assert template.update(path).returncode == 0
    after = {file: hashlib.sha256(text).hexdigest() for file, text in tree(path).items() if built(file)}
    assert kept.items() <= after.items()


def built(file: str) -> bool:
    return file.split("/")[0] in ("kernels-ptx", "build", "target", ".venv", "__pycache__")


def test_several_at_once_and_one_that_fails_does_not_stop_the_others(template: Template, tmp_path: Path) -> None:
    paths = [template.emit(tmp_path / f"kernel-{index}") for index in range(4)]
    edit(paths[1] / "README.md", "dirty\n")
    finished = template.update(*paths, tmp_path / "nothing", "--json")
    assert finished.returncode == 1
    document = json.loads(finished.stdout)
    assert not document["ok"]
    assert [result["status"] for result in document["repositories"]] == [
        "updated",
        "failed",
        "updated",
        "updated",
        "failed",
    ]
    assert [result["path"] for result in document["repositories"]] == [*map(str, paths), str(tmp_path / "nothing")]
    for index in (0, 2, 3):
        assert "| test it well |" in (paths[index] / "README.md").read_text()
    table = template.run("update", *paths, "--check").stdout
    assert all(path.name in table for path in paths)


def test_changed_device_code_is_named_for_rebuilding(template: Template, tmp_path: Path) -> None:
    checkout = tmp_path / "template"
    git(template.checkout, "clone", "--quiet", str(template.checkout), str(checkout))
    path = template.emit(tmp_path / "demo-kernel", NEXT, backend="rust-cuda")
    replace(checkout / "templates/starters/relu/nvptx/relu.rs", "//! relu:", "//! The relu:")
    for file, text in (("pyproject.toml", f'version = "{NEXT[1:]}"'), ("copier.yml", f"default: {NEXT}")):
        replace(checkout / file, text, text.replace("99.0.0", "99.1.0"))
    commit(checkout)
    finished = Template(checkout, template.releases).update(path)
    assert finished.returncode == 0
    assert "rebuild the PTX" in finished.stdout
    assert "kernels/build_ptx.py" in finished.stdout


def test_what_is_new_about_an_op_that_was_removed_stays_away(template: Template, tmp_path: Path) -> None:
    """The author has an op of another name in the starter's place; the release before had no layers."""
    made = template.emit(tmp_path / "demo-kernel", "v0.3.0")
    package = "tvm-ffi-ext/demo_kernel"
    for old in ("src/relu.rs", f"{package}/relu.py", "tests/test_relu.py"):
        git(made, "mv", old, old.replace("relu", "mine"))
    for file in ("src/lib.rs", "src/mine.rs", "build.toml", f"{package}/__init__.py", f"{package}/mine.py"):
        edit(made / file, (made / file).read_text().replace("relu", "mine"))
    for file in ("tests/test_mine.py", "tests/example.py"):
        edit(made / file, (made / file).read_text().replace("kernel.relu", "kernel.mine"))
    commit(made)
    finished = template.run("update", made, "--defaults", "--json")
    (result,) = json.loads(finished.stdout)["repositories"]
    listing = f"{package}/__init__.py"  # Where the import of the layers comes beside that of the op.
    assert result["conflicts"] == [listing], finished.stdout
    lines = (made / listing).read_text().splitlines(keepends=True)
    edit(made / listing, "".join(line for line in lines if line[:7] not in ("<<<<<<<", "=======", ">>>>>>>")))
    replace(made / listing, "from .relu import relu\n", "")
    assert not [name for name in tree(made) if "relu" in name]
    commit(made)
    updated = template.update(made, "--data", "license=MIT")
    assert updated.returncode == 0, updated.stdout + updated.stderr
    assert not [name for name in tree(made) if "relu" in name]
    commit(made)
    verified = template.run("verify", made, "--level", "load")
    assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.parametrize(("old", "new"), [("nvptx", "cuda-oxide"), ("cuda-oxide", "nvptx")])
def test_the_device_compiler_can_be_switched(old: str, new: str, template: Template, tmp_path: Path) -> None:
    path = template.emit(tmp_path / "old" / "demo-kernel", NEXT, backend="rust-cuda", device_compiler=old)
    fresh = template.emit(tmp_path / "new" / "demo-kernel", NEXT, backend="rust-cuda", device_compiler=new)
    replace(path / "README.md", "## License", "## Thanks\n\n## License")
    commit(path)
    replace(fresh / "README.md", "## License", "## Thanks\n\n## License")
    ptx = (path / "kernels-ptx/demo_kernel_device.ptx").read_text()
    finished = template.update(path, "--data", f"device_compiler={new}")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "rebuild the PTX" in finished.stdout
    after, expected = tree(path), tree(fresh)
    assert after.pop("kernels-ptx/demo_kernel_device.ptx").decode() == ptx
    del expected["kernels-ptx/demo_kernel_device.ptx"]
    assert {file for file in after if not built(file)} == {file for file in expected if not built(file)}
    for file, text in expected.items():
        assert after[file] == text, file


def test_the_emitted_workflow_proposes_an_update(template: Template, tmp_path: Path) -> None:
    """Its last step, with a local remote and a stand-in for GitHub's command line."""
    path = template.emit(tmp_path / "demo-kernel", NEXT)
    git(tmp_path, "init", "--quiet", "--bare", str(tmp_path / "remote.git"))
    git(path, "remote", "add", "origin", str(tmp_path / "remote.git"))
    (tmp_path / "bin").mkdir()
    edit(tmp_path / "bin/gh", f'#!/bin/sh\necho "$@" >> {tmp_path}/gh.log\n')
    (tmp_path / "bin/gh").chmod(0o755)
    workflow = yaml.safe_load((path / ".github/workflows/update.yaml").read_text())
    (script,) = [step["run"] for step in workflow["jobs"]["update"]["steps"] if step.get("name")]
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    command = ["bash", "-eo", "pipefail", "-c", script]
    subprocess.run(command, cwd=path, env=environment, check=True, capture_output=True)
    assert not (tmp_path / "gh.log").exists(), "nothing to propose"
    git(path, "switch", "--quiet", "main")
    git(path, "branch", "--quiet", "--delete", "template-update")
    edit(path / "new.txt", "from the template\n")
    subprocess.run(command, cwd=path, env=environment, check=True, capture_output=True)
    assert (tmp_path / "gh.log").read_text() == "pr list --head template-update --state open\npr create --fill\n"
    assert "new.txt" in git(tmp_path / "remote.git", "show", "--name-only", "template-update")
