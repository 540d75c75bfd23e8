"""Injects faults into a copy of the code, and wants the named test to fail for each: `python scripts/mutate.py [WORD]`.

A test that passes with its fault in place protects nothing. With a WORD only the faults that have it are tried.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Fault(NamedTuple):
    """`old` becomes `new` in `file`; then `test` must fail."""

    what: str
    file: str
    old: str
    new: str
    test: str


CREATE, STAGING, PROCESS = "src/kernel_new/create.py", "src/kernel_new/staging.py", "src/kernel_new/process.py"
UPDATE, ENTRY, VERIFY = "src/kernel_new/update.py", "src/kernel_new/entry.py", "src/kernel_new/verify.py"
KILLED = "tests/test_faults.py::test_killed_at_any_step_there_is_a_whole_repository_or_none"
FAULTS = [
    Fault(
        "a copy instead of the rename",
        CREATE,
        "    staged.rename(destination)\n",
        "    shutil.copytree(staged, destination, dirs_exist_ok=True)\n",
        f"{KILLED}[SIGKILL]",
    ),
    Fault(
        "what is at the destination is replaced",
        CREATE,
        "    staged.rename(destination)\n",
        "    shutil.rmtree(destination, ignore_errors=True)\n    staged.rename(destination)\n",
        "tests/test_faults.py::test_whatever_appears_meanwhile_at_the_destination_is_kept[directory]",
    ),
    Fault(
        "the staging directory is not removed",
        STAGING,
        "            if directory != destination.parent:\n                _remove(directory)\n",
        "",
        f"{KILLED}[SIGINT]",
    ),
    Fault(
        "the clean-up can be interrupted",
        STAGING,
        "        with process.undisturbed():\n",
        "        if True:\n",
        f"{KILLED}[SIGTERM]",
    ),
    Fault(
        "remains of killed runs stay",
        STAGING,
        "        sweep(destination.parent)\n",
        "",
        f"{KILLED}[SIGKILL]",
    ),
    Fault(
        "whoever is at work is swept away",
        STAGING,
        "        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "        pass\n",
        "tests/test_faults.py::test_only_remains_of_killed_runs_are_swept",
    ),
    Fault(
        "an occupied destination is used",
        CREATE,
        "    if occupied:\n",
        "    if False:\n",
        "tests/test_create.py::test_an_occupied_destination_is_refused_and_kept[directory]",
    ),
    Fault(
        "a path where cargo cannot build is taken",
        CREATE,
        'UNUSABLE = re.compile(r"[%:',
        'UNUSABLE = re.compile(r"[',
        "tests/test_properties.py::test_a_directory_where_cargo_cannot_build_is_refused[a:b]",
    ),
    Fault(
        "git that hangs is waited for",
        CREATE,
        "    git.probe()\n",
        "",
        "tests/test_tools.py::test_with_a_bad_git_nothing_is_written",
    ),
    Fault(
        "no time limit",
        PROCESS,
        "    limit = TIME_LIMIT if timeout is None else timeout\n",
        "    limit = 30.0\n",
        "tests/test_tools.py::test_a_time_limit_holds_whatever_a_program_does_with_its_output[yes]",
    ),
    Fault(
        "children are not ended",
        PROCESS,
        "            os.killpg(child.pid, signal.SIGKILL)\n",
        "            child.kill()\n",
        "tests/test_tools.py::test_an_interrupt_ends_a_hanging_tool_at_once[build-SIGINT]",
    ),
    Fault(
        "SIGTERM ends the tool without its children",
        ENTRY,
        "        with process.terminated_is_interrupted():\n",
        "        if True:\n",
        "tests/test_tools.py::test_an_interrupt_ends_a_hanging_tool_at_once[build-SIGTERM]",
    ),
    Fault(
        "nohup is not obeyed",
        PROCESS,
        "if (handler := signal.getsignal(number)) != signal.SIG_IGN}",
        "if (handler := signal.getsignal(number)) is not None}",
        "tests/test_faults.py::test_nohup_is_obeyed",
    ),
    Fault(
        "a failure of our own output is a traceback",
        ENTRY,
        "        code = _unwritable(error)\n",
        "        raise error\n",
        "tests/test_output.py::test_a_full_disk_behind_the_output_is_reported[list]",
    ),
    Fault(
        "the answer is not quoted for YAML",
        "templates/shared/.copier-answers.yml",
        "| to_nice_yaml -»",
        "-»",
        "tests/test_names.py::test_any_other_author_is_written_as_it_is",
    ),
    Fault(
        "authors of several lines are taken",
        "templates/validators.jinja",
        'author | regex_search("[\\\\x00-\\\\x1f\\\\x7f-\\\\x9f\\\\u2028\\\\u2029]") or ',
        "",
        "tests/test_names.py::test_malformed_authors_are_refused",
    ),
    Fault(
        "the lock is not sorted",
        "templates/shared/Cargo.lock",
        " | sort(case_sensitive=true) | join",
        " | join",
        "tests/test_properties.py::test_any_text_is_refused_or_written_exactly",
    ),
    Fault(
        "any address of a template is used",
        UPDATE,
        "    if url != template.url:\n",
        "    if False:\n",
        "tests/test_security.py::test_no_recorded_address_is_used_or_run",
    ),
    Fault(
        "the proposed address is not quoted",
        UPDATE,
        "{shlex.quote(url)}",
        "{url}",
        "tests/test_security.py::test_no_recorded_address_is_used_or_run",
    ),
    Fault(
        "modules of the current directory are imported",
        UPDATE,
        '[sys.executable, "-P", "-m", "kernel_new.updating"',
        '[sys.executable, "-m", "kernel_new.updating"',
        "tests/test_security.py::test_no_module_in_the_current_directory_is_imported",
    ),
    Fault(
        "a kernel's module hides one of Python's",
        VERIFY,
        '[sys.executable, "-P", "-m", "kernel_new.loading"',
        '[sys.executable, "-m", "kernel_new.loading"',
        "tests/test_environments.py::test_a_module_of_the_kernels_may_be_called_like_one_of_pythons",
    ),
    Fault(
        "the file system monitor of a repository is run",
        "src/kernel_new/git.py",
        ', "-c", "core.fsmonitor=false"',
        "",
        "tests/test_security.py::test_what_a_repositorys_git_settings_name_is_not_run",
    ),
    Fault(
        "a program that was just started survives an interrupt",
        "src/kernel_new/process.py",
        "        with undisturbed():  # Otherwise nobody",
        "        with nullcontext():  # Otherwise nobody",
        "tests/test_tools.py::test_an_interrupt_while_a_program_starts_ends_it_too",
    ),
    Fault(
        "a source that build.toml does not list is not noticed",
        "src/kernel_new/sources.py",
        "if file not in listed]",
        "if not file]",
        "tests/test_sources.py::test_it_is_a_build_that_failed",
    ),
    Fault(
        "the terminal obeys what others say",
        "src/kernel_new/console.py",
        'CONTROL.sub(lambda found: repr(found[0])[1:-1], COLOUR.sub("", text))',
        "text",
        "tests/test_output.py::test_no_text_of_others_commands_the_terminal",
    ),
    Fault(
        "--data is not blamed",
        UPDATE,
        "    if refusal and refusal.question.name in request.data:\n",
        "    if False and refusal:\n",
        "tests/test_update_places.py::test_a_bad_new_answer_is_blamed_and_not_the_recorded_ones",
    ),
    Fault(
        "an interrupted update is not undone",
        "src/kernel_new/git.py",
        '            run(directory, "checkout", "--quiet", "HEAD", "--", ".")\n',
        "",
        "tests/test_update_places.py::test_an_interrupted_update_leaves_the_repository_as_it_was",
    ),
    Fault(
        "complex tensors panic",
        "templates/shared/checks.rs",
        '        COMPLEX => format!("complex{}", dtype.bits),\n        0..=LAST',
        "        0..=LAST | COMPLEX",
        "tests/test_kernel_calls.py::test_no_dtype_makes_a_kernel_panic",
    ),
    Fault(
        "a kernel goes one element too far",
        "templates/starters/relu/rust-cpu/relu.rs",
        "(x.tensor.numel(), x.data()",
        "(x.tensor.numel() + 1, x.data()",
        "tests/test_kernel_calls.py::test_random_calls_end_in_a_right_value_or_an_exception",
    ),
    Fault(
        "tensors with gaps are taken",
        "templates/shared/checks.rs",
        "            self.tensor.is_contiguous(),\n",
        "            self.tensor.is_contiguous() || true,\n",
        "tests/test_kernel_calls.py::test_random_calls_end_in_a_right_value_or_an_exception",
    ),
    Fault(
        "a second backend's module looks for its neighbours in the first",
        "templates/shared/second.jinja",
        'replace("crate::", "crate::" ~ here ~ "::")',
        'replace("crate::", "crate::")',
        "tests/test_add_backend.py::test_every_starter_can_have_both_backends",
    ),
    Fault(
        "the author's version of a dependency is replaced by a second backend",
        "src/kernel_new/add_backend.py",
        "    if text == base or file == ANSWERS:\n",
        "    if text == base or file in (ANSWERS, *LISTS):\n",
        "tests/test_add_backend.py::test_edits_of_the_author_stay",
    ),
    Fault(
        "a new file about an op that was removed stays",
        "src/kernel_new/removed.py",
        "            (path / file).unlink()\n",
        "            pass\n",
        "tests/test_update.py::test_what_is_new_about_an_op_that_was_removed_stays_away",
    ),
]


def survives(fault: Fault, copy: Path) -> bool:
    """Whether the test passes in spite of the fault."""
    file = copy / fault.file
    text = file.read_text(encoding="utf-8")
    assert text.count(fault.old) == 1, f"{fault.file} has changed: {fault.old!r}"
    file.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", fault.test]
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return False
    finally:
        file.write_text(text, encoding="utf-8")
    assert done.returncode in (0, 1), done.stdout + done.stderr  # another code: the test did not run
    return done.returncode == 0


def main(word: str = "") -> int:
    chosen = [fault for fault in FAULTS if word in fault.what or word in fault.test]
    survivors = []
    with tempfile.TemporaryDirectory(prefix="mutate-") as directory:
        copy = Path(directory, "kernel-new")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(copy)], check=True)
        for part in ("src", "templates", "tests", "docs", "scripts"):  # as they are now, committed or not
            shutil.rmtree(copy / part, ignore_errors=True)
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "copier.yml", copy)
        for fault in chosen:
            started = time.monotonic()
            if survives(fault, copy):
                survivors.append(fault)
            said = "SURVIVES" if fault in survivors else "is seen"
            print(f"{fault.what} {said}: {fault.test} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} faults are seen")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
