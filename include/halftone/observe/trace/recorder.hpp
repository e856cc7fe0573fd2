// SPDX-License-Identifier: MIT
/// \file
/// Records what a run does when, for a timeline: every operation, pass, part of a step and range of the user's, as
/// torch.profiler does.
///
///     ht::trace_recorder trace{device, {.schedule = {.wait = 1, .warmup = 1, .active = 3, .repeat = 1}}};
///     trainer.listen(&trace);                                            // or tape.listen(&trace) in your own loop
///     trainer.train(data);
///     trace.write("trace.json");                                         // for https://ui.perfetto.dev
///
/// The file is in the format of Chrome traces (chrome.hpp). A watched tape tells the layer of each operation. Workers
/// are shown if the device runs on a traced_executor (workers.hpp), kernels of a GPU by cuda_kernel_times (kernels.cuh).
///
/// A range costs two readings of the clock and an entry in memory that was allocated at the beginning, which keeps the
/// latest max_events of each thread.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>

#include <halftone/error.hpp>
#include <halftone/memory/resource.hpp>
#include <halftone/observe/trace/event.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Which steps are recorded, as torch.profiler.schedule: cycles of `wait` steps without, `warmup` steps that are
/// discarded, and `active` steps.
struct trace_schedule {
    std::int64_t wait = 0, warmup = 0;
    std::int64_t active = 0;      ///< 0: everything is recorded, also outside of steps
    std::int64_t repeat = 0;      ///< number of cycles; 0: until the run ends
    std::int64_t skip_first = 0;  ///< steps before the first cycle
};

/// What is recorded, as torch.profiler.ProfilerActivity.
enum class trace_parts {
    all,
    cpu,     ///< ranges alone
    kernels  ///< what workers and GPUs do, without the program's ranges
};

/// Bytes in use at a moment, by kind.
struct trace_memory {
    std::int64_t at = 0;  ///< nanoseconds of the recorder's clock
    std::size_t live[memory_kinds] = {};
};

class trace_recorder;

/// Options of a recorder.
struct trace_options {
    trace_schedule schedule{};
    trace_parts parts = trace_parts::all;
    std::size_t max_events = std::size_t{1} << 16;  ///< of each thread; the latest are kept; each takes 64 bytes
    std::function<void(trace_recorder&)> on_ready{};  ///< called at the end of each cycle, whose events are then dropped
    std::int64_t (*clock)() = nullptr;                ///< nanoseconds; nullptr: the system's monotonic clock
};

/// A row of a trace: what one thread did, or one part of the main thread.
struct trace_row {
    std::string title;
    std::vector<trace_event> events;  ///< by their beginnings; an event comes before those inside it
};

/// The listener that records. Used by the thread that trains; other threads have lanes.
class trace_recorder final : public range_listener {
  public:
    /// A recorder that records no bytes in use. Throws argument_error for a schedule that has negative numbers, or no
    /// events.
    explicit trace_recorder(trace_options options = {}) : options_(std::move(options)) { start(); }
    /// A recorder that also records the bytes in use on this device at the end of every operation. The device must
    /// outlive it.
    template <class Device>
        requires requires(Device& device) { device.memory().usage(); }
    explicit trace_recorder(Device& device, trace_options options = {})
        : trace_recorder(std::move(options)) {
        count_memory(device.memory().usage());
    }

    /// From now on records the bytes in use, which must outlive it, at the end of every operation.
    void count_memory(const memory_usage& usage) {
        usage_ = &usage;
        memory_ = detail::trace_ring<trace_memory>(options_.max_events);
    }
    /// A row for another thread: the listener that its ranges tell. The reference is valid as long as the recorder.
    trace_lane& lane(const std::string& title) {
        lanes_.push_back(std::make_unique<trace_lane>(state_, title, options_.max_events));
        return *lanes_.back();
    }
    /// Whether something that happens now is recorded.
    bool is_recording() const { return state_.now() == detail::trace_mode::on; }
    trace_parts parts() const { return options_.parts; }
    /// Nanoseconds of the recorder's clock.
    std::int64_t now() const { return state_.clock(); }
    /// The name of the innermost range of the thread that trains.
    const char* running() const { return main_->running(); }
    /// The layer of the innermost range of the thread that trains; empty if it is unknown.
    const char* running_layer() const { return main_->running_layer(); }

