#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests train_gpt as a program: the files that it writes, its error messages, how it stops.

    tests/programs/train_gpt.py PROGRAM
    EMULATOR=/usr/lib/wine/wine64 tests/programs/train_gpt.py train_gpt.exe     # a program for another system"""
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
from golden_models import GOLDEN, LLAMAS, golden_loss, golden_tokens, tensors

EMULATOR = os.environ.get("EMULATOR", "")
PROGRAM = ([EMULATOR] if EMULATOR else []) + [os.path.abspath(sys.argv[1])]
HERE = pathlib.Path(__file__).resolve().parent
GPT2 = GOLDEN / "gpt2"
SMALL = "--layers 1 --width 32 --heads 2 --context 16 --batch 2 --eval-windows 4 --write 20 --text text".split()
DEEP = ["--layers", "3", *SMALL[2:]]
POLICIES = ["full_fp32", "amp_fp16", "amp_bf16"]
FILES = ["metrics.jsonl", "report.html", "summary.json"]
failures = 0


def expect(holds, what):
    global failures
    if not holds:
        print("FAILED:", what)
        failures += 1


class Run:
    """A run of the program, which ends with `code` (None: whichever), and its results in the folder `out`."""

    def __init__(self, out, *arguments, code=0, wrapper=()):
        self.folder, self.arguments = pathlib.Path(out), [str(a) for a in arguments]
        done = subprocess.run([*wrapper, *PROGRAM, *self.arguments, "--out", str(out)], stdin=subprocess.DEVNULL, capture_output=True)
        self.code, self.out, self.err = done.returncode, *(t.decode(errors="replace").replace("\r\n", "\n") for t in (done.stdout, done.stderr))
        self.writing = self.out[self.out.find("writes:"):]
        expect(code in (None, self.code), f"{' '.join(self.arguments)} --out {out} ends with {self.code}: {self.err[-1000:]}")

    def says(self, pattern):  # on stdout
        expect(re.search(pattern, self.out, re.M), f"{self.arguments}: no {pattern} in {self.out}")

    def tells(self, pattern):  # on stderr
        expect(re.search(pattern, self.err, re.M), f"{self.arguments}: no {pattern} in {self.err}")

    def files(self):
        return sorted(os.listdir(self.folder))

    def leaves(self, *files):
        expect(self.files() == sorted(files), f"{self.arguments} leaves {self.files()}")

    def read(self, name):
        return (self.folder / name).read_text(errors="replace")

    def lines(self):
        return [json.loads(line) for line in self.read("metrics.jsonl").splitlines()]

    def steps(self, policy):
        return [m for m in self.lines() if m["policy"] == policy and "loss" in m]

    def summary(self):
        return json.loads(self.read("summary.json"))

    def run(self, i=0):
        return self.summary()["runs"][i]

    def plan(self, i=0):
        return json.loads(self.read("plan.json"))["plans"][i]

    def losses(self):
        return [(r["train_loss"], r["validation_loss"]) for r in self.summary()["runs"]]


def peaks(result):
    return result["peak_bytes"], result["peak_bytes_by_kind"]


def numbers(folder, without=()):
    """What must not depend on an interruption: losses and rates, step by step."""
    lines = [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]
    ignored = {"tokens_per_second", "step_ms", "peak_bytes", *without}
    return [{k: v for k, v in line.items() if k not in ignored} for line in lines if "at_step" not in line]


def files_and_table():
    a = Run("a", *SMALL, "--steps", 6)
    a.leaves(*FILES)
    expect(a.out.startswith("cpu, "), "the device does not come first")
    for policy in POLICIES:
        a.says(rf"^{policy} +[0-9.]+ +[0-9.]+ +[0-9]+ +[0-9.]+ +[0-9]+ \|")
        a.tells(rf"^{policy} 100%  6/6 ")
        expect(len(a.steps(policy)) == 6, f"metrics.jsonl has not 6 lines of {policy}")
    a.says("The amp_bf16 model writes:")
    s = a.summary()
    expect([r["policy"] for r in s["runs"]] == POLICIES, f"summary.json has {s['runs']}")
    figures = "tokens_per_second step_ms peak_bytes loss_scale "
    for fields, objects in ((figures + "step loss lr skipped", [m for policy in POLICIES for m in a.steps(policy)]), ("program commit machine", [s]),
                            ("cpu isa threads gpu", [s["machine"]]), (figures + "device train_loss validation_loss skipped_steps", s["runs"])):
        for each in objects:
            expect(set(fields.split()) <= set(each), f"{each} has not all of {fields}")
    expect(not re.search("\r[^\n]", a.err), "control characters in a file")
    return a


def same_numbers(a):
    for threads in (2, 1):
        b = Run(f"threads{threads}", *SMALL, "--steps", 6, "--threads", threads)
        expect(b.losses() == a.losses(), "losses depend on the number of threads")
        expect(b.writing == a.writing, "the text depends on the number of threads")
    expect(Run("seed", *SMALL, "--steps", 6, "--seed", 2).losses() != a.losses(), "another seed gives the same losses")


