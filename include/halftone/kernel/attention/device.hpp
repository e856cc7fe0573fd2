// SPDX-License-Identifier: MIT
/// \file
/// Attention on a GPU; attention.hpp has its arguments, its contract and an example.
///
/// Matrix instructions multiply where T is Compute, of 16 bits, head_size is a multiple of 8, at most 128, and every
/// head's vectors begin on multiples of 16 bytes; other problems take plain kernels. The backward pass is three
/// kernels: what it needs of each query (8 bytes of scratch memory a query), dq by queries, dk and dv by keys.
#pragma once

#include <halftone/kernel/attention/device_backward.hpp>
#include <halftone/kernel/attention/device_forward.hpp>
#include <halftone/kernel/attention/device_plain.hpp>
#include <halftone/kernel/attention/math_device.hpp>
#include <halftone/kernel/convert/device.hpp>
#include <halftone/kernel/matmul/device.hpp>
#include <halftone/kernel/softmax/device.hpp>

namespace halftone::inline HALFTONE_ABI::kernel {

template <simt_device Device>
struct attention<Device> {
    static const char* why_not_flash(const detail::attention_extents& e) { return detail::why_not_flash(e); }

    template <class Compute, class T>
    static void forward(Device& device, const attention_forward<T>& a) {
        using namespace on_device;
        const detail::attention_extents e = detail::check_attention(a);
        if (e.batch * e.heads * e.queries == 0) return;
        const attention_problem problem = describe_attention(e, a.options);
        const auto launch = [&]<class Kernel>(std::type_identity<Kernel>) {
            device.launch(Kernel{vectors_of(a.q), vectors_of(a.k), vectors_of(a.v), vectors_of(a.o),
                                 simt::span_of(a.logsumexp), problem});
        };
        if constexpr (multiplies_matrices<Compute, T>) {
            if (e.head_size <= 128 && e.head_size % 8 == 0 && are_chunks(a.q, a.k, a.v, a.o)) {
                return for_head_size(e.head_size, [&]<int Head>(constant<Head>) {
                    launch(std::type_identity<flash_attention_kernel<T, Head, 2>>{});
                });
            }
        }
        for_parts(e.head_size, [&]<int Parts>(constant<Parts>) {
            launch(std::type_identity<plain_attention_kernel<Compute, T, Parts>>{});
        });
    }

    template <class Compute, class T>
    static void backward(Device& device, const attention_backward<T>& a) {
        using namespace on_device;
        using side = attention_side;
        const detail::attention_extents e = detail::check_attention(a);
        if (e.batch * e.groups * e.keys == 0) return;
        const attention_problem problem = describe_attention(e, a.options);
        const extent padded = padded_queries(e.queries), rows = e.batch * e.heads * padded;
        const workspace::lease scratch(device.scratch(), workspace_bytes(a));
        const global_span<query_term> terms{scratch.as<query_term>(), rows};
        if (e.head_size % 8 == 0 && are_chunks(a.o, a.d_o)) {
            device.launch(query_terms_kernel<T, 16 / sizeof(T)>{vectors_of(a.o), vectors_of(a.d_o),
                                                                simt::span_of(a.logsumexp), terms, problem, padded});
        } else {
            device.launch(query_terms_kernel<T, 1>{vectors_of(a.o), vectors_of(a.d_o), simt::span_of(a.logsumexp),
                                                   terms, problem, padded});
        }

        const auto launch = [&]<class Kernel>(std::type_identity<Kernel>) {
            device.launch(Kernel{vectors_of(a.q),
                                 vectors_of(a.d_o),
                                 vectors_of(a.k),
                                 vectors_of(a.v),
                                 {terms.data, rows},
                                 vectors_of(a.dq),
                                 vectors_of(a.dk),
                                 vectors_of(a.dv),
                                 problem});
        };
        if constexpr (multiplies_matrices<Compute, T>) {
            if (e.heads > 0 && e.head_size <= 128 && e.head_size % 8 == 0 && are_chunks(a.q, a.k, a.v, a.d_o) &&
                are_chunks(a.dq, a.dk, a.dv)) {
                return for_head_size(e.head_size, [&]<int Head>(constant<Head>) {
                    constexpr int row_blocks = Head <= 64 ? 2 : 1;
                    launch(std::type_identity<flash_attention_slopes_kernel<T, Head, row_blocks, side::queries>>{});
                    launch(std::type_identity<flash_attention_slopes_kernel<T, Head, row_blocks, side::keys>>{});
                });
            }
        }
        for_parts(e.head_size, [&]<int Parts>(constant<Parts>) {
            launch(std::type_identity<plain_attention_slopes_kernel<Compute, T, Parts, side::queries>>{});
            launch(std::type_identity<plain_attention_slopes_kernel<Compute, T, Parts, side::keys>>{});
        });
    }

    /// What backward takes of device.scratch().
    template <class T>
    static std::size_t workspace_bytes(const attention_backward<T>& a) {
        const detail::attention_extents e = detail::check_attention(a);
        return static_cast<std::size_t>(e.batch * e.heads * on_device::padded_queries(e.queries)) *
               sizeof(on_device::query_term);
    }

  private:
    template <class Compute, class T>
    static constexpr bool multiplies_matrices = std::is_same_v<Compute, T> &&
                                                (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>);

    /// Whether the vectors of all heads begin on multiples of 16 bytes.
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
    template <class Launch>
    static void for_head_size(extent head_size, const Launch& launch) {
        if (head_size <= 32) {
            launch(simt::constant<32>{});
        } else if (head_size <= 64) {
            launch(simt::constant<64>{});
        } else if (head_size <= 96) {
            launch(simt::constant<96>{});
        } else {
            launch(simt::constant<128>{});
        }
    }
    template <class Launch>
    static void for_parts(extent head_size, const Launch& launch) {
        if (head_size <= 64) {
            launch(simt::constant<2>{});
        } else if (head_size <= 128) {
            launch(simt::constant<4>{});
        } else {
            launch(simt::constant<8>{});
        }
    }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel
