// SPDX-License-Identifier: MIT
/// \file
/// Rotary position embedding on a tape; kernel/rotary has the formulas and the table.
///
///     const ht::tensor<float, 2> table = ht::rotary_table(device, context, head_size);
///     auto y = ht::rotary(ctx, x, table);                                    // x: (batch, time, heads, head_size)
///     // Queries and keys in the result of one product, (batch, time, (heads + 2 kv_heads) head_size), in one pass:
///     auto y = ht::rotary(ctx, ht::reshape(ctx, qkv, ht::shape<4>{batch, time, heads + 2 * kv_heads, head_size}), table,
///                         {.heads = heads + kv_heads});
///
/// Numeric contract: kernel/rotary/rotary.hpp. The result has x's type. The gradient is the inverse rotation, in one
/// pass; only the positions are stored for it.
#pragma once

#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/linear_map.hpp>
#include <halftone/kernel/rotary/rotary.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// A rotation with its arguments in device memory, as a linear map (linear_map.hpp): transposed it is the inverse rotation.
struct rotary_turn {
    using operation = op::rotary;
    variable<float, 2> table;
    variable<std::int32_t, 2> positions;  // empty: the index of each token along time
    rotary_options options;

    template <class Device, class T>
    void run(Device& device, const view<const T, 4>& x, const view<T, 4>& y,
             write_mode mode = write_mode::overwrite) const {
        const_view<std::int32_t, 2> named{};
        if (!positions.is_empty()) named = positions.view();
        kernel::rotary<Device>::run(device, kernel::rotary_arguments<T>{x, y, table.view(), named, options, mode});
    }
    rotary_turn transposed() const {
        rotary_turn other = *this;
        other.options.inverse = !options.inverse;
        return other;
    }
};

}  // namespace detail

/// x with the pairs of the first options.heads heads rotated by the angles of each token's position. The position of a
/// token is its index along time, or its element of `positions`, (batch, time), in device memory, as
/// documents_to_device returns it. x: (batch, time, heads, head_size); table: from rotary_table, unchanged until the
/// backward pass has run. Throws shape_error, and on a CPU argument_error for a position outside the table; on a GPU
/// such a token becomes NaN.
template <recording_context Context, class X>
auto rotary(Context&& context, const variable<X, 4>& x, const const_view<float, 2>& table, const rotary_options& options = {},
            const variable<std::int32_t, 2>& positions = {}) {
    auto& root = context.root();
    using Y = chosen_output<by_category, policy_of<Context>, op::rotary, X>;
    // x, cast if the user has specialised the operation's category.
    const auto in = detail::given_as<op::rotary, Y>(context, x);
    const auto range = root.template range<policy_of<Context>>(op::rotary::name);
    return detail::mapped<Y>(root, in, detail::rotary_turn{root.to_device(table), positions, options}, x.shape());
}
template <recording_context Context, class Storage, int Rank>
void rotary(Context&&, const parameter<Storage, Rank>&, const const_view<float, 2>&, const rotary_options& = {}) {
    detail::refuse_parameter<Context>();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
