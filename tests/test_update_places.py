"""Updates: what is refused, untouched, and wherever a repository lies, whatever the user's settings."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import tree
from template_history import NEXT, URL, Template, _own_cache, commit, edit, git, replace, template, whole  # noqa: F401

from kernel_new import history

pytestmark = whole


HIDING = "[core]\n\tbare = false\n[status]\n\tshowUntrackedFiles = no\n"


def ignore(path: Path, what: str) -> None:
    """Ignore a file of the template's, and change it."""
    edit(path / ".gitignore", f"{(path / '.gitignore').read_text()}/{what}\n")
    git(path, "rm", "--quiet", "-r", "--cached", what)
    file = path / what if (path / what).is_file() else path / what / "lib.rs"
    edit(file, file.read_text() + "mine\n")
    commit(path)


Spoil = Callable[[Path], None]


def _answers(old: str, new: str) -> Spoil:
    def spoil(path: Path) -> None:
        replace(path / ".copier-answers.yml", old, new)
        commit(path)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: edit(path / "README.md", "mine\n"), "has uncommitted changes: README.md"),
        (lambda path: edit(path / "new.txt", "mine\n"), "has uncommitted changes: new.txt"),
        (lambda path: shutil.rmtree(path / ".git"), "is no git repository"),
        (lambda path: ignore(path, "README.md"), "git does not track README.md"),
        (lambda path: ignore(path, "src"), "git does not track src/"),
        (lambda path: edit(path / ".git/config", HIDING), "has uncommitted changes: notes.txt"),
        (lambda path: ((path / ".copier-answers.yml").unlink(), commit(path)), "has no .copier-answers.yml"),
        (lambda path: ((path / "build.toml").unlink(), commit(path)), "no build.toml"),
        (_answers("name: demo-kernel", "name: ["), "is not valid YAML"),
        (_answers("name: demo-kernel", "name: Not A Name"), "answers that are not valid"),
        (_answers("license: Apache-2.0", "license: mine"), "answers that are not valid"),
        (_answers("_commit: v0.1.0", "_commit: v0.0.9"), "which is not known here; known are v0.1.0"),
        (_answers("_commit: v0.1.0", "_commit: --upload-pack=x"), "which is not known here"),
        (_answers("_src_path: https://", "_src_path: https://evil.example/"), "If you trust it"),
        (_answers("_commit: v0.1.0", "_commit: 7"), "which is not known here"),
    ],
)
def test_what_cannot_be_updated_is_refused_untouched(
    spoil: Spoil, said: str, template: Template, tmp_path: Path
) -> None:
    path = template.emit(tmp_path / "demo-kernel")
    if "notes.txt" in said:
        edit(path / "notes.txt", "precious\n")
    spoil(path)
    before = tree(path)
    finished = template.update(path)
    assert finished.returncode == 1
    assert said in finished.stdout + finished.stderr
    assert "Traceback" not in finished.stderr
    assert (finished.stdout + finished.stderr).count(str(path)) == 1, "a refusal names its repository once"
    assert tree(path) == before


def test_a_downgrade_and_an_unknown_release_are_refused(template: Template, tmp_path: Path) -> None:
    path = template.emit(tmp_path / "demo-kernel", NEXT)
    assert "cannot be downgraded" in template.update(path, "--to", template.first).stdout
    assert "is no release" in template.update(path, "--to", "1.2.3").stdout


def test_an_earlier_release_can_be_asked_for(template: Template, tmp_path: Path) -> None:
    path = template.emit(tmp_path / "demo-kernel")
    finished = template.update(path, "--to", template.first)
    assert (finished.returncode, "up to date" in finished.stdout) == (0, True)


