// SPDX-License-Identifier: MIT
/// \file
/// Attention on a GPU; attention.hpp has its arguments, its contract and an example.
///
/// Matrix instructions are used if T is Compute and has 16 bits, or T is float and Compute tfloat32, and if head_size
/// is a multiple of 8 and every head's vector is aligned to 16 bytes; other problems are computed by plain kernels. The
/// backward pass has three kernels: terms of each query (16 bytes of scratch memory a query), dq by blocks of queries,
/// dk and dv by blocks of keys. Tiles depend on the head size and, for wide heads, on the shared memory of the device's
/// architecture. On Hopper, in code for sm_90a, warpgroups compute 16-bit types (device/warpgroup_forward.hpp and
/// device/warpgroup_backward.hpp) where why_not_warpgroups (device/warpgroup.hpp) allows it.
#pragma once

#include <halftone/exec/simt/architecture.hpp>
#include <halftone/kernel/attention/device/backward.hpp>
#include <halftone/kernel/attention/device/forward.hpp>
#include <halftone/kernel/attention/device/math.hpp>
#include <halftone/kernel/attention/device/modified.hpp>
#include <halftone/kernel/attention/device/plain.hpp>
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
        if constexpr (can_attend_by_warpgroups<Compute, T, Device>) {
            if (why_not_warpgroups<Compute>(device, e, a.sequences, a.q, a.k, a.v, a.o) == nullptr)
                return attend_by_warpgroups(device, a, problem);
        }
        const auto launch = [&]<class Kernel>(std::type_identity<Kernel>) {
            device.launch(Kernel{vectors_of(a.q, a.sequences), vectors_of(a.k, a.sequences),
                                 vectors_of(a.v, a.sequences), vectors_of(a.o, a.sequences), simt::span_of(a.logsumexp),
                                 problem});
        };
        if constexpr (multiplies_matrices<Compute, T>) {
            if (why_not_matrix_units<Compute>(a) == nullptr) {
                return for_head_size<T>(e.head_size, [&]<int Head>(constant<Head>) {
                    using tiles = attention_tiles<T, Head>;
                    if (device.architecture().template fits<typename tiles::large_forward>()) {
                        launch(std::type_identity<typename tiles::large_forward>{});
                    } else {
                        launch(std::type_identity<typename tiles::forward>{});
                    }
                });
            }
        }
        for_vectors_of_rows(e.head_size, [&]<int Parts>(constant<Parts>) {
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
        if constexpr (can_attend_by_warpgroups<Compute, T, Device>) {
            if (why_not_warpgroups<Compute>(device, e, a) == nullptr) return gradients_by_warpgroups(device, a, problem);
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
            if (e.heads > 0 && why_not_matrix_units<Compute>(a) == nullptr) {
                return for_head_size<T>(e.head_size, [&]<int Head>(constant<Head>) {
                    using tiles = attention_tiles<T, Head>;
                    const simt::architecture on = device.architecture();
                    if (on.fits<typename tiles::large_by_queries>() && on.fits<typename tiles::large_by_keys>()) {
                        launch(std::type_identity<typename tiles::large_by_queries>{});
                        launch(std::type_identity<typename tiles::large_by_keys>{});
                    } else {
                        launch(std::type_identity<typename tiles::by_queries>{});
                        launch(std::type_identity<typename tiles::by_keys>{});
                    }
                });
            }
        }
        for_vectors_of_rows(e.head_size, [&]<int Parts>(constant<Parts>) {
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
    /// Why matrix instructions are not used, as a sentence; nullptr if they are.
    template <class Compute, class T>
    static const char* why_not_matrix_units(const attention_forward<T>& a) {
        return why_not_matrix_units<Compute>(a.q, a.k, a.v, a.o);
    }
    template <class Compute, class T>
    static const char* why_not_matrix_units(const attention_backward<T>& a) {
        return why_not_matrix_units<Compute>(a.q, a.k, a.v, a.d_o, a.dq, a.dk, a.dv);
    }

  private:
    /// The problem without the options' mask, which is one of the functions.
    static on_device::attention_problem modified_problem(const detail::attention_extents& e, attention_options options) {
        options.mask = attention_mask::full;
        return on_device::describe_attention(e, options, {});
    }
    template <class Compute, class T>
    static constexpr bool multiplies_matrices = (std::is_same_v<Compute, T> &&
                                                 (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>)) ||
                                                (std::is_same_v<Compute, tfloat32> && std::is_same_v<T, float>);

    template <class Compute, class T, class... Views>
    static const char* why_not_matrix_units(const view<T, 4>& q, const Views&... views) {
        if (!multiplies_matrices<Compute, std::remove_const_t<T>>) {
            return "they multiply 16-bit operands of the type that they have, and floats in tfloat32";
        }
        if (q.extent_of(3) % 8 != 0) return "head_size is not a multiple of 8";
        if (!are_chunks(q, views...)) return "some head's vectors do not begin on a multiple of 16 bytes";
        return nullptr;
    }

    /// Whether the vectors of all heads are aligned to 16 bytes.
    template <class... Ts>
    static bool are_chunks(const view<Ts, 4>&... views) {
        const auto is_chunks = []<class T>(const view<T, 4>& v) {
            constexpr extent elements = 16 / sizeof(T);
            for (int axis = 0; axis < 3; ++axis) {
                if (v.extent_of(axis) > 1 && v.stride_of(axis) % elements != 0) return false;
            }
            return simt::is_aligned(v.data(), 16);
        };
        return (is_chunks(views) && ...);
    }
    /// Fewer head sizes for floats, to save compile time: sizes between are padded.
    template <class T, class Launch>
    static void for_head_size(extent head_size, const Launch& launch) {
        if constexpr (sizeof(T) == 2) {
            if (head_size <= 32) return launch(simt::constant<32>{});
            if (head_size > 64 && head_size <= 96) return launch(simt::constant<96>{});
        }
        if (head_size <= 64) {
            launch(simt::constant<64>{});
        } else if (head_size <= 128) {
            launch(simt::constant<128>{});
        } else {
            launch(simt::constant<256>{});
        }
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
