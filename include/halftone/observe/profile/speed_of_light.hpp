// SPDX-License-Identifier: MIT
/// \file
/// How far each operation of a run is from what the machine can do: its time, flops and bytes, the time that its limit
/// would take, and what that limit is.
///
///     ht::speed_of_light light;
///     ht::trainer trainer{device, model, arguments, ht::watched};      // a watched tape tells work and layers
///     trainer.listen(&light);
///     trainer.train(data);
///     const ht::light_table table = light.table(ht::measure_peaks(device));
///     table.print(std::cout);
///
/// Every moment of a step belongs to one line: an operation's time excludes that of ranges inside it, except for the
/// operations that a custom operation is made of, and what is in no
/// operation belongs to the part of the step that it is in ("forward, between operations"). So the lines add up to the
/// time of the steps. The lines are sorted by the time that would be saved if each ran at its limit,
///
///     limit = max(products / peak of their arithmetic + other flops / peak of fp32, bytes / peak of a copy)
///
/// Times are those of the host's clock: of a CPU's operations, not of a GPU's kernels.
///
/// MFU, model flops utilisation, is the time that the products of the forward and backward passes would take at the
/// peaks of their arithmetic, without those that checkpoints repeat, as a fraction of the time of the steps (Chowdhery
/// et al. 2022, "PaLM", appendix B). Flops and bytes: observe/profile/work.hpp. Work of custom operations and of the
/// user's own parts is not known; their bytes are those of their results and gradients.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ostream>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <halftone/exec/ranges.hpp>
#include <halftone/observe/profile/machine_peaks.hpp>
#include <halftone/observe/report/table.hpp>
#include <halftone/observe/trace/event.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What bounds an operation that runs at its limit.
enum class light_bound { unknown, arithmetic, memory };

/// "", "arithmetic" or "memory".
constexpr const char* name(light_bound b) {
    constexpr const char* names[] = {"", "arithmetic", "memory"};
    return names[static_cast<int>(b)];
}

/// A line: an operation of a layer in a pass, or the rest of a part of the step; per step.
struct light_row {
    std::string operation, layer;
    halftone::pass pass = pass::forward;
    bool is_operation = true;
    double calls = 0, seconds = 0, flops = 0, bytes = 0;
    double limit = 0;               ///< seconds at the peaks
    light_bound bound = light_bound::unknown;

    double saving() const { return std::max(0.0, seconds - limit); }
    /// The fraction of the peak at which it runs; 0 if its work is unknown.
    double share() const { return seconds == 0 ? 0 : limit / seconds; }
};

/// All lines of a run, the largest saving first.
struct light_table {
    std::vector<light_row> rows;
    std::int64_t steps = 0;
    double step_seconds = 0;  ///< the mean
    double mfu = 0;           ///< model flops utilisation, a fraction
    double model_flops = 0;   ///< of a step: products, without repeated ones
    machine_peaks peaks;

    /// Prints the first `most` lines, one for the others, and MFU.
    void print(std::ostream& out, std::size_t most = 20) const;
};

/// A listener that sums time and work of every operation by layer and pass, inside of steps: a trainer tells them, a loop of
/// your own calls begin_step and end_step. It allocates when it meets an operation for the first time.
class speed_of_light final : public range_listener {
  public:
    /// `now`: returns nanoseconds; nullptr: the system's monotonic clock.
    explicit speed_of_light(std::int64_t (*now)() = nullptr)
        : now_(now != nullptr ? now : &detail::monotonic_nanoseconds) {
        open_.reserve(64);
    }

    /// Forgets what was summed.
    void clear() { sums_.clear(), order_.clear(), steps_ = 0, step_time_ = 0; }
    /// The steps that have ended.
    std::int64_t steps() const { return steps_; }
    /// The lines as means over the steps.
    light_table table(const machine_peaks& peaks) const;

    // ---- called by tapes and trainers

