// SPDX-License-Identifier: MIT
/// \file
/// The matrix product on a GPU; matmul.hpp has its arguments, its contract and an example.
///
/// bfloat16, float16 and tfloat32 are multiplied by the matrix units. Operands of that type (floats for tfloat32) with
/// aligned rows are loaded by asynchronous copies; unaligned ones are copied to aligned rows first if that pays
/// (device/aligned_copy.hpp); others are loaded through registers. All other compute types, split<bfloat16, N> included, are
/// multiplied in float, with the same contract. device/plan.hpp chooses among them, and the partition of c and k. A device with an
/// engine (exec/matmul_engine.hpp) uses it for the products for which it is faster.
///
/// 8-bit operands, which are exact in such a type, are multiplied by 8-bit matrix units if the GPU has them, in any
/// layout: a linear layer's forward product, the gradient of its input and that of its weight each have another pair of
/// layouts. Unaligned ones are widened in registers as they are loaded, as on any other GPU; or, in large products on
/// Hopper, by a copy.
#pragma once

#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/matmul/coded/elements.hpp>
#include <halftone/kernel/matmul/device/by_engine.hpp>
#include <halftone/kernel/matmul/device/launch.hpp>
#include <halftone/kernel/matmul/fp64.hpp>
#include <halftone/kernel/matmul/matmul.hpp>
#include <halftone/number/split.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <simt_device Device>
struct decode_matrix<Device> {
    template <class Format, class T>
    static void run(Device& device, const coded_matrix<Format>& m, const view<T, 2>& to) {
        fp64::for_each(device, to.size(), 2, decode_element<Format, T>{coded_elements<Format>(m), simt::span_of(to)});
    }
};

template <simt_device Device>
struct matmul<Device> {
    template <class Compute, class A, class B, class Operands, class Results>
        requires fp64::product_in_double<Compute, A, B, Results>
    static void run(Device& device, const view<A, 2>& a, const view<B, 2>& b,
                    const detail::matmul_epilogue<Operands, Results>& epilogue) {
        fp64::multiply<Compute>(device, a, b, epilogue);
    }
    template <class Compute, class A, class B, class Operands, class Results>
        requires(!std::is_same_v<unsplit<Compute>, Compute> && !fp64::product_in_double<Compute, A, B, Results>)
    static void run(Device& device, const view<A, 2>& a, const view<B, 2>& b,
                    const detail::matmul_epilogue<Operands, Results>& epilogue) {
        run<unsplit<Compute>>(device, a, b, epilogue);
    }
    template <class Compute, class A, class B, class Operands, class Results>
    static void run(Device& device, const view<A, 2>& a, const view<B, 2>& b,
                    const detail::matmul_epilogue<Operands, Results>& epilogue) {
        using namespace on_device;
        if (a.extent_of(0) == 0 || b.extent_of(1) == 0) return;
        const auto x = make_operand(a);
        const auto y = make_operand(transpose(b));
        if (by_engine<Compute>(device, x, y, epilogue)) return;
        multiply_by_plan<Compute>(device, x, y, epilogue, one_matrix{});
    }

    /// A product for each of `count` matrices of a and of b. The epilogue is that of the first; each next one's
    /// operands and results are `results_apart` elements further on.
    template <class Compute, class A, class B, class Operands, class Results>
        requires(!fp64::product_in_double<Compute, A, B, Results>)
    static void run_each(Device& device, const view<A, 3>& a, const view<B, 3>& b, extent count,
                         const detail::matmul_epilogue<Operands, Results>& epilogue, extent results_apart) {
        using namespace on_device;
        using compute = unsplit<Compute>;
        if (count == 0 || a.extent_of(1) == 0 || b.extent_of(2) == 0) return;
        const auto x = make_operand(matrix(a, 0));
        const auto y = make_operand(transpose(matrix(b, 0)));
        const matrix_batch batch{count, a.stride_of(0), b.stride_of(0), results_apart};
        // Products so large that copies pay keep a GPU busy by themselves, and are not batched.
        const bool are_one = are_alike(x, batch.a) && are_alike(y, batch.b) && are_alike(epilogue, batch.c) &&
                             !planning::copies_rows(describe_product<compute>(device, x, y, epilogue, batch));
        for (extent i = 0; i < count; ++i) {
            const auto x_i = make_operand(matrix(a, i));
            const auto y_i = make_operand(transpose(matrix(b, i)));
            const auto epilogue_i = offset_by(epilogue, i * batch.c);
            if (by_engine<compute>(device, x_i, y_i, epilogue_i)) continue;
            if (are_one && i == 0) return multiply_by_plan<compute>(device, x, y, epilogue, batch);
            multiply_by_plan<compute>(device, x_i, y_i, epilogue_i, batch.only_one());
        }
    }

  private:
    /// Whether all matrices of a batch have the alignment of the first.
    template <class T>
    static bool are_alike(const on_device::product_operand<T>& o, extent batch_stride) {
        return on_device::are_alike(o.leading * bytes<T>, batch_stride * bytes<T>);
    }
    template <class Operands, class Results>
    static bool are_alike(const detail::matmul_epilogue<Operands, Results>& e, extent batch_stride) {
        using result = std::remove_pointer_t<decltype(e.results.first.data)>;
        static_assert(Results::count == 1 && Operands::count <= 1, "operands of an element each, of the result's type");
        return on_device::are_alike(e.results.first.stride * bytes<result>, batch_stride * bytes<result>);
    }
    template <class T>
    static constexpr extent bytes = sizeof(T);

    /// Multiplies by the device's engine; false if it does not.
    template <class Compute, class A, class B, class Operands, class Results>
    static bool by_engine(Device& device, const on_device::product_operand<A>& x,
                          const on_device::product_operand<B>& y, const detail::matmul_epilogue<Operands, Results>& epilogue) {
        using namespace on_device;
        if constexpr (engine_holder<Device> && engines_multiply<Compute, A, B>) {
            return multiply_by_engine<Compute>(device, x, y, epilogue, access_to(epilogue));
        } else {
            return false;
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
