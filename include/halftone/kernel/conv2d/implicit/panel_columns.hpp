// SPDX-License-Identifier: MIT
/// \file
/// The columns of an unfolded matrix that a panel of a product takes, gathered from images. A column is an output position;
/// the positions of all images are numbered one after the other.
///
///     panel_columns columns(images, window, wide, runs);       // `runs`: room for most_runs(window, wide)
///     columns.choose(first);                                   // positions [first, first + wide)
///     columns.gather<std::uint32_t>(channel, k, count, to);    // rows [k, k + count) of the matrix: to (count, wide)
///
/// For each tap of the window, the positions are cut into runs: elements that follow each other in a row of an image, or
/// padding. The runs are the same for all channels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <halftone/config.hpp>
#include <halftone/kernel/unfold/window/window.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {
namespace implicit_cpu {

/// Columns of a panel under one tap: `count` of them from number `column` on, read from element `from` of a channel.
struct column_run {
    static constexpr extent padding = -1;  ///< in place of `from`: zeros
    std::int32_t column, count;
    extent from;
};

/// (images, channels, height, width) without element type; strides are in elements.
struct image_memory {
    const std::byte* data;
    shape<4> extents, strides;
};

class panel_columns {
  public:
    /// The number of runs that a panel of `wide` columns has at most.
    static extent most_runs(const sliding_window& window, extent wide) {
        const extent rows = (wide + 2 * window.across.positions - 2) / window.across.positions;
        return window.taps() * (std::min(wide, 3 * rows + 1) + 1);  // and the end
    }

    panel_columns(const image_memory& images, const sliding_window& window, extent wide, column_run* runs)
        : images_(images),
          window_(window),
          runs_(runs),
          wide_(wide),
          runs_of_tap_(most_runs(window, wide) / window.taps()) {}

    /// Writes the runs of the positions [first, first + wide) of all images; positions beyond the last image give zeros.
    void choose(extent first) const {
        for (extent k = 0; k < window_.down.taps; ++k) {
            for (extent l = 0; l < window_.across.taps; ++l) choose_under(k, l, first);
        }
    }

    class walk;
    /// Rows [k, k + count) of the matrix of a group's channels, whose row number is channel * taps + tap: (count, wide).
    template <class Word>
    void gather(extent first_channel, extent k, extent count, Word* to) const {
        walk runs(*this, first_channel, k, count);
        while (runs.next()) {
            const run_of_channels& run = *runs;
            const auto* from = reinterpret_cast<const Word*>(images_.data) + run.from;
            Word* row = to + run.to;
            for (extent c = 0; c < run.channels; ++c, from += run.from_step, row += run.to_step) {
                if (run.is_padding) {
                    std::memset(row, 0, static_cast<std::size_t>(run.count) * sizeof(Word));
                } else if (run.step == 1) {
                    std::memcpy(row, from, static_cast<std::size_t>(run.count) * sizeof(Word));
                } else {
                    for (extent i = 0; i < run.count; ++i) row[i] = from[i * run.step];
                }
            }
        }
    }

    /// A run in several channels: `count` columns of `channels` rows.
    struct run_of_channels {
        bool is_padding;
        extent from, step, from_step;  ///< the first element, from column to column, from channel to channel
        extent to, to_step;            ///< the first element in (count, wide), from channel to channel
        extent count, channels;
    };
    /// The runs of rows [k, k + count): tap by tap, so that many in turn are alike.
    ///
    ///     panel_columns::walk runs(columns, first_channel, k, count);
    ///     while (runs.next()) use(*runs);
    class walk {
      public:
        walk(const panel_columns& of, extent first_channel, extent k, extent count)
            : of_(of), first_channel_(first_channel), k_(k), end_(k + count) {
            now_.step = of.window_.across.stride * of.images_.strides[3];
            now_.from_step = of.images_.strides[1];
            now_.to_step = of.window_.taps() * of.wide_;
        }
        const run_of_channels& operator*() const { return now_; }
        bool next() {
            while (run_ == nullptr || run_->count == 0) {
                if (++tap_ >= of_.window_.taps()) return false;
                begin_tap();
            }
            now_.is_padding = run_->from == column_run::padding;
            now_.from = base_ + run_->from;
            now_.to = row_ + run_->column;
            now_.count = run_->count;
            ++run_;
            return true;
        }

      private:
        void begin_tap() {
            const extent taps = of_.window_.taps(), channel = (k_ - tap_ + taps - 1) / taps;
            now_.channels = std::max<extent>(0, (end_ - tap_ + taps - 1) / taps - channel);
            base_ = (first_channel_ + channel) * now_.from_step;
            row_ = (channel * taps + tap_ - k_) * of_.wide_;
            run_ = of_.runs_ + tap_ * of_.runs_of_tap_;
        }

        const panel_columns& of_;
        extent first_channel_, k_, end_, tap_ = -1, base_ = 0, row_ = 0;
        const column_run* run_ = nullptr;
        run_of_channels now_{};
    };

  private:
    /// The runs of one tap; one of no columns ends them.
    void choose_under(extent k, extent l, extent first) const {
        const window_axis &down = window_.down, &across = window_.across;
        column_run* const begin = runs_ + (k * across.taps + l) * runs_of_tap_;
        column_run* next = begin;
        const auto add = [&](extent column, extent count, extent from) {
            if (count <= 0) return;
            if (from == column_run::padding && next != begin && next[-1].from == column_run::padding) {
                next[-1].count += static_cast<std::int32_t>(count);
            } else {
                *next++ = {static_cast<std::int32_t>(column), static_cast<std::int32_t>(count), from};
            }
        };
        const extent total = images_.extents[0] * window_.positions();
        extent column = 0;
        while (column < wide_) {
            const extent at = first + column;
            if (at >= total) {
                add(column, wide_ - column, column_run::padding);
                break;
            }
            const extent position = at % window_.positions(), row = down.seen(position / across.positions, k),
                         j = position % across.positions, count = std::min(across.positions - j, wide_ - column);
            if (row < 0 || row >= down.size) {
                add(column, count, column_run::padding);
            } else {
                const extent left = std::clamp(across.first_inside(l), j, j + count),
                             right = std::clamp(across.end_inside(l), left, j + count);
                add(column, left - j, column_run::padding);
                add(column + left - j, right - left,
                    at / window_.positions() * images_.strides[0] + row * images_.strides[2] +
                        across.seen(left, l) * images_.strides[3]);
                add(column + right - j, j + count - right, column_run::padding);
            }
            column += count;
        }
        *next = {0, 0, 0};
    }

    image_memory images_;
    const sliding_window& window_;
    column_run* runs_;  // (taps, runs_of_tap_)
    extent wide_, runs_of_tap_;
};

}  // namespace implicit_cpu
}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
