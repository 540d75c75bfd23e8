"""What --json prints is what the schema says, for every command and for errors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import kernel_new

SCHEMA = json.loads((Path(kernel_new.__file__).parent / "schema.json").read_text(encoding="utf-8"))
RunJson = Callable[..., dict[str, Any]]


def check(document: dict[str, Any], kind: str) -> None:
    jsonschema.validate(document, SCHEMA)
    jsonschema.validate(document, {**SCHEMA, "anyOf": [{"$ref": f"#/$defs/{kind}"}]})


def test_creating(run_json: RunJson, tmp_path: Path) -> None:
    made = tmp_path / "demo-kernel"
    check(run_json(made, "--defaults", "--dry-run"), "repository")
    check(run_json(made, "--defaults", "--verify=none"), "repository")
    check(run_json("verify", made, "--level=none"), "repository")
    check(run_json(made, "--defaults"), "error")


def test_updating(run_json: RunJson, tmp_path: Path) -> None:
    check(run_json("update", tmp_path / "absent", tmp_path), "updates")


def test_looking(run_json: RunJson) -> None:
    check(run_json("doctor"), "doctor")
    check(run_json("list"), "list")


def test_a_document_that_is_wrong_is_refused() -> None:
    with pytest.raises(jsonschema.ValidationError):
        check({"ok": True, "requirements": [{"name": "cargo"}]}, "doctor")
