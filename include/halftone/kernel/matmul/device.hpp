// SPDX-License-Identifier: MIT
/// \file
/// The matrix product on a GPU; matmul.hpp has its arguments, its contract and an example.
///
/// bfloat16, float16 and tfloat32 are multiplied by the matrix units. Operands of that type (floats for tfloat32) with
/// aligned rows are loaded by asynchronous copies; unaligned ones are copied to aligned rows first if that pays
/// (device/aligned_copy.hpp); others are loaded through registers. All other compute types, split<bfloat16, N>
/// included, are multiplied in float, with the same contract. device/tiles.hpp chooses the partition of c and k. A
/// device with an engine (exec/matmul_engine.hpp) uses it for the products for which it is faster.
///
/// 8-bit operands, which are exact in such a type, are multiplied by 8-bit matrix units if the GPU has them, in any
/// layout: a linear layer's forward product, the gradient of its input and that of its weight each have another pair of
/// layouts. Unaligned ones are widened in registers as they are loaded, as on any other GPU; or, in large products on
/// Hopper, by a copy.
#pragma once

#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/matmul/device/aligned_copy.hpp>
#include <halftone/kernel/matmul/device/batch.hpp>
#include <halftone/kernel/matmul/device/by_engine.hpp>
#include <halftone/kernel/matmul/device/by_warpgroups.hpp>
#include <halftone/kernel/matmul/device/matrix_unit.hpp>
#include <halftone/kernel/matmul/device/multiply_add.hpp>
#include <halftone/kernel/matmul/device/tiles.hpp>
#include <halftone/kernel/matmul/device/widened_copy.hpp>
#include <halftone/kernel/matmul/fp64.hpp>
#include <halftone/kernel/matmul/matmul.hpp>
#include <halftone/number/integer.hpp>
#include <halftone/number/split.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// Types that matrix units multiply.
template <class Compute>
inline constexpr bool has_matrix_unit =
    std::is_same_v<Compute, bfloat16> || std::is_same_v<Compute, float16> || std::is_same_v<Compute, tfloat32>;

/// A kernel without its epilogue.
template <class Compute, class Tiling, panel_load Load, class A, class B>
struct by_matrix_units {
    template <class Operands, class Results>
    using kernel = matrix_unit_kernel<Compute, Tiling, Load, A, B, Operands, Results>;
};
template <class Compute, class Tiling, class A, class B>
struct by_multiply_adds {
    template <class Operands, class Results>
    using kernel = multiply_add_kernel<Compute, Tiling, A, B, Operands, Results>;
};

/// Computes parts of k in parallel, then adds their sums in order by a second kernel (split-k).
template <class Way, class Device, class A, class B, class Operands, class Results, class Batch>
void multiply_in_parts(Device& device, const product_operand<A>& a, const product_operand<B>& b,
                       const detail::matmul_epilogue<Operands, Results>& epilogue, row_access access, int parts,
                       const Batch& batch) {
    using kernel = typename Way::template kernel<pack<>, partial_results>;
    const extent leading = round_up(b.outer, 8), elements = a.outer * leading;
    const workspace::lease sums(device.scratch(),
                                static_cast<std::size_t>(batch.count * parts * elements) * sizeof(float));
    kernel partial{a, b, {{}, {{{}, sums.as<float>(), leading}, {}}}, row_access::chunks};
    partial.part = {detail::ceil_div(partial.panels(), parts), elements};
    const int count = partial.grid().z;
    const finish_kernel<Operands, Results> finish{
        {sums.as<float>(), count * elements}, leading, epilogue, access, 0, a.outer, b.outer, count, elements};
    launch_each(device, partial, batch.with(batch.a, batch.b, count * elements));
    launch_each(device, finish, batch.with(count * elements, 0, batch.c));
}

/// Computes all of k in one kernel, or parts of it. A batch is processed in groups of matrices, so that their partial sums
/// take a limited number of bytes.
template <class Way, class Device, class A, class B, class Operands, class Results, class Batch = one_matrix>
void multiply(Device& device, const product_operand<A>& a, const product_operand<B>& b,
              const detail::matmul_epilogue<Operands, Results>& epilogue, row_access access, int parts, const Batch& batch = {},
              extent most_bytes = extent{32} << 20) {
    if (parts == 1)
        return launch_each(device, typename Way::template kernel<Operands, Results>{a, b, epilogue, access}, batch);
    if constexpr (std::is_same_v<Batch, one_matrix>) {
        multiply_in_parts<Way>(device, a, b, epilogue, access, parts, batch);
    } else {
        const extent bytes = parts * a.outer * round_up(b.outer, 8) * static_cast<extent>(sizeof(float));
        const extent at_once = std::max<extent>(1, most_bytes / bytes);
        for (extent i = 0; i < batch.count; i += at_once) {
            matrix_batch some = batch;
            some.count = std::min(at_once, batch.count - i);
            multiply_in_parts<Way>(device, offset_by(a, i * batch.a), offset_by(b, i * batch.b),
                                   offset_by(epilogue, i * batch.c), access, parts, some);
        }
    }
}

