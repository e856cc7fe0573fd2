// SPDX-License-Identifier: MIT
/// \file
/// A run's progress: a bar that is redrawn in its line on a terminal, a few plain lines elsewhere.
///
///     ht::progress bar{std::cerr, "amp_bf16", steps, {.columns = ht::terminal_columns(stderr)}};
///     bar.update({.step = 12, .loss = 2.41, .learning_rate = 3e-4}, seconds_since_start);
///     bar.finish();
///
/// On a terminal one write replaces the line, at most ten times a second:
///
///     amp_bf16  36% [#####---------]  108/300  loss 2.4131  lr 9.21e-04  scale 65536  11.2k tokens/s  84 MiB  0:17 left
///
/// On a narrow terminal parts are dropped, so that the line never wraps: memory and the learning rate where they would leave the bar
/// less than ten characters, then the bar, then other fields. It has no clock: the caller passes seconds.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ostream>
#include <string>
#include <utility>

#include <halftone/number/classify.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What the line shows.
struct progress_state {
    std::int64_t step = 0;            ///< steps done
    double loss = 0;
    double learning_rate = 0;
    double loss_scale = 0;            ///< 0: no loss scale, not shown
    double tokens_per_second = 0;     ///< 0: unknown, not shown
    double bytes = 0;                 ///< of memory in use; 0: unknown, not shown
};

/// How and how often the line is drawn.
struct progress_options {
    int columns = 0;                  ///< width of the terminal; 0: plain lines
    const char* unit = "tokens";      ///< what the rate counts
    double redraw_seconds = 0.1;      ///< shortest time between two redraws
    int lines = 10;                   ///< number of plain lines in a run, evenly distributed
    double line_seconds = 30;         ///< time after which an additional plain line is written
};

/// A line on a terminal that shows a run's progress, or a few plain lines if the output is not a terminal.
class progress {
  public:
    /// The stream must outlive it. `total` is the number of steps.
    progress(std::ostream& out, std::string label, std::int64_t total, const progress_options& options)
        : out_(&out), label_(std::move(label)), total_(total < 1 ? 1 : total), options_(options) {}
    progress(const progress&) = delete;
    progress& operator=(const progress&) = delete;
    /// Ends a line that was begun, so that an error message starts on a line of its own.
    ~progress() { finish(); }

    /// Shows the state after a step; `seconds` have passed since the run began.
    void update(const progress_state& state, double seconds) {
        if (options_.columns > 0) {
            if (is_open_ && state.step < total_ && seconds - shown_at_ < options_.redraw_seconds) return;
            draw(state, seconds);
        } else {
            const std::int64_t tenth = state.step * options_.lines / total_;
            if (tenth == shown_tenth_ && state.step < total_ && seconds - shown_at_ < options_.line_seconds) return;
            shown_tenth_ = tenth;
            say(state, seconds);
        }
        shown_at_ = seconds;
    }

    /// Prints a line above the bar.
    void note(const std::string& text) {
        write((is_open_ ? "\r\x1b[K" : "") + text + "\n");
        is_open_ = false;
    }

    /// Ends the bar's line. Nothing is drawn until the next update.
    void finish() {
        if (is_open_) write("\n");
        is_open_ = false;
    }

  private:
    static constexpr int most_columns = 400, field_size = 40, fields = 7;
    static constexpr int brackets = 3;           // " [" and "]", around the bar
    static constexpr int bar_before_fields = 10;  // characters of the bar that memory and the learning rate leave free

    struct text {
        char field[fields][field_size];
        char head[64];
    };

