"""Adds an op to a repository: the files of a starter under the op's name, and its lines in the lists."""

import ast
import keyword
import re
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_new import git, interrupted, lists, next_steps, process, ptx, questions, template, verify
from kernel_new.create import Request as Creation
from kernel_new.create import create
from kernel_new.errors import KernelNewError, MissingToolError, UsageError
from kernel_new.project import ANSWERS, Project
from kernel_new.report import Level, Quiet, Report, Watcher

PLACES = ("src", "kernels/src", "tvm-ffi-ext", "tests")
"""Directories whose files belong to ops, or are shared by several."""
DEVICE_MANIFEST = "kernels/Cargo.toml"
BENCHMARK = "benchmarks/benchmark.py"
ONE_PER_REPOSITORY = ("tests/example.py",)
LISTS = ("src/lib.rs", "src/cpu.rs", "src/cuda.rs", "kernels/src/lib.rs")
DISPATCH = "src/dispatch.rs"


@dataclass(frozen=True)
class Request:
    """What to add: an op of this name, from a starter; the starter's own name where it is None."""

    path: Path
    kernel: str
    op: str | None = None
    level: Level = Level.TEST


def add(request: Request, watcher: Watcher) -> Report:
    """Add the op, rebuild the PTX, and prove the repository.

    Raises:
        UsageError: The name of the op is refused.
        KernelNewError: It cannot be added; the repository is as it was.
    """
    project = Project.read(request.path)
    answers = _checked(project, request)
    starter = questions.op(request.kernel)
    op = request.op or starter
    report = Report(project.path)
    report.describe(project.answers())
    with git.undone_on_error(project.path):
        with report.step("add", watcher, fatal=True) as step, tempfile.TemporaryDirectory() as directory:
            creation = Creation(Path(directory, project.name), answers, defaults=True, git=False, level=Level.NONE)
            donor = Donor(create(creation, Quiet()).path, starter, op)
            written = donor.give(project)
            written.sort(key=lambda file: (Path(file).stem.removeprefix("test_") != op, file.count("/")))
            step.detail = f"{op}: {git.listed(written)}"
        if project.backend == "cuda":
            with report.step("ptx", watcher, fatal=True) as step:
                step.detail = ptx.rebuild(project)
    with interrupted.proof(f"{op} was added to {project.path}", project.path):
        verify.prove(Project.read(project.path), request.level, report, watcher)
    report.next = next_steps.after(project.path, report, [git.COMMIT, f"pytest -k {op}"])
    return report


class Donor:
    """A fresh repository of the starter, whose files and lines are taken under the op's name."""

    def __init__(self, path: Path, starter: str, op: str) -> None:
        self.path = path
        self.renames = {starter: op, _camel(starter): _camel(op)}
        self.op = op
        if op != starter:
            names = lists.exports(self.text("src/lib.rs"))
            names += lists.functions(self.text(f"{self.package}/__init__.py"))
            self.renames |= {name: f"{op}_{name}" for name in names if starter not in name}
            layers = lists.functions(self.text(f"{self.package}/layers/__init__.py"))
            self.renames |= {layer: _camel(op) for layer in layers}

    @property
    def package(self) -> str:
        return f"tvm-ffi-ext/{self.path.name.replace('-', '_')}"

    def text(self, file: str) -> str:
        return (self.path / file).read_text(encoding="utf-8")

    def renamed(self, text: str) -> str:
        """A text with the op's name for the starter's, but for what belongs to torch or jax."""
        for old, new in self.renames.items():
            text = re.sub(rf"(?<![A-Za-z0-9])(?<!torch\.)(?<!functional\.)(?<!nn\.){old}(?![A-Za-z0-9])", new, text)
        return text

    def give(self, project: Project) -> list[str]:
        """Write what the repository lacks into it; the new files."""
        new = self._new_files(project)
        build = _read(project, "build.toml")
        for backend in project.backends:
            build = lists.add_sources(build, self._sources(backend, new), backend)
        changed = {"build.toml": build}
        for file in LISTS:
            if (self.path / file).is_file():
                changed[file] = lists.add_modules(_read(project, file), self.renamed(self.text(file)))
        if (self.path / DISPATCH).is_file():
            changed[DISPATCH] = lists.add_rust_functions(_read(project, DISPATCH), self.renamed(self.text(DISPATCH)))
        if (self.path / DEVICE_MANIFEST).is_file():
            manifest = _read(project, DEVICE_MANIFEST)
            changed[DEVICE_MANIFEST] = lists.add_metadata(manifest, self.text(DEVICE_MANIFEST))
        listing = [f"{self.package}/__init__.py", f"{self.package}/layers/__init__.py"]
        for file in listing:
            if file not in new:
                changed[file] = lists.add_functions(_read(project, file), self.renamed(self.text(file)))
        for file, text in {**new, **changed}.items():
            path = project.path / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        _format(project.path, [*new, *listing])
        return list(new)

    def _new_files(self, project: Project) -> dict[str, str]:
        """The op's own files, and each shared one that is not there yet; the author's are never replaced."""
        self._refuse_names_in_use()
        new = {}
        for place in PLACES:
            for path in sorted((self.path / place).rglob("*")):
                file = path.relative_to(self.path).as_posix()
                if path.is_file() and path.suffix in (".rs", ".py") and file not in ONE_PER_REPOSITORY:
                    name = self.renamed(file)
                    if name in new:
                        raise self._taken("a module of the starter")
                    new[name] = self.renamed(path.read_text(encoding="utf-8"))
        new[f"benchmarks/benchmark_{self.op}.py"] = self.renamed(self.text(BENCHMARK))
        own = re.compile(rf"(?<![A-Za-z0-9]){self.op}(?![A-Za-z0-9])")
        for file in list(new):
            if (project.path / file).exists():
                if own.search(Path(file).stem):
                    raise KernelNewError(f"{project.path / file} is there already", "Choose another name for the op.")
                del new[file]
        return new

    def _refuse_names_in_use(self) -> None:
        """The op takes the place of the starter in Python, where no other name may be the same.

        Raises:
            UsageError: One is.
        """
        for path in sorted((self.path / self.package).rglob("*.py")) if self.op not in self.renames else ():
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if self.op in (getattr(node, name, None) for name in ("id", "arg", "name", "asname")):
                    raise self._taken(f"a name within the starter's {path.name}")

    def _taken(self, by: str) -> UsageError:
        """That the op cannot have its name, and one that it can."""
        return UsageError(f"{self.op!r} is {by}", f"kernel-new add my_{self.op}")

    def _sources(self, backend: str, new: dict[str, str]) -> list[str]:
        """Those of the new files that the library of a backend is compiled from."""
        tables = Project.read(self.path).build["kernel"].values()
        listed = [self.renamed(file) for table in tables if table["backend"] == backend for file in table["src"]]
        return [file for file in listed if file in new]