def ranks(_):
    """The first one prints, and the numbers are the same in each run."""
    two = [*SMALL, "--policy", "amp_bf16", "--steps", 6, "--ranks", 2, "--accumulation", 2]
    r, again = Run("ranks", *two), Run("ranks_again", *two)
    cost = r.run()["collectives"]  # on a busy machine nothing may have been hidden
    expect(min(cost[k] for k in ("bytes_received", "seconds_under_way", "seconds_waited")) > 0 and 0 <= cost["hidden_share"] <= 1, f"collectives: {cost}")
    for part in ("received from other ranks, MiB a step", "collectives, ms a step", "of these behind computation"):
        expect(part in r.read("report.html"), f"report.html of two ranks lacks {part}")
    expect([m["ranks"] for m in r.steps("amp_bf16")] == [2] * 6, "metrics.jsonl does not say that there are two ranks")
    r.says("6 steps of 8 x 16 bytes on 2 ranks")
    expect(len(re.findall("^amp_bf16 ", r.out, re.M)) == 1, "not one rank alone prints the table")
    expect(r.losses() == again.losses() and r.writing == again.writing, "two ranks have other numbers in another run")
    # Collectives are ranges of the trace, as engines move them: sums of gradients, and what is gathered.
    few = [*SMALL, "--policy", "amp_bf16", "--steps", 4, "--ranks", 2, "--trace"]
    for run, ranges in ((Run("told", *few), (("exchange", "gradients.*"), ("exchange, its end", "gradients.*"), ("all_gather", r"gradients.*\.sum"))),
                        (Run("told_zero", *few, "--zero", 3), (("exchange", r"h\.0"), ("exchange, its end", r"h\.0"), ("all_gather", r"h\.0")))):
        told = run.read("trace.json").splitlines()
        for name, values in ranges:
            expect(any(f'"name":"{name}"' in t and re.search(f'"layer":"{values}"', t) for t in told), f"{run.folder}: no range {name} of {values}")


def plans(a):
    """A plan tells what the run will report, and trains nothing; of ranks it is that of each, and what each of them has."""
    p = Run("plan", *SMALL, "--steps", 6, "--plan")
    p.leaves("plan.json")
    expect(p.err == "", f"--plan says {p.err}")
    for i in range(len(POLICIES)):
        expect(peaks(p.plan(i)) == peaks(a.run(i)), f"--plan tells {peaks(p.plan(i))}; the run reports {peaks(a.run(i))}")
    p.says("^amp_bf16 +[0-9.]+ ")
    expect("h.0.attn" in [layer["path"] for layer in p.plan()["layers"]], "plan.json has no layers")
    moments = []
    for zero in range(4):
        of_ranks = [*DEEP, "--steps", 4, "--ranks", 3, "--zero", zero, "--accumulation", 2]
        r, p = Run(f"ranks{zero}", *of_ranks), Run(f"ranks_plan{zero}", *of_ranks, "--plan")
        p.says("^each of 3 ranks:$")
        for i, policy in enumerate(POLICIES):
            seen = r.run(i)
            all_peaks = [peaks(seen), peaks(seen["memory_of_ranks"]["planned"]), *map(peaks, seen["memory_of_ranks"]["measured"])]
            expect(all_peaks == 5 * [peaks(p.plan(i))], f"--zero {zero}, {policy}: planned {peaks(p.plan(i))}; the run has {all_peaks}")
        expect("peak memory of each rank, MiB" in r.read("report.html"), "report.html has no memory of ranks")
        moments.append(p.plan()["peak_bytes_by_kind"]["moment"])
    expect(moments[1] * 2 < moments[0], f"bytes of moments by stage: {moments}")


def memory_history(_):
    """The two files of one content, what PyTorch reads of them, and the planned one before the run."""
    for ending in ("json", "html"):
        Run(f"history_{ending}", *SMALL, "--steps", 3, "--policy", "amp_bf16", "--memory-history", f"memory.{ending}")
        expect(os.path.getsize(f"memory.{ending}") > 0 and not os.path.exists(f"memory.{ending}.part"), f"no memory.{ending}")
    expect('"h.0.attn.qkv"' in pathlib.Path("memory.json").read_text(), "a history has no layers")
    expect("Nothing: what a step after the first one allocated" in pathlib.Path("memory.html").read_text(), "train_gpt leaks")
    read = subprocess.run([sys.executable, str(HERE / "memory_history.py"), "memory.json", "memory.html"], capture_output=True, text=True)
    expect(read.returncode == 0, f"the files of a history: {read.stdout}{read.stderr}")
    p = Run("planned", *SMALL, "--steps", 3, "--policy", "amp_bf16,full_fp32", "--plan", "--memory-history", "planned.json")
    expect(sorted(map(str, pathlib.Path().glob("planned_*.json"))) == ["planned_amp_bf16.json", "planned_full_fp32.json"], "histories of two policies")
    peak = re.findall('"peak_bytes":([0-9]+)', pathlib.Path("planned_amp_bf16.json").read_text())[-1]
    expect(int(peak) == p.plan()["peak_bytes"], "the planned history has another peak than the plan")


def less_memory(_):
    """Checkpointing: the same bits. Moments in 8 bits: the same losses within a hundredth; the plan and the summary know it."""
    deep, again = Run("deep", *DEEP, "--steps", 6), Run("again", *DEEP, "--steps", 6, "--checkpointing", 1)
    expect(deep.losses() == again.losses(), "--checkpointing changes the losses")
    expect(again.run()["peak_bytes_by_kind"]["activation"] < deep.run()["peak_bytes_by_kind"]["activation"], "--checkpointing takes more activations")
    options = [*SMALL, "--policy", "amp_bf16", "--lr", "3e-3", "--steps", 80]
    wide, narrow = Run("wide", *options), Run("narrow", *options, "--optimizer", "adamw_8bit")
    plan = Run("planned_narrow", *options, "--optimizer", "adamw_8bit", "--plan").plan()
    expect(peaks(plan) == peaks(narrow.run()), f"--plan of adamw_8bit tells {peaks(plan)}; the run reports {peaks(narrow.run())}")
    expect(narrow.summary()["arguments"]["optimizer"] == narrow.run()["optimizer"] == "adamw_8bit", "summary.json does not name adamw_8bit")
    expect(narrow.run()["peak_bytes_by_kind"]["moment"] * 2 < wide.run()["peak_bytes_by_kind"]["moment"], "adamw_8bit has no smaller moments")
    losses = wide.run()["validation_loss"], narrow.run()["validation_loss"]
    expect(0 < losses[0] < 4 and losses[1] != losses[0] and losses[1] < 1.01 * losses[0], f"the validation losses are {losses}")


