// SPDX-License-Identifier: MIT
#include <algorithm>
#include <charconv>
#include <functional>
#include <string_view>
#include <system_error>

#include <halftone/exec/cpu/isa.hpp>
#include <halftone/observe/metrics/machine.hpp>
#include <halftone/observe/profile/peaks_file.hpp>

#include "../parse.hpp"
#include "initial.hpp"
#include "options.hpp"

namespace ht = halftone;

namespace {

#if defined(TRAIN_GPT_MORE)
constexpr bool has_more = true;
#else
constexpr bool has_more = false;
#endif
bool is_of_more(std::string_view policy) { return policy == "tf32" || policy == "fp8_hybrid"; }  // of a GPT alone

void need_more(const std::string& what) {
    if (has_more) return;
    refuse(what, " is not in this build; configure with cmake -DHALFTONE_TRAIN_GPT_MORE=ON, or use examples/train.sh, which does "
                 "so when asked for it");
}
void check_known(const char* option, const std::string& value, const std::vector<std::string>& known) {
    if (std::find(known.begin(), known.end(), value) != known.end()) return;
    std::string all;
    for (const std::string& each : known) all += (all.empty() ? "" : ", ") + each;
    refuse(option, ": there is no '", value, "'; known: ", all);
}

/// A lower bound of the run's memory: parameters, gradients and moments, the activations of a micro-batch, and the batch.
double least_memory(const options& o) {
    const double width = static_cast<double>(o.width), layers = static_cast<double>(o.layers);
    const double tokens = static_cast<double>(o.batch) * static_cast<double>(o.context);
    const double squares = o.model == "gpt" ? 12 : 10;  // of the width, in a layer
    const double positions = o.model == "gpt" ? static_cast<double>(o.context) : 0;
    const double parameters =
        (static_cast<double>(o.vocabulary) + positions) * width + layers * (squares * width * width + 2 * width);
    const double activations = tokens * width * 14 * layers;
    const double state = o.optimizer == "adamw" ? 8 : 2;
    return (8 + state) * parameters + 2 * activations + 8 * tokens * static_cast<double>(o.accumulation);
}

/// "96MiB", "1.5GiB", "4096KiB" or a number of bytes.
std::int64_t parse_bytes(const char* option, const std::string& text) {
    double number = 0;
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, number);
    const std::string unit(end, last);
    const double each = unit.empty() || unit == "B" ? 1 : unit == "KiB" ? 0x1p10 : unit == "MiB" ? 0x1p20 : unit == "GiB" ? 0x1p30 : 0;
    if (error != std::errc{} || each == 0 || !(number * each >= 1 && number * each < 0x1p62))
        refuse(option, " is '", text, "'; expected bytes, for example 96MiB or 1.5GiB");
    return static_cast<std::int64_t>(number * each);
}

void check_model(const options& o) {
    check_known("--model", o.model, {"gpt", "llama"});
    if (o.policies.empty()) refuse("--policy names none");
    for (auto policy = o.policies.begin(); policy != o.policies.end(); ++policy) {
        check_known("--policy", *policy, {"full_fp32", "amp_fp16", "amp_bf16", "tf32", "fp8_hybrid"});
        if (is_of_more(*policy)) need_more("--policy: " + *policy);
        if (std::find(o.policies.begin(), policy, *policy) != policy) refuse("--policy names ", *policy, " twice");
    }
    if (!o.llama && o.width % o.heads != 0) refuse("--heads: ", o.heads, " do not divide a --width of ", o.width);
    if (o.model != "llama") return;
    need_more("--model: a llama");
    check_range("--kv-heads", o.kv_heads, 1, o.heads);
    if (o.heads % o.kv_heads != 0) refuse("--kv-heads: ", o.kv_heads, " do not divide ", o.heads, " --heads");
    if (!o.llama && o.width / o.heads % 2 != 0)
        refuse("--heads: ", o.heads, " of a --width of ", o.width, " have an odd number of channels");
    if (o.shadow_step != 0) refuse("--shadow is of a gpt, not of a llama");
    for (const std::string& policy : o.policies) {
        if (is_of_more(policy)) refuse("--policy: ", policy, " is of a gpt, not of a llama");
    }
}

