// SPDX-License-Identifier: MIT
/// \file
/// Trains the same byte-level GPT from the same initial weights on the same batches under full_fp32, amp_fp16 and
/// amp_bf16 (and, if built and requested, tf32 and fp8_hybrid, or a Llama in the GPT's place), and compares their cost and
/// their losses. `train_gpt --help` lists the options.
///
/// Exit codes: 0; 2 for invalid arguments, text or output folder, with one line and nothing left behind; 3 for a device
/// that does not exist; 130 after Ctrl-C, which ends at a step boundary with the summary so far and, with --save-steps, a
/// checkpoint; 1 for everything else.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <iostream>
#include <new>

#include <halftone/dist/threads.hpp>
#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/exec/cpu/processors.hpp>
#include <halftone/observe/metrics/output_file.hpp>
#include <halftone/policy/presets.hpp>

#include "cpu_runs.hpp"
#include "estimate.hpp"
#include "gpu.hpp"
#include "history.hpp"
#include "memory.hpp"
#include "report.hpp"
#include "view.hpp"

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

/// With --ranks: the ranks are threads, each with a model and a device of its own; the first one's run is told.
run_result run_ranks(const std::string& policy, const options& o, const ht::token_view& corpus, const surroundings& around,
                     run_view& view) {
    run_result of_first;
    ht::run_ranks(static_cast<int>(o.ranks), [&](ht::communicator& comm) {
        const bool is_first = comm.rank() == 0;
        ht::cpu_options how = cpu_options_of(o);
        if (how.threads == 0) how.threads = std::max(1, ht::detail::usable_processors() / comm.size());
        if (is_first) how.executor = view.executor();
        ht::cpu device{how};
        if (is_first) {
            view.watch(device.memory());
            surroundings own = around;
            own.ranks = &comm;
            of_first = with_history(device.memory(), policy, o, own, [&](const surroundings& recorded) {
                return run_named(policy, device, o, corpus, recorded);
            });
        } else {
            ht::trainer_callback silent;
            surroundings own{silent};
            own.checkpoints = around.checkpoints;
            own.arguments = around.arguments;
            own.ranks = &comm;
            run_named(policy, device, o, corpus, own);
        }
    });
    return of_first;
}

run_result run_policy(const std::string& policy, const options& o, const ht::token_view& corpus,
                      const surroundings& around, run_view& view) {
    if (o.device == "cuda") return run_on_gpu(policy, o, corpus, around, view);
    if (o.ranks > 1) return run_ranks(policy, o, corpus, around, view);
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

int train(const options& o) {
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
    std::signal(SIGINT, note_signal);
    std::signal(SIGTERM, note_signal);
#if defined(SIGBREAK)
    std::signal(SIGBREAK, note_signal);  // Ctrl-Break on Windows, whose programs get no SIGTERM from others
#endif
    const std::string estimate = o.estimate && o.ranks == 1 ? estimate_of(each, corpus.view()) : "";
    reporter report(o, where, corpus.all_bytes());

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
        if (is_interrupted()) break;
        run_view view(policy, o, report.page_of(policy));
        {
            const auto observer = report.observe(policy);
            runs.push_back(run_policy(policy, each[i], corpus.view(),
                                      {*observer, view.listener(), &is_interrupted, false, report.checkpoints(policy),
                                       report.arguments()},
                                      view));
        }
        view.finish(std::cout, runs.back().training.steps, peaks);
    }
    std::cout << '\n';
    print_table(std::cout, runs, corpus.unit());
    print_text(std::cout, runs);
    report.commit(runs, chosen);
    return is_interrupted() ? 128 + received_signal : 0;
}

}  // namespace

int main(int argc, char** argv) {
    const auto complain = [](int code, const char* what) {
        std::cerr << "train_gpt: " << what << '\n';
        return code;
    };
    try {
        const auto o = parse_options(argc, argv);
        if (!o) return 0;
        return o->plan ? tell_plans(*o) : train(*o);
    } catch (const exit_with& e) {
        return complain(e.code, e.what());
    } catch (const ht::error& e) {
        return complain(2, e.what());
    } catch (const std::bad_alloc&) {
        return complain(2, "not enough memory for these sizes and this text");
    } catch (const std::exception& e) {
        return complain(1, e.what());
    }
}
