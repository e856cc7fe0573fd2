// SPDX-License-Identifier: MIT
/// \file
/// What attention's kernels for Hopper's warpgroups (wgmma and TMA) share: tensor maps of heads, and how persistent blocks share
/// the tiles of all heads. plan.hpp says which problems they take.
///
///     const auto map = head_map(device, q, 64);
///     simt.bulk_copy(to, map, column, time, head, sequence, done);   // in a kernel: 64 times x 64 columns of one head
#pragma once

#include <halftone/kernel/attention/device/tiles.hpp>
#include <halftone/kernel/matmul/device/by_warpgroups.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// Whether a tensor map can describe the view: positive distances, multiples of 16 bytes below 2^40.
template <class T>
bool has_tensor_map(const view<T, 4>& v) {
    constexpr extent in_chunk = 16 / static_cast<extent>(sizeof(T)), most = (extent{1} << 40) / sizeof(T);
    for (int axis = 0; axis < 3; ++axis) {
        const extent distance = v.stride_of(axis);
        if (v.extent_of(axis) > 1 && (distance <= 0 || distance >= most || distance % in_chunk != 0)) return false;
    }
    return simt::is_aligned(v.data(), 16);
}

/// Whether attention's kernels for warpgroups exist for these types and this device's code.
template <class Compute, class T, class Device>
inline constexpr bool can_attend_by_warpgroups =
    can_have_warpgroups<Compute, Device> && std::is_same_v<Compute, T> &&
    (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>);

/// A tensor map of heads (batch, time, heads, head_size): a copy takes 64 columns of `rows` times of one head. What is
/// beyond head_size or the last time is zero when loaded, and not stored.
template <class Device, class T>
auto head_map(Device& device, const view<T, 4>& v, int rows) {
    const auto distance = [&](int axis) {
        return v.extent_of(axis) > 1 ? v.stride_of(axis) : round_up(v.extent_of(3), 8);
    };
    const simt::tile_axes axes{
        v.extent_of(3), {v.extent_of(1), v.extent_of(2), v.extent_of(0)}, {distance(1), distance(2), distance(0)}};
    return device.tile_map(static_cast<const T*>(v.data()), axes, rows);
}

/// A tile of a head: its number among all sequences' heads, and that of its part of the rows; -1: none.
struct attention_tile {
    int head, part;
};

/// How the persistent blocks share the tiles. Several heads are under way at a time, as many as have keys and values
/// that stay in the L2 cache. If tiles differ in work, part p growing with p (`in_pairs`, under a causal mask), a block
/// takes a long tile and a short one together, so that all pairs are equal; what is left at the end, less than a pair a
/// block, is shared tile by tile.
struct attention_schedule {
    int parts, heads, heads_at_once, blocks;
    bool in_pairs;

    HALFTONE_HD HALFTONE_INLINE int units_of_head() const { return in_pairs ? detail::ceil_div(parts, 2) : parts; }
    HALFTONE_HD HALFTONE_INLINE int units() const { return heads * units_of_head(); }
    /// The number of turns of a block, in some of which it may have no tile.
    HALFTONE_HD HALFTONE_INLINE int turns() const {
        return in_pairs ? units() / blocks * 2 + 2 : detail::ceil_div(units(), blocks);
    }
    HALFTONE_HD HALFTONE_INLINE attention_tile tile(int block, int turn) const {
        if (!in_pairs) return unit(turn * blocks + block, 0);
        const int whole = units() / blocks;
        if (turn < 2 * whole) return unit(turn / 2 * blocks + block, turn % 2);
        const int left = units() - whole * blocks, place = turn == 2 * whole ? block : 2 * blocks - 1 - block;
        if (place < left) return unit(whole * blocks + place, 0);
        return place < 2 * left ? unit(whole * blocks + 2 * left - 1 - place, 1) : attention_tile{0, -1};
    }

  private:
    /// A unit's tile: of a pair the long one or the short one.
    HALFTONE_HD HALFTONE_INLINE attention_tile unit(int number, int which) const {
        if (number >= units()) return {0, -1};
        const int of_group = heads_at_once * units_of_head(), group = number / of_group, rest = number % of_group,
                  first = group * heads_at_once, here = smaller(heads_at_once, heads - first), part = rest / here,
                  head = first + rest % here;
        if (!in_pairs) return {head, part};
        const int longer = parts - 1 - part;
        if (which == 0) return {head, longer};
        return {head, longer == part ? -1 : part};
    }
};

/// For tiles of `rows` of the queries, on this many multiprocessors.
inline attention_schedule schedule_by_queries(const attention_problem& p, int rows, int multiprocessors) {
    const int heads = p.sequences * p.heads, parts = p.parts(attention_side::queries, rows),
              in_cache = 65536 / (p.keys < 1 ? 1 : p.keys);  // heads of so many keys
    const extent at_once = static_cast<extent>(in_cache < 4 ? 4 : in_cache) * p.members;
    return {parts, heads, static_cast<int>(at_once < heads ? at_once : heads), smaller(multiprocessors, heads * parts),
            p.mask == attention_mask::causal};
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