@pytest.mark.parametrize("place", ["monorepo", "worktree", "submodule", "detached", "spaces and ünïcode"])
def test_it_works_wherever_the_repository_lies(place: str, template: Template, tmp_path: Path) -> None:
    path = template.emit(tmp_path / "demo-kernel")
    if place == "monorepo":
        outer = tmp_path / "outer"
        git(tmp_path, "init", "--quiet", str(outer))
        shutil.copytree(path, outer / "kernels/demo-kernel", ignore=shutil.ignore_patterns(".git"))
        edit(outer / "other.txt", "other\n")
        commit(outer)
        edit(outer / "other.txt", "not committed\n")
        path = outer / "kernels/demo-kernel"
    elif place == "worktree":
        git(path, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
        path = tmp_path / "side"
    elif place == "submodule":
        outer = tmp_path / "outer"
        git(tmp_path, "init", "--quiet", str(outer))
        git(outer, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(path), "sub")
        commit(outer)
        path = outer / "sub"
    elif place == "detached":
        git(path, "checkout", "--quiet", "--detach")
    else:
        path = path.rename(tmp_path / place)
    head = git(path, "rev-parse", "HEAD")
    shown = template.run("update", path, "--dry-run")
    assert "+| test it well |" in shown.stdout, shown.stdout + shown.stderr
    finished = template.update(path)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "| test it well |" in (path / "README.md").read_text()
    assert "  M README.md" in finished.stdout
    assert git(path, "rev-parse", "HEAD") == head
    if place == "monorepo":
        assert (path.parent.parent / "other.txt").read_text() == "not committed\n"


def test_no_setting_of_the_users_git_interferes(template: Template, tmp_path: Path) -> None:
    path = template.emit(tmp_path / "demo-kernel")
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for hook in ("pre-commit", "post-checkout", "commit-msg", "post-commit", "reference-transaction"):
        edit(hooks / hook, "#!/bin/sh\nexit 1\n")
        (hooks / hook).chmod(0o755)
    shutil.copytree(hooks, tmp_path / "template" / "hooks")
    settings = (
        f'[core]\nhooksPath = {hooks}\nautocrlf = true\n[init]\ntemplateDir = {tmp_path / "template"}\n'
        '[commit]\ngpgSign = true\n[tag]\ngpgSign = true\n[gpg]\nprogram = false\n[diff]\nnoprefix = true\n'
        "[color]\nui = always\n[status]\nshort = false\nshowUntrackedFiles = no\n"
    )  # fmt: skip
    edit(tmp_path / "gitconfig", settings)
    environment = {"GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig"), "GIT_DIR": str(tmp_path / "nowhere")}
    finished = template.update(path, env=environment)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "| test it well |" in (path / "README.md").read_text()
    assert (path / "NEWS.md").is_file()
    assert not any(b"\r" in text for text in tree(path).values())


