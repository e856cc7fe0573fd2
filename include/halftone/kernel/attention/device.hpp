// SPDX-License-Identifier: MIT
/// \file
/// Attention on a GPU; attention.hpp has its arguments, its contract and an example.
///
/// Matrix instructions are used if T is Compute and has 16 bits, or T is float and Compute tfloat32, and if head_size
/// is a multiple of 8 and every head's vector is aligned to 16 bytes; other problems are computed by plain kernels. The
/// backward pass has three kernels: terms of each query (16 bytes of scratch memory a query), dq by blocks of queries,
/// dk and dv by blocks of keys. Tiles depend on the head size and, for wide heads, on the shared memory of the device's
/// architecture. On Hopper, in code for sm_90a, warpgroups compute 16-bit types (device/warpgroup_forward.hpp and
/// device/warpgroup_backward.hpp). device/plan.hpp chooses.
#pragma once

#include <halftone/exec/simt/architecture.hpp>
#include <halftone/kernel/attention/device/backward.hpp>
#include <halftone/kernel/attention/device/describe.hpp>
#include <halftone/kernel/attention/device/forward.hpp>
#include <halftone/kernel/attention/device/math.hpp>
#include <halftone/kernel/attention/device/modified.hpp>
#include <halftone/kernel/attention/device/plain.hpp>
#include <halftone/kernel/attention/device/plan.hpp>
#include <halftone/kernel/attention/device/warpgroup_backward.hpp>
#include <halftone/kernel/attention/device/warpgroup_forward.hpp>
#include <halftone/kernel/attention/device/wide.hpp>
#include <halftone/kernel/attention/fp64.hpp>
#include <halftone/kernel/attention/score_mod/fp64.hpp>
#include <halftone/kernel/attention/score_mod/math.hpp>
#include <halftone/kernel/cache_heads/device.hpp>  // self_attention over kept keys
#include <halftone/kernel/cache_heads/eight_bit/device.hpp>
#include <halftone/kernel/convert/device.hpp>
#include <halftone/kernel/matmul/device.hpp>
#include <halftone/kernel/softmax/device.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// The matrix kernels' tiles by head size: a block keeps 16 x row blocks x warps rows and streams tiles of rows, as
/// many as registers and shared memory allow. `large` tiles are for architectures on which they fit.
template <class T, int Head>
struct attention_tiles {
    static constexpr int row_blocks = Head <= 64 ? 2 : 1;
    using forward = flash_attention_kernel<T, Head, 2, 4, (Head > 96 ? 48 : 64)>;
    using by_queries =
        flash_attention_backward_kernel<T, Head, row_blocks, 4, (Head > 64 ? 32 : 64), attention_side::queries>;
    using by_keys = flash_attention_backward_kernel<T, Head, row_blocks, 4, (Head > 64 ? 32 : 64), attention_side::keys>;
    using large_forward = forward;
    using large_by_queries = by_queries;
    using large_by_keys = by_keys;
};
/// Large tiles take 163 KB of shared memory, the others 99 KB. The architecture decides whether a multiprocessor holds
/// two blocks of the small ones, or one block with twice the rows in a tile and half the memory traffic for them.
template <class T>
struct attention_tiles<T, 256> {
    using forward = flash_attention_kernel<T, 256, 1, 4, 32>;
    using large_forward = flash_attention_kernel<T, 256, 1, 8, 64>;
    using by_queries = flash_attention_backward_kernel<T, 256, 1, 4, 16, attention_side::queries>;
    using large_by_queries = flash_attention_backward_kernel<T, 256, 1, 8, 16, attention_side::queries>;
    using by_keys = wide_attention_backward_kernel<T, 256, 2, 16>;
    using large_by_keys = wide_attention_backward_kernel<T, 256, 4, 32>;
};

/// Floats take twice the shared memory and twice the registers: fewer rows.
template <>
struct attention_tiles<float, 64> {
    using forward = flash_attention_kernel<float, 64, 2, 4, 32>;
    using by_queries = flash_attention_backward_kernel<float, 64, 2, 4, 32, attention_side::queries>;
    using by_keys = flash_attention_backward_kernel<float, 64, 2, 4, 32, attention_side::keys>;
    using large_forward = forward;
    using large_by_queries = by_queries;
    using large_by_keys = by_keys;
};
template <>
struct attention_tiles<float, 128> {
    using forward = flash_attention_kernel<float, 128, 1, 4, 32>;
    using by_queries = flash_attention_backward_kernel<float, 128, 1, 4, 16, attention_side::queries>;
    using by_keys = flash_attention_backward_kernel<float, 128, 1, 4, 16, attention_side::keys>;
    using large_forward = forward;
    using large_by_queries = by_queries;
    using large_by_keys = by_keys;
};
template <>
struct attention_tiles<float, 256> {
    using forward = flash_attention_kernel<float, 256, 1, 2, 16>;
    using large_forward = flash_attention_kernel<float, 256, 1, 4, 16>;
    using by_queries = flash_attention_backward_kernel<float, 256, 1, 2, 16, attention_side::queries>;
    using large_by_queries = flash_attention_backward_kernel<float, 256, 1, 4, 16, attention_side::queries>;
    using by_keys = wide_attention_backward_kernel<float, 256, 1, 16>;
    using large_by_keys = wide_attention_backward_kernel<float, 256, 2, 16>;
};

}  // namespace on_device

