"""Nothing that is read is ever run: no answer, no file of a repository, no version of a template, no variable."""

import ast
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import COMBINATIONS, Run, combination_id, make, tree
from template_history import NEXT, URL, Template, _own_cache, commit, edit, git, replace, template, whole  # noqa: F401

from kernel_new import history

ROOT = Path(__file__).parent.parent
everywhere = pytest.mark.parametrize("combination", COMBINATIONS, ids=combination_id)


def called(tree: ast.AST) -> list[str]:
    """Every function that is called, as it is written, with a keyword `shell` where it has one."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        ast.unparse(call.func) + ("(shell)" if any(keyword.arg == "shell" for keyword in call.keywords) else "")
        for call in calls
    ]


FORBIDDEN = re.compile(
    r"(^|\.)(eval|exec|compile|__import__|system|popen|getoutput|getstatusoutput|loads?_module)$|\(shell\)$|^pickle|^marshal"
    r"|^yaml\.(unsafe_load|full_load|load_all)$|^os\.(spawn|exec)|^shelve|^code\."
)


# The last one starts ourselves again, in UTF-8 mode.
ALLOWED = ("re.compile", "platform.system", "os.execve")


def test_no_source_has_a_shell_or_evaluates() -> None:
    for file in (ROOT / "src/kernel_new").glob("*.py"):
        source = ast.parse(file.read_text(encoding="utf-8"))
        found = [name for name in called(source) if FORBIDDEN.search(name) and name not in ALLOWED]
        assert found == [], file.name
        assert ("os.execve" in called(source)) == (file.name == "entry.py")
        # copier.yml, which is our own, is the one that is read by another loader: a safe one, in C.
        loaders = [name for name in called(source) if name == "yaml.load"]
        assert len(loaders) == (file.name == "template.py")


@pytest.mark.parametrize(
    "line",
    [
        "!!python/object/apply:os.system ['touch {marker}']",
        "!!python/object/new:subprocess.check_output [['touch', '{marker}']]",
        "'«lipsum.__globals__.os.system(\"touch {marker}\")»'",
        "'«% include \"/etc/passwd\" %»'",
        "'$(touch {marker})'",
        "'`touch {marker}`'",
        "'; touch {marker} #'",
    ],
)
def test_no_answer_of_a_file_is_run(line: str, run: Run, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    answer = line.format(marker=marker)
    (tmp_path / "answers.yml").write_text(f"author: {answer}\n", encoding="utf-8")
    finished = run("demo-kernel", "--defaults", "--data-file=answers.yml", "--verify=load", "--json", cwd=tmp_path)
    assert not marker.exists()
    if answer.startswith("!!"):
        assert finished.returncode == 2
    else:
        assert json.loads(finished.stdout)["answers"]["author"] == yaml.safe_load(answer)


def test_no_module_in_the_current_directory_is_imported(template: Template, tmp_path: Path) -> None:
    """A repository that is updated, compared or read is data, and not on Python's path."""
    path = template.emit(tmp_path / "demo-kernel")
    marker = tmp_path / "marker"
    for module in ("copier", "yaml", "json", "kernel_new", "pytest", "kernels", "typer", "sitecustomize"):
        edit(path / f"{module}.py", f"open({str(marker)!r}, 'w')\n")
    commit(path)
    kernel_new = str(Path(sys.executable).with_name("kernel-new"))
    environment = {**os.environ, "PYTHONPATH": str(template.checkout / "src")}
    for arguments in (["diff"], ["update", "--defaults", "--verify=none"], ["verify", "--level=none"]):
        finished = subprocess.run([kernel_new, *arguments], cwd=path, env=environment, capture_output=True, check=False)
        assert finished.returncode == 0, finished.stderr
        assert not marker.exists(), arguments
    assert f"_commit: {NEXT}" in (path / ".copier-answers.yml").read_text()


def release(checkout: Path, template: Template, version: str) -> None:
    """One more release of the template, with what was changed in its checkout."""
    for file, text in (("pyproject.toml", f'version = "{NEXT[1:]}"'), ("copier.yml", f"default: {NEXT}")):
        replace(checkout / file, text, text.replace(NEXT[1:], version))
    commit(checkout)


@pytest.mark.parametrize(
    "addition",
    [
        '_tasks: ["touch {marker}"]\n',
        '_migrations: [{{"version": "v99.1.0", "command": "touch {marker}"}}]\n',
        "_jinja_extensions: [hostile.Extension]\n",
    ],
)
def test_no_version_of_a_template_runs_anything(addition: str, template: Template, tmp_path: Path) -> None:
    """Not even the one that the user's own trust in copier's settings would let."""
    path, marker = template.emit(tmp_path / "demo-kernel"), tmp_path / "marker"
    checkout = tmp_path / "template"
    git(template.checkout, "clone", "--quiet", str(template.checkout), str(checkout))
    edit(checkout / "copier.yml", (checkout / "copier.yml").read_text() + addition.format(marker=marker))
    edit(checkout / "templates/rust-cpu/hostile.py", f"open({str(marker)!r}, 'w')\n")
    release(checkout, template, "99.1.0")
    edit(tmp_path / "settings.yml", f"trust: ['{URL}', '{URL.rpartition('/')[0]}/']\n")
    before = tree(path)
    environment = {"COPIER_SETTINGS_PATH": str(tmp_path / "settings.yml")}
    finished = Template(checkout, template.releases).update(path, env=environment)
    assert finished.returncode == 1
    assert "Traceback" not in finished.stderr
    assert not marker.exists()
    assert tree(path) == before


