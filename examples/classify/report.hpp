// SPDX-License-Identifier: MIT
/// \file
/// The command line and the reports of classify_images and classify_text: a table, summary.json, and what seeing.hpp has.
#pragma once

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <halftone/data/data_error.hpp>
#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/observe/metrics/machine.hpp>
#include <halftone/observe/metrics/metrics.hpp>
#include <halftone/observe/metrics/output_file.hpp>
#include <halftone/observe/report/table.hpp>

#include "../parse.hpp"
#include "run.hpp"

#if !defined(HALFTONE_COMMIT)
#define HALFTONE_COMMIT "unknown"
#endif

namespace ht = halftone;

inline void add_run_options(CLI::App& app, run_options& o) {
    app.add_option("--policy", o.runs,
                   "full_fp32, amp_fp16, amp_bf16 and small_bf16 (amp_bf16 with adamw_8bit and checkpoints), separated by commas")
        ->delimiter(',');
    app.add_option("--out", o.out, "folder for metrics.jsonl, summary.json and report.html; it is made if it does not exist");
    app.add_option("--epochs", o.epochs, "how often each sample is trained on");
    app.add_option("--batch", o.batch, "samples in a step");
    app.add_option("--lr", o.learning_rate, "learning rate after warm-up; it falls to 0 by the last step");
    app.add_option("--device", o.device, "cpu or cuda");
    app.add_option("--threads", o.threads, "threads of the CPU that compute; 0: all cores");
    app.add_option("--workers", o.workers, "threads that make batches meanwhile; 0: none");
    app.add_option("--seed", o.seed, "seed of weights and of the order");
    add_seeing_options(app, o);
}

inline void check(const run_options& o) {
    check_range("--epochs", o.epochs, 1, 100000);
    check_range("--batch", o.batch, 1, 1 << 20);
    check_range("--threads", o.threads, 0, 4096);
    check_range("--workers", o.workers, 0, 256);
    if (o.device != "cpu" && o.device != "cuda") refuse("--device: there is no '", o.device, "'; expected cpu or cuda");
    if (!(o.learning_rate > 0 && o.learning_rate < 10))
        refuse("--lr is ", o.learning_rate, "; expected more than 0 and less than 10");
    for (const std::string& run : o.runs) {
        if (run != "full_fp32" && run != "amp_fp16" && run != "amp_bf16" && run != "small_bf16")
            refuse("--policy: there is no '" + run + "'; expected full_fp32, amp_fp16, amp_bf16 or small_bf16");
        if (std::count(o.runs.begin(), o.runs.end(), run) > 1) refuse("--policy: " + run + " is named twice");
    }
    if (o.runs.empty()) refuse("--policy: no policy is named");
}

inline void print_results(std::ostream& out, const std::vector<classifier_result>& runs) {
    out << "policy      train loss  test accuracy  samples/s  ms a step  waited  peak MiB  skipped steps\n";
    for (const classifier_result& r : runs) {
        out << ht::detail::formatted("%-11s %10.4f %13.2f%% %10.0f %10.2f %6.2f%% %9.1f %14lld\n", r.name.c_str(),
                                     r.train_loss, 100 * r.accuracy, r.samples_per_second, r.step_ms,
                                     100 * r.waited / r.seconds, static_cast<double>(r.peak_bytes) / (1 << 20),
                                     static_cast<long long>(r.skipped_steps));
    }
}

/// What report.html shows beside the curves.
inline ht::report page_of(const char* program, const nlohmann::ordered_json& arguments, const std::string& device,
                          const std::vector<classifier_result>& runs) {
    ht::report page{.title = program, .of_loss = "nats a sample", .of_rate = "samples a second"};
    page.facts = {{"processor", ht::cpu_model()}, {"device", device}, {"commit", HALFTONE_COMMIT}};
    for (const auto& [name, value] : arguments.items())
        page.facts.push_back({name, value.is_string() ? value.get<std::string>() : value.dump()});
    for (const classifier_result& r : runs) {
        ht::run_report& run = page.runs.emplace_back(r.name);
        run.figures = {
            {"training loss, nats a sample", ht::detail::formatted("%.4f", r.train_loss)},
            {"test accuracy", ht::detail::formatted("%.2f%%", 100 * r.accuracy)},
            {"samples a second", ht::detail::formatted("%.0f", r.samples_per_second)},
            {"ms a step", ht::detail::formatted("%.2f", r.step_ms)},
            {"waited for batches", ht::detail::formatted("%.2f%%", 100 * r.waited / r.seconds)},
            {"peak memory, MiB", ht::detail::formatted("%.1f", static_cast<double>(r.peak_bytes) / (1 << 20))},
            {"skipped steps", std::to_string(r.skipped_steps)},
            {"parameters", std::to_string(r.parameters)}};
        run.policies = r.policies;
    }
    return page;
}

/// Calls run_one(name, what it tells) for each run, prints the table, and writes metrics.jsonl, report.html and
/// summary.json.
template <class RunOne>
void run_all(const char* program, const run_options& o, nlohmann::ordered_json arguments, const RunOne& run_one) {
    const ht::cpu cpu{{.threads = o.threads}};
    const gpu_names gpu = o.device == "cuda" ? describe_gpu() : gpu_names{};
    const std::string device = o.device == "cuda" ? gpu.device : cpu.description();
    file_writes writes(program, o.on_write_error);
    std::optional<ht::output_folder> folder;
    std::optional<ht::output_file> file;  // opened early, so that an unwritable folder is reported before training
    writes([&] { folder.emplace(o.out); });
    writes([&] { file.emplace(o.out / "summary.json"); });
    seen_runs seen(o.out, o, writes);
    std::cout << device << std::endl;
    std::vector<classifier_result> runs;
    for (const std::string& name : o.runs)
        runs.push_back(run_one(name, seen.begin(name, {.out = o.out, .threads = o.threads, .is_alone = o.runs.size() == 1})));
    std::cout << '\n';
    print_results(std::cout, runs);
    arguments["epochs"] = o.epochs, arguments["batch"] = o.batch, arguments["lr"] = o.learning_rate;
    arguments["workers"] = o.workers, arguments["seed"] = o.seed;
    nlohmann::ordered_json summary{{"program", program},
                                   {"commit", HALFTONE_COMMIT},
                                   {"machine", {{"cpu", ht::cpu_model()}, {"isa", ht::name(cpu.instruction_set())},
                                                {"threads", cpu.threads()},
                                                {"gpu", gpu.gpu.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(gpu.gpu)}}},
                                   {"arguments", arguments},
                                   {"runs", nlohmann::ordered_json::array()}};
    for (const classifier_result& r : runs) {
        summary["runs"].push_back({{"policy", r.name == "small_bf16" ? "amp_bf16" : r.name},
                                   {"name", r.name},
                                   {"device", device},
                                   {"parameters", r.parameters},
                                   {"steps", r.steps},
                                   {"train_loss", r.train_loss},
                                   {"test_accuracy", r.accuracy},
                                   {"samples_per_second", r.samples_per_second},
                                   {"step_ms", r.step_ms},
                                   {"seconds", r.seconds},
                                   {"seconds_waited", r.waited},
                                   {"peak_bytes", r.peak_bytes},
                                   {"skipped_steps", r.skipped_steps},
                                   {"loss_scale", r.loss_scale}});
    }
    seen.commit(page_of(program, arguments, device, runs));
    if (file) writes([&] { file->write(ht::finite_json(summary).dump(2) + "\n"), file->commit(); });
    if (folder) folder->keep();
    if (writes.any_failed()) throw exit_with(2, "not all files could be written");
}
