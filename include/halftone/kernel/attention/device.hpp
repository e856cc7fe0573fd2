// SPDX-License-Identifier: MIT
/// \file
/// Attention on a GPU; attention.hpp has its arguments, its contract and an example. The backward pass takes three
/// kernels: the products of o and its gradient, dq by queries, dk and dv by keys; scratch memory is one float a query.
#pragma once

#include <halftone/kernel/attention/device_plain.hpp>

namespace halftone::inline HALFTONE_ABI::kernel {

template <simt_device Device>
struct attention<Device> {
    template <class Compute, class T>
    static void forward(Device& device, const attention_forward<T>& a) {
        using namespace on_device;
        const detail::attention_extents e = detail::check_attention(a);
        const attention_problem problem = describe_attention(e, a.options);
        with_parts(e.head_size, [&]<int Parts>(constant<Parts>) {
            device.launch(plain_attention_kernel<Compute, T, Parts>{vectors_of(a.q), vectors_of(a.k), vectors_of(a.v), vectors_of(a.o),
                                                                    simt::span_of(a.logsumexp), problem});
        });
    }

    template <class Compute, class T>
    static void backward(Device& device, const attention_backward<T>& a) {
        using namespace on_device;
        const detail::attention_extents e = detail::check_attention(a);
        if (e.batch * e.groups * e.keys == 0) return;
        const attention_problem problem = describe_attention(e, a.options);
        const extent rows = e.batch * e.heads * e.queries;
        const workspace::lease scratch(device.scratch(), static_cast<std::size_t>(rows) * sizeof(float));
        const global_span<float> dots{scratch.as<float>(), rows};
        device.launch(attention_dots_kernel<T>{vectors_of(a.o), vectors_of(a.d_o), dots, problem});
        with_parts(e.head_size, [&]<int Parts>(constant<Parts>) {
            const auto launch = [&]<attention_side Side>(std::integral_constant<attention_side, Side>) {
                device.launch(plain_attention_slopes_kernel<Compute, T, Parts, Side>{
                    vectors_of(a.q), vectors_of(a.d_o), vectors_of(a.k), vectors_of(a.v), simt::span_of(a.logsumexp),
                    {dots.data, rows}, vectors_of(a.dq), vectors_of(a.dk), vectors_of(a.dv), problem});
            };
            launch(std::integral_constant<attention_side, attention_side::queries>{});
            launch(std::integral_constant<attention_side, attention_side::keys>{});
        });
    }

  private:
    template <class Launch>
    static void with_parts(extent head_size, const Launch& launch) {
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
