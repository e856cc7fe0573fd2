// SPDX-License-Identifier: MIT
/// \file
/// Trains the same byte-level GPT from the same initial weights on the same batches under full_fp32, amp_fp16 and
/// amp_bf16 (and, if built and requested, tf32 and fp8_hybrid, or a Llama in the GPT's place), and compares their cost and
/// their losses. `train_gpt --help` lists the options.
///
/// Exit codes: 0; 2 for invalid arguments, text or output folder, with one line and nothing left behind, and where files
/// could not be written, with what was written before; 3 for a device that does not exist; 130 after Ctrl-C, which ends at
/// a step boundary with the summary so far and, with --save-steps, a checkpoint; 1 for everything else.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <iostream>

#include <halftone/dist/listened.hpp>
#include <halftone/dist/reduce.hpp>
#include <halftone/dist/threads.hpp>
#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/observe/metrics/output_file.hpp>
#include <halftone/observe/profile/peaks.hpp>
#include <halftone/observe/profile/peaks_file.hpp>
#include <halftone/policy/presets.hpp>

#include "../seeing.hpp"
#include "cpu_runs.hpp"
#include "estimate.hpp"
#include "gpu.hpp"
#include "history.hpp"
#include "memory.hpp"
#include "processes.hpp"
#include "report.hpp"

namespace ht = halftone;

namespace {

std::atomic<int> received_signal = 0;  // Windows calls the handler on another thread
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void note_signal(int signal) {
    received_signal = signal;
    std::signal(signal, SIG_DFL);  // a second one ends the program at once
}
bool is_interrupted() { return received_signal != 0; }

machine describe(const options& o) {
    const ht::cpu device{cpu_options_of(o)};
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
    ht::cpu device{cpu_options_of(o)};
    return ht::measure_peaks(device);
}

/// The peaks of all ranks; each calls it behind its run.
std::vector<run_peaks> peaks_of_ranks(ht::communicator& comm, const ht::training_result& mine) {
    run_peaks own{mine.peak_bytes, {}};
    std::copy_n(std::begin(mine.peak_bytes_of), own.of_kind.size(), own.of_kind.begin());
    std::vector<run_peaks> all(static_cast<std::size_t>(comm.size()));
    comm.all_gather("peaks of memory", &own, all.data(), sizeof own);
    return all;
}

/// The part of a rank that prints nothing and writes nothing.
run_result run_beside(const std::string& policy, const options& o, const ht::token_view& corpus, const std::string& checkpoints,
                      const std::string& arguments, ht::communicator& comm) {
    ht::cpu device{cpu_options_of_rank(o)};
    ht::trainer_callback silent;
    run_result result = run_named(policy, device, o, corpus,
                                  {.observer = silent, .is_interrupted = &is_interrupted, .checkpoints = checkpoints, .arguments = arguments,
                                   .ranks = &comm});
    peaks_of_ranks(comm, result.training);
    return result;
}
/// The part of the first rank, whose run is told.
run_result run_first(const std::string& policy, const options& o, const ht::token_view& corpus, const surroundings& around,
                     run_view& view, ht::communicator& comm) {
    ht::cpu_options how = cpu_options_of_rank(o);
    how.executor = view.executor();
    ht::cpu device{how};
    view.watch(device.memory());
    run_result result = with_history(device.memory(), policy, o, around, [&](surroundings recorded) {
        ht::counted_communicator counted(comm);
        // Collectives are ranges of the trace.
        ht::listened_communicator told(counted, recorded.listener);
        recorded.ranks = o.trace ? static_cast<ht::communicator*>(&told) : &counted;
        recorded.counted = &counted;
        return run_named(policy, device, o, corpus, recorded);
    });
    result.of_ranks = peaks_of_ranks(comm, result.training);
    return result;
}
/// Ranks as threads, each with a model and a device of its own.
run_result run_threads(const std::string& policy, const options& o, const ht::token_view& corpus, const surroundings& around,
                       run_view& view) {
    run_result result;
    ht::run_ranks(static_cast<int>(o.ranks), [&](ht::communicator& comm) {
        if (comm.rank() == 0) {
            result = run_first(policy, o, corpus, around, view, comm);
        } else {
            run_beside(policy, o, corpus, around.checkpoints, around.arguments, comm);
        }
    }, {.deadline = std::chrono::seconds(o.deadline)});
    return result;
}

run_result run_policy(const std::string& policy, const options& o, const ht::token_view& corpus,
                      const surroundings& around, run_view& view) {
    if (o.device == "cuda") return run_on_gpu(policy, o, corpus, around, view);
    if (around.ranks != nullptr) return run_first(policy, o, corpus, around, view, *around.ranks);
    if (o.ranks > 1) return run_threads(policy, o, corpus, around, view);
    ht::cpu_options how = cpu_options_of(o);
    how.executor = view.executor();
    ht::cpu device{how};
    view.watch(device.memory());
    return with_history(device.memory(), policy, o, around, [&](const surroundings& recorded) {
        return run_named(policy, device, o, corpus, recorded);
    });
}

/// Prints the text that the bf16 model wrote, or, without such a model, the last one.
void print_text(std::ostream& out, const std::vector<run_result>& runs) {
    const run_result* writer = nullptr;
    for (const run_result& r : runs) {
        if (!r.text.empty() && (writer == nullptr || writer->policy != "amp_bf16")) writer = &r;
    }
    if (writer != nullptr) out << "\nThe " << writer->policy << " model writes:\n" << printable(writer->text) << '\n';
}

/// The signal that has arrived on any process; 0: none.
int signal_on(ht::communicator* world) {
    return world == nullptr ? received_signal.load() : ht::all_reduce_max(*world, "signal", received_signal.load());
}

void note_signals() {
    std::signal(SIGINT, note_signal);
    std::signal(SIGTERM, note_signal);
#if defined(SIGBREAK)
    std::signal(SIGBREAK, note_signal);  // Ctrl-Break on Windows, whose programs get no SIGTERM from others
#endif
}

/// What processes but the first do.
int train_beside(const options& o, ht::communicator& world) {
    const training_text corpus = read_corpus(o);
    note_signals();
    const std::string arguments = run_arguments(o, corpus.all_bytes());
    for (const std::string& policy : o.policies) {
        if (signal_on(&world) != 0) break;
        run_beside(policy, o, corpus.view(), (o.out / policy).string(), arguments, world);
    }
    const int signal = signal_on(&world);
    return signal != 0 ? 128 + signal : 0;
}

int train(const options& o, ht::communicator* world) {
    const training_text corpus = read_corpus(o);
    const machine where = describe(o);
    std::vector<options> each(o.policies.size(), o);
    std::vector<budget_result> chosen;
    if (o.budget != 0) {
        for (std::size_t i = 0; i < each.size(); ++i) {
            chosen.push_back(within_budget(o.policies[i], o, corpus.view()));
            each[i] = chosen[i].run;
            std::cout << chosen[i].text << '\n';
        }
    }
    note_signals();
    const std::string estimate = o.estimate && o.ranks == 1 ? estimate_of(each, corpus.view()) : "";
    file_writes writes("train_gpt", o.on_write_error);
    reporter report(o, where, corpus.all_bytes(), writes);

    std::cout << where.device << '\n';
    std::cout << corpus.view().size() << (corpus.has_ids ? " tokens, " : " bytes of text, ") << o.steps << " steps of "
              << o.batch * o.accumulation * o.ranks << " x " << o.context << " " << corpus.unit() << "s"
              << (o.ranks > 1 ? " on " + std::to_string(o.ranks) + " ranks\n" : "\n")
              << std::flush;
    std::cout << estimate << std::flush;
    const ht::machine_peaks peaks = peaks_of(o);
    std::vector<run_result> runs;
    for (std::size_t i = 0; i < o.policies.size(); ++i) {
        const std::string& policy = o.policies[i];
        if (signal_on(world) != 0) break;
        run_view view({.out = o.out, .steps = o.steps, .threads = o.threads, .is_alone = o.policies.size() == 1, .is_on_gpu = o.device == "cuda"},
                      o, report.page_of(policy));
        {
            const auto observer = report.observe(policy);
            const surroundings around{.observer = *observer,
                                      .listener = view.listener(),
                                      .is_interrupted = &is_interrupted,
                                      .checkpoints = report.checkpoints(policy),
                                      .arguments = report.arguments(),
                                      .ranks = world,
                                      .on_shadow = [&](const ht::shadow_report& r) { report.write_shadow(policy, r); },
                                      .writes = &writes};
            runs.push_back(run_policy(policy, each[i], corpus.view(), around, view));
        }
        if (o.ranks > 1) {
            options without_history = each[i];
            without_history.memory_history.clear();
            const ht::memory_plan plan = plan_of(policy, without_history, corpus.view()).memory;
            runs.back().planned = run_peaks{plan.peak_bytes, plan.peak_bytes_by_kind};
        }
        view.finish(std::cout, runs.back().training.steps, peaks, writes);
    }
    const int signal = signal_on(world);
    std::cout << '\n';
    print_table(std::cout, runs, corpus.unit());
    print_text(std::cout, runs);
    report.commit(runs, chosen);
    return signal != 0 ? 128 + signal : writes.any_failed() ? 2 : 0;
}

}  // namespace

int main(int argc, char** argv) {
    bool is_silent = false;  // the first process tells what all of them find
    return run_main("train_gpt", "these sizes and this text", [&] {
        try {
            processes all;
            is_silent = !all.is_first();
            if (is_silent) std::cout.rdbuf(nullptr);
            const auto o = parse_options(argc, argv, all.size());
            if (!o) return 0;
            if (o->plan) return is_silent ? 0 : tell_plans(*o);
            all.begin(argc, argv, std::chrono::seconds(o->deadline));
            return is_silent ? train_beside(*o, *all.world()) : train(*o, all.world());
        } catch (const ht::communication_error& e) {
            throw exit_with(1, e.what());
        }
    }, is_silent);
}
