// SPDX-License-Identifier: MIT
/// \file
/// A product of 16-bit operands by Hopper's instructions (wgmma and TMA); sums in float. With at least 2,048 rows and
/// columns it takes 0.89 to 1.04 of cuBLASLt's time on an H200 (bench/results/gpu_h200/summary.md).
///
/// A block is persistent: it computes one tile of c after the other. It has two warpgroups that multiply (consumers)
/// and one of which a single thread copies operands (the producer), into a ring of slots in shared memory, one panel of
/// a and one of b in each. The ring continues from tile to tile, so that copying never stops. Each slot has two
/// mbarriers:
///
///     full     its bytes have arrived; counted by the copies that fill it
///     empty    all consumer warps have finished reading it
///
/// A warpgroup multiplies 64 of the tile's 128 rows by all of its columns. One group of instructions stays in flight
/// while the next is issued; a slot is released when its group is complete.
///
/// Results whose rows are not multiples of 16 bytes apart are stored by bulk copies, too (row_maps.hpp): then a tile has
/// every eighth row, of one set, and its columns begin where a multiple of 16 bytes does in that set's rows. So b is read
/// from any column on: its columns must be lines.
///
/// Numeric contract: that of matrix_unit.hpp; panels are added in the order of k, sixteen at a time.
#pragma once

#include <halftone/kernel/matmul/device/row_maps.hpp>
#include <halftone/kernel/matmul/device/staged_rows.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// A tile's width, and the number of slots in the ring; panels are 64 deep.
template <int TileN, int Stages>
struct warpgroup_tiling {
    static constexpr int tile_m = 128, tile_n = TileN, depth = 64, stages = Stages;
    static constexpr word a_bytes = tile_m * depth * 2, slot_bytes = a_bytes + tile_n * depth * 2;
};

/// The set of a tile, of all tiles from above, and its number within that set: consecutive ones are of different sets.
HALFTONE_HD HALFTONE_INLINE int set_of(int tile, int sets) { return sets == 1 ? 0 : tile % most_row_sets; }
HALFTONE_HD HALFTONE_INLINE int within_set(int tile, int sets) { return sets == 1 ? tile : tile / most_row_sets; }
/// The number of tiles from above to below.
HALFTONE_HD HALFTONE_INLINE int tiles_of_rows(int rows, int sets, int tile_m) {
    return sets * detail::ceil_div(within_set(rows + sets - 1, sets), tile_m);
}

/// A tile of c, whose rows are counted within a set of rows, and the part of k that is summed.
struct warpgroup_work {
    tile_place tile;
    int set, part, first_panel, panels;
};

/// The type of an epilogue's only result; void-like if it has several.
template <class Results>
struct only_result {
    struct type {};
};
template <class E, class T>
struct only_result<pack<detail::matmul_result<E, T>>> {
    using type = T;
};
/// Whether results can be stored by bulk copies.
template <class Results>
inline constexpr bool is_copied_in_bulk =
    sizeof(typename only_result<Results>::type) == 2 || std::is_same_v<typename only_result<Results>::type, float>;

template <class Compute, class Tiling, class Map, class Operands, class Results>
struct warpgroup_kernel {
    using tiling = Tiling;
    static constexpr int threads = 384, min_blocks = 1, multiplying_warps = 8, staged_columns = 32;
    static constexpr int blocks_n = tiling::tile_n / 8;
    using staged = staged_rows<staged_columns>;
    static constexpr bool has_parts = is_partial<Operands, Results>;
    static constexpr word ring_bytes = tiling::stages * tiling::slot_bytes, buffer_bytes = 16 * 128,
                          staging_bytes = 2 * buffer_bytes, barriers_at = ring_bytes + multiplying_warps * staging_bytes,
                          shared_bytes = barriers_at + 2 * tiling::stages * sizeof(simt::mbarrier);

    row_maps<Map> a, c;  // c: for storing results
    Map b;
    along a_axis, b_axis;
    int m, n, k;
    int sets;  // of rows of a and c: 1 or 8
    detail::matmul_epilogue<Operands, Results> epilogue;
    row_access access, operand_access;  // to all of the epilogue, and to its operands
    bool stores_in_bulk;                // results; if not, rows are one set
    int most_offset;                    // of c's rows in their maps
    int blocks;                         // the GPU's number of multiprocessors
    part_of_depth part{};
    int rows_of_part = 0;

