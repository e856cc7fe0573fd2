// SPDX-License-Identifier: MIT
/// \file
/// What the convolutions of implicit/cpu.hpp read: planes, which are copies of a few rows of some channels with their padding,
/// and the columns that results take out of them.
///
///     planes            (channels, phases, rows, width) words: a float, or two channels' bfloat16
///     column_vector     the places in a plane of as many consecutive results as a vector holds
#pragma once

#include <cstdint>

#include <halftone/kernel/conv2d/implicit/taps.hpp>
#include <halftone/number/integer.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {
namespace implicit_cpu {

/// (images, channels, height, width) without element type; strides are in elements.
struct image_memory {
    const std::byte* data;
    shape<4> strides;
};

/// The planes of results [first, first + count).
struct strip {
    const tap_sum& of;
    image_memory source;
    extent first, count;
    extent plane_size;  ///< words; at least a vector more than it has elements

    extent channel_size() const { return plane_size * of.phases(); }
};

/// Fills the planes of `channels` channels from `channel` on; of those, or pairs of those, that a word holds.
using fill_planes = void(const strip& s, extent channel, extent channels, void* planes);

/// Places in a plane, relative to the first one, `base`.
struct column_vector {
    enum class form : std::int32_t { adjacent, near, far };  ///< near: within two vectors
    std::int32_t base;
    form is;
    std::int32_t at[32];
};

/// What copy_columns copies: row `first_row` + i of the result is what tap (first_row + i) % taps of channel (first_row + i) / taps
/// sees, with `vectors` vectors.
struct column_copy {
    const void* planes;
    extent channel_size;
    const std::int32_t* tap_offset;  ///< of each tap, in a channel's planes
    extent taps, first_row, rows;
    const column_vector* columns;
    extent vectors;
};
using copy_columns = void(const column_copy& c, void* to, extent to_stride);

/// Writes where taps are in a channel's planes, class by class.
inline void write_tap_offsets(const tap_sum& of, extent plane_size, std::int32_t* to) {
    const extent width = of.plane_width();
    of.for_each_tap([&](extent k, extent l) {
        const extent plane = of.down.phase(k) * of.across.phases + of.across.phase(l);
        *to++ = static_cast<std::int32_t>(plane * plane_size + of.down.shift(k) * width + of.across.shift(l));
    });
}

/// Makes vectors of `lanes` places out of them one by one; the last vector is filled up with the last place.
class column_writer {
  public:
    column_writer(column_vector* to, int lanes) : to_(to), lanes_(lanes) {}
    void add(extent place) {
        const auto at = static_cast<std::int32_t>(place);
        if (used_ == 0) to_->base = at;
        to_->at[used_++] = at - to_->base;
        if (used_ == lanes_) end_vector();
    }
    /// Fills up the last vector, or up to `vectors` of them.
    void finish(extent vectors) {
        if (used_ > 0) {
            while (used_ > 0) add(to_->base + to_->at[used_ - 1]);
        }
        for (; done_ < vectors; ++done_, ++to_) *to_ = to_[-1];
    }

  private:
    void end_vector() {
        const extent span = to_->at[lanes_ - 1];
        to_->is = span == lanes_ - 1  ? column_vector::form::adjacent
                  : span < 2 * lanes_ ? column_vector::form::near
                                      : column_vector::form::far;
        for (int i = 0; i < lanes_ && to_->is == column_vector::form::adjacent; ++i) {
            if (to_->at[i] != i) to_->is = column_vector::form::near;
        }
        used_ = 0;
        ++done_;
        ++to_;
    }

    column_vector* to_;
    int lanes_, used_ = 0;
    extent done_ = 0;
};

/// Calls add(place) for each result.
template <class Add>
void for_each_place(const strip& s, const Add& add) {
    const extent wide = s.of.across.positions, width = s.of.plane_width();
    s.of.for_each_image(s.first, s.count, [&](const rows_of_image& r) {
        extent row = r.base, j = r.position % wide;
        for (extent i = 0; i < r.count; ++i) {
            add(row * width + j, i + 1 == r.count);
            if (++j == wide) {
                j = 0;
                ++row;
            }
        }
    });
}

/// The part of a plane's row that is in the image: elements [begin, end), of which the first is number `from` of the source.
struct inside {
    extent begin, end, from;

    inside(const tap_axis& a, extent phase, extent width) {
        const extent first = a.first + phase;
        begin = std::min(width, first >= 0 ? 0 : detail::ceil_div(-first, a.stride));
        end = std::max(begin, std::min(width, a.size <= first ? 0 : detail::ceil_div(a.size - first, a.stride)));
        from = first + begin * a.stride;
    }
};

/// Calls row(unit, to, from, part) for each row of the planes of some units of channels, each of `each` channels from `channel` on:
/// `to` is its first word, `from` the number of the first element that is inside, -1 if the whole row is padding. Rows of a plane
/// come in their order, and each may write a vector beyond its end.
template <class Word, class Row>
void for_each_plane_row(const strip& s, extent channel, extent units, extent each, Word* planes, const Row& row) {
    const tap_axis &down = s.of.down, &across = s.of.across;
    const shape<4>& strides = s.source.strides;
    const extent width = s.of.plane_width();
    for (extent phase_across = 0; phase_across < across.phases; ++phase_across) {
        const inside part(across, phase_across, width);
        s.of.for_each_image(s.first, s.count, [&](const rows_of_image& r) {
            for (extent phase = 0; phase < down.phases; ++phase) {
                Word* plane = planes + (phase * across.phases + phase_across) * s.plane_size + r.base * width;
                const extent first = down.first + phase + r.first * down.stride;
                extent base = r.image * strides[0] + channel * strides[1] + part.from * strides[3];
                for (extent c = 0; c < units; ++c, base += each * strides[1], plane += s.channel_size()) {
                    Word* to = plane;
                    extent seen = first;
                    for (extent i = 0; i < r.rows + down.most_shift; ++i, to += width, seen += down.stride)
                        row(c, to, seen >= 0 && seen < down.size ? base + seen * strides[2] : extent{-1}, part);
                }
            }
        });
    }
}

/// Packs words, class by class: word channel * taps_of[c] + t of class c is tap number[t] of weight (row, channel), `row_stride` and
/// `channel_stride` elements apart, whose window has `window` taps; a word holds one channel or two.
struct tap_packing {
    static constexpr extent gap = 16;  ///< words between two classes: a channel's taps are stored as a whole vector

    const void* weight;
    extent row_stride, channel_stride, window;
    const std::int32_t* number;  ///< of the taps of the first class, then of the second
    const std::int32_t* taps_of;
    extent classes, rows, channels;
};
using pack_taps = void(const tap_packing& p, void* to, extent to_stride);

/// Calls pack(row, channel) for every `each`-th channel, in the order of memory.
template <class Pack>
void for_each_channel(const tap_packing& p, extent each, const Pack& pack) {
    if (p.channel_stride < p.row_stride) {
        for (extent r = 0; r < p.rows; ++r)
            for (extent c = 0; c < p.channels; c += each) pack(r, c);
    } else {
        for (extent c = 0; c < p.channels; c += each)
            for (extent r = 0; r < p.rows; ++r) pack(r, c);
    }
}

}  // namespace implicit_cpu
}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
