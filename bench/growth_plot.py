#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the output of bench_train_step --growth: seconds per step as a function of each size, both on logarithmic axes, measured and as
the machine's peaks would allow, with both exponents. Needs nothing but Python.

    growth_plot.py growth.json [more.json ...] -o growth.svg      rows of all files, a panel for each
"""
import argparse
import json
import math
import sys

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 420, 300, 64, 44, 16, 46
MEASURED, ALLOWED, INK, GRID = "#1f5fa8", "#c0392b", "#222", "#ddd"


def ticks(low, high):
    """Powers of ten between the ends, and if these are few also twice and five times them."""
    tens = [10.0 ** e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    steps = (1,) if math.log10(high / low) > 2.5 else (1, 2, 5)
    return [t * s for t in tens for s in steps if low * 0.999 <= t * s <= high * 1.001]


def label(x):
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if x >= size:
            return f"{x / size:g}{unit}"
    return f"{x:g}"


def panel(row, left, top):
    sizes, measured, allowed = row["sizes"], row["seconds"], row["allowed"]
    x0, x1 = min(sizes) / 1.15, max(sizes) * 1.15
    y0, y1 = min(measured + allowed) / 1.3, max(measured + allowed) * 1.3
    w, h = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(v):
        return left + LEFT + w * math.log(v / x0) / math.log(x1 / x0)

    def y(v):
        return top + TOP + h * (1 - math.log(v / y0) / math.log(y1 / y0))

    out = [f'<text x="{left + LEFT}" y="{top + 18}" font-weight="bold">{row["title"]}</text>',
           f'<text x="{left + LEFT}" y="{top + 34}"><tspan fill="{MEASURED}">exponent {row["exponent"]:.2f}</tspan>, '
           f'<tspan fill="{ALLOWED}">at the peaks {row["expected_exponent"]:.2f}</tspan></text>']
    for t in sizes if len(sizes) <= 4 else ticks(x0, x1):
        out.append(f'<line x1="{x(t):.1f}" x2="{x(t):.1f}" y1="{y(y0):.1f}" y2="{y(y1):.1f}" stroke="{GRID}"/>'
                   f'<text x="{x(t):.1f}" y="{y(y0) + 16:.1f}" text-anchor="middle">{label(t)}</text>')
    for t in ticks(y0, y1):
        out.append(f'<line x1="{x(x0):.1f}" x2="{x(x1):.1f}" y1="{y(t):.1f}" y2="{y(t):.1f}" stroke="{GRID}"/>'
                   f'<text x="{x(x0) - 6:.1f}" y="{y(t) + 4:.1f}" text-anchor="end">{t:g}</text>')
    out.append(f'<rect x="{x(x0):.1f}" y="{y(y1):.1f}" width="{w}" height="{h}" fill="none" stroke="{INK}"/>')
    for values, colour in ((allowed, ALLOWED), (measured, MEASURED)):
        points = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in zip(sizes, values))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        out += [f'<circle cx="{x(s):.1f}" cy="{y(v):.1f}" r="3" fill="{colour}"/>' for s, v in zip(sizes, values)]
    out.append(f'<text x="{left + LEFT + w / 2:.1f}" y="{top + HEIGHT - 10}" text-anchor="middle">{row["shape"]}</text>'
               f'<text transform="translate({left + 16},{top + TOP + h / 2:.1f}) rotate(-90)" text-anchor="middle">seconds a step</text>')
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("-o", "--out", required=True)
    arguments = parser.parse_args()
    rows, machine = [], {}
    for name in arguments.files:
        with open(name) as file:
            report = json.load(file)
        machine = machine or report["machine"]
        rows += [r for r in report["rows"] if r["kernel"] == "growth"]
    if not rows:
        print("growth_plot: no growth in these files; bench_train_step --growth --json writes it", file=sys.stderr)
        return 1
    columns = min(2, len(rows))
    lines = (len(rows) + columns - 1) // columns
    body = [panel(row, i % columns * WIDTH, i // columns * HEIGHT) for i, row in enumerate(rows)]
    width, height = columns * WIDTH, lines * HEIGHT + 28
    caption = (f'<text x="12" y="{height - 10}"><tspan fill="{MEASURED}">measured</tspan>, <tspan fill="{ALLOWED}">what the '
               f'peaks allow</tspan>; {machine["cpu"]}, {machine["isa"]}, {machine["threads"]} threads</text>')
    with open(arguments.out, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
                   f'font-family="sans-serif" font-size="12" fill="{INK}"><rect width="100%" height="100%" fill="white"/>\n'
                   + "\n".join(body) + "\n" + caption + "</svg>\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
