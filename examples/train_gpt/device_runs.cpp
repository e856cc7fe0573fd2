// SPDX-License-Identifier: MIT
#include <algorithm>
#include <optional>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/exec/cpu/processors.hpp>
#include <halftone/io/io_error.hpp>
#include <halftone/ranks/listened.hpp>

#include "device_runs.hpp"

namespace {

/// The peaks of all ranks; each calls it behind its run.
std::vector<run_peaks> peaks_of_ranks(ht::communicator& comm, const ht::training_result& mine) {
    run_peaks own{mine.peak_bytes, {}};
    std::copy_n(std::begin(mine.peak_bytes_of), own.of_kind.size(), own.of_kind.begin());
    std::vector<run_peaks> all(static_cast<std::size_t>(comm.size()));
    comm.all_gather("peaks of memory", &own, all.data(), sizeof own);
    return all;
}

}  // namespace

ht::cpu_options cpu_options_of(const options& o) {
    const int part = o.ranks == 1 ? 0 : std::max(1, ht::detail::usable_processors() / static_cast<int>(o.ranks));
    return {.threads = o.threads != 0 ? o.threads : part,
            .instruction_set = o.isa.empty() ? std::nullopt : std::optional(ht::parse_isa(o.isa.c_str()))};
}

void export_by(const surroundings& around, const std::function<void()>& write) {
    const auto told = [&write] {
        try {
            write();
        } catch (const ht::io_error& e) {
            throw ht::output_error(std::string("--export: ") + e.what());
        }
    };
    if (around.writes != nullptr)
        (*around.writes)(told);
    else
        told();
}

run_result planned(const task& t, bool chooses_budget) {
    if (t.o.device == "cuda") return planned_on_gpu(t, chooses_budget);
    ht::cpu device{cpu_options_of(t.o)};
    return planned_on(device, t, chooses_budget);
}

run_result run_on_cpu(const task& t, const surroundings& around, run_view* view) {
    ht::cpu_options how = cpu_options_of(t.o);
    if (view != nullptr) how.executor = view->executor();
    ht::cpu device{how};
    if (view == nullptr) {
        run_result result = run_on(device, t, around);
        peaks_of_ranks(*around.ranks, result.training);
        return result;
    }
    view->watch(device.memory());
    run_result result = with_history(device.memory(), t, around, [&](surroundings recorded) {
        if (around.ranks == nullptr) return run_on(device, t, recorded);
        ht::counted_communicator counted(*around.ranks);
        ht::listened_communicator told(counted, recorded.listener);  // collectives are ranges of the trace
        recorded.ranks = t.o.trace ? static_cast<ht::communicator*>(&told) : &counted;
        recorded.counted = &counted;
        return run_on(device, t, recorded);
    });
    if (around.ranks != nullptr) result.of_ranks = peaks_of_ranks(*around.ranks, result.training);
    return result;
}