def test_an_interrupted_update_leaves_the_repository_as_it_was(
    template: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernel_new import update
    from kernel_new.report import Quiet

    path = template.emit(tmp_path / "demo-kernel")
    before = tree(path)

    def interrupt(path: Path) -> None:
        assert tree(path) != before
        raise KeyboardInterrupt

    monkeypatch.setattr(update, "_resolve_lock", interrupt)
    with pytest.raises(KeyboardInterrupt):
        update._update_one(path, update.Request(defaults=True), template.releases, Quiet(), interactive=False)
    assert tree(path) == before
    assert git(path, "status", "--porcelain") == ""


def test_an_interrupted_proof_of_an_update_says_what_there_is(
    template: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernel_new import update
    from kernel_new.errors import StoppedError
    from kernel_new.report import Quiet

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    path = template.emit(tmp_path / "demo-kernel")
    monkeypatch.setattr(update.verify, "prove", interrupt)
    with pytest.raises(StoppedError) as stopped:
        update._update_one(path, update.Request(defaults=True), template.releases, Quiet(), interactive=False)
    assert f"{path} was updated to {NEXT}, and is not proven." in stopped.value.message
    assert f"kernel-new verify {path}\ninterrupted" in stopped.value.message
    assert (path / "NEWS.md").is_file()


def test_another_template_is_used_only_when_it_is_named(template: Template, tmp_path: Path) -> None:
    """A fork at an address of its own, which git really fetches."""
    fork = tmp_path / "fork.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(template.checkout), str(fork))
    for tag, commit_of in history.releases(template.checkout).items():
        git(fork, "tag", tag, commit_of)
    url = f"file://{fork}"
    path = template.emit(tmp_path / "demo-kernel")
    replace(path / ".copier-answers.yml", URL, url)
    commit(path)
    assert "If you trust it" in template.update(path).stdout
    finished = template.update(path, "--template-url", url)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "| test it well |" in (path / "README.md").read_text()
    assert f"_src_path: {url}" in (path / ".copier-answers.yml").read_text()


def test_a_repository_that_an_outer_one_ignores_is_refused_untouched(template: Template, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    git(tmp_path, "init", "--quiet", str(outer))
    edit(outer / ".gitignore", "/kernels/\n")
    commit(outer)
    path = template.emit(outer / "kernels" / "demo-kernel")
    shutil.rmtree(path / ".git")
    edit(path / "src/new_op.rs", "// mine\n")
    before = tree(path)
    finished = template.update(path)
    assert finished.returncode == 1
    assert "git does not track" in finished.stdout
    assert tree(path) == before


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_an_update_and_undoes_it(number: int, count: int, template: Template, tmp_path: Path) -> None:
    """At several moments: each repository is as it was or wholly updated, and nothing runs on."""
    for moment, delay in enumerate((0.6, 1.2, 1.8, 2.4)):
        paths = [template.emit(tmp_path / f"{moment}-{index}" / "demo-kernel") for index in range(count)]
        before = tree(paths[0])
        command = [sys.executable, "-m", "kernel_new", "update", "--defaults", "--verify=none", *map(str, paths)]
        environment = {**os.environ, "PYTHONPATH": str(template.checkout / "src")}
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as child:
            time.sleep(delay)
            child.send_signal(number)
            child.wait(timeout=30)
        ends = [tree(path) for path in paths]
        for path, end in zip(paths, ends, strict=True):
            if end != before:
                assert "| test it well |" in (path / "README.md").read_text()
                assert (path / "NEWS.md").is_file()
            else:
                assert git(path, "status", "--porcelain") == ""
        time.sleep(1)
        assert ends == [tree(path) for path in paths], "nothing went on"


def test_what_breaks_one_repository_does_not_stop_another(template: Template, tmp_path: Path) -> None:
    broken, good = (template.emit(tmp_path / name) for name in ("broken", "good"))
    (broken / ".copier-answers.yml").write_bytes(b"\xff\xfe")
    commit(broken)
    finished = template.update(broken, good)
    assert finished.returncode == 1
    assert "Traceback" not in finished.stderr
    assert "| test it well |" in (good / "README.md").read_text()


@pytest.mark.parametrize(
    ("given", "said", "hint"),
    [
        ("author=", "--data author: the author needs a name", "--data 'author=Ada Lovelace'"),
        ("license=mine", "--data license: license is none of Apache-2.0, MIT", "--data license=Apache-2.0"),
        ("repo_id=a b", '--data repo_id: "a b" is not OWNER/NAME', "--data repo_id=your-org/demo-kernel"),
        ("name=fn", '--data name: "fn" belongs to Rust', "--data name=fn-kernel"),
    ],
)
def test_a_bad_new_answer_is_blamed_and_not_the_recorded_ones(
    given: str, said: str, hint: str, template: Template, tmp_path: Path
) -> None:
    path = template.emit(tmp_path / "demo-kernel")
    before = tree(path)
    (result,) = json.loads(template.update(path, "--json", "--data", given).stdout)["repositories"]
    assert result["status"] == "failed"
    assert said in result["error"]
    assert ".copier-answers.yml" not in result["error"]
    assert result["hint"] == hint
    assert tree(path) == before


def test_a_repository_of_another_owner_is_explained(template: Template, tmp_path: Path) -> None:
    """As in a container: git refuses to read it, and says how to allow that."""
    path = template.emit(tmp_path / "demo-kernel")
    before = tree(path)
    finished = template.update(path, env={"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"})
    assert finished.returncode == 1
    assert "safe.directory" in finished.stdout
    assert "git init" not in finished.stdout
    assert tree(path) == before