def _checked(project: Project, request: Request) -> dict[str, object]:
    """The answers that make the donor.

    Raises:
        UsageError: The op's name is no name.
        KernelNewError: The repository is not one of this template and version, or has uncommitted changes.
    """
    starters = questions.asked()["kernel"].values
    if request.kernel not in starters:
        raise UsageError(f"kernel is none of {', '.join(starters)}", f"--kernel {starters[0]}")
    if request.op is not None:
        _check_name(request.op)
    return {**current_answers(project), "kernel": request.kernel}


def current_answers(project: Project) -> dict[str, object]:
    """The recorded answers of a repository that can grow.

    Raises:
        KernelNewError: It is not of this template and version, or has uncommitted changes.
    """
    recorded = project.answers()
    version = questions.constant("template_version")
    if "backend" not in recorded or "_commit" not in recorded:
        raise KernelNewError(f"{project.path} has no {ANSWERS} that says what it was made from")
    if recorded["_commit"] != version:
        raise KernelNewError(
            f"{project.path} is at {recorded['_commit']}, and starters are of {version}", "kernel-new update"
        )
    git.require_clean(project.path)
    return {name: value for name, value in recorded.items() if not name.startswith("_")}


def _check_name(op: str) -> None:
    """Raise `UsageError` for what is no name of an op, with one that would be."""
    if not _is_name(op):
        words = re.sub(r"[^a-z0-9]+", "_", op.lower()).strip("_").lstrip("0123456789_")
        proposed = next(name for name in (words, f"my_{words}", "my_op") if _is_name(name))
        raise UsageError(f"{op!r} is no name that Rust and Python take for a function", f"kernel-new add {proposed}")


def _is_name(op: str) -> bool:
    """Whether Rust and Python both take it for a function."""
    validators = (template.root() / "templates/validators.jinja").read_text(encoding="utf-8")
    reserved = re.findall(r'^«% set rust = "(.+)" %»$', validators, re.MULTILINE)[0].split()
    well_formed = re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", op)
    return bool(well_formed) and op not in reserved and not keyword.iskeyword(op)


def _format(directory: Path, files: list[str]) -> None:
    """Break the lines that another name made too long or short, by the formatters that are there."""
    formatters = {".rs": "rustfmt --edition=2024", ".py": "ruff format --quiet --no-cache"}
    for suffix, command in formatters.items():
        chosen = [file for file in files if file.endswith(suffix)]
        with suppress(MissingToolError):
            process.run([*command.split(), *chosen], cwd=directory)


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _read(project: Project, file: str) -> str:
    path = project.path / file
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise KernelNewError(f"{path}: {error.strerror}") from error