    void begin(const char* operation, pass p) override { open(operation, p, true); }
    void end() override { close(); }
    void begin_scope(const char* name, track on) override {
        open(name, on == track::backward ? pass::backward : on == track::update ? pass::update : pass::forward, false);
    }
    void end_scope() override { close(); }
    bool wants_origins() const override { return true; }
    void layer(const char* path) override {
        if (open_.empty()) return;
        const auto found = names_.find(path);
        open_.back().key.layer = (found != names_.end() ? found : names_.insert(path).first)->c_str();
    }
    bool wants_work() const override { return true; }
    void work(const operation_work& w) override {
        if (!open_.empty()) open_.back().done.add(w);
    }
    void begin_step(std::int64_t) override {
        open_.clear();
        open("step", pass::forward, false);
        is_in_step_ = true;
        step_began_ = last_;
    }
    void end_step() override {
        close();
        ++steps_;
        step_time_ += last_ - step_began_;
        is_in_step_ = false;
    }

  private:
    struct key {
        const char* operation;
        const char* layer;
        pass of_pass;
        bool is_operation;
        bool operator==(const key&) const = default;
    };
    struct hash {
        std::size_t operator()(const key& k) const {
            const std::hash<const void*> of;
            return of(k.operation) * 31 + of(k.layer) * 7 + static_cast<std::size_t>(k.of_pass) * 2 + (k.is_operation ? 1 : 0);
        }
    };
    struct sum {
        std::int64_t nanoseconds = 0, calls = 0;
        double flops = 0, bytes = 0, others = 0;
        double products[arithmetics] = {}, repeated[arithmetics] = {};

        void add(const operation_work& w) {
            flops += w.flops, bytes += w.bytes, others += w.flops - w.products;
            products[static_cast<int>(w.in)] += w.products;
            if (w.is_repeated) repeated[static_cast<int>(w.in)] += w.products;
        }
        void add(const sum& s) {
            nanoseconds += s.nanoseconds, calls += s.calls, flops += s.flops, bytes += s.bytes, others += s.others;
            for (int a = 0; a < arithmetics; ++a) products[a] += s.products[a], repeated[a] += s.repeated[a];
        }
    };
    struct running {
        halftone::speed_of_light::key key;
        sum done;
    };

    void open(const char* operation, pass p, bool is_operation) {
        settle();
        open_.push_back({{operation, "", p, is_operation}, {}});
        open_.back().done.calls = 1;
    }
    void close() {
        if (open_.empty()) return;
        settle();
        running r = open_.back();
        open_.pop_back();
        if (!is_in_step_) return;
        if (is_part_of_operation(r.key)) {
            r.done.calls = 0;
            return open_.back().done.add(r.done);
        }
        const auto [at, is_new] = sums_.try_emplace(r.key);
        if (is_new) order_.push_back(r.key);
        at->second.add(r.done);
    }
    /// Whether a range that has ended is of the operation around it, of which no layer is told: a map in a custom operation,
    /// but not what a checkpoint runs again.
    bool is_part_of_operation(const key& k) const {
        if (!k.is_operation || *k.layer != 0 || open_.empty()) return false;
        return open_.back().key.is_operation && std::strcmp(open_.back().key.operation, "checkpoint") != 0;
    }
    /// Adds the time since the last event to the innermost range.
    void settle() {
        const std::int64_t now = now_();
        if (!open_.empty()) open_.back().done.nanoseconds += now - last_;
        last_ = now;
    }

    std::int64_t (*now_)();
    std::unordered_map<key, sum, hash> sums_;
    std::vector<key> order_;
    std::vector<running> open_;
    std::set<std::string, std::less<>> names_;
    std::int64_t last_ = 0, steps_ = 0, step_began_ = 0, step_time_ = 0;
    bool is_in_step_ = false;
};