/// Multiplies 8-bit operands by 8-bit matrix units; false if it cannot.
template <class Device, class A, class B, class Operands, class Results, class Batch>
bool multiply_bytes(Device& device, const product_operand<A>& a, const product_operand<B>& b,
                    const detail::matmul_epilogue<Operands, Results>& epilogue, row_access access, const Batch& batch) {
    const simt::architecture gpu = device.architecture();
    if ((a.access & b.access) != row_access::chunks ||
        matmul_row_of(gpu.version).eight_bits != eight_bit_operands::as_they_are)
        return false;
    const auto run_as = [&]<class Tiling>(Tiling, int parts) {
        using way = by_matrix_units<eight_bits, Tiling, panel_load::direct, A, B>;
        using kernel = typename way::template kernel<Operands, Results>;
        if (!device.template has_eight_bit_code<launched<kernel, Batch>>()) return false;
        multiply<way>(device, a, b, epilogue, access, parts, batch);
        return true;
    };
    const matmul_plan plan = plan_matmul(gpu, a.outer, b.outer, a.depth);
    // Twice as many warps as for 16 bits, since a warp holds more sums: those of the current mma and the totals.
    if (plan.tile == matmul_tile::large) return run_as(matrix_unit_tiling<128, 128, 64, 2, 4, 3>{}, plan.parts);
    return run_as(matrix_unit_tiling<64, 64, 64, 2, 2, 4>{}, plan.parts);
}

}  // namespace on_device

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
        by_kernels<Compute>(device, x, y, epilogue, one_matrix{});
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
                             !wants_copy<compute>(device, x, y);
        for (extent i = 0; i < count; ++i) {
            const auto x_i = make_operand(matrix(a, i));
            const auto y_i = make_operand(transpose(matrix(b, i)));
            const auto epilogue_i = offset_by(epilogue, i * batch.c);
            if (by_engine<compute>(device, x_i, y_i, epilogue_i)) continue;
            if (are_one && i == 0) return by_kernels<compute>(device, x, y, epilogue, batch);
            by_kernels<compute>(device, x_i, y_i, epilogue_i, batch.only_one());
        }
    }

  private:
    /// Whether all matrices of a batch have the alignment of the first.
    template <class T>
    static bool are_alike(const on_device::product_operand<T>& o, extent batch_stride) {
        return are_alike<T>(o.leading, batch_stride);
    }
    template <class Operands, class Results>
    static bool are_alike(const detail::matmul_epilogue<Operands, Results>& e, extent batch_stride) {
        using result = std::remove_pointer_t<decltype(e.results.first.data)>;
        static_assert(Results::count == 1 && Operands::count <= 1, "operands of an element each, of the result's type");
        return are_alike<result>(e.results.first.stride, batch_stride);
    }
    template <class T>
    static bool are_alike(extent leading, extent batch_stride) {
        constexpr extent bytes = sizeof(T);
        return batch_stride * bytes % 16 == 0 || leading * bytes % 16 != 0;
    }

    /// Whether operands that the matrix units could read if they were aligned are copied first.
    template <class Compute, class A, class B>
    static bool wants_copy(Device& device, const on_device::product_operand<A>& x,
                           const on_device::product_operand<B>& y) {
        using namespace on_device;
        if constexpr (is_as_stored<Compute, A, B>) {
            const extent unaligned = aligned_copy<A>::elements(x) + aligned_copy<B>::elements(y);
            return unaligned > 0 && pays_to_align(device.architecture(), x.outer, y.outer, x.depth, unaligned);
        } else {
            return false;
        }
    }
    template <class Compute, class A, class B>
    static constexpr bool is_as_stored = on_device::has_matrix_unit<Compute> &&
        std::is_same_v<A, storage_of<Compute>> && std::is_same_v<B, storage_of<Compute>>;

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

    /// Calls run(tiling) with panels of 128 bytes if two such blocks fit into a multiprocessor, otherwise of 64 bytes:
    /// on an H100 1.1 to 1.15 times as fast (bench/results/gpu_h100_tiles.md). Only instantiates what the architectures
    /// of this compilation need.
    template <class Compute, class A, class B, class Operands, class Results, class Run>
    static void for_large_tiles(const Device& device, const Run& run) {
        using namespace on_device;
        constexpr int bytes = sizeof(storage_of<Compute>);
        constexpr simt::compiled_code code = simt::code_of_this_file();
        using deep = matrix_unit_tiling<128, 128, 128 / bytes, 2, 2, 3>;
        using deep_kernel =
            typename by_matrix_units<Compute, deep, panel_load::direct, A, B>::template kernel<Operands, Results>;
        if constexpr (code.with_228_kb) {
            if (!code.without_228_kb || device.architecture().template fits_two_blocks<deep_kernel>()) return run(deep{});
        }
        if constexpr (code.without_228_kb) run(matrix_unit_tiling<128, 128, 64 / bytes, 2, 2, 3>{});
    }

    template <class Compute, class A, class B, class Operands, class Results, class Batch>
    static void by_kernels(Device& device, const on_device::product_operand<A>& x,
                           const on_device::product_operand<B>& y, const detail::matmul_epilogue<Operands, Results>& epilogue,
                           const Batch& batch) {
        using namespace on_device;
        const extent m = x.outer, n = y.outer, k = x.depth;
        const row_access access = access_to(epilogue);
        if constexpr (has_matrix_unit<Compute> && eight_bit<A> && eight_bit<B> && !own_number<A> && !own_number<B>) {
            if (multiply_bytes(device, x, y, epilogue, access, batch)) return;
            if constexpr (can_have_warpgroups<Compute, Device>) {
                if (batch.count == 1 && k > 0 && has_warpgroups<Compute>(device)) {
                    const warpgroup_plan way = plan_warpgroups(device.architecture(), x, y, epilogue.results);
                    if (way.plan.tile > matmul_tile::large) {
                        const widened_copy<Compute> wide_x(device, x), wide_y(device, y);
                        return multiply_by_warpgroups<Compute>(device, wide_x.operand, wide_y.operand, epilogue, access,
                                                               way.plan, way.storing);
                    }
                }
            }
        }
        if constexpr (has_matrix_unit<Compute>) {
            constexpr int depth = 64 / sizeof(storage_of<Compute>), slowness = sizeof(storage_of<Compute>) / 2;
            const auto run_as = [&]<class Tiling, panel_load Load>(
                                    const product_operand<A>& of_a, const product_operand<B>& of_b, Tiling,
                                    std::integral_constant<panel_load, Load>, int parts) {
                multiply<by_matrix_units<Compute, Tiling, Load, A, B>>(device, of_a, of_b, epilogue, access, parts,
                                                                          batch);
            };
            if constexpr (is_as_stored<Compute, A, B>) {
                const bool is_copied = batch.count == 1 && wants_copy<Compute>(device, x, y);
                if ((x.access & y.access) == row_access::chunks || is_copied) {
                    const aligned_copy<A> of_x(device, x);
                    const aligned_copy<B> of_y(device, y);
                    constexpr std::integral_constant<panel_load, panel_load::direct> direct{};
                    if constexpr (can_have_warpgroups<Compute, Device>) {
                        if (batch.count == 1 && k > 0 && has_warpgroups<Compute>(device)) {
                            const warpgroup_plan way =
                                plan_warpgroups(device.architecture(), of_x.operand, of_y.operand, epilogue.results);
                            if (way.plan.tile > matmul_tile::large)
                                return multiply_by_warpgroups<Compute>(device, of_x.operand, of_y.operand, epilogue, access,
                                                                       way.plan, way.storing);
                        }
                    }
                    const matmul_plan plan = plan_matmul(device.architecture(), m, n, k, matmul_tile::large, slowness);
                    if (plan.tile == matmul_tile::large) {
                        return for_large_tiles<Compute, A, B, Operands, Results>(device, [&](auto tiling) {
                            run_as(of_x.operand, of_y.operand, tiling, direct, plan.parts);
                        });
                    }
                    return run_as(of_x.operand, of_y.operand, matrix_unit_tiling<64, 64, depth, 2, 2, 4>{}, direct,
                                  plan.parts);
                }
            }
            run_as(x, y, matrix_unit_tiling<64, 64, depth, 2, 2, 2>{},
                   std::integral_constant<panel_load, panel_load::through_registers>{},
                   plan_matmul(device.architecture(), m, n, k, matmul_tile::small, slowness).parts);
        } else {
            constexpr int slowness = 12;
            const matmul_plan plan = plan_matmul(device.architecture(), m, n, k, matmul_tile::large, slowness);
            const auto run_as = [&]<class Tiling>(Tiling) {
                multiply<by_multiply_adds<Compute, Tiling, A, B>>(device, x, y, epilogue, access, plan.parts, batch);
            };
            if (plan.tile == matmul_tile::large) return run_as(multiply_add_tiling<128, 128>{});
            run_as(multiply_add_tiling<64, 64>{});
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
