// SPDX-License-Identifier: MIT
/// \file
/// Where time is spent, by operation and pass.
///
///     ht::profiler profile;
///     { const ht::range r(&profile, "attention", ht::pass::forward); … }
///     profile.print(std::cout, steps);
///
/// A range's time excludes that of the ranges inside it, so that the rows add up to the total. Time is the calling
/// thread's steady clock; if a range waits for other threads, waiting counts.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <halftone/exec/ranges.hpp>
#include <halftone/observe/report/table.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A listener that sums the time of every operation, by pass, without that of nested operations.
class profiler final : public range_listener {
  public:
    /// Returns nanoseconds since an arbitrary moment.
    using clock = std::int64_t (*)();
    /// The system's monotonic clock.
    static std::int64_t steady_clock() {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }

    /// One operation: its time and its calls in each pass.
    struct row {
        const char* operation = nullptr;
        std::int64_t nanoseconds[passes] = {};
        std::int64_t calls[passes] = {};

        std::int64_t total() const { return nanoseconds[0] + nanoseconds[1] + nanoseconds[2]; }
    };

    explicit profiler(clock now = &steady_clock) : now_(now) {}

    void begin(const char* operation, pass p) override {
        const std::int64_t now = now_();
        settle(now);
        open_.push_back({find(operation), static_cast<int>(p)});
        row& r = rows_[open_.back().row];
        ++r.calls[static_cast<int>(p)];
        last_ = now;
    }
    void end() override {
        const std::int64_t now = now_();
        settle(now);
        open_.pop_back();
        last_ = now;
    }

    /// Sets all times and counts to 0; the operations keep their order.
    void clear() {
        for (row& r : rows_) r = row{.operation = r.operation};
    }
    /// One row for each operation, in the order of their first range.
    const std::vector<row>& rows() const { return rows_; }
    /// The time of all operations and passes, in nanoseconds.
    std::int64_t total() const {
        std::int64_t sum = 0;
        for (const row& r : rows_) sum += r.total();
        return sum;
    }

    /// Prints a table, the largest first: milliseconds a step in each pass, the share of the total, calls a step.
    void print(std::ostream& out, std::int64_t steps) const {
        std::vector<row> sorted = rows_;
        std::stable_sort(sorted.begin(), sorted.end(),
                         [](const row& a, const row& b) { return a.total() > b.total(); });
        sorted.push_back(sum("total"));
        const double scale = 1e-6 / static_cast<double>(std::max<std::int64_t>(steps, 1));
        const double whole = std::max(1.0, static_cast<double>(total()));
        detail::table lines{{{"ms a step", -24},
                             {"forward", 10},
                             {"backward", 10},
                             {"update", 10},
                             {"total", 10},
                             {"share", 7},
                             {"calls", 9}}};
        const auto milliseconds = [scale](std::int64_t n) {
            return detail::formatted("%.3f", static_cast<double>(n) * scale);
        };
        for (const row& r : sorted) {
            if (r.total() == 0) continue;
            std::vector<detail::table_cell> cells{std::string(r.operation).substr(0, 24)};
            for (const std::int64_t n : r.nanoseconds) cells.push_back(n == 0 ? "" : milliseconds(n));
            const double calls = static_cast<double>(r.calls[0] + r.calls[1] + r.calls[2]) /
                                 static_cast<double>(std::max<std::int64_t>(steps, 1));
            cells.push_back(milliseconds(r.total()));
            cells.push_back(detail::formatted("%.1f%%", 100.0 * static_cast<double>(r.total()) / whole));
            cells.push_back(detail::formatted("%.1f", calls));
            lines.rows.push_back(std::move(cells));
        }
        out << lines.text();
    }

  private:
    struct open_range {
        std::size_t row;
        int pass;
    };

    /// Adds the time since the last event to the innermost open range.
    void settle(std::int64_t now) {
        if (!open_.empty()) rows_[open_.back().row].nanoseconds[open_.back().pass] += now - last_;
    }
    std::size_t find(const char* operation) {
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            if (rows_[i].operation == operation || std::strcmp(rows_[i].operation, operation) == 0) return i;
        }
        rows_.push_back({.operation = operation});
        return rows_.size() - 1;
    }
    row sum(const char* title) const {
        row all{.operation = title};
        for (const row& r : rows_) {
            for (int p = 0; p < passes; ++p) all.nanoseconds[p] += r.nanoseconds[p], all.calls[p] += r.calls[p];
        }
        return all;
    }

    clock now_;
    std::vector<row> rows_;
    std::vector<open_range> open_;
    std::int64_t last_ = 0;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