template <simt_device Device>
struct attention<Device> {
    template <class Compute, class T>
    static void forward(Device& device, const attention_forward<T>& a) {
        using namespace on_device;
        const detail::attention_extents e = detail::check_attention(a);
        if (e.batch * e.heads * e.queries == 0) return;
        const attention_problem problem = describe_attention(e, a.options, a.sequences);
        const attention_plan plan = plan_attention(case_of<Compute>(device, e, a));
        const planned_attention& best = plan.best();
        if constexpr (can_attend_by_warpgroups<Compute, T, Device>) {
            if (best.family == attention_family::wgmma)
                return attend_by_warpgroups(device, a, problem, best.query_rows);
        }
        const auto launch = [&]<class Kernel>(std::type_identity<Kernel>) {
            device.launch(Kernel{vectors_of(a.q, a.sequences), vectors_of(a.k, a.sequences),
                                 vectors_of(a.v, a.sequences), vectors_of(a.o, a.sequences), simt::span_of(a.logsumexp),
                                 problem});
        };
        if constexpr (multiplies_matrices<Compute, T>) {
            if (best.family == attention_family::mma_sync) {
                return for_head_size<T>(best.head, [&]<int Head>(constant<Head>) {
                    using tiles = attention_tiles<T, Head>;
                    static_assert(Head < 256 || tiles::large_forward::shared_bytes ==
                                                    large_tile_bytes<Compute, T>(attention_pass::forward));
                    if (best.has_large_tiles) return launch(std::type_identity<typename tiles::large_forward>{});
                    launch(std::type_identity<typename tiles::forward>{});
                });
            }
        }
        for_vectors_of_rows(best.head, [&]<int Parts>(constant<Parts>) {
            launch(std::type_identity<plain_attention_kernel<Compute, T, Parts>>{});
        });
    }

    template <class Compute, class T>
    static void backward(Device& device, const attention_backward<T>& a) {
        using namespace on_device;
        using side = attention_side;
        const detail::attention_extents e = detail::check_attention(a);
        if (e.batch * e.groups * (e.queries + e.keys) == 0) return;
        const attention_problem problem = describe_attention(e, a.options, a.sequences);
        const attention_plan plan = plan_attention(case_of<Compute>(device, e, a));
        const planned_attention& best = plan.best();
        if constexpr (can_attend_by_warpgroups<Compute, T, Device>) {
            if (best.family == attention_family::wgmma) return gradients_by_warpgroups(device, a, problem);
        }
        const workspace::lease scratch(device.scratch(),
                                       static_cast<std::size_t>(query_term_count(problem)) * sizeof(query_term));
        const global_span<query_term> terms{scratch.as<query_term>(), query_term_count(problem)};
        const auto o = vectors_of(a.o, a.sequences), d_o = vectors_of(a.d_o, a.sequences);
        if (e.head_size % 8 == 0 && are_chunks(a.o, a.d_o)) {
            device.launch(query_terms_kernel<T, 16 / sizeof(T)>{o, d_o, simt::span_of(a.logsumexp), terms, problem});
        } else {
            device.launch(query_terms_kernel<T, 1>{o, d_o, simt::span_of(a.logsumexp), terms, problem});
        }

        const attention_score_gradients<T> score_gradients{vectors_of(a.q, a.sequences),
                                         d_o,
                                         vectors_of(a.k, a.sequences),
                                         vectors_of(a.v, a.sequences),
                                         {terms.data, terms.count},
                                         vectors_of(a.dq, a.sequences),
                                         vectors_of(a.dk, a.sequences),
                                         vectors_of(a.dv, a.sequences),
                                         problem};
        const auto launch = [&]<class Kernel>(std::type_identity<Kernel>) { device.launch(Kernel{score_gradients}); };
        if constexpr (multiplies_matrices<Compute, T>) {
            if (best.family == attention_family::mma_sync) {
                return for_head_size<T>(best.head, [&]<int Head>(constant<Head>) {
                    using tiles = attention_tiles<T, Head>;
                    constexpr word most = large_tile_bytes<Compute, T>(attention_pass::backward);
                    static_assert(Head < 256 || (tiles::large_by_queries::shared_bytes == most &&
                                                 tiles::large_by_keys::shared_bytes <= most));
                    if (best.has_large_tiles) {
                        launch(std::type_identity<typename tiles::large_by_queries>{});
                        launch(std::type_identity<typename tiles::large_by_keys>{});
                    } else {
                        launch(std::type_identity<typename tiles::by_queries>{});
                        launch(std::type_identity<typename tiles::by_keys>{});
                    }
                });
            }
        }
        for_vectors_of_rows(best.head, [&]<int Parts>(constant<Parts>) {
            launch(std::type_identity<plain_attention_backward_kernel<Compute, T, Parts, side::queries>>{});
            launch(std::type_identity<plain_attention_backward_kernel<Compute, T, Parts, side::keys>>{});
        });
    }

