"""`kernel-new publish`: what it sends is what its dry run said and what kernel-builder sends; what it refuses.

The Hub is a stand-in on this machine, and the client that talks to it is the real one.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, git
from hub_stand_in import Commit, Files, Repository, StandIn, stand_in
from huggingface_hub import constants

from kernel_new import hub as hub_module
from kernel_new import process, publish, record, targets
from kernel_new.errors import CommandError, KernelNewError, MissingToolError, UsageError
from kernel_new.project import Project
from kernel_new.report import Quiet

BUILDER = os.environ.get("KERNEL_BUILDER") or shutil.which("kernel-builder")
REPOSITORY = "ada/demo-kernel"
HERE = targets.here()
pytestmark = [
    pytest.mark.parametrize("released", ["rust-cpu"], indirect=True),
    pytest.mark.skipif(HERE is None, reason="kernels are built for Linux on x86-64 and aarch64 only"),
]


@pytest.fixture
def hub() -> Iterator[StandIn]:
    with stand_in() as served:
        yield served


def environment(hub: StandIn, **more: str) -> dict[str, str]:
    """The real client's, logged in, and sent to the stand-in."""
    own = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": "hf_token", "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
    return {**os.environ, **own, **more}


Send = Callable[..., dict[str, Any]]


@pytest.fixture
def command(run: Run, hub: StandIn, release: Path) -> Send:
    """Publishes to the stand-in by the command line; the JSON document, with the exit code."""

    def command(*arguments: str, **more: str) -> dict[str, Any]:
        finished = run("publish", release, "--repo-id", REPOSITORY, "--json", *arguments, env=environment(hub, **more))
        assert "Traceback" not in finished.stderr
        return {**json.loads(finished.stdout), "code": finished.returncode}

    return command


@pytest.fixture
def send(hub: StandIn, release: Path, monkeypatch: pytest.MonkeyPatch) -> Send:
    """The same in this process, which is faster."""
    monkeypatch.setenv("HF_TOKEN", "hf_token")
    for name, value in {"ENDPOINT": hub.endpoint, "HF_HUB_DISABLE_XET": True, "HF_HUB_OFFLINE": False}.items():
        monkeypatch.setattr(constants, name, value)

    def send(**options: Any) -> dict[str, Any]:
        try:
            done = publish.publish(Project.read(release), publish.Request(REPOSITORY, **options), Quiet())
        except KernelNewError as error:
            output = error.output if isinstance(error, CommandError) else ""
            return {"ok": False, "error": error.message, "hint": error.hint, "output": output, "code": error.exit_code}
        return {**done.as_json(), "code": 0}

    return send


def received(commits: list[Commit]) -> list[tuple[str, str, int, str]]:
    """What the stand-in got, as the dry run lists it."""
    return sorted(
        (commit.branch, path, len(content), hashlib.sha256(content).hexdigest())
        for commit in commits
        for path, content in commit.sent.items()
    )


def listed(document: dict[str, Any]) -> list[tuple[str, str, int, str]]:
    return sorted((one["branch"], one["path"], one["size"], one["sha256"]) for one in document["uploads"])


def deleted(commits: list[Commit]) -> list[tuple[str, str]]:
    return sorted((commit.branch, path) for commit in commits for path in commit.deleted)


def test_what_the_dry_run_says_is_sent_to_a_new_repository(command: Send, hub: StandIn, release: Path) -> None:
    said = command("--dry-run")
    assert said["ok"], said
    assert said["creates"] == {"repository": True, "branch": True}
    assert hub.repositories == {}
    assert {method for method, _ in hub.requests} == {"GET"}
    done = command("--private")
    assert done["ok"], done
    assert received(hub.commits) == listed(said) == listed(done)
    assert deleted(hub.commits) == [] == said["deletions"]
    assert [(commit.branch, commit.message) for commit in hub.commits] == [
        ("main", "Uploaded using `kernel-new`."),
        ("v1", "Uploaded using `kernel-new`."),
    ]
    assert hub.repositories[REPOSITORY].private
    assert any(path.startswith("/lfs/") for _, path in hub.requests)
    on_hub = hub.repositories[REPOSITORY].branches
    assert on_hub["main"]["README.md"] == (release / "build/CARD.md").read_bytes()
    variant = f"build/tvm-ffi01-cpu-{HERE}"
    assert on_hub["v1"][f"{variant}/metadata.json"] == (release / variant / "metadata.json").read_bytes()
    assert on_hub["v1"]["benchmarks/benchmark.py"] == (release / "benchmarks/benchmark.py").read_bytes()
    assert not any(path.startswith("build/.") or path == "build/CARD.md" for path in on_hub["v1"])


