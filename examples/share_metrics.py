#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Hands a run's metrics.jsonl to an experiment tracker, all of it on this machine.

    python3 examples/share_metrics.py wandb train_gpt_out/metrics.jsonl        W&B in offline mode, into ./wandb
    python3 examples/share_metrics.py mlflow train_gpt_out/metrics.jsonl       MLflow, into ./mlflow.db
    python3 examples/share_metrics.py trackio train_gpt_out/metrics.jsonl      Trackio, into its local folder

Each policy becomes a run, with its numbers by step. NaN and infinities arrive as the tracker's own functions store them; where they do
not come back as such, as infinities from MLflow's SQLite store, a line says it for each metric's first. Needs the tracker's package from
PyPI.
"""

import argparse
import json
import math
import sys


NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # texts of metrics.jsonl


class Notes:
    """Lines on stderr, one for each metric of a run that has infinities, and for each that has nulls."""

    def __init__(self):
        self.told = set()

    def add(self, run, name, step, value, why):
        if (run, name, value is None) not in self.told:
            print(f"share_metrics.py: {run}: {name} at step {step} is {'null' if value is None else value}, which {why}, as later ones are",
                  file=sys.stderr)
        self.told.add((run, name, value is None))


def number_of(value):
    """A field's number, also one that is not finite; None for anything else."""
    if isinstance(value, str):
        return NOT_FINITE.get(value)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def runs_of(file, notes):
    """For each policy its list of (step, {name: number})."""
    runs = {}
    with open(file) as lines:
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                print(f"{file}, line {number}: not whole; it and what follows is left out", file=sys.stderr)
                break
            figures = {**entry, **entry.pop("system", {})}
            for i, gpu in enumerate(figures.pop("gpus", [])):
                figures.update({f"gpu{i}/{name}": value for name, value in gpu.items()})
            step, run = entry.get("step", entry.get("at_step")), entry.get("policy", "run")
            if step is None:
                continue
            for name in [k for k, v in figures.items() if v is None]:
                notes.add(run, name, step, None, "does not say whether it was nan, inf or -inf; left out")
            numbers = {k: number_of(v) for k, v in figures.items() if k not in ("step", "at_step", "policy") and number_of(v) is not None}
            if numbers:
                runs.setdefault(run, []).append((step, numbers))
    return runs


def merged(entries):
    """One dictionary for each step, in order."""
    steps = {}
    for step, numbers in entries:
        steps.setdefault(step, {}).update(numbers)
    return sorted(steps.items())


def to_wandb(project, name, entries, _):
    import wandb

    run = wandb.init(project=project, name=name, mode="offline", reinit=True)
    for step, numbers in merged(entries):
        run.log(numbers, step=step)
    run.finish()


def to_mlflow(project, name, entries, notes):
    import mlflow

    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    mlflow.set_experiment(project)
    with mlflow.start_run(run_name=name):
        for step, numbers in merged(entries):
            for metric, value in numbers.items():
                if math.isinf(value):
                    notes.add(name, metric, step, value, f"MLflow's SQLite store keeps as {math.copysign(sys.float_info.max, value)}")
            mlflow.log_metrics(numbers, step=step)


def to_trackio(project, name, entries, _):
    import trackio

    trackio.init(project=project, name=name)
    for step, numbers in merged(entries):
        trackio.log(numbers, step=step)
    trackio.finish()


def main():
    trackers = {"wandb": to_wandb, "mlflow": to_mlflow, "trackio": to_trackio}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tracker", choices=trackers)
    parser.add_argument("file", help="metrics.jsonl")
    parser.add_argument("--project", default="halftone")
    o = parser.parse_args()
    try:
        notes = Notes()
        runs = runs_of(o.file, notes)
        for name, entries in runs.items():
            trackers[o.tracker](o.project, name, entries, notes)
            print(f"{name}: {len(entries)} lines")
    except ImportError as e:
        print(f"share_metrics.py: {e}; pip install {o.tracker}", file=sys.stderr)
        return 3
    except OSError as e:
        print(f"share_metrics.py: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