def budgets(_):
    """A budget is kept, and refused where nothing fits."""
    deep = "--layers 3 --width 32 --heads 2 --context 16 --batch 8 --eval-windows 4 --write 0 --policy amp_bf16 --text text".split()
    before = Run("whole", *deep, "--steps", 3).run()["peak_bytes"]
    for cut in (0, 20000, 60000):
        r = Run(f"cut{cut}", *deep, "--steps", 3, "--budget", before - cut).run()
        expect(r["budget"]["planned_peak_bytes"] == r["peak_bytes"] <= before - cut, f"--budget {before - cut} takes {r['peak_bytes']}")
    none = Run("none", *deep, "--steps", 3, "--budget", "100KiB", code=2)
    none.tells(r"^train_gpt: --budget: amp_bf16: memory\.budget: the run needs [0-9]+ bytes with .*; [0-9]+ more than the 102400 given; it would take ")
    expect(not none.folder.exists(), "a budget in which nothing fits leaves a folder")
    least = int(re.search("needs ([0-9]+)", none.err).group(1))
    Run("least", *deep, "--steps", 3, "--budget", least)
    Run("none", *deep, "--steps", 3, "--budget", least - 1, code=2)
    small = Run("small_state", *deep, "--steps", 3, "--budget", least - 30000, "--optimizer", "adamw_8bit").run()["peak_bytes"]
    expect(small <= least - 30000, f"--budget {least - 30000} with adamw_8bit takes {small}")
    longer = [*deep, "--steps", 40, "--eval-every", 20]
    plan, run = Run("logs", *longer, "--plan").plan(), Run("logged", *longer).run()
    expect(plan["peak_bytes"] == run["peak_bytes"], "--plan tells another peak than a run with longer logs has")
    attention = [layer for layer in plan["layers"] if layer["path"] == "h.0.attn"]
    expect(attention and attention[0]["bytes_by_kind"]["activation"] > 0, "plan.json has no activations of layers")


def some_options(_):
    e = Run("e", *SMALL, "--steps", 4, "--policy", "amp_bf16,full_fp32", "--profile", "--eval-every", 2, "--accumulation", 2)
    expect([r["policy"] for r in e.summary()["runs"]] == ["amp_bf16", "full_fp32"], "--policy is not the order")
    e.says("^attention +[0-9.]+ +[0-9.]+ ")
    expect(sum("validation_loss" in m for m in e.lines()) == 4, "--eval-every 2 over 4 steps of two policies gives not 4 evaluations")
    e.tells("amp_bf16  step 2: validation loss ")
    Run("wide_head", *"--policy amp_bf16 --layers 1 --heads 1 --width 320 --context 16 --batch 2 --steps 2 --eval-windows 2 --write 0 --text text".split())
    Run("p", *SMALL, "--steps", 2, "--isa", "portable").says(r"\Acpu, portable, ")
    Run("own", *[a for a in SMALL if a not in ("--text", "text")], "--steps", 2)  # on the repository's own text
    for option, pattern in (("--version", r"\A[0-9]+\.[0-9]+\.[0-9]+\s*\Z"), ("--help", "--accumulation")):
        Run("none", option).says(pattern)
    tiny = "--layers 1 --width 8 --heads 1 --context 4 --batch 1 --eval-windows 1 --write 0 --steps 300 --text text --policy amp_bf16".split()
    Run("estimated", *tiny).says("^about [0-9]+:[0-9]{2}$")
    if EMULATOR or not shutil.which("script"):
        return print("not checked: the progress on a terminal (there is no script)")
    words = shlex.join(map(str, [*PROGRAM, *SMALL, *"--steps 6 --out t --policy full_fp32,amp_bf16".split()]))
    shown = subprocess.run(["script", "-qec", f"stty cols 80; {words}", "/dev/null"], stdin=subprocess.DEVNULL, capture_output=True).stdout.decode()
    for policy in ("full_fp32", "amp_bf16"):  # a loss scale leaves amp_fp16 less room
        expect(re.search(rf"\r{policy} +[0-9]+% \[[#-]{{10,}}\]", shown), f"no bar of ten characters on a terminal of 80 columns: {shown!r}")


def what_a_run_did(_):
    """A timeline, the distance from the machine's peaks, event files, the report."""
    pathlib.Path("peaks.json").write_text('{"flops": {"fp32": 1e11, "bf16": 2e11}, "bytes": 2e10}')
    s = Run("seen", *SMALL, "--steps", 6, "--policy", "amp_bf16", *"--trace --tensorboard --speed-of-light --peaks peaks.json --numerics-every 6".split())
    s.says(r"^linear_cross_entropy .*backward +1\.0 ")
    s.says(r"MFU .* of 100.0 GFLOP/s in fp32, 200.0 in bf16; copy 20.0 GB/s")
    trace, page = s.read("trace.json"), s.read("report.html")
    expect('"name":"forward"' in trace and '"layer":"h.0.attn.qkv"' in trace, "the trace lacks its parts or layers")
    expect('"step":4' in trace and not re.search(r'"step":1[,}]', trace), "the trace is not that of steps 4 to 6")
    expect(any(f.stat().st_size for f in s.folder.glob("tensorboard/amp_bf16/events.out.tfevents.*")), "--tensorboard leaves no event file")
    for part in ("Loss scale", "Speed of light, amp_bf16", "Policy, amp_bf16", "Numerics, amp_bf16", r"h\.\*", "</html>", "numerics_amp_bf16_6.html"):
        expect(re.search(part, page), f"report.html lacks {part}")
    expect(not re.search("<script|https?:", page), "report.html is not by itself")
    Run("seen2", *SMALL, "--steps", 2, "--policy", "amp_bf16,full_fp32", "--trace", "--no-report").leaves(
        "metrics.jsonl", "summary.json", "trace_amp_bf16.json", "trace_full_fp32.json")
    pathlib.Path("no_peaks.json").write_text("{}")
    none = Run("none", *SMALL, "--steps", 2, "--speed-of-light", "--peaks", "no_peaks.json", code=2)
    none.tells("^train_gpt: --peaks: peaks: no_peaks.json has no rates")
    expect(not none.folder.exists(), "peaks without rates leave a folder")


