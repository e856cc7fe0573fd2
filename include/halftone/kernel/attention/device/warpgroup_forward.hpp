// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of attention on 16-bit types by Hopper's instructions (wgmma and TMA), for heads up to 128 (Shah et
/// al. 2024, "FlashAttention-3").
///
/// A block is persistent: it computes one tile of queries of a head after the other. It has two or three warpgroups that
/// compute (consumers), 64 queries each, and one of which a single thread copies (the producer): the tile's queries, and
/// 128 keys and values at a time into two rings of stages, which continue from tile to tile, so that copying never
/// stops. mbarriers, each a phase for every use of what they guard:
///
///     queries, keys, values full     the bytes have arrived; counted by the copies
///     queries, keys, values free     all consumer warps that read them are done
///     turn                           the other warpgroup has issued its products
///
/// The scores of a block of keys are multiplied at the same time as the output of the block before, whose weights, rounded,
/// stay in registers as the left operand; the softmax runs during the latter product. If warpgroups take turns, one computes
/// its softmax during the other's products.
///
/// Numeric contract: attention.hpp's. The bits of a row depend on its keys alone: blocks of 128 keys, in order.
#pragma once

#include <halftone/kernel/attention/device/warpgroup.hpp>
#include <halftone/kernel/attention/device/warpgroup_softmax.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

template <int Head, int Warpgroups, int Stages, bool TakesTurns>
struct warpgroup_attention_tiling {
    static constexpr int head = Head, warpgroups = Warpgroups, stages = Stages, key_rows = 128,
                         query_rows = 64 * Warpgroups;
    static constexpr bool takes_turns = TakesTurns;
    static constexpr word panels = Head / 64, box_bytes = 64 * 128, query_bytes = panels * box_bytes,
                          stage_bytes = 2 * panels * box_bytes;
    static constexpr int registers = Warpgroups == 2 ? 240 : 160, registers_to_copy = Warpgroups == 2 ? 24 : 32;
    static_assert(Head % 64 == 0 && (Warpgroups == 2 || Warpgroups == 3));
};

/// Computes o and logsumexp; head_size is at most Tiling::head. The boxes of the maps have 64 rows, those of o 16.
// local memory of `warpgroup_attention_kernel<*, warpgroup_attention_tiling<64, 3, *`: at most 48 bytes of stack, 96 of stores, 120 of
// loads. Of the 160 registers a thread that three warpgroups leave, sums and products take nearly all.
template <class T, class Tiling, class Map>
struct warpgroup_attention_kernel {
    using tiling = Tiling;
    static constexpr int threads = 128 * (tiling::warpgroups + 1), min_blocks = 1, head_size = tiling::head,
                         key_rows = tiling::key_rows, stages = tiling::stages, warpgroups = tiling::warpgroups;
    static constexpr word keys_at = warpgroups * tiling::query_bytes,
                          values_at = keys_at + stages * tiling::stage_bytes,
                          results_at = values_at + stages * tiling::stage_bytes,
                          barriers_at = results_at + warpgroups * tiling::query_bytes,
                          shared_bytes = barriers_at + (3 * warpgroups + 4 * stages) * sizeof(simt::mbarrier);

    Map q, k, v, o;
    head_vectors<const T> all_q, all_k, all_v;  // for rows that are computed once more
    global_span<float> logsumexp;               // (batch, heads, queries, 2), or empty
    attention_problem problem;
    attention_schedule schedule;

    grid_shape grid() const { return {schedule.blocks, 1, 1}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        if constexpr (Simt::has_wgmma) {
            if (simt.thread() == 0) make_barriers(simt);
            simt.barrier();
            const int group = simt.warpgroup();
            if (group == warpgroups) {
                simt.fewer_registers(constant<tiling::registers_to_copy>{});
                if (simt.thread() % 128 == 0) fetch(simt);
            } else {
                simt.more_registers(constant<tiling::registers>{});
                attend(simt, group);
            }
        }
    }

