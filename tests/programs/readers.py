#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads what train_gpt wrote with the programs that it is for.

    readers.py tensorboard FOLDER/tensorboard/POLICY FOLDER/metrics.jsonl      with TensorBoard's EventAccumulator
    readers.py perfetto FOLDER/trace.json                                      with Perfetto's trace processor
    readers.py wandb|mlflow|trackio FOLDER/metrics.jsonl                       what examples/share_metrics.py made of it, and of a run
                                                                               whose figures are not finite

Ends with 77 if the package (PyPI: tensorboard, perfetto, wandb, trackio; mlflow-skinny with sqlalchemy and alembic, or mlflow) or what
it downloads is missing, and with 1 and a line for each difference.
"""

import importlib.util
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile


def as_float(x):
    """The nearest number of 32 bits, of a number or of the text that metrics.jsonl has for one that is not finite; as text, since a NaN
    is unlike itself."""
    return repr(struct.unpack("f", struct.pack("f", float(x)))[0])


def read_tensorboard(folder, metrics):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
    events.Reload()
    tags = events.Tags()
    wrong = []
    names = {"loss": "loss", "lr": "lr", "loss_scale": "loss_scale", "skipped": "skipped", "step_ms": "step_ms",
             "tokens_per_second": "tokens_per_second", "peak_bytes": "peak_bytes", "grad_norm": "grad_norm"}
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    lines = [line for line in lines if line["policy"] == folder.name and "loss" in line]
    for name, key in names.items():
        read = [(e.step, as_float(e.value)) for e in events.Scalars("train/" + name)]
        expected = [(line["step"], as_float(line[key])) for line in lines]
        if read != expected:
            wrong.append(f"train/{name}: {read[:3]}... where metrics.jsonl has {expected[:3]}...")
    texts = [tag for tag in tags["tensors"] if tag == "arguments"]
    if not texts or b'"width"' not in events.Tensors(texts[0])[0].tensor_proto.string_val[0]:
        wrong.append("the arguments are not there as a text")
    count = 0
    for tag in tags["histograms"]:
        for e in events.Histograms(tag):
            h = e.histogram_value
            count += 1
            if abs(sum(h.bucket) - h.num) > 0 or list(h.bucket_limit) != sorted(h.bucket_limit):
                wrong.append(f"{tag}: {h.num} values, {sum(h.bucket)} in its ranges")
    print(f"{len(lines)} steps of {len(names)} scalars, {count} histograms, {len(texts)} text")
    # A file that a killed run left in the middle of an event.
    whole = next(folder.glob("events.out.tfevents.*"))
    cut = folder.parent / "cut"
    cut.mkdir(exist_ok=True)
    (cut / whole.name).write_bytes(whole.read_bytes()[:-7])
    again = EventAccumulator(str(cut), size_guidance={"scalars": 0})
    again.Reload()
    if len(again.Scalars("train/loss")) < len(lines) - 1:
        wrong.append("a truncated file lost more than its last event")
    wrong += read_resumed(folder.parent / "resumed", whole)
    return wrong


def records(data):
    """The records of an event file, each with its length and checksums."""
    at = 0
    while at + 12 <= len(data):
        size = 16 + int.from_bytes(data[at:at + 8], "little")
        yield data[at:at + size]
        at += size


def read_resumed(folder, whole):
    """A run that was killed behind its checkpoint, and one that goes on from there: the file of a process that finds another's."""
    from tensorboard.backend.event_processing import event_accumulator, event_multiplexer, plugin_event_accumulator, plugin_event_multiplexer
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.summary.writer.record_writer import RecordWriter

    parts = list(records(whole.read_bytes()))
    events = [Event.FromString(part[12:-4]) for part in parts]
    steps = sorted({e.step for e in events if e.step})
    again = steps[len(steps) // 2]  # the first step that is written twice
    folder.mkdir(exist_ok=True)
    (folder / "events.out.tfevents.0000000001.host.1.0").write_bytes(b"".join(parts))
    start = Event(wall_time=events[-1].wall_time, step=again, session_log=SessionLog(status=SessionLog.START))
    with open(folder / "events.out.tfevents.0000000002.host.2.0", "wb") as file:
        file.write(parts[0])
        RecordWriter(file).write(start.SerializeToString())
        file.write(b"".join(part for part, e in zip(parts, events) if e.step >= again))
    read = event_accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    several = event_multiplexer.EventMultiplexer({"run": str(folder)}, size_guidance={"scalars": 0})
    # Those of the server without --load_fast, for which the first START of a run is none that ends another.
    of_plugins = plugin_event_accumulator.EventAccumulator(str(folder), size_guidance={"tensors": 0})
    several_of_plugins = plugin_event_multiplexer.EventMultiplexer({"run": str(folder)}, size_guidance={"tensors": 0})
    for each in (read, several, of_plugins, several_of_plugins):
        each.Reload()
    wrong = []
    for name, found in (("EventAccumulator", read.Scalars("train/loss")), ("EventMultiplexer", several.Scalars("run", "train/loss")),
                        ("plugins' EventAccumulator", of_plugins.Tensors("train/loss")),
                        ("plugins' EventMultiplexer", several_of_plugins.Tensors("run", "train/loss"))):
        if [e.step for e in found] != sorted({e.step for e in found}) or found[-1].step != steps[-1]:
            wrong.append(f"{name}: steps of a resumed run {[e.step for e in found]}")
    print(f"a resumed run: {len(read.Scalars('train/loss'))} steps, each once")
    return wrong


def read_perfetto(trace):
    from perfetto.trace_processor import TraceProcessor

    written = json.loads(trace.read_text())
    rows = {e["tid"]: e["args"]["name"] for e in written["traceEvents"] if e["ph"] == "M" and e["name"] == "thread_name"}
    expected = {}
    for e in written["traceEvents"]:
        if e["ph"] == "X":
            count, nanoseconds = expected.get((rows[e["tid"]], e["name"]), (0, 0))
            expected[(rows[e["tid"]], e["name"])] = (count + 1, nanoseconds + round(1000 * e["dur"]))
    try:
        processor = TraceProcessor(trace=str(trace))  # downloads its binary when it is used for the first time
    except Exception as e:
        raise ImportError(f"Perfetto's trace processor does not start: {e}") from e
    query = ("select thread.name as thread, slice.name as name, count(*) as n, sum(slice.dur) as dur from slice join thread_track "
             "on slice.track_id = thread_track.id join thread using (utid) group by 1, 2")
    read = {(r.thread, r.name): (r.n, r.dur) for r in processor.query(query)}
    wrong = []
    for key in sorted(set(read) | set(expected)):
        n, dur = read.get(key, (0, 0))
        m, nanoseconds = expected.get(key, (0, 0))
        if n != m or abs(dur - nanoseconds) > n:  # a nanosecond for each, for its rounding
            wrong.append(f"{key}: Perfetto has {n} slices of {dur} ns, the file {m} of {nanoseconds} ns")
    counters = next(iter(processor.query("select count(*) as n from counter"))).n
    if counters == 0:
        wrong.append("no counters of memory")
    misplaced = next(iter(processor.query("select ifnull(sum(value), 0) as n from stats where severity = 'error'"))).n
    if misplaced:
        wrong.append(f"the trace processor reports {misplaced} errors")
    print(f"{sum(n for n, _ in read.values())} slices in {len({t for t, _ in read})} rows, {counters} counters")
    processor.close()
    return wrong


def wandb_records(file):
    """The records of an offline run, in the log format of LevelDB with W&B's own header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole, block = file.read_bytes(), 7, b"", 32768
    while at + 7 <= len(data):
        if block - at % block < 7:  # no room for a record: the rest of the block is empty
            at += block - at % block
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        whole += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last piece of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def wandb_runs():
    runs = {}
    for file in sorted(pathlib.Path("wandb").glob("offline-run-*/run-*.wandb")):
        name, steps = None, {}
        for record in wandb_records(file):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                name = record.run.display_name
            elif kind == "history":
                values = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
                steps[values["_step"]] = {k: v for k, v in values.items() if not k.startswith("_")}
        runs[name] = steps
    return runs


def mlflow_runs():
    import mlflow

    client = mlflow.MlflowClient("sqlite:///mlflow.db")
    runs = {}
    for run in client.search_runs([client.get_experiment_by_name("halftone").experiment_id]):
        steps = runs.setdefault(run.info.run_name, {})
        for name in run.data.metrics:
            for metric in client.get_metric_history(run.info.run_id, name):
                steps.setdefault(metric.step, {})[name] = metric.value
    return runs


def trackio_runs():
    from trackio.sqlite_storage import SQLiteStorage

    return {run: {line["step"]: {k: v for k, v in line.items() if k not in ("step", "timestamp")}
                  for line in SQLiteStorage.get_logs("halftone", run)}
            for run in SQLiteStorage.get_runs("halftone")}


SAYS = "share_metrics.py: "  # begins each line of the script's own

# Lines as ht::metrics_file writes them (tests/observe/metrics.cpp), the bare names that Python's json writes, and a null, which does
# not say what it was.
NOT_FINITE = """\
{"policy":"diverged","step":1,"loss":"nan","grad_norm":"inf","lr":"-inf","skipped":0}
{"policy":"diverged","at_step":1,"system":{"processors":"inf","gpus":[{"watts":"nan"}]}}
{"policy":"diverged","step":2,"loss":"inf","grad_norm":"-inf","lr":"nan","skipped":1}
{"policy":"diverged","step":3,"loss":"-inf","grad_norm":"nan","lr":"inf","skipped":2}
{"policy":"diverged","step":4,"loss":NaN,"grad_norm":Infinity,"lr":-Infinity,"skipped":2}
{"policy":"diverged","step":5,"loss":null,"grad_norm":1.5,"lr":0.25,"skipped":2}
{"policy":"diverged","step":6,"loss":null,"grad_norm":1.5,"lr":0.25,"skipped":2}
"""
NAN, INF = math.nan, math.inf
DIVERGED = {1: {"loss": NAN, "grad_norm": INF, "lr": -INF, "skipped": 0, "processors": INF, "gpu0/watts": NAN},
            2: {"loss": INF, "grad_norm": -INF, "lr": NAN, "skipped": 1}, 3: {"loss": -INF, "grad_norm": NAN, "lr": INF, "skipped": 2},
            4: {"loss": NAN, "grad_norm": INF, "lr": -INF, "skipped": 2}, 5: {"grad_norm": 1.5, "lr": 0.25, "skipped": 2},
            6: {"grad_norm": 1.5, "lr": 0.25, "skipped": 2}}


def as_kept(tracker, steps):
    """What a tracker's own functions give back of these figures: MLflow's SQLite store has no infinity (mlflow.log_metric's docstring)."""
    if tracker != "mlflow":
        return steps
    return {step: {k: math.copysign(sys.float_info.max, v) if math.isinf(v) else v for k, v in figures.items()}
            for step, figures in steps.items()}


def notes_of(tracker):
    """What is said of the figures that do not arrive as they are."""
    notes = ["diverged: loss at step 5 is null, which does not say whether it was nan, inf or -inf; left out, as later ones are"]
    if tracker == "mlflow":
        for name, step, value in (("grad_norm", 1, "inf"), ("lr", 1, "-inf"), ("processors", 1, "inf"), ("loss", 2, "inf")):
            notes.append(f"diverged: {name} at step {step} is {value}, which MLflow's SQLite store keeps as "
                         f"{'-' if value[0] == '-' else ''}1.7976931348623157e+308, as later ones are")
    return notes


def are_same(there, here):
    """Whether both have the same figures; a NaN is one."""
    return there is not None and here is not None and {k: repr(float(v)) for k, v in there.items()} == {k: repr(float(v)) for k, v in here.items()}


def read_tracker(tracker, metrics):
    if importlib.util.find_spec(tracker) is None:
        raise ImportError(f"there is no {tracker}")
    script = pathlib.Path(__file__).resolve().parents[2] / "examples/share_metrics.py"
    sys.path.insert(0, str(script.parent))
    import share_metrics

    metrics = metrics.resolve()
    expected = {name: dict(share_metrics.merged(entries)) for name, entries in share_metrics.runs_of(metrics, share_metrics.Notes()).items()}
    expected["diverged"] = DIVERGED
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # of everything that the trackers write
        os.environ.update(HOME=folder, TRACKIO_DIR=folder, WANDB_SILENT="true", MLFLOW_DISABLE_TELEMETRY="true")
        file = pathlib.Path("metrics.jsonl")
        file.write_text(metrics.read_text() + NOT_FINITE)
        run = subprocess.run([sys.executable, str(script), tracker, str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = [line[len(SAYS):] for line in run.stderr.splitlines() if line.startswith(SAYS)]
        if run.returncode != 0 or said != notes_of(tracker):
            wrong.append(f"share_metrics.py ends with {run.returncode} and says {said}, expected {notes_of(tracker)}\n{run.stderr[-2000:]}")
        read = {"wandb": wandb_runs, "mlflow": mlflow_runs, "trackio": trackio_runs}[tracker]()
        os.chdir("/")
    for name in sorted(set(expected) | set(read)):
        kept = as_kept(tracker, expected.get(name, {}))
        for step in sorted(set(kept) | set(read.get(name, {}))):
            there, here = read.get(name, {}).get(step), kept.get(step)
            if not are_same(there, here):
                wrong.append(f"{name}, step {step}: {tracker} has {there}, metrics.jsonl {here}")
    print(f"{len(read)} runs, {sum(len(steps) for steps in read.values())} steps, "
          f"{sum(len(v) for steps in read.values() for v in steps.values())} figures")
    return wrong


def main():
    try:
        if sys.argv[1] == "tensorboard":
            wrong = read_tensorboard(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
        elif sys.argv[1] == "perfetto":
            wrong = read_perfetto(pathlib.Path(sys.argv[2]))
        else:
            wrong = read_tracker(sys.argv[1], pathlib.Path(sys.argv[2]))
    except ImportError as e:
        print(f"skipped: {e}")
        return 77
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