def test_a_repository_is_public_unless_it_is_asked_to_be_private(send: Send, hub: StandIn) -> None:
    assert send()["url"] == f"{hub.endpoint}/kernels/{REPOSITORY}/tree/v1"
    assert not hub.repositories[REPOSITORY].private


def test_publishing_again_sends_nothing_new(send: Send, hub: StandIn) -> None:
    assert send()["ok"]
    before = len(hub.commits)
    assert send()["ok"]
    assert len(hub.commits) == before


VARIANT = f"build/tvm-ffi01-cpu-{HERE}"
OLD: Files = {
    f"{VARIANT}/stale.py": b"",
    f"{VARIANT}/relu.py": b"old",
    "build/torch-cpu/kept.py": b"",
    "benchmarks/benchmark_old.py": b"",
    "benchmarks/data.json": b"",
    "README.md": b"old",
}


def _names(branches: dict[str, Files]) -> str:
    return "+".join(f"{name}-{len(files)}" for name, files in branches.items()) or "nothing"


@pytest.mark.parametrize(
    "branches", [{}, {"main": {}}, {"main": OLD}, {"main": {}, "v1": OLD}, {"v2": OLD}], ids=_names
)
@pytest.mark.parametrize("benchmarks", [True, False])
def test_the_commits_are_those_of_kernel_builder(
    branches: dict[str, Files], benchmarks: bool, send: Send, hub: StandIn, release: Path
) -> None:
    """To a new repository, to a new branch beside old ones, and over an older build."""
    if not BUILDER:
        pytest.skip("kernel-builder is not installed")
    hub.lfs = ()
    if not benchmarks:
        shutil.rmtree(release / "benchmarks")
    (release / "benchmarks" / "notes.py").write_text("") if benchmarks else None

    def remote() -> None:
        kept = {name: dict(files) for name, files in {"main": {}, **branches}.items()}
        hub.repositories = {REPOSITORY: Repository(False, kept)} if branches else {}
        hub.commits.clear()

    remote()
    said = send(dry_run=True)
    document = send()
    assert document["ok"], document
    ours, on_hub = list(hub.commits), hub.repositories
    remote()
    upload = [BUILDER, "upload", str(release), "--repo-id", REPOSITORY, "--quiet"]
    finished = process.run(upload, env=environment(hub))
    assert finished.code == 0, finished.stderr
    theirs = list(hub.commits)
    assert hub.repositories == on_hub
    assert received(ours) == received(theirs)
    assert deleted(ours) == deleted(theirs) == [(one["branch"], one["path"]) for one in said["deletions"]]


# What is not fit to be published.


def refused(send: Send, flag: str) -> str:
    """Refused without the flag that the hint names, and published with it; why."""
    document = send()
    assert (document["ok"], document["code"]) == (False, 1)
    assert document["hint"].endswith(f"To publish it all the same: {flag}")
    return str(document["error"])


def test_nothing_is_built(send: Send, hub: StandIn, release: Path) -> None:
    shutil.rmtree(release / "build")
    document = send()
    assert document["error"] == f"nothing is built in {release / 'build'}"
    assert document["hint"] == "kernel-new build --release-check"
    assert hub.requests == []


def test_what_kernel_new_did_not_build_is_unproven(send: Send, release: Path) -> None:
    (release / "build" / record.FILE).unlink()
    assert "was not made by kernel-new build" in refused(send, "--allow-unproven")
    assert send(allow_unproven=True)["ok"]


def test_what_the_tests_staged_is_unproven(send: Send, hub: StandIn, release: Path) -> None:
    file = release / VARIANT / "metadata.json"
    file.write_text(file.read_text() + "\n")
    assert "was replaced after kernel-new build made it" in refused(send, "--allow-unproven")
    assert hub.requests == []