    void draw(const progress_state& state, double seconds) {
        text t;
        describe(state, seconds, t);
        // The last column stays empty: writing there makes some terminals wrap.
        const int room = (options_.columns < most_columns ? options_.columns : most_columns) - 1;
        int taken = width(t.head);
        bool shown[fields] = {};
        for (const int f : {loss, left, rate, count, scale, lr, memory}) {  // the most important fields are placed first
            const int needed = t.field[f][0] == 0 ? 0 : 2 + width(t.field[f]);
            const int kept_free = f == lr || f == memory ? brackets + bar_before_fields : 0;
            shown[f] = needed != 0 && taken + needed + kept_free <= room;
            if (shown[f]) taken += needed;
        }
        const int bar = room - taken - brackets < 30 ? room - taken - brackets : 30;
        std::string& to = line_;
        to.assign(1, '\r');  // not a literal: g++ 12 at -O3 warns of it (its bug 105651)
        to += t.head;
        if (bar >= 5) {
            const int full = static_cast<int>(bar * state.step / total_);
            to += " [";
            to.append(static_cast<std::size_t>(full), '#').append(static_cast<std::size_t>(bar - full), '-') += "]";
        }
        for (int f = 0; f < fields; ++f) {
            if (shown[f]) (to += "  ") += t.field[f];
        }
        if (static_cast<int>(to.size()) - 1 > room) to.resize(static_cast<std::size_t>(room) + 1);
        write(to += "\x1b[K");
        is_open_ = true;
    }

    void say(const progress_state& state, double seconds) {
        text t;
        describe(state, seconds, t);
        line_ = t.head;
        for (const char* field :
             {t.field[count], t.field[loss], t.field[lr], t.field[scale], t.field[rate], t.field[memory], t.field[left]}) {
            if (field[0] != 0) (line_ += "  ") += field;
        }
        write(line_ += '\n');
    }

    // In the order on the line.
    enum { count, loss, lr, scale, rate, memory, left };

    void describe(const progress_state& state, double seconds, text& t) const {
        std::snprintf(t.head, sizeof t.head, "%s %3d%%", label_.substr(0, 40).c_str(),
                      static_cast<int>(100 * state.step / total_));
        std::snprintf(t.field[count], field_size, "%lld/%lld", static_cast<long long>(state.step),
                      static_cast<long long>(total_));
        std::snprintf(t.field[loss], field_size, "loss %.4f", state.loss);
        if (!is_finite(state.loss)) std::strcpy(t.field[loss], "loss not finite");
        std::snprintf(t.field[lr], field_size, "lr %.2e", state.learning_rate);
        t.field[scale][0] = t.field[rate][0] = t.field[memory][0] = t.field[left][0] = 0;
        if (state.loss_scale != 0) std::snprintf(t.field[scale], field_size, "scale %.10g", state.loss_scale);
        if (state.tokens_per_second != 0) {
            const bool thousands = state.tokens_per_second >= 10000;
            std::snprintf(t.field[rate], field_size, thousands ? "%.1fk %.16s/s" : "%.0f %.16s/s",
                          thousands ? state.tokens_per_second / 1000 : state.tokens_per_second, options_.unit);
        }
        if (state.bytes > 0) {
            const double mebibytes = state.bytes / (1 << 20);
            const bool is_large = mebibytes >= 10000;
            std::snprintf(t.field[memory], field_size, mebibytes < 10 ? "%.1f MiB" : is_large ? "%.1f GiB" : "%.0f MiB",
                          is_large ? mebibytes / 1024 : mebibytes);
        }
        if (state.step >= total_) {
            spell_time(seconds, t.field[left], "");
        } else if (state.step > 0) {
            spell_time(seconds / static_cast<double>(state.step) * static_cast<double>(total_ - state.step),
                       t.field[left], " left");
        }
    }

    static void spell_time(double seconds, char* to, const char* after) {
        const long long s = seconds < 3.6e8 ? static_cast<long long>(seconds + 0.5) : 360000000;
        if (s < 3600) {
            std::snprintf(to, field_size, "%lld:%02lld%s", s / 60, s % 60, after);
        } else {
            std::snprintf(to, field_size, "%lld:%02lld:%02lld%s", s / 3600, s / 60 % 60, s % 60, after);
        }
    }

    static int width(const char* s) { return static_cast<int>(std::strlen(s)); }

    void write(const std::string& s) {
        out_->write(s.data(), static_cast<std::streamsize>(s.size()));
        out_->flush();
    }

    std::ostream* out_;
    std::string label_, line_;
    std::int64_t total_;
    progress_options options_;
    double shown_at_ = 0;
    std::int64_t shown_tenth_ = 0;
    bool is_open_ = false;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