void check_ranks(const options& o) {
    const auto refuse_with = [&o](bool is_given, const char* option, const char* why) {
        if (is_given && o.ranks > 1) refuse("--ranks is ", o.ranks, ", and ", option, why);
    };
    refuse_with(o.device != "cpu", "--device is cuda", "; ranks train on the CPU");
    refuse_with(o.shadow_step != 0, "--shadow", " is of a run of one rank");
    refuse_with(o.budget != 0, "--budget", " chooses the micro-batches of one rank");
    if (o.zero == 0) return;
    if (o.ranks == 1) refuse("--zero divides a model among ranks, and there is one; --ranks 2, say");
    if (o.numerics_every != 0) refuse("--zero with --numerics, which reads whole parameters");
    if (o.watch) refuse("--zero with --watch, which reads whole parameters");
}

/// What must hold of options together, and of those that are no number.
void check(const options& o) {
    check_known("--optimizer", o.optimizer, {"adamw", "adamw_8bit"});
    check_known("--device", o.device, {"cpu", "cuda"});
    check_model(o);
    check_ranks(o);
    if (o.shadow_step != 0) {
        need_more("--shadow");
        check_range("--shadow", o.shadow_step, 1, o.steps);
    }
    const std::string_view history = o.memory_history;
    if (!history.empty() && !history.ends_with(".html") && !history.ends_with(".json"))
        refuse("--memory-history is '", history, "'; expected a file that ends with .html or .json");
    try {
        if (!o.peaks.empty()) static_cast<void>(ht::read_peaks(o.peaks));
    } catch (const ht::argument_error& e) {
        refuse("--peaks: ", e.what());
    }
    if (!o.peaks.empty() && !o.speed_of_light) refuse("--peaks is of --speed-of-light, which is not given");
    if (o.speed_of_light && o.device != "cpu")
        refuse("--speed-of-light: of a run on the CPU; --device is ", o.device, ", whose kernels --trace shows");
    if (!(o.learning_rate >= 0 && o.learning_rate <= 1e6)) refuse("--lr is ", o.learning_rate, "; expected 0 to 1e6");
    try {
        if (!o.isa.empty() && !ht::supports(ht::parse_isa(o.isa.c_str()))) refuse("--isa: this processor lacks ", o.isa);
    } catch (const ht::argument_error& e) {
        refuse("--isa: ", e.what());
    }
    if (o.budget != 0 && o.checkpointing != 0) refuse("--budget chooses the blocks that are computed again; leave --checkpointing to it");
    const double memory = static_cast<double>(ht::physical_memory()), gibibyte = 1 << 30;
    if (!o.plan && o.budget == 0 && o.device == "cpu" && memory != 0 && least_memory(o) > memory) {
        refuse("these sizes need ", static_cast<std::int64_t>(least_memory(o) / gibibyte), " GiB of memory or more; this machine has ",
               static_cast<std::int64_t>(memory / gibibyte));
    }
}

/// What an option must be with --tokens or --init.
void check_data(options& o, const CLI::App& app) {
    const auto is_given = [&app](const char* option) { return app.get_option(option)->count() != 0; };
    if (!is_given("--vocabulary") && !o.tokens.empty()) o.vocabulary = 50257;
    if (is_given("--vocabulary") && o.tokens.empty()) refuse("--vocabulary is of --tokens, which is not given");
    if (!o.tokens.empty() && !o.text.empty()) refuse("--tokens and --text are both given; expected one of them");
    if (!is_given("--init")) return;
    for (const char* const size : {"--layers", "--heads", "--kv-heads", "--width", "--vocabulary"}) {
        if (is_given(size)) refuse(size, " is that of the model of --init; leave it out");
    }
    take_initial_model(o, is_given("--model"), is_given("--context"));
    if (o.tokens.empty() && o.vocabulary != 256)
        refuse("--init: its vocabulary has ", o.vocabulary, " tokens, which are no bytes; give --tokens");
    std::error_code none;
    if (!o.like.empty() &&
        std::filesystem::equivalent(o.export_to, std::filesystem::absolute(o.like).parent_path(), none))
        refuse("--export is the folder of --init, whose weights it would replace");
}

}  // namespace

