// SPDX-License-Identifier: MIT
/// \file
/// Rotary position embedding (Su et al. 2021, "RoFormer"): the elements of a head form pairs, and each pair is rotated,
/// as a point of the plane, by an angle proportional to the token's position, so that q k^T depends on the distance
/// between query and key.
///
///     const ht::tensor<float, 2> table = ht::rotary_table(device, context, head_size, {.theta = 10000});
///     ht::rotary(device, q, table, q);                                 // in place
///     ht::rotary(device, qkv, table, out, {.layout = ht::rotary_layout::interleaved, .heads = heads + kv_heads});
/// x and y are (batch, time, heads, head_size) views, contiguous along head_size, with any other strides: q and k may
/// be slices of the result of one product, (batch, time, heads + 2 kv_heads, head_size), and are then rotated in one
/// pass. If the table has fewer columns than a head has elements, the remaining elements are copied unchanged.
///
/// Numeric contract: cosines and sines are computed in double and stored as floats; the rotation is computed in float
/// (for doubles in double) from unrounded inputs, and rounded once. The gradient of x is the inverse rotation of y's
/// gradient, by the same table.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/kernel/overlap.hpp>
#include <halftone/kernel/write_mode.hpp>
#include <halftone/number/classify.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Which elements of a head form a pair.
enum class rotary_layout {
    half_split,   ///< i and i + columns / 2: Llama and Qwen in transformers ("rotate_half"), GPT-NeoX
    interleaved,  ///< 2 i and 2 i + 1: GPT-J, and Llama's weights as Meta distributes them
};

/// How Llama 3.1 adapts its angles to a longer context than it was trained on ("rope_scaling" of type llama3):
/// wavelengths longer than original_context / low_frequency are multiplied by `factor`, wavelengths shorter than
/// original_context / high_frequency are unchanged, and frequencies between these two are interpolated. With a factor
/// of 1 nothing changes.
struct rotary_scaling {
    double factor = 1;
    double low_frequency = 1, high_frequency = 4;
    double original_context = 8192;
};

/// The angles by which positions are rotated.
struct rotary_angles {
    double theta = 10000;  ///< pair i of n is rotated by the angle position theta^(-i / n) (transformers: rope_theta)
    rotary_scaling scaling{};
};

/// Options of ht::rotary.
struct rotary_options {
    rotary_layout layout = rotary_layout::half_split;
    extent heads = -1;     ///< the number of heads, from the first, that are rotated; the others are copied; -1: all
    bool inverse = false;  ///< rotates by the negative angles, as for the gradient
};

namespace kernel {

/// The operands of a rotation.
template <class T>
struct rotary_arguments {
    const_view<T, 4> x;                             ///< (batch, time, heads, head_size)
    view<T, 4> y;                                   ///< as x; may be the same memory
    const_view<float, 2> table;                     ///< (positions, columns): columns / 2 cosines, then as many sines
    const_view<std::int32_t, 2> positions{};        ///< (batch, time); without data: each token's index along time
    rotary_options options{};
    write_mode mode = write_mode::overwrite;

    extent pairs() const { return table.extent_of(1) / 2; }
    extent turned_heads() const { return options.heads < 0 ? x.extent_of(2) : options.heads; }
};

/// run(device, arguments). Throws shape_error, and argument_error for a position outside the table if the host can read
/// it; on a GPU such a token becomes NaN.
template <class Device>
struct rotary;

/// Throws shape_error if the arguments do not fit together.
template <class T>
void check_rotary(const rotary_arguments<T>& a) {
    const auto check = [](const char* which, const auto& v) {
        if (v.stride_of(3) != 1 && v.extent_of(3) > 1) {
            fail<shape_error>("rotary: ", which, " ", v.shape(), " has gaps within a head; its strides are ", v.strides());
        }
    };
    if (!(a.y.shape() == a.x.shape())) fail<shape_error>("rotary: y is ", a.y.shape(), "; expected ", a.x.shape());
    check("x", a.x), check("y", a.y);
    detail::expect_elements_once("rotary", "y", a.y);
    expect("rotary", "table", a.table, a.table.shape());
    const extent columns = a.table.extent_of(1), head_size = a.x.extent_of(3);
    if (columns % 2 != 0 || columns > head_size) {
        fail<shape_error>("rotary: the table has ", columns, " columns; expected an even number, at most the ", head_size,
                          " elements of a head");
    }
    if (a.options.heads > a.x.extent_of(2)) {
        fail<shape_error>("rotary: ", a.options.heads, " heads are to be rotated, and x ", a.x.shape(), " has ",
                          a.x.extent_of(2));
    }
    expect_optional("rotary", "positions", a.positions, {a.x.extent_of(0), a.x.extent_of(1)});
    if (a.positions.data() == nullptr && a.x.extent_of(1) > a.table.extent_of(0)) {
        fail<shape_error>("rotary: ", a.x.extent_of(1), " tokens in a row; the table has ", a.table.extent_of(0),
                          " positions");
    }
}

}  // namespace kernel