    /// The forward pass with functions of the scores: kernels without matrix instructions.
    template <class Compute, class T, class E>
    static void forward(Device& device, const attention_forward<T>& a, const attention_mod<E>& mod) {
        using namespace on_device;
        const detail::attention_extents e = detail::check_attention(a);
        if (e.batch * e.heads * e.queries == 0) return;
        for_vectors_of_rows(e.head_size, [&]<int Parts>(constant<Parts>) {
            device.launch(modified_attention_kernel<Compute, T, Parts, E>{
                vectors_of(a.q, {}), vectors_of(a.k, {}), vectors_of(a.v, {}), vectors_of(a.o, {}),
                simt::span_of(a.logsumexp), modified_problem(e, a.options), pair_functions<E>(mod)});
        });
    }
    template <class Compute, class T, class E>
    static void backward(Device& device, const attention_backward<T>& a, const attention_mod<E>& mod) {
        using namespace on_device;
        using side = attention_side;
        const detail::attention_extents e = detail::check_attention(a);
        if (e.batch * e.groups * (e.queries + e.keys) == 0) return;
        const attention_problem problem = modified_problem(e, a.options);
        attention_problem of_terms = problem;  // the logsumexp is that of the scores after the functions
        of_terms.scale = 1;
        const workspace::lease scratch(device.scratch(),
                                       static_cast<std::size_t>(query_term_count(problem)) * sizeof(query_term));
        const global_span<query_term> terms{scratch.as<query_term>(), query_term_count(problem)};
        const auto o = vectors_of(a.o, {}), d_o = vectors_of(a.d_o, {});
        device.launch(query_terms_kernel<T, 1>{o, d_o, simt::span_of(a.logsumexp), terms, of_terms});
        const attention_score_gradients<T> all{vectors_of(a.q, {}),  d_o, vectors_of(a.k, {}), vectors_of(a.v, {}),
                                               {terms.data, terms.count}, vectors_of(a.dq, {}), vectors_of(a.dk, {}),
                                               vectors_of(a.dv, {}), problem};
        const pair_functions<E> functions(mod);
        for_vectors_of_rows(e.head_size, [&]<int Parts>(constant<Parts>) {
            device.launch(modified_attention_backward_kernel<Compute, T, Parts, side::queries, E>{all, functions});
            device.launch(modified_attention_backward_kernel<Compute, T, Parts, side::keys, E>{all, functions});
        });
    }

    /// Why these kernels do not support the problem, as a sentence; nullptr if they do.
    static const char* why_not_flash(const detail::attention_extents& e) { return detail::why_not_flash(e); }
    /// Why matrix instructions are not used, as a sentence; nullptr if they are. Arguments: of a forward or a backward pass.
    template <class Compute, class Arguments>
    static const char* why_not_matrix_units(const Arguments& a) {
        const detail::attention_extents e{a.q.extent_of(0), a.q.extent_of(1), a.k.extent_of(1),
                                          a.q.extent_of(2), a.k.extent_of(2), a.q.extent_of(3)};
        return on_device::planning::against_matrix_units(on_device::case_of<Compute>(e, a));
    }

  private:
    /// The problem without the options' mask, which is one of the functions.
    static on_device::attention_problem modified_problem(const detail::attention_extents& e, attention_options options) {
        options.mask = attention_mask::full;
        return on_device::describe_attention(e, options, {});
    }
    template <class Compute, class T>
    static constexpr bool multiplies_matrices =
        on_device::attention_arithmetic_of<Compute, T>() != on_device::attention_arithmetic::others;
    template <class Compute, class T>
    static constexpr simt::word large_tile_bytes(on_device::attention_pass pass) {
        return on_device::planning::large_tile_bytes(on_device::attention_arithmetic_of<Compute, T>(), pass);
    }

    /// `head`: of the plan.
    template <class T, class Launch>
    static void for_head_size(extent head, const Launch& launch) {
        if constexpr (sizeof(T) == 2) {
            if (head == 32) return launch(simt::constant<32>{});
            if (head == 96) return launch(simt::constant<96>{});
        }
        if (head == 64) return launch(simt::constant<64>{});
        if (head == 128) return launch(simt::constant<128>{});
        launch(simt::constant<256>{});
    }
    template <class Launch>
    static void for_vectors_of_rows(extent head_size, const Launch& launch) {
        if (head_size <= 64) {
            launch(simt::constant<2>{});
        } else if (head_size <= 128) {
            launch(simt::constant<4>{});
        } else {
            launch(simt::constant<8>{});
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