def tokens_and_initial_weights(_):
    pathlib.Path("train.bin").write_bytes(b"".join(struct.pack("<H", i * i % 20) for i in range(3000)))
    small = [a for a in SMALL if a not in ("--text", "text")]
    t = Run("tokens", *small, "--steps", 4, "--tokens", "train.bin", "--vocabulary", 20, "--policy", "amp_bf16")
    t.says("^3000 tokens, 4 steps of 2 x 16 tokens$")
    t.says("nats a token")
    expect("writes:" not in t.out, "--tokens writes a text of ids")
    # Weights of a GPT-2: its sizes, and the same run from a folder and from a file in it.
    few = "--batch 2 --eval-windows 4 --steps 2 --tokens train.bin --policy full_fp32".split()
    init, file = Run("init", *few, "--init", GPT2), Run("init_file", *few, "--init", GPT2 / "model.safetensors")
    init.says("^3000 tokens, 2 steps of 2 x 16 tokens$")
    expect(init.losses() == file.losses(), "--init: a folder and its file give other losses")
    without = Run("no_init", *few, *"--layers 2 --heads 4 --width 16 --context 16 --vocabulary 32".split())
    expect(init.losses() != without.losses(), "--init does nothing")
    # A rate of 0 leaves the weights as they were, and each policy exports them.
    Run("exporting", *few[:-1], "full_fp32,amp_bf16", "--lr", 0, "--init", GPT2, "--export", "exported/gpt")
    for policy in ("full_fp32", "amp_bf16"):
        expect(tensors("exported/gpt/" + policy) == tensors(GPT2), f"--export writes other weights under {policy}")
    Run("again", *few, "--init", "exported/gpt/amp_bf16", "--model", "gpt")


def initial_llamas(_):
    """A Llama's weights first: the loss is that of transformers' logits, a resumed run has the same numbers, --export writes it again."""
    few = "--batch 2 --eval-windows 0 --steps 8 --context 13".split()
    pathlib.Path("llama.bin").write_bytes(struct.pack("<270H", *(i * i % 32 for i in range(270))))
    qwen = [*few, "--tokens", "llama.bin", "--init", LLAMAS / "qwen2"]
    if Run("build", *qwen, "--plan", code=None).code == 2:
        return refuse("--model: a llama is not in this build; .*-DHALFTONE_TRAIN_GPT_MORE=ON.*", *qwen)
    for name in ("llama", "llama3", "qwen2"):  # a head of its own and large heads; scaled angles; biases
        parameters = sum(math.prod(shape) for _, shape, _ in tensors(LLAMAS / name).values())
        ids = golden_tokens(parameters)  # the held-out tenth, and one more token
        pathlib.Path(f"{name}.bin").write_bytes(struct.pack("<270H", *(i * i % 32 for i in range(243)), *ids, 7))
        of_model = [*few, "--tokens", f"{name}.bin", "--lr", 0, "--policy", "full_fp32,amp_bf16"]
        r = Run(f"of_{name}", *of_model, "--init", LLAMAS / name, "--export", f"exported/{name}")
        expect(r.run()["parameters"] == parameters and r.summary()["arguments"]["model"] == "llama", f"{name}: {r.summary()}")
        expected = golden_loss(name, [*ids[1:], 7])
        for (_, loss), policy, bound in zip(r.losses(), ("full_fp32", "amp_bf16"), (2e-5, 0.01)):
            expect(abs(loss - expected) <= bound, f"{name}, {policy}: the loss is {loss}; by transformers' logits {expected}")
            folder = pathlib.Path("exported", name, policy)
            expect(tensors(folder) == tensors(LLAMAS / name), f"--export writes other weights of {name}")
            there, here = (json.loads((f / "config.json").read_text()) for f in (LLAMAS / name, folder))
            expect({k: v for k, v in there.items() if k != "dtype"} == here, f"--export writes the configuration {here} of {name}")
    expect(Run("exported_run", *of_model, "--init", "exported/qwen2/amp_bf16").losses() == r.losses(), "an exported Qwen2 has another loss")
    # Ranks that divide the model write the folder that one rank would.
    for zero in (0, 3):
        Run(f"ranks{zero}", *qwen, "--policy", "amp_bf16", "--ranks", 2, "--zero", zero, "--export", f"exported/zero{zero}")
    expect(tensors("exported/zero0") == tensors("exported/zero3") != tensors(LLAMAS / "qwen2"), "--zero 3 exports another model than --zero 0")
    # A GGUF file has no config.json that --export could take over.
    gguf = GOLDEN / "gguf_files" / "qwen2-F32.gguf"
    g = Run("gguf", *few[:-2], *"--context 8 --tokens llama.bin --policy amp_bf16 --lr 0 --export exported/gguf --init".split(), gguf)
    again = Run("gguf2", *few[:-2], *"--context 8 --tokens llama.bin --policy amp_bf16 --lr 0 --init exported/gguf".split())
    expect(g.losses() == again.losses(), "a GGUF file and the folder exported of it have other losses")
    # The plan, a run from other weights, and one that goes on.
    saving = [*qwen, "--policy", "amp_bf16", "--save-steps", 3]
    whole = Run("whole_llama", *saving)
    plan = Run("plan_llama", *saving, "--plan").plan()
    expect(peaks(plan) == peaks(whole.run()), f"--plan tells {peaks(plan)}; the run of a Llama reports {peaks(whole.run())}")
    sizes = "--tokens llama.bin --model llama --vocabulary 32 --layers 2 --heads 4 --width 16 --policy amp_bf16 --save-steps 3".split()
    expect(Run("without_llama", *few, *sizes).losses() != whole.losses(), "--init of a Llama does nothing")
    shutil.copytree("whole_llama", "resumed_llama")
    shutil.rmtree("resumed_llama/amp_bf16/checkpoint-8")
    shutil.copytree(LLAMAS / "qwen2", "theta")
    of_theta = [*few, *"--tokens llama.bin --policy amp_bf16 --save-steps 3 --init theta".split()]
    Run("resumed_llama", *of_theta, "--resume")  # the weights may be elsewhere
    expect(numbers("resumed_llama") == numbers("whole_llama"), "the metrics of a Llama's run that goes on differ")
    config = (LLAMAS / "qwen2" / "config.json").read_text().replace('"rope_theta": 1000.0', '"rope_theta": 2000.0')
    pathlib.Path("theta/config.json").write_text(config)
    for changed, pattern in ((of_theta, "rope_theta 1000.0; here it is 2000.0"), ([*few, *sizes], "attention_bias true; here it is unknown")):
        Run("resumed_llama", *changed, "--resume", code=2).tells(rf"\Atrain_gpt: --resume: resumed_llama/.* was saved with {pattern}\n\Z")
    Run("mistral", *few[:-2], *"--context 5 --tokens llama.bin --policy amp_bf16 --init".split(), LLAMAS / "mistral")
    for pattern, *arguments in (
            ("--init: a Qwen2 is a llama; --model is gpt", *qwen, "--model", "gpt"), ("--kv-heads is that of the model", *qwen, "--kv-heads", 2),
            ("--context is 33, and --init: .* at most the 32 of", *[33 if a == "13" else a for a in qwen]),
            ("--init: .*sliding_window is 5", *few, "--tokens", "llama.bin", "--init", LLAMAS / "mistral"),
            ("--init: a Qwen3 is an ht::nn::qwen3", *few, "--tokens", "llama.bin", "--init", LLAMAS / "qwen3"),
            ("--init: a Qwen3 is an ht::nn::qwen3", *few, "--tokens", "llama.bin", "--init", GOLDEN / "gguf_files" / "qwen3-F32.gguf"),
            ("its vocabulary has 32 tokens, which are no bytes", *few, "--text", "text", "--init", LLAMAS / "qwen2"),
            ("tf32 is of a gpt", *qwen, "--policy", "tf32"), ("--shadow is of a gpt", *qwen, "--shadow", 1)):
        refuse(pattern, *arguments)


