#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the output of benchmarks with --json: one bar per case, the other library's time divided by halftone's in that run.

    bench/plot.py bench/results/*_zen5.json --peer torch --out bench/results/cpu_zen5.svg
"""
import argparse
import html
import json
import math
import sys

BAR, LABEL, WIDTH, GAP, SCALE = 15, 330, 470, 34, 12.0  # pixels; SCALE: the largest ratio that is drawn to scale
FASTER, SLOWER, INK, FAINT = "#2a7f62", "#b4502f", "#222222", "#c8c8c8"


def rows_of(path, peer):
    """The rows of a file that were compared with the other library: (what, shape, ratio, percent of its peak)."""
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    for row in document.get("rows", []):
        ratios = {name: value for name, value in row.get("ratio_to", {}).items() if name.startswith(peer)}
        if ratios and row.get("seconds", 0) > 0:  # the best of the peer's forms is the one to beat
            yield (f'{row["kernel"]} {row["policy"]}', row["shape"], min(ratios.values()), row.get("percent_of_peak", 0))
    if not document.get("rows"):
        print(f"plot.py: {path} has no rows", file=sys.stderr)


def position(ratio):
    """The position of a ratio on the axis: logarithmic, from 0.25 to SCALE."""
    least = math.log(0.25)
    return LABEL + WIDTH * (math.log(min(max(ratio, 0.25), SCALE)) - least) / (math.log(SCALE) - least)


def text(x, y, words, anchor="start", size=11, color=INK):
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-size="{size}" fill="{color}">{html.escape(words)}</text>'


def draw(groups, title, peer):
    parts, y = [text(10, 22, title, size=15)], 48
    for what, rows in groups.items():
        parts.append(text(10, y, what, size=12))
        mean = math.exp(sum(math.log(r[1]) for r in rows) / len(rows))
        parts.append(text(LABEL - 8, y, f"geometric mean {mean:.2f}", "end", color="#666666"))
        for shape, ratio, percent in rows:
            y += BAR + 2
            one, end = position(1.0), position(ratio)
            color = FASTER if ratio >= 1 else SLOWER
            parts.append(text(LABEL - 8, y + BAR - 4, shape, "end"))
            parts.append(f'<rect x="{min(one, end):.1f}" y="{y}" width="{max(abs(end - one), 1):.1f}" height="{BAR - 2}" fill="{color}"/>')
            note = f"{ratio:.2f}" + (f"   {percent:.0f}% of the peak" if percent else "")
            parts.append(text(max(one, end) + 6, y + BAR - 4, note))
        y += GAP
    height = y + 10
    axis = []
    for tick in (0.25, 0.5, 1, 2, 4, 8):
        x = position(tick)
        axis.append(f'<line x1="{x:.1f}" y1="34" x2="{x:.1f}" y2="{height - 24}" stroke="{INK if tick == 1 else FAINT}" stroke-width="1"/>')
        axis.append(text(x, height - 10, f"{tick:g}x", "middle"))
    axis.append(text(LABEL + WIDTH + 150, height - 10, f"times as fast as {peer}, same run", "end"))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + 160}" height="{height}" font-family="sans-serif">'
            f'<rect width="100%" height="100%" fill="white"/>{"".join(axis)}{"".join(parts)}</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="what benchmarks wrote with --json")
    parser.add_argument("--peer", default="torch", help="whose ratios are drawn; the best of the forms whose name begins so")
    parser.add_argument("--title", default="halftone on the CPU")
    parser.add_argument("--out", required=True, help="an SVG file")
    options = parser.parse_args()
    groups = {}
    try:
        for path in options.files:
            for what, shape, ratio, percent in rows_of(path, options.peer):
                groups.setdefault(what, []).append((shape, ratio, percent))
    except (OSError, ValueError, KeyError) as e:
        print(f"plot.py: {path}: {e}", file=sys.stderr)
        return 1
    if not groups:
        print(f"plot.py: no row was compared with {options.peer}", file=sys.stderr)
        return 1
    with open(options.out, "w", encoding="utf-8") as file:
        file.write(draw(groups, options.title, options.peer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
