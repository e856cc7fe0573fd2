// SPDX-License-Identifier: MIT
#include "view.hpp"

#include <algorithm>
#include <optional>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/observe/profile/peaks.hpp>
#include <halftone/observe/profile/peaks_file.hpp>
#include <halftone/observe/profile/profile.hpp>
#include <halftone/observe/profile/speed_of_light.hpp>
#include <halftone/observe/trace/chrome.hpp>
#include <halftone/observe/trace/listeners.hpp>
#include <halftone/observe/trace/workers.hpp>

#include "cpu_runs.hpp"

namespace ht = halftone;

namespace {

/// Memory over time, seen at the end of every operation.
class memory_timeline final : public ht::range_listener {
  public:
    explicit memory_timeline(ht::run_report& page) : page_(&page), began_(ht::detail::monotonic_nanoseconds()) {}
    void watch(const ht::memory_usage& usage) { usage_ = &usage; }
    void begin(const char*, ht::pass) override {}
    void end() override {
        if (usage_ == nullptr) return;
        page_->add_memory(1e-9 * static_cast<double>(ht::detail::monotonic_nanoseconds() - began_), *usage_);
    }

  private:
    ht::run_report* page_;
    std::int64_t began_;
    const ht::memory_usage* usage_ = nullptr;
};

std::filesystem::path trace_file(const std::string& policy, const options& o) {
    return o.out / (o.policies.size() == 1 ? "trace.json" : "trace_" + policy + ".json");
}

/// Three steps after two others, where there are as many.
ht::trace_schedule schedule_of(const options& o) {
    const std::int64_t active = std::min<std::int64_t>(o.steps, 3), before = std::min<std::int64_t>(o.steps - active, 2);
    return {.wait = std::max<std::int64_t>(before - 1, 0), .warmup = std::min<std::int64_t>(before, 1), .active = active, .repeat = 1};
}

}  // namespace

struct run_view::state {
    std::string file;
    ht::run_report* page;
    std::optional<ht::profiler> profile;
    std::optional<ht::speed_of_light> light;
    std::optional<ht::trace_recorder> trace;
    std::optional<memory_timeline> memory;
    std::optional<ht::thread_pool> pool;
    std::optional<ht::traced_executor> workers;
    ht::listener_list all;
};

run_view::run_view(const std::string& policy, const options& o, ht::run_report& page) : state_(new state) {
    state& s = *state_;
    s.page = &page;
    if (o.trace) {
        s.file = trace_file(policy, o).string();
        static_cast<void>(ht::output_file(s.file));  // a folder that cannot be written to is reported before training
        s.all.add(s.trace.emplace(ht::trace_options{.schedule = schedule_of(o)}));
        if (o.device == "cpu") {
            s.pool.emplace(o.threads == 0 ? ht::detail::usable_processors() : o.threads);
            s.workers.emplace(*s.pool, *s.trace);
        }
    }
    if (o.profile) s.all.add(s.profile.emplace());
    if (o.speed_of_light) s.all.add(s.light.emplace());
    if (o.report && o.device == "cpu") s.all.add(s.memory.emplace(page));  // on a GPU a listener would keep steps uncaptured
}
run_view::~run_view() = default;

ht::executor* run_view::executor() { return state_->workers ? &*state_->workers : nullptr; }
void run_view::watch(ht::memory_resource& memory) {
    if (state_->trace) state_->trace->count_memory(memory.usage());
    if (state_->memory) state_->memory->watch(memory.usage());
}
ht::range_listener* run_view::listener() { return state_->all.listener(); }
ht::trace_recorder* run_view::trace() { return state_->trace ? &*state_->trace : nullptr; }

void run_view::finish(std::ostream& out, std::int64_t steps, const ht::machine_peaks& peaks) {
    state& s = *state_;
    if (s.profile) {
        out << '\n' << s.page->name << ", ";
        s.profile->print(out, steps);
    }
    if (s.light) {
        const ht::light_table table = s.light->table(peaks);
        out << '\n' << s.page->name << ", ";
        table.print(out);
        s.page->add_light(table);
    }
    if (s.trace) s.trace->write(s.file);
    out << std::flush;
}

ht::machine_peaks peaks_of(const options& o) {
    if (!o.speed_of_light) return {};
    if (!o.peaks.empty()) return ht::read_peaks(o.peaks);
    ht::cpu device{cpu_options_of(o)};
    return ht::measure_peaks(device);
}
