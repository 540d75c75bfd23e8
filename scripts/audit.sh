#!/usr/bin/env bash
# Known vulnerabilities in what kernel-new depends on (pip-audit) and in what the repositories that it makes depend on
# (cargo audit, or cargo deny). Fails where one is found; where a tool or its database is out of reach, it says so and goes on.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
found=0

skip() { echo "skipped: $1: $2"; }
last_line() { tail -n 1 "$1" | cut -c 1-200; }

python_packages() {
  command -v pip-audit >/dev/null || { skip pip-audit "not installed; pip install pip-audit"; return; }
  pip-audit --skip-editable --progress-spinner off --timeout 20 --format json --output "$work/python" 2>"$work/error"
  local code=$?
  # A report is written only where the database answered.
  [ -s "$work/python" ] || { skip pip-audit "$(last_line "$work/error")"; return; }
  [ $code = 0 ] && { echo "pip-audit: nothing known"; return; }
  cat "$work/error" "$work/python"
  found=1
}

crates() {
  local tool
  if command -v cargo-audit >/dev/null; then tool=(cargo audit --quiet)
  elif command -v cargo-deny >/dev/null; then tool=(cargo deny --log-level error check advisories)
  else skip "cargo audit" "not installed; cargo install cargo-audit"; return; fi
  for backend in rust-cpu rust-cuda; do
    kernel-new "$work/$backend" --name audited-kernel --backend "$backend" --defaults --verify none --no-git --quiet || exit 1
    if (cd "$work/$backend" && "${tool[@]}") >"$work/crates" 2>&1; then echo "${tool[*]}: nothing known in $backend"
    elif grep -qiE "couldn't fetch|failed to (fetch|clone)|could not (resolve|connect)|network" "$work/crates"; then
      skip "${tool[*]}" "$(last_line "$work/crates")"
    else cat "$work/crates"; found=1; fi
  done
}

python_packages
crates
exit $found