  private:
    using barrier_span = shared_span<simt::mbarrier>;
    /// A ring's next stage, and how often the ring has wrapped around: phases of a barrier alternate between 0 and 1.
    struct ring_place {
        int stage = 0;
        word turn = 0;
        HALFTONE_HD HALFTONE_INLINE void advance() {
            if (++stage == stages) stage = 0, turn ^= 1;
        }
    };
    struct ring_places {
        ring_place keys{}, values{};
    };
    using scores_of_lane = block_sums[key_rows / 8];
    using sums_of_lane = block_sums[head_size / 8];
    using weights_of_lane = vec<word, 4>[key_rows / 16];

    HALFTONE_HD HALFTONE_INLINE static barrier_span barrier_at(int number) {
        return {barriers_at + static_cast<word>(number) * 8, 1};
    }
    HALFTONE_HD HALFTONE_INLINE static barrier_span queries_full(int group) { return barrier_at(group); }
    HALFTONE_HD HALFTONE_INLINE static barrier_span queries_free(int group) { return barrier_at(warpgroups + group); }
    HALFTONE_HD HALFTONE_INLINE static barrier_span turn_of(int group) { return barrier_at(2 * warpgroups + group); }
    HALFTONE_HD HALFTONE_INLINE static barrier_span keys_full(int stage) { return barrier_at(3 * warpgroups + stage); }
    HALFTONE_HD HALFTONE_INLINE static barrier_span keys_free(int stage) { return keys_full(stages + stage); }
    HALFTONE_HD HALFTONE_INLINE static barrier_span values_full(int stage) { return keys_full(2 * stages + stage); }
    HALFTONE_HD HALFTONE_INLINE static barrier_span values_free(int stage) { return keys_full(3 * stages + stage); }
    HALFTONE_HD HALFTONE_INLINE static word queries_at(int group) {
        return static_cast<word>(group) * tiling::query_bytes;
    }
    HALFTONE_HD HALFTONE_INLINE static word stage_at(word ring, int stage) {
        return ring + static_cast<word>(stage) * tiling::stage_bytes;
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void make_barriers(Simt simt) {
        for (int group = 0; group < warpgroups; ++group) {
            simt.mbarrier_init(queries_full(group), 1);
            simt.mbarrier_init(queries_free(group), 4);
            simt.mbarrier_init(turn_of(group), 4);
        }
        for (int stage = 0; stage < stages; ++stage) {
            simt.mbarrier_init(keys_full(stage), 1);
            simt.mbarrier_init(keys_free(stage), 4 * warpgroups);
            simt.mbarrier_init(values_full(stage), 1);
            simt.mbarrier_init(values_free(stage), 4 * warpgroups);
        }
        simt.mbarrier_init_fence();
    }
    /// A tile's queries, without those of packed sequences.
    HALFTONE_HD HALFTONE_INLINE attention_block block_of(const attention_tile& tile) const {
        return {tile.head / problem.heads,
                tile.head % problem.heads,
                tile.part * tiling::query_rows,
                problem.mask == attention_mask::causal ? problem.keys - problem.queries : problem.keys,
                problem.queries,
                problem.keys,
                0,
                0};
    }
    /// The number of blocks of keys that queries before `end` see.
    HALFTONE_HD HALFTONE_INLINE static int blocks_seen(const attention_block& here, int end) {
        return detail::ceil_div(here.keys_seen(end), key_rows);
    }

    // ---- the producer

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void fetch(Simt simt) const {
        ring_places at;
        word query_turn = 1;
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
        for (int turn = 0; turn < schedule.turns(); ++turn) {
            const attention_tile tile = schedule.tile(simt.block().x, turn);
            if (tile.part < 0) continue;
            const attention_block here = block_of(tile);
            const int blocks = blocks_seen(here, here.first + tiling::query_rows);
            fetch_rows(simt, keys_full(at.keys.stage), keys_free(at.keys.stage), at.keys, k,
                       stage_at(keys_at, at.keys.stage), here, 0);
            for (int group = 0; group < warpgroups; ++group) {
                simt.mbarrier_wait(queries_free(group), query_turn);
                simt.mbarrier_expect(queries_full(group), tiling::query_bytes);
                HALFTONE_UNROLL for (int panel = 0; panel < static_cast<int>(tiling::panels); ++panel) {
                    simt.bulk_copy(queries_at(group) + static_cast<word>(panel) * tiling::box_bytes, q, 64 * panel,
                                   here.first + 64 * group, here.head, here.sequence, queries_full(group));
                }
            }
            query_turn ^= 1;
            for (int i = 0; i < blocks; ++i) {
                if (i + 1 < blocks) {
                    fetch_rows(simt, keys_full(at.keys.stage), keys_free(at.keys.stage), at.keys, k,
                               stage_at(keys_at, at.keys.stage), here, i + 1);
                }
                fetch_rows(simt, values_full(at.values.stage), values_free(at.values.stage), at.values, v,
                           stage_at(values_at, at.values.stage), here, i);
            }
        }
    }
    /// A block of keys or values. Of keys a panel of 64 columns has all rows, then follows the next one; of values 64
    /// rows have all panels, then follow the next rows: as products read them.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void fetch_rows(Simt simt, barrier_span full, barrier_span free, ring_place& at,
                                                const Map& map, word to, const attention_block& here, int block) const {
        simt.mbarrier_wait(free, at.turn ^ 1);
        simt.mbarrier_expect(full, tiling::stage_bytes);
        const bool are_keys = to < values_at;
        HALFTONE_UNROLL for (int panel = 0; panel < static_cast<int>(tiling::panels); ++panel) {
            HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                const word box =
                    static_cast<word>(are_keys ? 2 * panel + half : static_cast<int>(tiling::panels) * half + panel);
                simt.bulk_copy(to + box * tiling::box_bytes, map, 64 * panel, block * key_rows + 64 * half,
                               here.head / problem.members, here.sequence, full);
            }
        }
        at.advance();
    }

    // ---- the consumers

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void attend(Simt simt, int group) const {
        ring_places at;
        word query_turn = 0, my_turn = group == 0 ? 1 : 0;
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
        for (int turn = 0; turn < schedule.turns(); ++turn) {
            const attention_tile tile = schedule.tile(simt.block().x, turn);
            if (tile.part < 0) continue;
            attend_tile(simt, group, block_of(tile), at, query_turn, my_turn);
            query_turn ^= 1;
        }
        simt.bulk_wait_read(constant<0>{});  // before shared memory is reused
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void attend_tile(Simt simt, int group, const attention_block& here, ring_places& at,
                                                 word query_turn, word& my_turn) const {
        const int all_blocks = blocks_seen(here, here.first + tiling::query_rows), first = here.first + 64 * group;
        // Those that this warpgroup needs; the tile's others are for the warpgroups below. At least one.
        const int blocks = first < here.queries ? blocks_seen(here, first + 64) : 1,
                  all_see = smaller(here.keys, first + here.offset + 1);
        const int row = first + simt.warp() % 4 * 16 + simt.lane() / 4;
        scores_of_lane scores;
        weights_of_lane weights;
        sums_of_lane sums;
        lane_softmax state;
        vec<float, 2> factor;

        simt.mbarrier_wait(queries_full(group), query_turn);
        wait_full(simt, keys_full(at.keys.stage), at.keys);
        take_turn(simt, group, my_turn);
        simt.hold(scores);
        simt.wgmma_fence();
        multiply_keys(simt, group, at.keys.stage, scores);
        pass_turn(simt, group);
        simt.wgmma_wait(constant<0>{}, scores);
        release(simt, keys_free(at.keys.stage), at.keys);
        to_weights(simt, here, row, 0, all_see, scores, state, factor);
        round_weights(scores, weights);
        if (blocks > 1) wait_full(simt, keys_full(at.keys.stage), at.keys);
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
        for (int i = 1; i < blocks; ++i) {
            take_turn(simt, group, my_turn);
            simt.hold(scores), simt.hold(weights), simt.hold(sums);
            simt.wgmma_fence();
            multiply_keys(simt, group, at.keys.stage, scores);
            wait_full(simt, values_full(at.values.stage), at.values);
            simt.wgmma_fence();
            multiply_values(simt, at.values.stage, weights, sums, i > 1);
            pass_turn(simt, group);
            simt.wgmma_wait(constant<1>{}, scores);
            simt.hold(scores);
            release(simt, keys_free(at.keys.stage), at.keys);
            to_weights(simt, here, row, i * key_rows, all_see, scores, state, factor);
            simt.hold(scores);
            // Here, because ptxas moves the wait below up to the begin of the softmax unless a branch parts them.
            if (i + 1 < blocks) wait_full(simt, keys_full(at.keys.stage), at.keys);
            simt.wgmma_wait(constant<0>{}, sums);
            simt.hold(weights), simt.hold(scores);
            release(simt, values_free(at.values.stage), at.values);
            if (simt.any(factor[0] != 1 || factor[1] != 1)) {
                HALFTONE_UNROLL for (int n = 0; n < head_size / 8; ++n) {
                    HALFTONE_UNROLL for (int e = 0; e < 4; ++e) sums[n][e] *= factor[e / 2];
                }
            }
            round_weights(scores, weights);
        }
        if (simt.lane() == 0) simt.mbarrier_arrive(queries_free(group));
        wait_full(simt, values_full(at.values.stage), at.values);
        simt.hold(weights), simt.hold(sums);
        simt.wgmma_fence();
        multiply_values(simt, at.values.stage, weights, sums, blocks > 1);
        simt.wgmma_wait(constant<0>{}, sums);
        release(simt, values_free(at.values.stage), at.values);
        for (int i = blocks; i < all_blocks; ++i) skip_block(simt, group, at, my_turn);
        finish(simt, group, here, first + simt.warp() % 4 * 16, smaller(blocks * key_rows, here.keys), state, sums);
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void wait_full(Simt simt, barrier_span full, const ring_place& at) {
        simt.mbarrier_wait(full, at.turn);
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void release(Simt simt, barrier_span free, ring_place& at) {
        if (simt.lane() == 0) simt.mbarrier_arrive(free);
        at.advance();
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void take_turn(Simt simt, int group, word& my_turn) {
        if constexpr (tiling::takes_turns) {
            simt.mbarrier_wait(turn_of(group), my_turn);
            my_turn ^= 1;
        }
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void pass_turn(Simt simt, int group) {
        if constexpr (tiling::takes_turns) {
            if (simt.lane() == 0) simt.mbarrier_arrive(turn_of(group + 1 == warpgroups ? 0 : group + 1));
        }
    }
    /// All lanes have waited before one releases: elsewhere a product sees to that. A lane that fell behind by two phases
    /// could not tell.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void skip_block(Simt simt, int group, ring_places& at, word& my_turn) {
        wait_full(simt, keys_full(at.keys.stage), at.keys);
        take_turn(simt, group, my_turn);
        simt.warp_barrier();
        pass_turn(simt, group);
        release(simt, keys_free(at.keys.stage), at.keys);
        wait_full(simt, values_full(at.values.stage), at.values);
        simt.warp_barrier();
        release(simt, values_free(at.values.stage), at.values);
    }

    /// Issues the product of the warpgroup's queries with a block of keys.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void multiply_keys(Simt simt, int group, int stage, scores_of_lane& scores) {
        using operand = simt::wgmma_operand<false>;
        const word left = queries_at(group), right = stage_at(keys_at, stage);
        HALFTONE_UNROLL for (word d = 0; d < static_cast<word>(head_size) / 16; ++d) {
            const word panel = d / 4, step = d % 4 * operand::step;
            simt.wgmma(simt::element<T>{}, scores, operand{left + panel * tiling::box_bytes + step},
                       operand{right + panel * 2 * tiling::box_bytes + step}, d > 0);
        }
        simt.wgmma_commit();
    }
    /// Issues the product of weights with a block of values; `keep`: is added to the sums.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void multiply_values(Simt simt, int stage, const weights_of_lane& weights,
                                                            sums_of_lane& sums, bool keep) {
        using operand = simt::wgmma_operand<true>;
        const word right = stage_at(values_at, stage);
        HALFTONE_UNROLL for (word n = 0; n < static_cast<word>(key_rows) / 16; ++n) {
            simt.wgmma(simt::element<T>{}, sums, weights[n],
                       operand{right + n / 4 * tiling::query_bytes + n % 4 * operand::step}, keep || n > 0);
        }
        simt.wgmma_commit();
    }

    /// Turns the scores of the keys from first_key on into weights, and updates the running softmax of the lane's rows,
    /// `row` and 8 below.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void to_weights(Simt simt, const attention_block& here, int row, int first_key,
                                                int all_see, scores_of_lane& scores, lane_softmax& state,
                                                vec<float, 2>& factor) const {
        if (first_key + key_rows > all_see) {
            const int key = first_key + simt.lane() % 4 * 2, left = here.keys - 1 - key, seen = row + here.offset - key;
            const int last[2] = {smaller(left, seen), smaller(left, seen + 8)};
            HALFTONE_UNROLL for (int n = 0; n < key_rows / 8; ++n) {
                HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                    if (8 * n + e % 2 > last[e / 2]) scores[n][e] = detail::attention_masked_score;
                }
            }
        }
        const float scale = problem.scale * detail::log2_of_e;
        vec<float, 2> highest, top;
        HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
            float even = scores[0][2 * half], odd = scores[0][2 * half + 1];
            HALFTONE_UNROLL for (int n = 1; n < key_rows / 8; ++n) {
                even = std::fmax(even, scores[n][2 * half]);
                odd = std::fmax(odd, scores[n][2 * half + 1]);
            }
            highest[half] = std::fmax(even, odd);
        }
        state.raise(simt, highest, scale, top, factor);
        HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
            float even = 0, odd = 0;
            HALFTONE_UNROLL for (int n = 0; n < key_rows / 8; ++n) {
                float &x = scores[n][2 * half], &y = scores[n][2 * half + 1];
                x = lane_softmax::weight(x, scale, top[half]);
                y = lane_softmax::weight(y, scale, top[half]);
                even += x, odd += y;
            }
            state.total[half] = std::fma(state.total[half], factor[half], even + odd);
        }
    }
    HALFTONE_HD HALFTONE_INLINE static void round_weights(const scores_of_lane& scores, weights_of_lane& weights) {
        HALFTONE_UNROLL for (int n = 0; n < key_rows / 16; ++n) {
            const block_sums &x = scores[2 * n], &y = scores[2 * n + 1];
            weights[n] = {packed<T>(x[0], x[1]), packed<T>(x[2], x[3]), packed<T>(y[0], y[1]), packed<T>(y[2], y[3])};
        }
    }

    // ---- results

    /// Divides the sums of a warp's 16 rows from `first` on and stores them. `end`: of the keys that were multiplied.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void finish(Simt simt, int group, const attention_block& here, int first, int end,
                                            lane_softmax& state, sums_of_lane& sums) const {
        if (first >= here.queries) return;
        if (first + here.offset + 1 < end) {
            // 0 x a value that is not finite is NaN: hidden values have to be kept away from rows that do not see them.
            float all = 0;
            HALFTONE_UNROLL for (int n = 0; n < head_size / 8; ++n) {
                HALFTONE_UNROLL for (int e = 0; e < 4; ++e) all = std::fma(sums[n][e], 0.0f, all);
            }
            if (simt.any(all != 0)) {
                const rows_once_more<T, head_size> rows{all_q, all_k, all_v, problem, here, first, end};
                if (rows.are_needed(simt)) rows.compute(simt, state, sums);
            }
        }
        const int row = first + simt.lane() / 4;
        vec<float, 2> inverse;
        HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
            float total = state.total[half];
            total += simt.shuffle_xor(total, 2);
            total += simt.shuffle_xor(total, 1);
            inverse[half] = 1 / total;
            if (logsumexp.is_there() && row + 8 * half < here.queries && simt.lane() % 4 == 0) {
                // Corrects for the rounding of the highest score's exponent, which all weights share.
                const float highest = state.highest[half], scale = problem.scale * detail::log2_of_e,
                            more = std::fma(highest, scale, -lane_softmax::exponent_of(highest, scale));
                simt.store(logsumexp, 2 * problem.row_sum(here, row + 8 * half), highest);
                simt.store(logsumexp, 2 * problem.row_sum(here, row + 8 * half) + 1,
                           std::log(total) - more / detail::log2_of_e);
            }
        }
        copy_results(simt, group, here, first, inverse, sums);
    }
    /// Stores a warp's rows by way of shared memory, while the next tile is computed.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void copy_results(Simt simt, int group, const attention_block& here, int first,
                                                  const vec<float, 2>& inverse, const sums_of_lane& sums) const {
        const word rows = results_at + queries_at(group) + static_cast<word>(simt.warp() % 4) * 16 * 128,
                   my_row = static_cast<word>(simt.lane() % 16), my_chunk = static_cast<word>(simt.lane() / 16);
        simt.bulk_wait_read(constant<0>{});
        simt.warp_barrier();
        HALFTONE_UNROLL for (word n = 0; n < static_cast<word>(head_size) / 8; n += 2) {
            vec<word, 4> words;
            HALFTONE_UNROLL for (word i = 0; i < 4; ++i) {
                const block_sums& four = sums[n + i / 2];
                words[i] = packed<T>(four[2 * (i % 2)] * inverse[i % 2], four[2 * (i % 2) + 1] * inverse[i % 2]);
            }
            const word chunk = (n % 8 + my_chunk) ^ my_row % 8;
            simt.stmatrix_x4(
                shared_span<simt::chunk<T>>{rows + n / 8 * tiling::box_bytes + my_row * 128 + chunk * 16, 1}, words);
        }
        simt.proxy_fence();
        simt.warp_barrier();
        if (simt.lane() == 0) {
            HALFTONE_UNROLL for (int panel = 0; panel < static_cast<int>(tiling::panels); ++panel) {
                simt.bulk_store(o, 64 * panel, first, here.head, here.sequence,
                                rows + static_cast<word>(panel) * tiling::box_bytes);
            }
        }
        simt.bulk_commit();
    }
};