def overflowing_weights():
    """The GPT-2 with the weights of h.0.mlp times 2^16, so that its results overflow in float16."""
    folder = pathlib.Path("overflowing")
    folder.mkdir(exist_ok=True)
    shutil.copy(GPT2 / "config.json", folder)
    data = bytearray((GPT2 / "model.safetensors").read_bytes())
    size = struct.unpack_from("<Q", data)[0]
    for name, tensor in json.loads(data[8:8 + size]).items():
        if re.search(r"h\.0\.mlp\..*weight", name):
            begin, end = tensor["data_offsets"]
            form = f"<{(end - begin) // 4}f"
            struct.pack_into(form, data, 8 + size + begin, *(2 ** 16 * w for w in struct.unpack_from(form, data, 8 + size + begin)))
    (folder / "model.safetensors").write_bytes(data)
    return folder


def overflows(_):
    """--watch tells where a step overflowed; --numerics-every leaves pages; of a build with --shadow, that names it, too."""
    few = ["--batch", 2, "--eval-windows", 4, "--tokens", "train.bin", "--init", overflowing_weights(), "--policy", "amp_fp16"]
    w = Run("w", *few, "--steps", 6, "--accumulation", 2, "--watch", "--numerics-every", 3)
    w.tells(r"^amp_fp16  step 4 skipped \((infinity|not a number)\): h\.0\.mlp, mlp, forward: [0-9]+ [+-]inf.* in float16")
    told = [m["overflow"] for m in w.lines() if "overflow" in m and m["step"] == 4]
    expect(len(told) == 1 and told[0]["layer"] == "h.0.mlp" and told[0]["micro_batch"] == 1, f"metrics.jsonl has no overflow of step 4: {told}")
    w.leaves(*FILES, *(f"numerics_amp_fp16_{step}.{ending}" for step in (3, 6) for ending in ("html", "json")))
    expect("numerics_amp_fp16_6.html" in w.read("report.html"), "the report does not link to numerics")
    shadow = Run("sp", *few, "--steps", 3, "--shadow", 2, code=None)
    if shadow.code == 0:
        shadow.says("^first: h.0.mlp mlp, forward, value: .* beyond the bound in float16")