    grid_shape grid() const { return {count() < blocks ? count() : blocks, 1, 1}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        if constexpr (Simt::has_wgmma) {
            if (simt.thread() == 0) {
                for (int slot = 0; slot < tiling::stages; ++slot) {
                    simt.mbarrier_init(full(slot), 1);
                    simt.mbarrier_init(empty(slot), multiplying_warps);
                }
                simt.mbarrier_init_fence();
            }
            simt.barrier();
            const int group = simt.warpgroup();
            if (group == 2) {
                simt.fewer_registers(constant<40>{});
                if (simt.thread() % 128 == 0) fetch(simt);
            } else {
                simt.more_registers(constant<232>{});
                multiply(simt, group);
            }
        }
    }

    HALFTONE_HD HALFTONE_INLINE int panels() const { return detail::ceil_div(k, tiling::depth); }

  private:
    /// The next slot, and how often the ring has wrapped around: phases of a barrier alternate between 0 and 1.
    struct ring_place {
        int slot = 0;
        word turn = 0;
        HALFTONE_HD HALFTONE_INLINE void advance() {
            if (++slot == tiling::stages) slot = 0, turn ^= 1;
        }
    };

    using sums_of_lane = vec<float, 4>[blocks_n];
    using result = typename only_result<Results>::type;
    static constexpr bool copies_results = is_copied_in_bulk<Results>;
    static_assert(staged::bytes <= staging_bytes);

    HALFTONE_HD HALFTONE_INLINE static shared_span<simt::mbarrier> full(int slot) {
        return {barriers_at + static_cast<word>(slot) * 8, 1};
    }
    HALFTONE_HD HALFTONE_INLINE static shared_span<simt::mbarrier> empty(int slot) { return full(tiling::stages + slot); }
    HALFTONE_HD HALFTONE_INLINE static word slot_at(int slot) { return static_cast<word>(slot) * tiling::slot_bytes; }

    HALFTONE_HD HALFTONE_INLINE int tiles_m() const { return tiles_of_rows(m, sets, tiling::tile_m); }
    HALFTONE_HD HALFTONE_INLINE int tiles_n() const { return detail::ceil_div(n + most_offset, tiling::tile_n); }
    HALFTONE_HD HALFTONE_INLINE int count() const { return tiles_m() * tiles_n() * part.count(panels()); }