def test_what_was_not_tested_is_unproven(send: Send, release: Path) -> None:
    file = release / "build" / record.FILE
    file.write_text(file.read_text().replace('"level": "test"', '"level": "load"'))
    assert "was built with --verify load" in refused(send, "--allow-unproven")


def test_what_fails_the_release_check_is_not_sent(command: Send, hub: StandIn, release: Path) -> None:
    (release / VARIANT / "relu.py").write_text("1 / 0")
    document = command()
    assert document["error"].startswith("1 problem with what the Hub requires")
    assert "relu.py was changed after it was built" in document["output"]
    assert document["code"] == 1
    assert hub.requests == []
    assert command("--allow-unproven")["ok"]


def test_what_is_older_than_its_sources_is_stale(send: Send, release: Path) -> None:
    (release / "src/relu.rs").write_text("// new\n")
    (release / "tvm-ffi-ext/demo_kernel/more.py").write_text("")
    error = refused(send, "--allow-stale")
    assert error == f"{VARIANT} is older than src/relu.rs, tvm-ffi-ext/demo_kernel/more.py"
    assert send(allow_stale=True)["ok"]


def test_a_commit_that_changes_no_source_makes_nothing_stale(send: Send, release: Path) -> None:
    (release / "README.md").write_text("# new\n")
    git(release, "commit", "--quiet", "--all", "--message", "Words")
    assert send()["ok"]


@pytest.mark.parametrize(
    ("kernel", "said"),
    [({"commit": "0" * 40, "dirty": True}, "with uncommitted changes"), (None, "does not say which commit")],
)
def test_what_is_of_no_commit_is_dirty(kernel: dict[str, Any] | None, said: str, send: Send, release: Path) -> None:
    file = release / VARIANT / "metadata.json"
    document = json.loads(file.read_text())
    del document["provenance"]["kernel"]
    if kernel:
        document["provenance"]["kernel"] = kernel
    file.write_text(json.dumps(document))
    entries = record.read(release / "build")
    (name,) = entries
    digest = record.sha256(file).hex()
    record.write(release / "build", {name: record.Entry(digest, entries[name].level, True, entries[name].sources)})
    assert said in refused(send, "--allow-dirty")
    assert send(allow_dirty=True)["ok"]


def test_another_version_than_declared_is_refused(send: Send, release: Path) -> None:
    file = release / "build.toml"
    file.write_text(file.read_text().replace("version = 1", "version = 2"))
    assert send()["error"] == f"{VARIANT} is of version 1, and build.toml says 2"


def test_a_placeholder_is_no_destination(run: Run, release: Path) -> None:
    finished = run("publish", release, "--dry-run")
    assert finished.returncode == 2
    assert "your-org/demo-kernel is a placeholder" in finished.stderr
    assert "--repo-id OWNER/NAME" in finished.stderr


# What the Hub and the network can say.


@pytest.mark.parametrize(
    ("request_", "answer", "said", "hint"),
    [
        (("POST", "/api/repos/create"), (401, "Invalid token"), "does not accept the login: Invalid token", "hf auth"),
        (("POST", "/api/repos/create"), (403, "No rights"), f"you may not publish {REPOSITORY}: No rights", "approval"),
        (("POST", "/api/repos/create"), (409, "Exists"), "exists on the Hub, and is no kernel", "Choose another name"),
        (("POST", f"/api/kernels/{REPOSITORY}/branch"), (403, "No rights"), "you may not publish", "token"),
        (("POST", "/api/validate-yaml"), (400, '{"errors": [{"message": "no"}]}'), "the card: ", "Mend CARD.md"),
        (("POST", f"/api/kernels/{REPOSITORY}/preupload"), (404, "Gone"), "is not on the Hub", "hf auth login"),
        (("POST", f"/api/kernels/{REPOSITORY}/commit/v1"), (400, "Too large"), "refuses (400): Too large", "Mend"),
        (("PUT", "/lfs"), (403, "Expired"), "you may not publish", "token"),
        (("GET", f"/api/kernels/{REPOSITORY}/refs"), (418, "Tea"), "refuses (418)", "Mend"),
        (("GET", f"/api/kernels/{REPOSITORY}/refs"), (200, "<html>log in</html>"), "cannot be used", "later"),
    ],
)  # fmt: skip
def test_what_the_hub_refuses_is_explained(
    request_: tuple[str, str], answer: tuple[int, str], said: str, hint: str, send: Send, hub: StandIn
) -> None:
    hub.answers[request_] = answer
    document = send()
    assert (document["ok"], document["code"]) == (False, 1), document
    assert said in document["error"]
    assert hint in document["hint"]