def more_policies(a):
    """Two policies, shadow runs and a Llama are built on request alone; elsewhere the refusal says how."""
    three = [*SMALL, "--steps", 6, "--policy", "tf32,fp8_hybrid,amp_bf16", "--accumulation", 2]
    m = Run("m", *three, "--threads", 2, code=None)
    if m.code == 2:
        says_how = " is not in this build; .*-DHALFTONE_TRAIN_GPT_MORE=ON.*"
        refuse("--policy: tf32" + says_how, *three)
        refuse("--shadow" + says_how, *SMALL, "--shadow", 1)
        return refuse("--model: a llama" + says_how, *SMALL, "--model", "llama")
    expect(m.code == 0, f"tf32 and fp8_hybrid: {m.code}")
    for policy in ("tf32", "fp8_hybrid"):
        m.says(rf"^{policy} +[0-9.]+ +[0-9.]+ +[0-9]+ +[0-9.]+ +0 \|")
        expect(len(m.steps(policy)) == 6, f"metrics.jsonl has not 6 lines of {policy}")
    losses = [train for train, _ in m.losses()]
    expect(0 < abs(losses[1] - losses[2]) < 0.02, f"the losses of fp8_hybrid are not near those of amp_bf16: {losses}")
    expect(Run("m1", *three, "--threads", 1).losses() == m.losses(), "losses of tf32 or fp8_hybrid depend on the number of threads")
    s = Run("s", *SMALL, "--steps", 3, "--policy", "amp_fp16,amp_bf16", "--accumulation", 2, "--shadow", 2)
    expect(len(re.findall("^no tensor is beyond its bound$", s.out, re.M)) == 2, f"--shadow finds in a sound step: {s.out}")
    expect("shadow_amp_bf16.html" in s.files() and "shadow_amp_bf16.html" in s.read("report.html"), f"--shadow leaves no page: {s.files()}")
    llama = [*SMALL, "--model", "llama", "--steps", 6]
    one, two = (Run(f"l{threads}", *llama, "--kv-heads", 1, "--threads", threads) for threads in (1, 2))
    expect(one.losses() == two.losses() != a.losses(), "a llama's losses depend on the number of threads, or are a GPT's")
    expect(one.summary()["arguments"]["model"] == "llama", "summary.json does not name the llama")
    held_out = [v for _, v in one.losses()]
    expect(max(held_out) - min(held_out) < 0.03, f"a llama's losses differ from policy to policy: {held_out}")
    Run("l3", *llama, "--kv-heads", 3, code=2).tells("^train_gpt: --kv-heads is 3; expected 1 to 2")


def refuse(pattern, *arguments, out="refused/deep"):
    """Bad input: one line, exit code 2, nothing left behind."""
    r = Run(out, *arguments, code=2)
    expect(r.err.count("\n") == 1 and re.search(f"^train_gpt: .*{pattern}", r.err), f"{r.arguments} --out {out} says: {r.err}")
    expect(not os.path.exists("refused"), f"{r.arguments} leaves {list(pathlib.Path('refused').rglob('*'))}")
    shutil.rmtree("refused", ignore_errors=True)


def refusals(a):
    text = pathlib.Path("text").read_text()
    pathlib.Path("empty").write_text("")
    pathlib.Path("bare").mkdir()
    pathlib.Path("short").write_text(text[:100])
    of_text, of_tokens, of_init = ["--text", "text"], ["--tokens", "train.bin"], ["--tokens", "train.bin", "--init", GPT2]
    cases = [
        ("there is no missing", "--text", "missing"), ("empty is empty", "--text", "empty"), ("holds no files", "--text", "bare"),
        ("has 100 tokens; a context of 128 needs 129", "--text", "short"),
        ("held-out part has 10 tokens; a context of 16 needs 17", "--text", "short", "--context", 16),
        ("3 do not divide a --width of 256", *of_text, "--heads", 3), ("--ranks is 2, and --budget chooses", *of_text, "--ranks", 2, "--budget", "1GiB"),
        ("there is no missing", "--tokens", "missing"), ("empty is empty", "--tokens", "empty"),
        ("token number 3 is 9; the vocabulary has 0 to 8", *of_tokens, "--vocabulary", 9), ("expected one of them", *of_tokens, *of_text),
        ("--vocabulary is of --tokens", *of_text, "--vocabulary", 9), ("--init: io: there is no", *of_tokens, "--init", "nowhere"),
        ("--layers is that of the model of --init", *of_init, "--layers", 2), ("which are no bytes; give --tokens", *of_text, "--init", GPT2),
        ("--context is 17; the model of --init has 16 positions", *of_init, "--context", 17),
        ("a GPT-2 is a gpt; --model is llama", *of_init, "--model", "llama"),
        ("a BERT does not predict the next token", *of_tokens, "--init", GOLDEN / "bert_folders" / "base"),
        ("--export is the folder of --init", *of_init, "--export", GPT2), ("cannot make the folder", *of_init, "--export", "text/below"),
        ("GiB of memory", *of_text, "--width", 65536, "--layers", 1000), ("GiB of memory", *of_text, "--batch", 1048576),
        ("GiB of memory", *of_text, *"--batch 65536 --accumulation 65536 --layers 1 --width 8 --heads 1".split()),
        ("--lr is -1", *of_text, "--lr", -1), ("--lr is nan", *of_text, "--lr", "nan"), (r"--lr is 1e\+15; expected 0 to 1e6", *of_text, "--lr", "1e15"),
        ("--threads is -1", *of_text, "--threads", -1), ("there is no 'adam'; known: adamw, adamw_8bit", *of_text, "--optimizer", "adam"),
        ("there is no 'amp_fp8'", *of_text, "--policy", "amp_fp8"), ("there is no 'amp_fp8'", *of_text, "--policy", "full_fp32,amp_fp8"),
        ("twice", *of_text, "--policy", "full_fp32,full_fp32"),
        ("expected a file that ends with .html or .json", *of_text, "--memory-history", "memory.txt"),
        ("output: cannot write no/folder_full_fp32.html.part", *of_text, *"--context 16 --steps 2 --memory-history no/folder.html".split()),
        ("not an instruction set", *of_text, "--isa", "mmx"), ("there is no 'tpu'", *of_text, "--device", "tpu"),
        ("there is no 'bert'", *of_text, "--model", "bert"), ("not expected", *of_text, "--no-such-option")]
    for option in ("layers", "heads", "width", "context", "batch", "accumulation", "steps"):
        cases += [(f"--{option} is {n}; expected 1", *of_text, f"--{option}", n) for n in (0, -1, 9999999999)]
        cases += [(option, *of_text, f"--{option}", *value) for value in (["99999999999999999999999"], ["many"], [])]
    if not EMULATOR:
        cases.append(("neither a file nor a folder", "--text", "/dev/null"))
    if os.path.exists("/proc/self/mem"):
        cases.append(("cannot read", "--text", "/proc/self/mem"))
    if os.geteuid() != 0:
        shutil.copy("text", "closed")
        os.chmod("closed", 0)
        cases.append(("cannot open closed", "--text", "closed"))
    for case in cases:
        refuse(*case)
    refuse("(is no folder|cannot make the folder)", *of_text, out="text/below")
    refuse("the folder.s name is empty", *of_text, out="")
    if os.path.isdir("/proc/self"):
        refuse("cannot", *of_text, out="/proc/self")
    os.makedirs("taken/summary.json")
    refuse("is a folder", *of_text, out="taken")
    expect(sorted(map(str, pathlib.Path("taken").rglob("*"))) == [os.path.join("taken", "summary.json")], "a refused run leaves files")
    shutil.copytree("a", "kept")
    Run("kept", *SMALL[:-1], "empty", "--steps", 6, code=2)
    expect(sorted(os.listdir(a.folder)) == sorted(os.listdir("kept")), f"a refused run leaves {os.listdir('kept')} of an earlier one's files")
    expect(all((a.folder / f).read_bytes() == pathlib.Path("kept", f).read_bytes() for f in FILES), "a refused run changes the files of an earlier one")


