// SPDX-License-Identifier: MIT
/// \file
/// Products on a device with an engine (exec/matmul_engine.hpp): the engine computes what it can complete itself; for
/// other epilogues it writes float sums, and a kernel completes them.
#pragma once

#include <halftone/exec/matmul_engine.hpp>
#include <halftone/kernel/matmul/device/along_depth.hpp>
#include <halftone/kernel/matmul/device/finish.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

template <class Device>
concept engine_holder = requires(Device& device, const product_description& p) {
    { device.engine_for(p) } -> std::same_as<matmul_engine*>;
};

/// Whether engines know products of A and B in Compute: both are stored as Compute is, or are 8-bit, which every other
/// type multiplies exactly.
template <class Compute, class A, class B>
inline constexpr bool engines_multiply =
    has_element_type<Compute>&& std::is_same_v<A, storage_of<Compute>>&& std::is_same_v<B, storage_of<Compute>>;
template <class Compute, class A>
    requires(eight_bit<A>&& has_element_type<A>&& has_element_type<Compute> && !eight_bit<Compute>)
inline constexpr bool engines_multiply<Compute, A, float8_e4m3> = true;

/// An epilogue that an engine can compute: c, whether it adds to it, and the factors of 8-bit operands. `c` is nullptr
/// for all other epilogues. It adds only to floats: to 16-bit results cuBLASLt adds a product that it has rounded to 16
/// bits first (seen in version 13.1 on an H100), where halftone's kernels round once.
struct engine_result {
    void* c = nullptr;
    extent leading = 0;
    element_type type{};
    float beta = 0;
    const float *first = nullptr, *second = nullptr;
};
template <class T>
concept engine_output = has_element_type<T> && !eight_bit<T>;
template <class T>
using sum_result = detail::matmul_result<symbolic::argument<0>, T>;
template <class T>
using added_result = detail::matmul_result<decltype(halftone::detail::product_sum + halftone::detail::first_operand), T>;

template <class Operands, class Results>
engine_result result_by_engine(const detail::matmul_epilogue<Operands, Results>&) {
    return {};
}
template <engine_output T>
engine_result result_by_engine(const detail::matmul_epilogue<pack<>, pack<sum_result<T>>>& e) {
    return {e.results.first.data, e.results.first.stride, element_type_of<T>(), 0};
}
inline engine_result result_by_engine(
    const detail::matmul_epilogue<pack<detail::matrix_operand<float>>, pack<added_result<float>>>& e) {
    const auto& c = e.results.first;
    const bool is_same = e.operands.first.data == c.data && e.operands.first.stride == c.stride;
    return is_same ? engine_result{c.data, c.stride, element_type::float32, 1} : engine_result{};
}
/// What an engine stores for an epilogue of sums with factors.
template <class Operands, class Results>
engine_result result_by_engine(const detail::matmul_epilogue<detail::scaled_sums<Operands>, Results>& e) {
    engine_result r = result_by_engine(detail::matmul_epilogue<Operands, Results>{e.operands.operands, e.results});
    r.first = e.operands.first, r.second = e.operands.second;
    return r;
}

/// Multiplies by the device's engine; false if it does not. `prepare` makes the operands, and is called only if the
/// engine will.
template <class Compute, class Device, class A, class B, class Operands, class Results, class Prepare>
bool multiply_described(Device& device, const product_operand<A>& a, const product_operand<B>& b,
                        const detail::matmul_epilogue<Operands, Results>& epilogue, row_access access, extent most_staged_bytes,
                        const Prepare& prepare) {
    const auto lies_apart = []<class T>(const product_operand<T>& o) {
        return o.leading >= o.length() || o.lines() <= 1;
    };
    if (a.depth == 0 || !lies_apart(a) || !lies_apart(b)) return false;
    const auto leading = []<class T>(const product_operand<T>& o) {
        return std::max<extent>(o.leading, o.length());
    };
    const extent m = a.outer, n = b.outer;
    product_description p{.m = m,
                          .n = n,
                          .k = a.depth,
                          .a = a.elements.data,
                          .b = b.elements.data,
                          .a_leading = leading(a),
                          .b_leading = leading(b),
                          .a_order = a.axis == along::depth ? matrix_order::rows : matrix_order::columns,
                          .b_order = b.axis == along::depth ? matrix_order::columns : matrix_order::rows,
                          .operands = eight_bit<A> ? element_type_of<A>() : element_type_of<Compute>(),
                          .c = nullptr,
                          .c_leading = 0,
                          .result = element_type::float32,
                          .beta = 0,
                          .end = product_end::result};

    // Engines apply factors to 8-bit operands only: with wider operands a kernel applies them.
    const engine_result r = result_by_engine(epilogue);
    if (r.c != nullptr && (eight_bit<A> || (r.first == nullptr && r.second == nullptr))) {
        p.c = r.c, p.c_leading = m <= 1 ? n : r.leading, p.result = r.type, p.beta = r.beta;
        p.a_factor = r.first, p.b_factor = r.second;
        if (p.c_leading < n) return false;
        matmul_engine* const engine = device.engine_for(p);
        if (engine == nullptr) return false;
        prepare();
        engine->multiply(p, device.scratch());
        return true;
    }

    p.end = product_end::kernel;
    p.c_leading = round_up(n, 8);
    const extent each = std::max<extent>(1, most_staged_bytes / (p.c_leading * 4) / 128) * 128;  // rows in a piece
    const workspace::lease sums(device.scratch(),
                                static_cast<std::size_t>(std::min(each, m) * p.c_leading) * sizeof(float));
    p.c = sums.data();
    const auto piece_from = [&](extent first) {
        product_description piece = p;
        piece.m = std::min(each, m - first);
        piece.a = a.elements.data + first * (p.a_order == matrix_order::rows ? p.a_leading : 1);
        return piece;
    };
    // All reads before any result is stored, since a result may be an operand and a second attempt would read it
    // changed.
    for (extent first = 0; first < m; first += each) {
        if (device.engine_for(piece_from(first)) == nullptr) return false;
    }
    prepare();
    for (extent first = 0; first < m; first += each) {
        const product_description piece = piece_from(first);
        device.engine_for(piece)->multiply(piece, device.scratch());
        device.launch(finish_kernel<Operands, Results>{{sums.as<float>(), piece.m * p.c_leading},
                                                       p.c_leading,
                                                       epilogue,
                                                       access,
                                                       static_cast<int>(first),
                                                       static_cast<int>(piece.m),
                                                       static_cast<int>(n)});
    }
    return true;
}

/// Multiplies by the device's engine; false if it does not. Sums that a kernel completes take a limited number of bytes
/// at a time; larger products are computed by pieces of rows. 8-bit operands in a layout that the engine does not read
/// are copied to be contiguous along depth.
template <class Compute, class Device, class A, class B, class Operands, class Results>
bool multiply_by_engine(Device& device, const product_operand<A>& a, const product_operand<B>& b,
                        const detail::matmul_epilogue<Operands, Results>& epilogue, row_access access,
                        extent most_staged_bytes = extent{32} << 20) {
    if (multiply_described<Compute>(device, a, b, epilogue, access, most_staged_bytes, [] {})) return true;
    if constexpr (eight_bit<A>) {
        depth_copy<A> x(device, a);
        depth_copy<B> y(device, b);
        if (!x.is_needed() && !y.is_needed()) return false;
        if (x.is_needed() && y.is_needed()) x.fill_up(), y.fill_up();
        return multiply_described<Compute>(device, x.operand, y.operand, epilogue, access, most_staged_bytes, [&] {
            x.make(device);
            y.make(device);
        });
    }
    return false;
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
