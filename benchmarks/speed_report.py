"""The reports of speed.py as a page and a plot.

    python benchmarks/speed_report.py REPORT.json... --page FILE.md [--plot FILE.png]

Needs matplotlib.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

INTRODUCTION = """By `benchmarks/speed.py`: results are checked against float64 first; each figure is the median of
rounds in which all candidates take turns in one process. `-nvptx` and `-cuda-oxide` are the two device compilers. On an
H200 the first runs its own kernels for Hopper in flash-attn2, and in rms-norm for rows that do not fit into registers;
the second those for every GPU from sm_80 on. `kernels benchmark .` in an emitted repository makes such a table too.

Where a starter falls short of its goals (rms-norm: 0.90 of a copy and 1.3 times torch from 2^24 elements on):

- rms-norm at 65536 x 1024 in 16 bits: 1.29 to 1.37 times torch in four runs of one day, where a copy is 1.28 to 1.33
  times. In float32 a copy itself is only 1.1 times as fast as torch there.
- rms-norm at 128 x 131072 in float32, where a row is 512 KiB: 0.90 of a copy, not quite. Of the 132 multiprocessors of
  an H200, 120 are in clusters of 8, and 15 clusters take 128 rows in 9 rounds, the last of which is not full.
- rms-norm by cuda-oxide at 128 x 131072: 0.75 of a copy. One block takes a row, with nothing beside it to overlap.
- Rows whose size is no multiple of 16 bytes are taken element by element: about half as fast in 16 bits. One row of
  more than 512 KiB is taken by one multiprocessor.
- relu of a row of 4096 from Python takes 12 % longer than torch where it makes the output, and a third less where that
  is given.
- On a CPU, relu in float32 in cache is at the speed of a copy, as torch is: neither can be much ahead. torch's is
  `torch.clamp_min` into a given output; `torch.relu` spends most of its time on fresh memory.
"""

OPS = ["relu", "rms_norm", "flash_attn2"]


def candidates(rows: list[dict[str, Any]]) -> list[str]:
    """Ours first, then the others, as far as they occur."""
    ours = list(dict.fromkeys(name for row in rows for name in row["ours"]))
    return ours + [name for name in dict.fromkeys(n for row in rows for n in row["speed"]) if name not in ours]


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Speeds of all candidates at each size, and how ours compare with torch and with a copy."""
    names = candidates(rows)
    ours = [name for name in names if name in rows[0]["ours"]]
    against = [name for name in ("copy",) if name in names]
    reference = rows[0]["reference"]
    heads = [f"{name} / {other}" for name in ours for other in [reference, *against]]
    lines = [f"| size | dtype | {' | '.join(names)} | {' | '.join(heads)} |"]
    lines.append("| --- | --- |" + " ---: |" * (len(names) + len(heads)))
    for row in rows:
        speed = row["speed"]
        figures = [f"{speed[name]:.3g}" if name in speed else "" for name in names]
        ratios = [
            f"{speed[name] / speed[other]:.2f}" if other in speed else ""
            for name in ours
            for other in [reference, *against]
        ]
        lines.append(f"| {row['size']} | {row['dtype']} | {' | '.join(figures)} | {' | '.join(ratios)} |")
    return lines


def page(report: dict[str, Any]) -> list[str]:
    machine = report["machine"]
    where = machine["device"] + (f", {machine['threads']} threads" if machine["threads"] else "")
    versions = ", ".join(f"{name} {machine[name]}" for name in ("torch", "apache-tvm-ffi", "kernels"))
    lines = [f"## {where}", "", f"{machine['date']}; {versions}."]
    if report["peaks"]:
        lines += ["", "Peak: " + "; ".join(f"{value:.3g} ({name})" for name, value in report["peaks"].items()) + "."]
    for op in OPS:
        if rows := [row for row in report["rows"] if row["op"] == op]:
            sizes = " (batch, heads, sequence, dim)" if op == "flash_attn2" else ""
            lines += ["", f"### {op}, {rows[0]['unit']}{sizes}", "", *table(rows)]
    lines += ["", "### One call from Python with a row of 4096, microseconds", "", "| op | | |", "| --- | --- | ---: |"]
    for row in report["calls"]:
        lines += [f"| {row['op']} | {name} | {value:.2f} |" for name, value in row["microseconds"].items()]
    return [*lines, ""]


def plot(report: dict[str, Any], file: Path) -> None:
    """One picture for each op: speed by size, in the dtype that was measured first."""
    found = [op for op in OPS if any(row["op"] == op for row in report["rows"])]
    figure, all_axes = plt.subplots(1, len(found), figsize=(6 * len(found), 4.8), squeeze=False, layout="constrained")
    for axes, op in zip(all_axes[0], found, strict=True):
        rows = [row for row in report["rows"] if row["op"] == op]
        rows = [row for row in rows if row["dtype"] == rows[0]["dtype"]]
        for name in candidates(rows):
            style = "o-" if name in rows[0]["ours"] else "s--"
            places = [i for i, row in enumerate(rows) if name in row["speed"]]
            axes.plot(places, [rows[i]["speed"][name] for i in places], style, label=name, linewidth=1.5, markersize=4)
        axes.set_xticks(range(len(rows)), [row["size"] for row in rows], rotation=35, ha="right", fontsize=8)
        axes.set_title(f"{op}, {rows[0]['dtype']}")
        axes.set_ylabel(rows[0]["unit"])
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.suptitle(report["machine"]["device"], fontsize=10)
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument("--page", type=Path, required=True)
    parser.add_argument("--plot", type=Path, help="of the first report")
    options = parser.parse_args()
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in options.reports]
    lines = ["# Speed of the starters", "", INTRODUCTION]
    if options.plot:
        plot(reports[0], options.plot)
        lines += [f"![Speed by size]({options.plot.name})", ""]
    for report in reports:
        lines += page(report)
    options.page.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
