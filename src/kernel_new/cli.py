"""The command line: options in, exit code out."""

import os
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

import kernel_new
from kernel_new import questions
from kernel_new.errors import UsageError
from kernel_new.group import COLUMNS, DefaultToNew, topics
from kernel_new.report import Level, Quiet, Report, Watcher
from kernel_new.targets import Platform

app = typer.Typer(
    cls=DefaultToNew,
    help="Creates complete Rust kernel repositories for Hugging Face kernels, and proves that they work.\n\n"
    "`kernel-new DEST` creates one (see `kernel-new new --help`).",
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    # In a narrow terminal rich would cut the names of options.
    rich_markup_mode="markdown" if COLUMNS >= 70 else None,
    context_settings={"help_option_names": ["-h", "--help"], "terminal_width": COLUMNS if COLUMNS < 70 else None},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernel-new {kernel_new.version()}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Nothing in common yet."""


def _answer(name: str) -> Any:
    """The option of a question of copier.yml, with its help and choices; copier checks the answer."""
    question = questions.asked()[name]
    values = question.values
    return typer.Option(
        question.flag,
        help=question.help,
        metavar="|".join(values) or None,
        autocompletion=(lambda: values) if values else None,
        rich_help_panel="Answers",
    )


def _backends() -> list[str]:
    return questions.asked()["backend"].values


Template = Annotated[
    str | None, typer.Option("--template-url", help="Where the template is, instead of its public address.")
]
LEVELS = "|".join(Level)
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Silent = Annotated[bool, typer.Option("--quiet", "-q", help="Show errors only.")]


def _approve(report: Report, files: list[str], level: Level) -> bool:
    from kernel_new.preview import approve

    return approve(report, files, level)


def _watcher(silent: bool) -> Watcher:
    if silent:
        return Quiet()
    # Imported here, as in other places: rich takes as long to load as a repository takes to write.
    from kernel_new.console import Live

    return Live()


def _show_grown(report: Report, json: bool, quiet: bool) -> NoReturn:
    """Show what was added to a repository, and exit."""
    from kernel_new import console

    if json:
        console.show_json(report.as_json())
    elif not quiet or not report.ok:
        console.show_next(report)
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def new(
    dest: Annotated[Path | None, typer.Argument(help="Directory to create; its last part is the default name.")] = None,
    name: Annotated[str | None, _answer("name")] = None,
    backend: Annotated[str | None, _answer("backend")] = None,
    second_backend: Annotated[str | None, _answer("second_backend")] = None,
    kernel: Annotated[str | None, _answer("kernel")] = None,
    device_compiler: Annotated[str | None, _answer("device_compiler")] = None,
    cuda_capabilities: Annotated[list[str] | None, _answer("cuda_capabilities")] = None,
    cuda_oxide: Annotated[str | None, _answer("cuda_oxide")] = None,
    repo_id: Annotated[str | None, _answer("repo_id")] = None,
    license: Annotated[str | None, _answer("license")] = None,
    author: Annotated[str | None, _answer("author")] = None,
    data: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="An answer; repeatable.")] = None,
    data_file: Annotated[Path | None, typer.Option(help="A YAML file of answers.")] = None,
    template_url: Template = None,
    defaults: Annotated[
        bool, typer.Option("--defaults", help="Ask nothing: the default of every other answer.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written; write nothing.")] = False,
    level: Annotated[
        Level, typer.Option("--verify", metavar=LEVELS, help="How far to prove that it works.")
    ] = Level.TEST,
    git: Annotated[bool, typer.Option(help="Make it a git repository.")] = True,
    json: Json = False,
    quiet: Silent = False,
) -> None:
    """Create a kernel repository and prove that it builds, loads and passes its tests."""
    from kernel_new.answers import gather
    from kernel_new.create import Request, command_line, create

    flags = {
        "name": name,
        "backend": backend,
        "second_backend": second_backend,
        "kernel": kernel,
        "device_compiler": device_compiler,
        "cuda_capabilities": cuda_capabilities,
        "cuda_oxide": cuda_oxide,
        "repo_id": repo_id,
        "license": license,
        "author": author,
    }
    answers = gather(flags, data or [], data_file)
    if url := template_url or os.environ.get("KERNEL_NEW_TEMPLATE_URL"):
        answers["template_url"] = url
    given = frozenset(name for name, value in flags.items() if value is not None)
    request = Request(dest, answers, defaults, git, level, dry_run, given, None if defaults or quiet else _approve)
    if json and not defaults:
        raise UsageError("--json asks no questions", "Add --defaults.")
    report = create(request, _watcher(json or quiet))
    if json or not quiet or not report.ok:
        from kernel_new import console

        if json:
            console.show_json(report.as_json())
        elif dry_run:
            console.show_dry_run(report, command_line(report, request))
        else:
            console.show_created(report, command_line(report, request))
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def verify(
    path: Annotated[Path, typer.Argument(help="The kernel repository.")] = Path(),
    level: Annotated[Level, typer.Option("--level", metavar=LEVELS, help="How far to prove.")] = Level.TEST,
    json: Json = False,
    quiet: Silent = False,
) -> None:
    """Prove an existing repository: it builds, loads and passes its tests."""
    from kernel_new.project import Project
    from kernel_new.verify import prove

    project = Project.read(path.resolve())
    report = Report(project.path)
    report.describe(project.answers())
    prove(project, level, report, _watcher(json or quiet))
    if json:
        from kernel_new import console

        console.show_json(report.as_json())
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def build(
    path: Annotated[Path, typer.Argument(help="The kernel repository.")] = Path(),
    platform: Annotated[
        list[Platform] | None,
        typer.Option("--platform", help="What to build for; repeatable. This machine's by default."),
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Link against this machine's glibc, with cargo alone: not for the Hub.")
    ] = False,
    release_check: Annotated[
        bool, typer.Option("--release-check", help="Check what kernel-builder's check-builds and check-abi do.")
    ] = False,
    level: Annotated[Level, typer.Option("--verify", help="How far to prove what was built.")] = Level.TEST,
    json: Json = False,
    quiet: Silent = False,
) -> None:
    """Build every variant that the repository declares into build/, ready for the Hub."""
    from kernel_new import console
    from kernel_new.build import Request
    from kernel_new.build import build as build_all
    from kernel_new.project import Project

    request = Request(tuple(platform or ()), local, release_check, level)
    report = build_all(Project.read(path.resolve()), request, _watcher(json or quiet))
    if json:
        console.show_json(report.as_json())
    elif quiet:
        console.show_failures(report)
    else:
        console.show_built(report)
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def publish(
    path: Annotated[Path, typer.Argument(help="The kernel repository.")] = Path(),
    repo_id: Annotated[
        str | None, typer.Option("--repo-id", metavar="OWNER/NAME", help="Where to; build.toml says it otherwise.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Create the repository as a private one.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Send nothing; show all that would be sent.")] = False,
    allow_unproven: Annotated[
        bool, typer.Option("--allow-unproven", help="Publish what was not tested, or fails the Hub's checks.")
    ] = False,
    allow_dirty: Annotated[
        bool, typer.Option("--allow-dirty", help="Publish what was built with uncommitted changes, or of no commit.")
    ] = False,
    allow_stale: Annotated[bool, typer.Option("--allow-stale", help="Publish what is older than its sources.")] = False,
    json: Json = False,
    quiet: Silent = False,
) -> None:
    """Publish what `kernel-new build` built on the Hub."""
    from kernel_new import console
    from kernel_new.project import Project
    from kernel_new.publish import Request
    from kernel_new.publish import publish as publish_all

    request = Request(repo_id, private, dry_run, allow_unproven, allow_dirty, allow_stale)
    publication = publish_all(Project.read(path.resolve()), request, _watcher(json or quiet))
    if json:
        console.show_json(publication.as_json())
    elif not quiet or dry_run:
        console.show_publication(publication)


@app.command()
def update(
    paths: Annotated[list[Path] | None, typer.Argument(help="Kernel repositories; this one by default.")] = None,
    to: Annotated[str | None, typer.Option(metavar="VERSION", help="Another release than the newest.")] = None,
    data: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Change an answer; repeatable.")] = None,
    defaults: Annotated[bool, typer.Option("--defaults", help="Ask nothing: defaults for new questions.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit with 1 if one is behind.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; show what would change.")] = False,
    level: Annotated[Level, typer.Option("--verify", metavar=LEVELS, help="How far to prove the result.")] = Level.TEST,
    template_url: Template = None,
    json: Json = False,
    quiet: Silent = False,
) -> None:
    """Bring repositories to a newer template, keeping what their authors changed."""
    from kernel_new import console
    from kernel_new.answers import gather
    from kernel_new.update import Request
    from kernel_new.update import update as update_all

    answers = gather({}, data or [], None)
    request = Request(to, answers, defaults, check, dry_run, level, template_url)
    silent = json or quiet or check or dry_run
    results = update_all([path.resolve() for path in paths or [Path()]], request, _watcher(silent))
    ok = all(result.ok or (dry_run and result.status == "behind" and not result.conflicts) for result in results)
    if json:
        console.show_json({"ok": ok, "repositories": [result.as_json() for result in results]})
    elif not quiet or not ok:
        console.show_updates(results)
    raise typer.Exit(0 if ok else 1)


@app.command()
def diff(
    path: Annotated[Path, typer.Argument(help="The kernel repository.")] = Path(),
    template_url: Template = None,
) -> None:
    """Show how a repository differs from a fresh render of its recorded version and answers."""
    from kernel_new.differ import diff as difference

    typer.echo(difference(path.resolve(), template_url), nl=False)


@app.command()
def add(
    op: Annotated[str | None, typer.Argument(help="Name of the op; that of the starter by default.")] = None,
    path: Annotated[Path, typer.Argument(help="The kernel repository.")] = Path(),
    kernel: Annotated[str, _answer("kernel")] = "relu",
    level: Annotated[Level, typer.Option("--verify", metavar=LEVELS, help="How far to prove the result.")] = Level.TEST,
    json: Json = False,
    quiet: Silent = False,
) -> None:
    """Add an op to a repository, from a starter kernel, and prove the result."""
    from kernel_new.add import Request
    from kernel_new.add import add as add_op

    _show_grown(add_op(Request(path.resolve(), kernel, op, level), _watcher(json or quiet)), json, quiet)


@app.command("add-backend")
def add_backend(
    backend: Annotated[str | None, typer.Argument(help="rust-cpu or rust-cuda.", autocompletion=_backends)] = None,
    path: Annotated[Path, typer.Argument(help="The kernel repository.")] = Path(),
    device_compiler: Annotated[str | None, _answer("device_compiler")] = None,
    cuda_capabilities: Annotated[list[str] | None, _answer("cuda_capabilities")] = None,
    cuda_oxide: Annotated[str | None, _answer("cuda_oxide")] = None,
    level: Annotated[Level, typer.Option("--verify", metavar=LEVELS, help="How far to prove the result.")] = Level.TEST,
    json: Json = False,
    quiet: Silent = False,
) -> None:
    """Let a repository serve the CPU and CUDA devices, each call by the device of its tensors, and prove the result."""
    from kernel_new.add_backend import Request
    from kernel_new.add_backend import add_backend as grow
    from kernel_new.answers import gather

    flags = {"device_compiler": device_compiler, "cuda_capabilities": cuda_capabilities, "cuda_oxide": cuda_oxide}
    request = Request(path.resolve(), backend, gather(flags, [], None), level)
    _show_grown(grow(request, _watcher(json or quiet)), json, quiet)


@app.command()
def ptx(
    path: Annotated[Path, typer.Argument(help="The kernel repository.")] = Path(),
    check: Annotated[bool, typer.Option("--check", help="Only say whether it is up to date.")] = False,
) -> None:
    """Rebuild the PTX of a rust-cuda repository from its device code."""
    from kernel_new import ptx as device
    from kernel_new.project import Project

    project = Project.read(path.resolve())
    if check:
        device.check(project)
        typer.echo("the PTX is up to date")
    else:
        typer.echo(device.rebuild(project))


@app.command("list")
def list_(json: Json = False) -> None:
    """Show the backends, starter kernels and device compilers."""
    from kernel_new import console

    asked = {name: questions.asked()[name] for name in ("backend", "kernel", "device_compiler")}
    if json:
        console.show_json({name: {c.value: c.about for c in question.choices} for name, question in asked.items()})
        return
    rows = [(question.flag, choice.value, choice.about) for question in asked.values() for choice in question.choices]
    console.show_table(rows, console.stdout())


@app.command()
def explain(
    topic: Annotated[
        str | None, typer.Argument(help="What to explain; without it, the topics.", autocompletion=topics)
    ] = None,
) -> None:
    """Explain what a beginner meets: build.toml, variants, PTX, tvm-ffi, device compilers and more."""
    from kernel_new import explain as explanations
    from kernel_new import pages

    if topic is None:
        pages.show_topics(explanations.topics())
    else:
        pages.show_topic(explanations.find(topic))


@app.command()
def doctor(json: Json = False) -> None:
    """Check what kernel-new needs, and say which commands get what is missing."""
    from dataclasses import asdict

    from kernel_new import checkup, console
    from kernel_new.doctor import examine

    found = examine()
    ok = all(requirement.ok or requirement.optional for requirement in found)
    if json:
        commands = [[] if requirement.ok else checkup.commands(requirement) for requirement in found]
        rows = [{**asdict(one), "commands": lines} for one, lines in zip(found, commands, strict=True)]
        console.show_json({"ok": ok, "requirements": rows})
    else:
        checkup.show(found)
    raise typer.Exit(0 if ok else 1)
