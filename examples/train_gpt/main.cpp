// SPDX-License-Identifier: MIT
/// \file
/// Trains the same byte-level GPT from the same initial weights on the same batches under full_fp32, amp_fp16 and
/// amp_bf16 (and, if built and requested, tf32 and fp8_hybrid, or a Llama in the GPT's place), and compares their cost and
/// their losses. `train_gpt --help` lists the options.
///
/// Exit codes: 0; 2 for invalid arguments, text or output folder, with one line and nothing left behind, and where files
/// could not be written, with what was written before; 3 for a device that does not exist; 130 after Ctrl-C, which ends at
/// a step boundary with the summary so far and, with --save-steps, a checkpoint; 1 for everything else.
#include <chrono>
#include <iostream>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/observe/profile/peaks.hpp>
#include <halftone/observe/profile/peaks_file.hpp>
#include <halftone/ranks/reduce.hpp>
#include <halftone/ranks/threads.hpp>

#include "../seeing.hpp"
#include "../signals.hpp"
#include "before.hpp"
#include "device_runs.hpp"
#include "processes.hpp"
#include "report.hpp"

namespace {

bool is_interrupted() { return received_signal != 0; }
/// The signal that has arrived on any process; 0: none.
int signal_on(ht::communicator* world) {
    return world == nullptr ? received_signal.load() : ht::all_reduce_max(*world, "signal", received_signal.load());
}

/// The whole processor, whatever ranks share it.
ht::cpu_options whole_processor(options o) {
    o.ranks = 1;
    return cpu_options_of(o);
}
machine describe(const options& o) {
    const ht::cpu device{whole_processor(o)};
    machine where{device.description(), ht::name(device.instruction_set()), device.threads(), ""};
    if (o.device == "cuda") {
        const gpu_names names = describe_gpu();
        where.device = names.device;
        where.gpu = names.gpu;
    }
    return where;
}

/// The peaks of the options' file, or measured ones.
ht::machine_peaks peaks_of(const options& o) {
    if (!o.speed_of_light) return {};
    if (!o.peaks.empty()) return ht::read_peaks(o.peaks);
    ht::cpu device{whole_processor(o)};
    return ht::measure_peaks(device);
}

std::string checkpoints_of(const task& t) { return (t.o.out / t.policy).string(); }

/// The part of a rank that prints nothing and writes nothing.
void run_beside(const task& t, const std::string& arguments, ht::communicator& comm) {
    ht::trainer_callback silent;
    const surroundings around{.observer = silent,
                              .is_interrupted = &is_interrupted,
                              .checkpoints = checkpoints_of(t),
                              .arguments = arguments,
                              .ranks = &comm};
    run_on_cpu(t, around, nullptr);
}

/// A run that is told: on a GPU, or here, with --ranks by threads, each with a model and a device of its own.
run_result run_told(const task& t, const surroundings& around, run_view& view) {
    if (t.o.device == "cuda") return run_on_gpu(t, around, view);
    if (t.o.ranks == 1 || around.ranks != nullptr) return run_on_cpu(t, around, &view);
    run_result result;
    const auto run_rank = [&](ht::communicator& comm) {
        if (comm.rank() != 0) return run_beside(t, around.arguments, comm);
        surroundings first = around;
        first.ranks = &comm;
        result = run_on_cpu(t, first, &view);
    };
    ht::run_ranks(static_cast<int>(t.o.ranks), run_rank, {.deadline = std::chrono::seconds(t.o.deadline)});
    return result;
}

std::vector<task> tasks_of(const options& o, const training_text& corpus) {
    std::vector<task> tasks;
    for (const std::string& policy : o.policies) {
        tasks.push_back({policy, o, corpus.view()});
        if (o.policies.size() > 1 && !o.export_to.empty()) tasks.back().o.export_to /= policy;
    }
    return tasks;
}

/// What processes but the first do.
int train_beside(const options& o, ht::communicator& world) {
    const training_text corpus = read_corpus(o);
    note_signals();
    const std::string arguments = run_arguments(o, corpus.all_bytes());
    for (const task& t : tasks_of(o, corpus)) {
        if (signal_on(&world) != 0) break;
        run_beside(t, arguments, world);
    }
    const int signal = signal_on(&world);
    return signal != 0 ? 128 + signal : 0;
}

int train(const options& o, ht::communicator* world) {
    const training_text corpus = read_corpus(o);
    const machine where = describe(o);
    std::vector<task> tasks = tasks_of(o, corpus);
    const std::vector<ht::memory_choice> budgets = fit_to_budget(tasks);
    note_signals();
    const std::string estimate = estimate_of(tasks), arguments = run_arguments(o, corpus.all_bytes());
    file_writes writes("train_gpt", o.on_write_error);
    reporter report(o, where, arguments, writes);
    if (!o.export_to.empty())
        writes([&o] { ht::output_folder{o.export_to}; });  // that it cannot be made is reported before training

    std::cout << where.device << '\n'
              << corpus.view().size() << (corpus.has_ids ? " tokens, " : " bytes of text, ") << o.steps << " steps of "
              << o.batch * o.accumulation * o.ranks << " x " << o.context << " " << corpus.unit() << "s"
              << (o.ranks > 1 ? " on " + std::to_string(o.ranks) + " ranks\n" : "\n") << estimate << std::flush;
    const ht::machine_peaks peaks = peaks_of(o);
    std::vector<run_result> runs;
    for (task& t : tasks) {
        if (signal_on(world) != 0) break;
        const run_view_options how{.out = o.out,
                                   .steps = o.steps,
                                   .threads = o.threads,
                                   .is_alone = tasks.size() == 1,
                                   .is_on_gpu = o.device == "cuda"};
        run_view view(how, o, report.page_of(t.policy));
        {
            const auto observer = report.observe(t.policy);
            const surroundings around{.observer = *observer,
                                      .listener = view.listener(),
                                      .is_interrupted = &is_interrupted,
                                      .checkpoints = checkpoints_of(t),
                                      .arguments = arguments,
                                      .ranks = world,
                                      .on_shadow = [&](const auto& r) { report.write_shadow(t.policy, r); },
                                      .writes = &writes};
            runs.push_back(run_told(t, around, view));
        }
        if (o.ranks > 1) {
            t.o.memory_history.clear();
            runs.back().plan = planned(t).plan;
        }
        view.finish(std::cout, runs.back().training.steps, peaks, writes);
    }
    const int signal = signal_on(world);
    std::cout << '\n';
    print_table(std::cout, runs, corpus.unit());
    print_text(std::cout, runs);
    report.commit(runs, budgets);
    return signal != 0 ? 128 + signal : writes.any_failed() ? 2 : 0;
}

}  // namespace

int main(int argc, char** argv) {
    bool is_silent = false;  // the first process tells what all of them find
    return run_main(
        "train_gpt", "these sizes and this text",
        [&] {
            try {
                const process_number mine = number_of_process();
                is_silent = mine.rank != 0;
                if (is_silent) std::cout.rdbuf(nullptr);
                const auto o = parse_options(argc, argv, mine.size);
                if (!o) return 0;
                if (o->plan) return is_silent ? 0 : tell_plans(*o);
                const auto world = join_processes(mine, argc, argv, std::chrono::seconds(o->deadline));
                return is_silent ? train_beside(*o, *world) : train(*o, world.get());
            } catch (const ht::communication_error& e) {
                throw exit_with(1, e.what());
            }
        },
        is_silent);
}