    HALFTONE_HD HALFTONE_INLINE warpgroup_work work(int number) const {
        const int tiles = tiles_m() * tiles_n(), which = has_parts ? number / tiles : 0;
        const tile_place in_turn = place_in_turn(number - which * tiles, tiles_m(), tiles_n());
        const int set = set_of(in_turn.row, sets), offset = stores_in_bulk ? c.offset(set) : 0;
        const tile_place tile{within_set(in_turn.row, sets) * tiling::tile_m, in_turn.column * tiling::tile_n - offset};
        const int first = has_parts ? part.first(which) : 0;
        return {tile, set, which, first, has_parts ? part.length(panels(), first) : panels()};
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void fetch(Simt simt) const {
        ring_place at;
        for (int number = simt.block().x; number < count(); number += blocks) {
            const warpgroup_work mine = work(number);
            for (int i = 0; i < mine.panels; ++i) {
                const int depth = (mine.first_panel + i) * tiling::depth;
                simt.mbarrier_wait(empty(at.slot), at.turn ^ 1);
                simt.mbarrier_expect(full(at.slot), tiling::slot_bytes);
                fetch_panel<tiling::tile_m>(simt, a.of(mine.set), a_axis, mine.tile.row, depth, slot_at(at.slot), at.slot);
                fetch_panel<tiling::tile_n>(simt, b, b_axis, mine.tile.column, depth, slot_at(at.slot) + tiling::a_bytes,
                                            at.slot);
                at.advance();
            }
        }
    }
    HALFTONE_KERNEL template <int Outer, class Simt>
    HALFTONE_HD HALFTONE_INLINE static void fetch_panel(Simt simt, const Map& map, along axis, int outer, int depth, word to,
                                                        int slot) {
        if (axis == along::depth) {
            simt.bulk_copy(to, map, depth, outer, full(slot));
        } else {
            HALFTONE_UNROLL for (int o = 0; o < Outer; o += 64)
                simt.bulk_copy(to + static_cast<word>(o) * 128, map, outer + o, depth, full(slot));
        }
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void multiply(Simt simt, int group) const {
        ring_place at;
        word buffer = 0;  // which of the two staging buffers is next
#if defined(__CUDA_ARCH__)
#pragma unroll 1  // a run-time count, and a large body
#endif
        for (int number = simt.block().x; number < count(); number += blocks) {
            const warpgroup_work mine = work(number);
            sums_of_lane sums;
            // A loop for each pair of layouts, known to its instructions at compile time.
            if (a_axis == along::depth) {
                if (b_axis == along::depth) {
                    add_up<false, false>(simt, group, mine.panels, at, sums);
                } else {
                    add_up<false, true>(simt, group, mine.panels, at, sums);
                }
            } else if (b_axis == along::depth) {
                add_up<true, false>(simt, group, mine.panels, at, sums);
            } else {
                add_up<true, true>(simt, group, mine.panels, at, sums);
            }
            finish(simt, group, mine, sums, buffer);
        }
        if constexpr (copies_results) {
            if (stores_in_bulk) simt.bulk_wait_read(constant<0>{});  // before shared memory is reused
        }
    }
    HALFTONE_KERNEL template <bool IsAOuter, bool IsBOuter, class Simt>
    HALFTONE_HD HALFTONE_INLINE static void add_up(Simt simt, int group, int panels, ring_place& at,
                                                   sums_of_lane& sums) {
        using of_a = simt::wgmma_operand<IsAOuter>;
        using of_b = simt::wgmma_operand<IsBOuter>;
        int before = 0;
#if defined(__CUDA_ARCH__)
#pragma unroll 1  // a run-time count, and a large body
#endif
        for (int i = 0; i < panels; ++i) {
            simt.mbarrier_wait(full(at.slot), at.turn);
            // 64 rows are 8192 bytes in either layout.
            const of_a left{slot_at(at.slot) + static_cast<word>(group) * 8192};
            const of_b right{slot_at(at.slot) + tiling::a_bytes};
            simt.wgmma_fence();
            HALFTONE_UNROLL for (word step = 0; step < tiling::depth / 16; ++step) {
                simt.wgmma(simt::element<Compute>{}, sums, of_a{left.offset + step * of_a::step},
                           of_b{right.offset + step * of_b::step}, step > 0 || i > 0);
            }
            simt.wgmma_commit();
            simt.wgmma_wait(constant<1>{}, sums);
            if (i > 0) give_back(simt, before);
            before = at.slot;
            at.advance();
        }
        simt.wgmma_wait(constant<0>{}, sums);
        give_back(simt, before);
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void give_back(Simt simt, int slot) {
        if (simt.lane() == 0) simt.mbarrier_arrive(empty(slot));
    }

    /// Results go through shared memory and are stored by bulk copies while the next tile is multiplied: ordinary stores
    /// would stall the warps, since all blocks finish tiles at about the same time.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void finish(Simt simt, int group, const warpgroup_work& mine, const sums_of_lane& sums,
                                            word& buffer) const {
        const tile_place first{mine.tile.row + group * 64 + simt.warp() % 4 * 16, mine.tile.column};
        if constexpr (copies_results) {
            if (stores_in_bulk) return copy_results(simt, first, mine.set, mine.part * rows_of_part, sums, buffer);
        }
        const detail::matmul_epilogue<Operands, Results> end = part.end(mine.part, epilogue);
        const staged rows{staging(simt)};
        HALFTONE_UNROLL for (int j = 0; j < blocks_n; j += 4) {
            simt.warp_barrier();
            HALFTONE_UNROLL for (int i = 0; i < 4; ++i) {
                const vec<float, 4>& four = sums[j + i];
                rows.put(simt, simt.lane() / 4, 4 * i + simt.lane() % 4, {four[0], four[1]});
                rows.put(simt, simt.lane() / 4 + 8, 4 * i + simt.lane() % 4, {four[2], four[3]});
            }
            simt.warp_barrier();
            rows.finish(simt, end, access, first.row, m, first.column + 8 * j, n);
        }
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static word staging(Simt simt) {
        return ring_bytes + static_cast<word>(simt.warp()) * staging_bytes;
    }

    /// Stores 128 bytes of sixteen rows of a set at a time, through two alternating buffers. Row 0 of the summed part is
    /// row_of_part in the tensor map.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void copy_results(Simt simt, tile_place first, int set, int row_of_part,
                                                  const sums_of_lane& sums, word& buffer) const {
        constexpr int at_once = 128 / static_cast<int>(sizeof(result)), blocks = at_once / 8;
        HALFTONE_UNROLL for (int j = 0; j < blocks_n; j += blocks) {
            const tile_place here{first.row, first.column + 8 * j};
            const word rows = staging(simt) + buffer;
            simt.bulk_wait_read(constant<1>{});
            simt.warp_barrier();
            HALFTONE_UNROLL for (int i = 0; i < blocks; i += 2) {
                put_results(simt, rows, here, set, i, sums[j + i], sums[j + i + 1]);
            }
            // A bulk copy stores whole chunks of 16 bytes: also what is before the first column, or beyond the last one.
            // Partial sums have room there.
            const bool ends_in_chunk = part.elements == 0 && (n + c.offset(set)) % (16 / static_cast<int>(sizeof(result))) != 0;
            if (here.column < 0 || (ends_in_chunk && here.column < n && here.column + at_once > n)) {
                simt.warp_barrier();
                store_singly(simt, rows, here, set);
            } else {
                simt.proxy_fence();
                simt.warp_barrier();
                if (simt.lane() == 0)
                    simt.bulk_store(c.of(set), here.column + c.offset(set), row_of_part + here.row, rows);
            }
            simt.bulk_commit();
            buffer ^= buffer_bytes;
        }
    }
    /// From shared memory, where a bulk copy would overwrite what is before the first column or beyond the last one.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void store_singly(Simt simt, word buffer, tile_place here, int set) const {
        constexpr int size = static_cast<int>(sizeof(result)), across = 128 / size;
        const auto& to = epilogue.results.first;
#if defined(__CUDA_ARCH__)
#pragma unroll 1  // for one in many tiles
#endif
        for (int e = simt.lane(); e < 16 * across; e += 32) {
            const int my_row = e / across, byte = e % across * size, column = here.column + e % across;
            const int row = (here.row + my_row) * sets + set;
            if (row >= m || column < 0 || column >= n) continue;
            const shared_span<result> from{buffer + swizzled(my_row, byte / 16) + static_cast<word>(byte % 16), 1};
            simt.store(global_span<result>{to.data + row * to.stride, n}, column, simt.load(from, 0));
        }
    }
    /// Stores two blocks of eight columns to shared memory, from block number i of the buffer on: for 16-bit results
    /// each quarter of the warp stores one of four 8 x 8 matrices (stmatrix).
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void put_results(Simt simt, word buffer, tile_place here, int set, int i,
                                                 const vec<float, 4>& left, const vec<float, 4>& right) const {
        const int row = simt.lane() / 4, column = here.column + 8 * i;
        const bool is_inside = (here.row + 15) * sets + set < m && column >= 0 && column + 16 <= n;
        const vec<float, 8> values =
            results_of_pairs(simt, is_inside, (here.row + row) * sets + set, column + simt.lane() % 4 * 2, left, right);
        if constexpr (sizeof(result) == 2) {
            vec<word, 4> words;
            HALFTONE_UNROLL for (int p = 0; p < 4; ++p) words[p] = packed<result>(values[2 * p], values[2 * p + 1]);
            const int my_row = simt.lane() % 16, chunk = i + simt.lane() / 16;
            simt.stmatrix_x4(shared_span<simt::chunk<result>>{buffer + swizzled(my_row, chunk), 1}, words);
        } else {
            HALFTONE_UNROLL for (int p = 0; p < 4; ++p) {
                const int my_row = row + p % 2 * 8, chunk = (i + p / 2) * 2 + simt.lane() % 4 / 2;
                const word at = buffer + swizzled(my_row, chunk) + static_cast<word>(simt.lane() % 2) * 8;
                simt.store(shared_span<vec<float, 2>>{at, 1}, 0, {values[2 * p], values[2 * p + 1]});
            }
        }
    }
    /// simt::swizzled for a row of 128 bytes, with row and chunk as separate arguments: given their sum, nvcc 13.0
    /// emits three more instructions in the inner loop.
    HALFTONE_HD HALFTONE_INLINE static word swizzled(int row, int chunk) {
        return static_cast<word>(row * 128 + (chunk ^ row % 8) * 16);
    }
    /// The results, not yet rounded, of a lane's four pairs: at (row, column), eight rows of the set below, and eight
    /// columns further on. All operands are loaded before any result is evaluated, and without tests if all the warp's
    /// pairs are inside of c, so that a lane has eight evaluations under way at once.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE vec<float, 8> results_of_pairs(Simt simt, bool is_inside, int row, int column,
                                                               const vec<float, 4>& left, const vec<float, 4>& right) const {
        constexpr int arguments = 1 + static_cast<int>(Operands::count);
        vec<float, 2> pairs[4][arguments];
        if constexpr (arguments > 1) {
            const int rows[] = {row, row + 8 * sets}, columns[] = {column, column + 8};
            if (is_inside && operand_access == row_access::chunks) {
                HALFTONE_UNROLL for (int p = 0; p < 4; ++p)
                    load_operands(simt, epilogue.operands, row_access::chunks, rows[p % 2], columns[p / 2], columns[p / 2] + 2,
                                  pairs[p] + 1);
            } else if (is_inside) {
                HALFTONE_UNROLL for (int p = 0; p < 4; ++p)
                    load_operands(simt, epilogue.operands, row_access::elements, rows[p % 2], columns[p / 2],
                                  columns[p / 2] + 2, pairs[p] + 1);
            } else {
                HALFTONE_UNROLL for (int p = 0; p < 4; ++p) {
                    HALFTONE_UNROLL for (int e = 0; e < 2; ++e) load_one(simt, rows[p % 2], columns[p / 2] + e, pairs[p], e);
                }
            }
        }
        vec<float, 8> values[arguments];
        values[0] = scale_sums(simt, epilogue.operands,
                               vec<float, 8>{left[0], left[1], left[2], left[3], right[0], right[1], right[2], right[3]});
        HALFTONE_UNROLL for (int i = 1; i < arguments; ++i) {
            HALFTONE_UNROLL for (int e = 0; e < 8; ++e) values[i][e] = pairs[e / 2][i][e % 2];
        }
        return evaluate_each<arguments>(epilogue.results.first.expression, values);
    }
    /// The operands at one place, which may be outside of c, into element e of pairs.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void load_one(Simt simt, int row, int column, vec<float, 2>* pairs, int e) const {
        constexpr int operands = static_cast<int>(Operands::count);
        vec<float, 1> one[operands];
        const bool is_there = row < m && column >= 0 && column < n;
        load_operands(simt, epilogue.operands, row_access::elements, row, column, is_there ? n : column, one);
        HALFTONE_UNROLL for (int i = 0; i < operands; ++i) pairs[i + 1][e] = one[i][0];
    }
};

/// The tensor maps of an operand whose lines are multiples of 16 bytes apart, with `outer` elements of the outer axis a
/// tile: of all its lines, or, contiguous along depth, of sets of them.
template <class Device, class T>
auto panel_maps(Device& device, const product_operand<T>& o, int outer, int sets) {
    constexpr extent in_chunk = 16 / static_cast<extent>(sizeof(T));
    const extent length = o.length(), line_stride = round_up(length, in_chunk);
    return maps_of_rows(device, o.elements.data, length, o.lines(), o.leading > 0 ? o.leading : line_stride,
                        o.axis == along::depth ? outer : 64, sets);
}
/// The tensor maps of a result, 16 rows at a time; `otherwise` if it is not stored by bulk copies.
template <class Device, class Map, class Results>
row_maps<Map> result_maps(Device& device, const Results& results, extent rows, extent columns, int sets, bool in_bulk,
                          const row_maps<Map>& otherwise) {
    if constexpr (is_copied_in_bulk<Results>) {
        const extent leading = rows <= 1 ? round_up(columns, 8) : results.first.stride;
        if (in_bulk) return maps_of_rows(device, results.first.data, columns, rows, leading, 16, sets);
    }
    return otherwise;
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