    /// The rows that have events: first the parts of a step, then other threads. No thread may record at the same time.
    std::vector<trace_row> rows() const {
        std::vector<trace_row> all;
        if (options_.parts != trace_parts::kernels) {
            const std::vector<trace_event> events = main_->events();
            for (int t = 0; t < tracks; ++t) {
                trace_row row{title_of(static_cast<track>(t)), {}};
                for (const trace_event& e : events) {
                    if (e.on == static_cast<track>(t)) row.events.push_back(e);
                }
                all.push_back(std::move(row));
            }
        }
        for (const auto& lane : lanes_) all.push_back({lane->title(), lane->events()});
        std::erase_if(all, [](const trace_row& row) { return row.events.empty(); });
        for (trace_row& row : all) {
            std::reverse(row.events.begin(), row.events.end());  // of equal times, what ended last is outside
            std::stable_sort(row.events.begin(), row.events.end(), [](const trace_event& a, const trace_event& b) {
                return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
            });
        }
        return all;
    }
    /// The bytes in use over time; empty without a device.
    std::vector<trace_memory> memory() const { return usage_ == nullptr ? std::vector<trace_memory>{} : memory_.kept(); }
    /// How many events of all threads were dropped for later ones.
    std::uint64_t dropped() const {
        std::uint64_t all = main_->dropped();
        for (const auto& lane : lanes_) all += lane->dropped();
        return all;
    }
    /// Forgets all events.
    void clear() {
        main_->clear();
        memory_.clear();
        for (const auto& lane : lanes_) lane->clear();
    }
    /// When the recorder was made.
    std::int64_t began() const { return began_; }
    /// Writes a Chrome trace. Throws output_error. Defined in chrome.hpp.
    void write(const std::filesystem::path& file) const;

    // ---- called by tapes and trainers

    void begin(const char* operation, pass p) override { main_->begin(operation, p); }
    void end() override {
        main_->end();
        note_memory();
    }
    bool wants_origins() const override { return main_->wants_origins() && options_.parts != trace_parts::kernels; }
    void layer(const char* path) override { main_->layer(path); }
    void begin_scope(const char* name, track on) override { main_->begin_scope(name, on); }
    void end_scope() override { main_->end_scope(); }
    void begin_step(std::int64_t step) override {
        state_.step.store(step, std::memory_order_relaxed);
        if (options_.schedule.active != 0) advance();
        if (is_in_step_) main_->end_scope();  // of a step that ended with an exception
        is_in_step_ = true;
        main_->begin_scope("step", track::step);
        note_memory();
    }
    void end_step() override {
        if (std::exchange(is_in_step_, false)) main_->end_scope();
        state_.step.store(0, std::memory_order_relaxed);
        if (is_last_of_cycle_) {
            record(detail::trace_mode::off);
            if (options_.on_ready) {
                options_.on_ready(*this);
                clear();
            }
        }
    }

  private:
    static std::string title_of(track t) {
        constexpr const char* titles[tracks] = {"steps",     "data loading", "forward",    "backward",
                                                "optimizer", "files",        "collectives"};
        return titles[static_cast<int>(t)];
    }
    void start() {
        const trace_schedule& s = options_.schedule;
        if (s.wait < 0 || s.warmup < 0 || s.active < 0 || s.repeat < 0 || s.skip_first < 0)
            fail<argument_error>("trace: a schedule of ", s.wait, ", ", s.warmup, ", ", s.active, ", ", s.repeat, ", ",
                                 s.skip_first, "; expected wait, warmup, active, repeat and skip_first of 0 or more");
        if (options_.max_events == 0) fail<argument_error>("trace: max_events is 0; expected 1 or more");
        state_.clock = options_.clock != nullptr ? options_.clock : &detail::monotonic_nanoseconds;
        main_ = std::make_unique<trace_lane>(state_, "main", options_.max_events);
        began_ = state_.clock();
        record(s.active == 0 ? detail::trace_mode::on : detail::trace_mode::off);
    }
    void record(detail::trace_mode mode) { state_.mode.store(mode, std::memory_order_relaxed); }
    /// The schedule's next step begins.
    void advance() {
        using detail::trace_mode;
        const trace_schedule& s = options_.schedule;
        const std::int64_t step = steps_++ - s.skip_first, cycle = s.wait + s.warmup + s.active;
        is_last_of_cycle_ = false;
        if (step < 0 || (s.repeat != 0 && step / cycle >= s.repeat)) return record(trace_mode::off);
        const std::int64_t place = step % cycle;
        is_last_of_cycle_ = place + 1 == cycle;
        record(place < s.wait ? trace_mode::off : place < s.wait + s.warmup ? trace_mode::warmup : trace_mode::on);
    }
    void note_memory() {
        if (usage_ == nullptr || !is_recording()) return;
        trace_memory now;
        now.at = state_.clock();
        for (int k = 0; k < memory_kinds; ++k) now.live[k] = usage_->live(static_cast<memory_kind>(k));
        memory_.add(now);
    }

    trace_options options_;
    detail::trace_state state_;
    const memory_usage* usage_ = nullptr;
    detail::trace_ring<trace_memory> memory_{1};
    std::unique_ptr<trace_lane> main_;
    std::vector<std::unique_ptr<trace_lane>> lanes_;
    std::int64_t began_ = 0, steps_ = 0;
    bool is_in_step_ = false, is_last_of_cycle_ = false;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
