// SPDX-License-Identifier: MIT
#include "seeing.hpp"

#include <algorithm>
#include <iostream>
#include <map>

#include <CLI/CLI.hpp>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/observe/metrics/metrics.hpp>
#include <halftone/observe/metrics/progress.hpp>
#include <halftone/observe/metrics/tensorboard.hpp>
#include <halftone/observe/profile/profile.hpp>
#include <halftone/observe/profile/speed_of_light.hpp>
#include <halftone/observe/trace/chrome.hpp>
#include <halftone/observe/trace/listeners.hpp>
#include <halftone/observe/trace/workers.hpp>

#include "write_file.hpp"

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

/// Three steps after two others, where there are as many.
ht::trace_schedule schedule_of(std::int64_t steps) {
    if (steps == 0) return {.wait = 1, .warmup = 1, .active = 3, .repeat = 1};
    const std::int64_t active = std::min<std::int64_t>(steps, 3), before = std::min<std::int64_t>(steps - active, 2);
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

void add_seeing_options(CLI::App& app, seeing_options& o) {
    app.add_flag("--trace", o.trace,
                 "write a timeline of three steps to trace.json in --out, for https://ui.perfetto.dev; with several runs one file "
                 "each, as in trace_amp_bf16.json");
    app.add_flag("--tensorboard", o.tensorboard, "write event files for TensorBoard to the folder tensorboard in --out");
    app.add_flag("--report,!--no-report", o.report, "write report.html to --out");
    const std::map<std::string, ht::write_errors> names{{"stop", ht::write_errors::stop}, {"continue", ht::write_errors::go_on}};
    app.add_option("--on-write-error", o.on_write_error,
                   "stop or continue: what happens when a file in --out cannot be written, because the disk is full or the folder "
                   "read-only. What was written before stays in both")
        ->transform(CLI::CheckedTransformer(names))
        ->default_str("stop");
}

file_writes::file_writes(std::string program, ht::write_errors on_error) : program_(std::move(program)), on_error_(on_error) {}

void file_writes::note(const std::string& line) {
    any_failed_ = true;
    const std::string text = program_ + ": " + line + "; the run goes on without it";
    if (bar_ != nullptr) bar_->note(text);
    else std::cerr << text << std::endl;
}
bool file_writes::operator()(const std::function<void()>& write) {
    return ht::detail::write_attempts(on_error_, on_note())(write);
}
std::function<void(const std::string&)> file_writes::on_note() {
    return [this](const std::string& line) { note(line); };
}

run_view::run_view(const run_view_options& run, const seeing_options& o, ht::run_report& page) : state_(new state) {
    state& s = *state_;
    s.page = &page;
    if (o.trace) {
        s.file = (run.out / (run.is_alone ? "trace.json" : "trace_" + file_name_of(page.name) + ".json")).string();
        // A folder that cannot be written to is reported before training.
        if (o.on_write_error == ht::write_errors::stop) static_cast<void>(ht::output_file(s.file));
        s.all.add(s.trace.emplace(ht::trace_options{.schedule = schedule_of(run.steps)}));
        if (!run.is_on_gpu) {
            s.pool.emplace(run.threads == 0 ? ht::detail::usable_processors() : run.threads);
            s.workers.emplace(*s.pool, *s.trace);
        }
    }
    if (o.profile) s.all.add(s.profile.emplace());
    if (o.speed_of_light) s.all.add(s.light.emplace());
    if (o.report && !run.is_on_gpu) s.all.add(s.memory.emplace(page));  // on a GPU a listener would keep steps uncaptured
}
run_view::~run_view() = default;

ht::executor* run_view::executor() { return state_->workers ? &*state_->workers : nullptr; }
void run_view::watch(ht::memory_resource& memory) {
    if (state_->trace) state_->trace->count_memory(memory.usage());
    if (state_->memory) state_->memory->watch(memory.usage());
}
ht::range_listener* run_view::listener() { return state_->all.listener(); }
ht::trace_recorder* run_view::trace() { return state_->trace ? &*state_->trace : nullptr; }

void run_view::finish(std::ostream& out, std::int64_t steps, const ht::machine_peaks& peaks, file_writes& writes) {
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
    if (s.trace) writes([&] { s.trace->write(s.file); });
    out << std::flush;
}

std::string file_name_of(const std::string& run) {
    std::string name;
    for (const char c : run) {
        const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (is_plain) name += c;
        else if (!name.empty() && name.back() != '_') name += '_';
    }
    return name;
}

struct seen_runs::state {
    std::filesystem::path out;
    seeing_options o;
    file_writes* writes;
    ht::metrics_file metrics;
};
struct seen_runs::run::state {
    ht::metrics_file* metrics;
    nlohmann::ordered_json fields;
    std::optional<ht::tensorboard_file> events;
};

seen_runs::seen_runs(std::filesystem::path out, const seeing_options& o, file_writes& writes)
    : state_(new state{out, o, &writes, ht::metrics_file(out / "metrics.jsonl", {.on_error = writes.on_error(), .on_note = writes.on_note()})}) {}
seen_runs::~seen_runs() = default;

seen_runs::run& seen_runs::begin(const std::string& name, const run_view_options& options) {
    pages_.emplace_back(name);
    return runs_.emplace_back(*this, name, options);
}
void seen_runs::commit(ht::report page) {
    file_writes& write = *state_->writes;
    for (run& r : runs_) r.view.finish(std::cout, 0, {}, write);
    for (std::size_t i = 0; i < page.runs.size() && i < pages_.size(); ++i) {
        ht::run_report& all = pages_[i];
        all.figures = page.runs[i].figures;
        all.policies = page.runs[i].policies;
    }
    page.runs.assign(pages_.begin(), pages_.end());
    if (state_->o.report) write([&] { write_file(state_->out / "report.html", ht::report_html(page)); });
    state_->metrics.commit();
}

seen_runs::run::run(seen_runs& all, const std::string& name, const run_view_options& options)
    : view(options, all.state_->o, all.pages_.back()), page_(&all.pages_.back()),
      state_(new state{&all.state_->metrics, {{"policy", name}}, std::nullopt}) {
    if (!all.state_->o.tensorboard) return;
    state_->events.emplace(options.out / "tensorboard" / file_name_of(name),
                           ht::tensorboard_options{.on_error = all.state_->writes->on_error(), .on_note = all.state_->writes->on_note()});
}
seen_runs::run::~run() = default;

void seen_runs::run::on_step(const ht::step_metrics& m) { page_->add(m); }
void seen_runs::run::on_log(const ht::step_metrics& m) {
    state_->metrics->write(m, state_->fields);
    if (state_->events) ht::write_metrics(*state_->events, m);
}
void seen_runs::run::on_test(const std::string& tag, double value, std::int64_t step) {
    nlohmann::ordered_json line = state_->fields;
    line["step"] = step;
    line[tag.substr(tag.find('/') + 1)] = value;
    state_->metrics->write_line(line);
    if (state_->events) state_->events->scalar(tag, value, step);
}