def test_without_a_login_nothing_is_asked(command: Send, hub: StandIn) -> None:
    document = command(HF_TOKEN="")
    assert document["error"] == "nobody is logged in to the Hub"
    assert "hf auth login" in document["hint"]
    assert hub.requests == []


def test_a_dry_run_needs_no_login_and_no_network(command: Send) -> None:
    document = command("--dry-run", HF_TOKEN="", HF_ENDPOINT="http://127.0.0.1:9")
    assert document["ok"]
    assert document["creates"] is None
    assert "what it would delete is not known" in document["steps"][-1]["detail"]
    assert len(listed(document)) == 14
    assert [file for _, file, *_ in listed(document) if file.endswith("/layers/relu.py")]


def test_without_a_network_it_is_said(command: Send) -> None:
    document = command(HF_ENDPOINT="http://127.0.0.1:9")
    assert document["error"].startswith("http://127.0.0.1:9 cannot be reached: ")
    assert document["hint"] == "Check the network, then try again."
    document = command(HF_HUB_OFFLINE="1")
    assert (document["error"], document["hint"]) == (
        "HF_HUB_OFFLINE is set, so the Hub is not asked",
        "unset HF_HUB_OFFLINE",
    )


@pytest.mark.parametrize("name", ["a/b/c", "no spaces/x", "--x/y"])
def test_a_name_that_the_hub_cannot_have_is_wrong_usage(name: str, run: Run, hub: StandIn, release: Path) -> None:
    finished = run("publish", release, f"--repo-id={name}", "--dry-run", env=environment(hub))
    assert finished.returncode == 2
    assert "is no repository of the Hub" in finished.stderr


def test_without_the_client_library_the_command_that_gets_it_is_named(
    release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingToolError) as raised:
        hub_module.Hub(REPOSITORY)
    assert raised.value.hint == "pip install huggingface_hub"


def test_many_files_go_in_batches(hub: StandIn, monkeypatch: pytest.MonkeyPatch, release: Path) -> None:
    monkeypatch.setattr(hub_module, "BATCH", 4)
    sent: list[str] = []

    class Api:
        endpoint = ""

        def create_commit(self, repo_id: str, operations: list[Any], commit_message: str, **more: Any) -> None:
            sent.append(f"{len(operations)} {commit_message}")

    one = hub_module.Hub(REPOSITORY)
    one.api = Api()
    one.commit("v1", [(f"f{number}", release / "build.toml") for number in range(5)], ["gone"])
    assert sent == ["4 Uploaded using `kernel-new` (batch 1/2).", "2 Uploaded using `kernel-new` (batch 2/2)."]


def test_the_text_for_people(run: Run, hub: StandIn, release: Path) -> None:
    said = run("publish", release, "--repo-id", REPOSITORY, "--dry-run", env=environment(hub))
    lines = said.stdout.splitlines()
    assert lines[:2] == [f"create {REPOSITORY}", "create branch v1"]
    assert lines[-1] == "Nothing was sent."
    digest = hashlib.sha256((release / "build/CARD.md").read_bytes()).hexdigest()
    assert [line.split() for line in lines if "README.md" in line] == [
        ["send", "main", "README.md", str((release / "build/CARD.md").stat().st_size), digest]
    ]
    done = run("publish", release, "--repo-id", REPOSITORY, env=environment(hub))
    assert done.stdout == f"Published: {hub.endpoint}/kernels/{REPOSITORY}/tree/v1\n"
    assert "The card names your-org/demo-kernel" in done.stderr


def test_refusals_are_raised_to_callers(release: Path) -> None:
    project = Project.read(release)
    with pytest.raises(UsageError):
        publish.publish(project, publish.Request(), Quiet())
    shutil.rmtree(release / "build")
    with pytest.raises(KernelNewError, match="nothing is built"):
        publish.publish(project, publish.Request(REPOSITORY), Quiet())