def gpu(a):
    """Without a GPU, or built without CUDA: one line, 3, nothing left behind. With one: the same files, and its name in them."""
    g = Run("gpu", *SMALL, "--steps", 6, "--device", "cuda", code=None)
    if g.code == 0:
        g.says(r"\Acuda, ")
        expect(g.summary()["machine"]["gpu"], "summary.json does not name the GPU")
        expect(all(abs(x - y) <= 0.02 for p, q in zip(a.losses(), g.losses()) for x, y in zip(p, q)), f"the GPU's losses are not the CPU's: {g.losses()}")
    else:
        expect(g.code == 3 and re.fullmatch("train_gpt: --device cuda: .*\n", g.err) and not g.folder.exists(), f"--device cuda ends with {g.code}: {g.err}")


def kill_at(sent, out, pattern, *arguments, least=0, seconds=0):
    """Sends a signal to the program when a file with so many bytes exists, or some seconds later. Returns its exit code."""
    with open("out", "w") as told, open("err", "w") as errors:
        run = subprocess.Popen([*PROGRAM, *map(str, arguments), "--out", out], stdin=subprocess.DEVNULL, stdout=told, stderr=errors)
        began = time.monotonic()
        while time.monotonic() < began + 60 and run.poll() is None and not any(f.stat().st_size >= least for f in pathlib.Path(out).glob(pattern)):
            time.sleep(0.01)
        time.sleep(seconds)
        run.send_signal(sent)
        return run.wait()


def interruptions(_):
    """Ctrl-C ends at a step boundary with the summary so far."""
    for out, sent, code in (("i", signal.SIGINT, 130), ("j", signal.SIGTERM, 143))[:1 if EMULATOR else 2]:  # Windows has no SIGTERM
        ended = kill_at(sent, out, "metrics.jsonl.part", *SMALL, "--steps", 100000000, "--policy", "amp_bf16,full_fp32", seconds=0.3)
        expect(ended == code, f"{sent} ends with {ended}")
        expect(sorted(os.listdir(out)) == FILES, f"{sent} leaves {os.listdir(out)}")
        runs = json.loads(pathlib.Path(out, "summary.json").read_text())["runs"]
        expect(len(runs) == 1 and runs[0]["validation_loss"] is None, f"{sent} goes on with an evaluation or the next policy")
        expect(re.search("^amp_bf16 ", pathlib.Path("out").read_text(), re.M), f"{sent} prints no table")