std::optional<options> parse_options(int argc, char** argv, int processes) {
    options o;
    CLI::App app{
        "Trains the same byte-level GPT from the same initial weights on the same batches under each precision policy, "
        "and compares."};
    app.name("train_gpt");
    app.allow_windows_style_options(false);  // a path may begin with a slash there, too
    app.option_defaults()->always_capture_default();
    // A whole number, and its range, which is checked behind the parsing.
    std::vector<std::function<void()>> ranges;
    const auto number = [&](const char* name, auto& value, std::int64_t least, std::int64_t most, const char* what) {
        ranges.push_back([=, &value] { check_range(name, value, least, most); });
        return app.add_option(name, value, what);
    };
    constexpr std::int64_t billion = 1'000'000'000, million = 1'000'000;
    app.add_option("--model", o.model, "gpt or, if this build includes it, llama; that of --init, if given");
    app.add_option("--policy", o.policies,
                   "which policies to train, in this order: full_fp32, amp_fp16, amp_bf16 and, if this build includes them, tf32 and "
                   "fp8_hybrid")
        ->delimiter(',');
    app.add_option("--text", o.text, "files and folders to read; without it this repository's own headers and documents");
    app.add_option("--tokens", o.tokens,
                   "a file of token ids in place of a text, as llm.c or nanoGPT write it (train.bin); no text is sampled at the end");
    app.add_option(
        "--init", o.init,
        "the first weights: a GPT-2, Llama, Mistral or Qwen2 as Hugging Face stores it, a folder, or a "
        ".safetensors file or index beside its config.json, or a GGUF file of a Llama or Qwen2; it tells the "
        "model and its sizes; with --tokens");
    app.add_option("--export", o.export_to,
                   "folder for the trained model, as Hugging Face's transformers reads it, with what the config.json "
                   "of --init says besides; with several policies a folder in it for each");
    number("--vocabulary", o.vocabulary, 1, 1 << 24, "with --tokens: all ids are below it; 50257, GPT-2's, if not given")->default_str("");
    app.add_option("--out", o.out, "folder for metrics.jsonl, summary.json and report.html");
    app.add_option("--device", o.device, "cpu or cuda");
    app.add_option("--isa", o.isa, "portable, avx2, avx512, avx512_bf16 or amx instead of the fastest that this processor has");
    number("--threads", o.threads, 0, 4096, "0: all cores; with --ranks those of each rank, 0: an equal part");
    number("--ranks", o.ranks, 1, 256,
           "ranks that train together, each with --batch windows of a micro-batch, as threads of this process on the CPU; "
           "under mpirun, in a build with -DHALFTONE_MPI=ON, its processes are the ranks");
    number("--zero", o.zero, 0, 3, "what ranks divide: 1 optimizer state, 2 gradients as well, 3 parameters as well");
    app.add_option("--unit", o.units, "layers whose parameters are gathered together: h.* is each block");
    number("--deadline", o.deadline, 1, 31'536'000,
           "seconds that ranks wait for one that does not come, before all end with a line that names it");
    number("--layers", o.layers, 1, 1000, "transformer blocks");
    number("--width", o.width, 1, 1 << 16, "channels");
    number("--heads", o.heads, 1, 1 << 16, "attention heads; a divisor of the width");
    app.add_option("--kv-heads", o.kv_heads, "heads of keys and values of a llama; a divisor of the heads");
    number("--context", o.context, 1, 1 << 20, "bytes or tokens in a window");
    number("--batch", o.batch, 1, 1 << 20, "windows in a micro-batch");
    number("--accumulation", o.accumulation, 1, 1 << 16, "micro-batches in a step");
    number("--checkpointing", o.checkpointing, 0, 1000,
           "every n-th block keeps only its input and is computed again in the backward pass, for less memory and the same bits; "
           "0: none");
    number("--steps", o.steps, 1, billion, "optimizer steps for each policy");
    app.add_option("--optimizer", o.optimizer,
                   "adamw, or adamw_8bit, whose state takes 2 bytes for a parameter of a large matrix instead of 8");
    app.add_option("--lr", o.learning_rate, "learning rate after warm-up; it falls to a tenth by the last step");
    app.add_option("--seed", o.seed, "seed of weights, batches and the sampled text");
    number("--save-steps", o.save_steps, 0, billion,
           "steps between two checkpoints of everything, in a folder for each policy below --out, also at the end and after Ctrl-C "
           "or SIGTERM; 0: none");
    number("--save-total-limit", o.save_total_limit, 0, million, "the newest checkpoints of a policy that are kept; 0: all");
    app.add_flag("--resume", o.resume,
                 "go on from the newest good checkpoint of each policy below --out, with the same numbers as without the "
                 "interruption; from the start where there is none. --zero may be another one; on another number of ranks --batch "
                 "and --accumulation are to give a step as many windows");
    number("--eval-every", o.eval_every, 0, billion, "steps between evaluations; 0: only at the end");
    number("--eval-windows", o.eval_windows, 0, billion, "windows of held-out text to evaluate on; 0: all");
    number("--write", o.write, 0, million, "bytes of text to sample from the model at the end");
    app.add_flag("--plan", o.plan,
                 "do not train: print the memory that training would need, to the byte, and write it to plan.json in --out");
    app.add_flag("--profile", o.profile, "print time by operation and pass");
    app.add_flag("--speed-of-light", o.speed_of_light,
                 "print for each operation its flops, bytes and time, and what could be saved at the machine's peaks, which are "
                 "measured in about a second; the report has the table, too");
    app.add_option("--peaks", o.peaks, "read the peaks from this JSON file: {\"flops\": {\"fp32\": 1e11}, \"bytes\": 2e10}");
    add_seeing_options(app, o);
    app.add_flag("--estimate,!--no-estimate", o.estimate,
                 "before a run of 300 steps or more, tell how long it will take, measured by three steps");
    app.add_flag("--watch", o.watch, "report for each skipped step which operation overflowed first");
    number("--numerics-every", o.numerics_every, 0, billion,
           "steps between two numerics reports (exponents of all tensors), written as HTML and JSON to --out; 0: none");
    app.add_option("--shadow", o.shadow_step,
                   "also run the first micro-batch of this step in fp32, and print how much each operation differs and how much of "
                   "that rounding explains; 0: none. Needs a build with -DHALFTONE_TRAIN_GPT_MORE=ON");
    std::string budget;
    app.add_option("--budget", budget,
                   "memory that training may use, for example 96MiB or 1.5GiB: chooses the cheapest combination of smaller "
                   "micro-batches and of blocks and logits that are computed again, and prints its choice");
    app.add_option("--memory-history", o.memory_history,
                   "FILE.html or .json: record every allocation of the run and write a page with a timeline, or the numbers, of which "
                   "examples/memory_pickle.py makes a file for PyTorch's memory_viz, at the end or when memory runs out; with several "
                   "policies one file each, as in FILE_amp_bf16.html");
    if (!parse(app, argc, argv)) return std::nullopt;
    check_data(o, app);
    if (processes > 1) {
        if (app.get_option("--ranks")->count() != 0 && o.ranks != processes)
            refuse("--ranks is ", o.ranks, ", and mpirun has begun ", processes, " processes, which are the ranks; leave it out");
        o.ranks = processes;
    }
    if (!budget.empty()) o.budget = parse_bytes("--budget", budget);
    for (const auto& check_one : ranges) check_one();
    check(o);
    return o;
}