/// Launches the kernel for tiles of the queries of one of two sizes.
template <class Device, class T, class Tiling>
void attend_by_warpgroups(Device& device, const attention_forward<T>& a, const attention_problem& problem) {
    const auto q = head_map(device, a.q, 64), k = head_map(device, a.k, 64), v = head_map(device, a.v, 64),
               o = head_map(device, a.o, 16);
    using map = std::remove_const_t<decltype(q)>;
    device.launch(warpgroup_attention_kernel<T, Tiling, map>{
        q, k, v, o, vectors_of(a.q, {}), vectors_of(a.k, {}), vectors_of(a.v, {}), simt::span_of(a.logsumexp), problem,
        schedule_by_queries(problem, Tiling::query_rows, device.architecture().multiprocessors)});
}
/// With tiles of 192 or 128 queries, as the plan (plan.hpp) says.
template <class Device, class T>
void attend_by_warpgroups(Device& device, const attention_forward<T>& a, const attention_problem& problem,
                          int query_rows) {
    if (problem.head_size > 64) {
        attend_by_warpgroups<Device, T, warpgroup_attention_tiling<128, 2, 2, true>>(device, a, problem);
    } else if (query_rows == 192) {
        attend_by_warpgroups<Device, T, warpgroup_attention_tiling<64, 3, 4, true>>(device, a, problem);
    } else {
        attend_by_warpgroups<Device, T, warpgroup_attention_tiling<64, 2, 4, true>>(device, a, problem);
    }
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