def resumed(_):
    """A run that is killed goes on with the same numbers; SIGTERM saves at the step's end."""
    long = [*SMALL, "--steps", 100, "--accumulation", 2, "--eval-every", 40]
    saving = [*long, "--save-steps", 30]
    whole = Run("whole_run", *saving)
    expect(sorted(os.listdir("whole_run/amp_fp16")) == ["checkpoint-100", "checkpoint-90"], "--save-steps keeps others")
    Run("without", *long)
    expect(numbers("whole_run") == numbers("without"), "--save-steps changes the numbers")
    if EMULATOR:
        return
    kill_at(signal.SIGKILL, "killed", "full_fp32/checkpoint-*", *saving)
    kill_at(signal.SIGKILL, "killed", "amp_fp16/checkpoint-*", *saving, "--resume")
    kill_at(signal.SIGTERM, "killed", "amp_bf16/checkpoint-*", *saving, "--resume")
    k = Run("killed", *saving, "--resume")
    expect(numbers("killed") == numbers("whole_run"), "the metrics of a run that was killed three times differ")
    expect(k.losses() == whole.losses(), "the losses of a run that was killed differ")
    k.leaves(*FILES, *POLICIES)
    # A damaged checkpoint is skipped with a line; other arguments are refused.
    with open("killed/amp_bf16/checkpoint-100/model.safetensors", "r+b") as f:
        f.seek(900)
        f.write(b"x")
    Run("killed", *saving, "--resume").tells("^train_gpt: skipped .*amp_bf16/checkpoint-100: .*its checksum differs")
    expect(numbers("killed") == numbers("whole_run"), "the metrics beside a damaged checkpoint differ")
    Run("killed", *saving, "--resume", "--lr", 0.01, code=2).tells(r"\Atrain_gpt: --resume: killed/.* was saved with lr 0.001; here it is 0.01.*\n\Z")
    Run("fresh", *SMALL, "--steps", 3, "--resume", "--policy", "amp_bf16")
    # Each rank saves what it holds, and those of another stage of ZeRO go on with the same numbers; others with near ones.
    one = [*SMALL, "--steps", 100, "--eval-every", 40, "--policy", "amp_bf16", "--save-steps", 30]
    two = [*one, "--accumulation", 2, "--ranks", 2]
    whole = Run("whole_ranks", *two)
    kill_at(signal.SIGKILL, "killed_ranks", "amp_bf16/checkpoint-*", *two, "--zero", 3)
    kill_at(signal.SIGTERM, "killed_ranks", "amp_bf16/checkpoint-[6-9]*", *two, "--zero", 1, "--resume")
    expect(list(pathlib.Path("killed_ranks").glob("amp_bf16/checkpoint-*/model-00002-of-00002.safetensors")), "ranks do not save their parts")
    shutil.copytree("killed_ranks", "four_ranks")
    shutil.copytree("killed_ranks", "no_ranks")
    Run("killed_ranks", *two, "--zero", 2, "--resume")
    expect(numbers("killed_ranks", ("ranks", "zero")) == numbers("whole_ranks", ("ranks", "zero")), "the metrics of ranks that were killed differ")
    Run("four_ranks", *one, *"--accumulation 2 --ranks 4 --zero 2 --resume".split(), code=2).tells(
        r"\Atrain_gpt: --resume: .* was saved with 8 windows in a step on 2 ranks; here it has 16 on 4.*\n\Z")
    for other in (Run("four_ranks", *one, *"--ranks 4 --accumulation 1 --zero 3 --resume".split()), Run("no_ranks", *one, "--accumulation", 4, "--resume")):
        losses = other.run()["validation_loss"], whole.run()["validation_loss"]
        expect(0 < max(losses) < 1.01 * min(losses), f"{other.folder} ends with the validation loss {losses[0]}; two ranks with {losses[1]}")


def unwritable(_):
    """The run ends with one line, or goes on, as --on-write-error says; what was written before stays."""
    short = [*SMALL, "--steps", 40, "--policy", "amp_bf16", "--tensorboard", "--trace"]
    go_on = ["--on-write-error", "continue"]
    os.mkdir("full")
    if os.path.exists("/dev/full"):
        os.symlink("/dev/full", "full/metrics.jsonl.part")
        f = Run("full", *SMALL, "--steps", 6, code=None)
        expect(f.code != 0 and "cannot write" in f.err.splitlines()[-1], f"a full disk: {f.code}, {f.err}")
        expect(not {"metrics.jsonl", "summary.json"} & set(f.files()), f"a full disk leaves {f.files()}")
    pathlib.Path("a_file").write_text("")
    expect(Run("a_file/below", *short, code=2).err.count("\n") == 1, "a folder that cannot be made says more than a line")
    r = Run("a_file/below", *short, *go_on, code=2)
    r.says("^amp_bf16 ")
    r.tells("^train_gpt: output: .*a_file.*; the run goes on without it$")
    Run("refused", *short, "--on-write-error", "perhaps", code=2)
    # A disk of 24 KiB, and a folder that can be read alone, where this user may mount one.
    os.mkdir("tiny")

    def mounted(options, then=""):
        script = f'mount -t tmpfs -o {options} tmpfs tiny && "$@"; code=$?; {then} exit $code'
        return ["unshare", "-rm", "bash", "-c", script, "bash"]
    if EMULATOR or not shutil.which("unshare") or subprocess.run([*mounted("size=24k"), "true"], stderr=subprocess.DEVNULL).returncode:
        print("not checked: a disk that is full, or can be read alone (this user may not mount one)")
    else:
        for what in ("stop", "continue"):
            t = Run("tiny/out", *short, "--on-write-error", what, code=2, wrapper=mounted("size=24k", f"cp -r tiny tiny_{what};"))
            kept = list(pathlib.Path(f"tiny_{what}/out").glob("metrics.jsonl*"))
            expect(kept and kept[0].read_text() and [json.loads(line) for line in kept[0].read_text().splitlines()], f"a tiny disk leaves {kept}")
            t.tells("No space left on device")
        t.says("^amp_bf16 ")
        t.tells("the run goes on without it")
        alone = Run("tiny/out", *short, *go_on, code=2, wrapper=mounted("size=1m,ro"))
        alone.says("^amp_bf16 ")
        alone.tells("Read-only file system")
    if EMULATOR:
        return
    # A run that is killed leaves lines and events that can be read.
    kill_at(signal.SIGKILL, "gone", "metrics.jsonl.part", *SMALL, *"--steps 100000000 --policy amp_bf16 --no-estimate --eval-every 20 --tensorboard".split(),
            least=1)
    lines = pathlib.Path("gone/metrics.jsonl.part").read_text().splitlines()
    expect(lines and [json.loads(line) for line in lines], "a run that was killed leaves no lines")
    expect(any(f.stat().st_size for f in pathlib.Path("gone").glob("tensorboard/amp_bf16/events.out.tfevents.*")), "a run that was killed leaves no events")


def main():
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        # A text of 20,000 bytes with something to learn in it.
        pathlib.Path("text").write_text("".join(f"In the beginning was line {i:3}, and it was good. \n" for i in range(1, 401)), newline="\n")
        a = files_and_table()
        for part in (same_numbers, ranks, plans, memory_history, less_memory, budgets, some_options, what_a_run_did,
                     tokens_and_initial_weights, initial_llamas, overflows, more_policies, refusals, gpu, interruptions, resumed, unwritable):
            part(a)
        os.chdir("/")
    print(f"{failures} failures" if failures else "train_gpt behaves")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
