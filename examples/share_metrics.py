#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Hands a run's metrics.jsonl to an experiment tracker, all of it on this machine.

    python3 examples/share_metrics.py wandb train_gpt_out/metrics.jsonl        W&B in offline mode, into ./wandb
    python3 examples/share_metrics.py mlflow train_gpt_out/metrics.jsonl       MLflow, into ./mlflow.db
    python3 examples/share_metrics.py trackio train_gpt_out/metrics.jsonl      Trackio, into its local folder

Each policy becomes a run, with its numbers by step. Needs the tracker's package from PyPI.
"""

import argparse
import json
import math
import sys


def runs_of(file):
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
            numbers = {k: v for k, v in figures.items() if k not in ("step", "at_step") and isinstance(v, (int, float))
                       and not isinstance(v, bool) and math.isfinite(v)}
            step = entry.get("step", entry.get("at_step"))
            if step is not None and numbers:
                runs.setdefault(entry.get("policy", "run"), []).append((step, numbers))
    return runs


def merged(entries):
    """One dictionary for each step, in order."""
    steps = {}
    for step, numbers in entries:
        steps.setdefault(step, {}).update(numbers)
    return sorted(steps.items())


def to_wandb(project, name, entries):
    import wandb

    run = wandb.init(project=project, name=name, mode="offline", reinit=True)
    for step, numbers in merged(entries):
        run.log(numbers, step=step)
    run.finish()


def to_mlflow(project, name, entries):
    import mlflow

    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    mlflow.set_experiment(project)
    with mlflow.start_run(run_name=name):
        for step, numbers in merged(entries):
            mlflow.log_metrics(numbers, step=step)


def to_trackio(project, name, entries):
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
        runs = runs_of(o.file)
        for name, entries in runs.items():
            trackers[o.tracker](o.project, name, entries)
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