@pytest.mark.parametrize(
    "url", ["ext::sh -c touch% {marker}", "--upload-pack=touch {marker}", "https://evil.invalid/x;touch {marker}"]
)
def test_no_recorded_address_is_used_or_run(url: str, template: Template, tmp_path: Path) -> None:
    """The refusal names it in a form that can be pasted safely; git runs nothing even where it is named."""
    path, marker = template.emit(tmp_path / "demo-kernel"), tmp_path / "marker"
    hostile = url.format(marker=marker)
    answers = path / ".copier-answers.yml"
    recorded = yaml.safe_load(answers.read_text()) | {"_src_path": hostile}
    edit(answers, yaml.safe_dump(recorded))
    commit(path)
    before = tree(path)
    (result,) = json.loads(template.update(path, "--json").stdout)["repositories"]
    assert hostile in result["error"]
    assert URL in result["error"]
    proposed = result["hint"].partition(": ")[2]
    pasted = subprocess.run(["sh", "-c", f"printf '%s\\n' {proposed}"], capture_output=True, text=True, check=True)
    assert pasted.stdout == f"--template-url\n{hostile}\n"
    for command in (["update", "--defaults", "--verify=none"], ["diff"]):
        finished = template.run(*command, path, "--template-url", hostile)
        assert finished.returncode != 0
        assert "Traceback" not in finished.stderr
    assert not marker.exists()
    assert tree(path) == before


def test_the_variable_for_another_template_is_no_consent(template: Template, tmp_path: Path) -> None:
    """A repository that records another address than the variable's is refused all the same."""
    path = template.emit(tmp_path / "demo-kernel")
    replace(path / ".copier-answers.yml", URL, "https://example.invalid/fork.git")
    commit(path)
    fork = tmp_path / "fork.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(template.checkout), str(fork))
    for tag, commit_of in history.releases(template.checkout).items():
        git(fork, "tag", tag, commit_of)
    finished = template.update(path, env={"KERNEL_NEW_TEMPLATE_URL": f"file://{fork}"})
    assert finished.returncode == 1
    assert "it was made from https://example.invalid/fork.git" in finished.stdout
    assert "--template-url https://example.invalid/fork.git" in finished.stdout


def test_what_a_repositorys_git_settings_name_is_not_run(template: Template, tmp_path: Path) -> None:
    """Such as come with an unpacked archive: hooks, and a file system monitor."""
    path, marker = template.emit(tmp_path / "demo-kernel"), tmp_path / "marker"
    program = path / ".git" / "program"
    edit(program, f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o755)
    hooks = path / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("pre-commit", "post-checkout", "post-index-change", "reference-transaction"):
        (hooks / hook).symlink_to(program)
    edit(path / ".git/config", (path / ".git/config").read_text() + f"[core]\n\tfsmonitor = {program}\n")
    for arguments in (["update", "--check"], ["update", "--dry-run"], ["diff"]):
        template.run(*arguments, path)
    assert template.update(path).returncode == 0
    assert not marker.exists()


@everywhere
def test_every_emitted_workflow_may_do_as_little_as_it_can(combination: dict[str, str], tmp_path: Path) -> None:
    made = make(tmp_path / "demo-kernel", **combination).path
    for file in (made / ".github/workflows").iterdir():
        text = file.read_text(encoding="utf-8")
        workflow: dict[Any, Any] = yaml.safe_load(text)
        assert workflow["permissions"] == {"contents": "read"}, file.name
        triggers = workflow[True]  # YAML 1.1 takes `on` for a truth value.
        assert set(triggers) <= {"push", "pull_request", "workflow_dispatch"}, "none that strangers can use with rights"
        for job in workflow["jobs"].values():
            assert "permissions" not in job
            assert job["timeout-minutes"] <= 60
            for step in job["steps"]:
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step.get("uses", f"a/b@{'0' * 40}"))
                assert "${{" not in step.get("run", ""), "an expression in a script is text from outside in a shell"
                if step.get("uses", "").startswith("actions/checkout@") and "secrets." not in str(step):
                    assert step["with"]["persist-credentials"] is False
        assert re.findall(r"secrets\.(\w+)", text) == (
            ["TEMPLATE_UPDATE_TOKEN"] * 2 if file.name == "update.yaml" else []
        )


def test_the_way_to_report_is_written_down() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for word in ("report", "private", "supported", "days"):
        assert word in text.lower()
    assert "SECURITY.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_audit_says_why_it_skips(tmp_path: Path) -> None:
    """Where a database cannot be reached, or a tool is missing, it goes on and says so."""
    audit = ROOT / "scripts/audit.sh"
    assert audit.stat().st_mode & stat.S_IXUSR
    environment = {
        **os.environ,
        "PATH": "/usr/bin:/bin",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "PIP_INDEX_URL": "http://127.0.0.1:9",
    }
    done = subprocess.run([audit], env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^skipped: .*: .+", done.stdout, re.MULTILINE)) == 2, done.stdout