namespace detail {

/// The factor of the position in the angle of pair i of n.
inline double rotary_frequency(const rotary_angles& angles, extent i, extent n) {
    constexpr double two_pi = 6.283185307179586476925;
    const double frequency = std::pow(angles.theta, -static_cast<double>(i) / static_cast<double>(n));
    const rotary_scaling& s = angles.scaling;
    if (s.factor == 1) return frequency;
    const double waves = s.original_context * frequency / two_pi;  // in the original context
    if (waves < s.low_frequency) return frequency / s.factor;
    if (waves > s.high_frequency) return frequency;
    const double share = (waves - s.low_frequency) / (s.high_frequency - s.low_frequency);
    return (1 - share) * frequency / s.factor + share * frequency;
}

}  // namespace detail

/// Fills a table in host memory, (positions, columns): for each position the cosines of columns / 2 angles, then their
/// sines, computed in double and rounded once. Throws shape_error for an odd number of columns, and argument_error for
/// invalid angles.
inline void fill_rotary_table(const view<float, 2>& table, const rotary_angles& angles = {}) {
    kernel::expect("rotary", "table", table, table.shape());
    const extent pairs = table.extent_of(1) / 2;
    if (table.extent_of(1) % 2 != 0)
        fail<shape_error>("rotary: the table has ", table.extent_of(1), " columns; expected an even number");
    const rotary_scaling& s = angles.scaling;
    if (!(angles.theta > 0) || !is_finite(angles.theta))
        fail<argument_error>("rotary: theta is ", angles.theta, "; expected a positive number");
    if (!(s.factor > 0) || !(s.high_frequency > s.low_frequency) || !(s.original_context > 0)) {
        fail<argument_error>("rotary: a scaling by ", s.factor, " from ", s.low_frequency, " to ", s.high_frequency,
                             " waves in a context of ", s.original_context,
                             "; expected positive numbers, the second above the first");
    }
    for (extent i = 0; i < pairs; ++i) {
        const double frequency = detail::rotary_frequency(angles, i, pairs);
        for (extent p = 0; p < table.extent_of(0); ++p) {
            const double angle = static_cast<double>(p) * frequency;
            table(p, i) = static_cast<float>(std::cos(angle));
            table(p, pairs + i) = static_cast<float>(std::sin(angle));
        }
    }
}

/// The table that ht::rotary reads, in device memory, with the values of fill_rotary_table. columns: the number of
/// elements of a head that are rotated; in Llama all of them. Throws as fill_rotary_table does.
template <class Device>
    requires(detail::kernel_device<Device>)
tensor<float, 2> rotary_table(Device& device, extent positions, extent columns, const rotary_angles& angles = {}) {
    tensor<float, 2> table(device.memory(), shape<2>{positions, columns});
    std::vector<float> values(static_cast<std::size_t>(table.size()));
    fill_rotary_table(view<float, 2>(values.data(), table.shape()), angles);
    device.memory().write(table.data(), values.data(), values.size() * sizeof(float));
    return table;
}

/// y = x, with the pairs of each head rotated by the angles of the token's position: its index along time, or its
/// element of `positions`, (batch, time). x and y: (batch, time, heads, head_size), of the same type; y may be x.
/// table: (positions, columns) from rotary_table, in device memory. Throws shape_error, and on a CPU argument_error for
/// a position outside the table.
template <class Device, class X, class Table, class Y>
    requires(detail::kernel_device<Device> && detail::viewables<X, Table, Y>)
void rotary(Device& device, const X& x, const Table& table, const Y& y, const rotary_options& options = {},
            const const_view<std::int32_t, 2>& positions = {}) {
    using T = detail::element_in<Y>;
    static_assert(std::is_same_v<detail::element_in<X>, T>, "halftone: rotary: x and y have one element type");
    detail::expect_apart_or_same(device, "rotary", "x", x, "y", y);
    detail::expect_apart(device, "rotary", "table", table, "y", y);
    kernel::rotary<Device>::run(
        device, kernel::rotary_arguments<T>{as_view(x), as_view(y), as_view(table), positions, options});
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