inline light_table speed_of_light::table(const machine_peaks& peaks) const {
    light_table t;
    t.steps = steps_, t.peaks = peaks;
    const double each = 1 / static_cast<double>(std::max<std::int64_t>(steps_, 1));
    t.step_seconds = 1e-9 * static_cast<double>(step_time_) * each;
    double at_peak = 0;
    for (const key& k : order_) {
        const sum& s = sums_.at(k);
        // Equal names of two translation units are one line.
        const auto same = [&](const light_row& r) {
            return r.operation == k.operation && r.layer == k.layer && r.pass == k.of_pass && r.is_operation == k.is_operation;
        };
        auto row = std::find_if(t.rows.begin(), t.rows.end(), same);
        if (row == t.rows.end()) row = t.rows.insert(row, {k.operation, k.layer, k.of_pass, k.is_operation});
        row->calls += each * static_cast<double>(s.calls), row->seconds += each * 1e-9 * static_cast<double>(s.nanoseconds);
        row->flops += each * s.flops, row->bytes += each * s.bytes;
        const double fp32 = peaks.of(arithmetic::fp32);
        double compute = fp32 == 0 ? 0 : s.others / fp32;
        for (int a = 0; a < arithmetics; ++a) {
            if (peaks.flops[a] == 0) continue;
            compute += s.products[a] / peaks.flops[a];
            t.model_flops += each * (s.products[a] - s.repeated[a]);
            at_peak += each * (s.products[a] - s.repeated[a]) / peaks.flops[a];
        }
        const double memory = peaks.bytes == 0 ? 0 : s.bytes / peaks.bytes;
        row->limit += each * std::max(compute, memory);
        if (compute != 0 || memory != 0) row->bound = compute >= memory ? light_bound::arithmetic : light_bound::memory;
    }
    t.mfu = t.step_seconds == 0 ? 0 : at_peak / t.step_seconds;
    std::stable_sort(t.rows.begin(), t.rows.end(),
                     [](const light_row& a, const light_row& b) { return a.saving() > b.saving(); });
    return t;
}

namespace detail {

/// "linear, h.0.attn.qkv", "forward, between operations".
inline std::string light_place(const light_row& r) {
    if (!r.is_operation) return r.operation + (r.operation == "step" ? ", outside of its parts" : ", between operations");
    return r.operation + (r.layer.empty() ? "" : " " + r.layer);
}
/// The lines as a table, printed and on pages.
inline table light_lines(const std::vector<light_row>& rows) {
    table lines{{{"operation, layer", -38},
                 {"pass", -8, "wide"},
                 {"calls", 7, "n wide"},
                 {"ms", 9, "n"},
                 {"to save", 9, "n"},
                 {"GFLOP", 9, "n wide"},
                 {"MB", 9, "n wide"},
                 {"of its limit", 12, "limit"},
                 {"bound by", -10, "wide"}}};
    for (const light_row& r : rows) {
        const std::string share = r.bound == light_bound::unknown ? "" : formatted("%.0f%%", 100 * r.share());
        lines.rows.push_back({light_place(r),
                              name(r.pass),
                              formatted("%.1f", r.calls),
                              formatted("%.3f", 1e3 * r.seconds),
                              formatted("%.3f", 1e3 * r.saving()),
                              formatted("%.3f", 1e-9 * r.flops),
                              formatted("%.2f", 1e-6 * r.bytes),
                              {share, share.empty() ? "" : share_bar(r.share())},
                              name(r.bound)});
    }
    return lines;
}
/// The sum of lines, without a pass and a bound.
inline light_row sum_of_light(std::vector<light_row>::const_iterator first,
                              std::vector<light_row>::const_iterator end) {
    light_row sum;
    sum.operation = std::to_string(end - first) + " others";
    for (; first != end; ++first)
        sum.calls += first->calls, sum.seconds += first->seconds, sum.flops += first->flops, sum.bytes += first->bytes,
            sum.limit += std::min(first->limit, first->seconds);
    return sum;
}

}  // namespace detail

inline void light_table::print(std::ostream& out, std::size_t most) const {
    const auto shown = rows.begin() + static_cast<std::ptrdiff_t>(std::min(most, rows.size()));
    std::vector<light_row> first(rows.begin(), shown);
    if (shown != rows.end()) first.push_back(detail::sum_of_light(shown, rows.end()));
    detail::table lines = detail::light_lines(first);
    if (shown != rows.end()) lines.rows.back()[1] = "";
    out << lines.text()
        << detail::formatted(
               "step %.3f ms, products %.3f GFLOP, MFU %.1f%% of %.1f GFLOP/s in fp32, %.1f in bf16; copy %.1f GB/s\n",
               1e3 * step_seconds, 1e-9 * model_flops, 100 * mfu, 1e-9 * peaks.of(arithmetic::fp32),
               1e-9 * peaks.of(arithmetic::bf16), 1e-9 * peaks.bytes);
    if (mfu > 1.05) out << "The peaks are too low: measured by code compiled without optimisation, or while other programs ran.\n";
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
