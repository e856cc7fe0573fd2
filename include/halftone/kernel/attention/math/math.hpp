// SPDX-License-Identifier: MIT
/// \file
/// Attention as its definition has it, one operation after the other: the product of queries and keys, softmax, the
/// product with the values. For any head_size and any device; readable as an explanation of the parts.
///
///     ht::attention<ht::amp_bf16>(device, q, k, v, o, {}, {.strategy = ht::attention_strategy::math});
///
/// Numeric contract: attention.hpp's, except that weights are divided by their sum before they are rounded to
/// `compute`. Scratch memory holds one head's scores, (queries, keys) floats; with packed sequences, one matrix for all
/// of them together. Masked operands have no effect in any bit (only the sign of a zero may differ): products with
/// weights or score gradients read operands with zeros in place of infinities and NaNs, whose products are added
/// separately where they are visible.
#pragma once

#include <algorithm>
#include <cstdint>

#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/attention/attention.hpp>
#include <halftone/kernel/convert/convert.hpp>
#include <halftone/kernel/matmul/matmul.hpp>
#include <halftone/kernel/softmax/softmax.hpp>
#include <halftone/number/classify.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The keys that a query sees, of a (queries, keys) matrix.
struct attention_visibility {
    extent queries, keys;
    attention_mask mask;
    packed_sequences sequences;

    bool has_masked() const { return (mask == attention_mask::causal && queries > 1) || sequences.are_there(); }
};

/// What a product with the weights, or with the scores' gradients, (queries, keys), sums over: for each query the keys
/// that it sees, or for each key the queries that see it.
enum class attention_sum { over_keys, over_queries };

/// Whether x is finite after rounding to Compute. Decided by bits, so that -ffast-math does not remove the test.
template <class Compute>
HALFTONE_HD HALFTONE_INLINE bool attention_reads_finite(float x) {
    return is_finite(static_cast<float>(Compute(x)));
}

/// The device-dependent parts, on rows of (queries, keys) matrices:
///
///     check(device, sequences, extents)         throws shape_error for invalid offsets, if the host can read them
///     hide(device, visibility, value, x)        x = value where the query does not see the key
///     finite<Compute>(device, x, copy, found)   a copy of x with zeros for elements that are not finite in Compute; x
///         itself if the host knows that none is needed. `found`: flags for add_not_finite
///     add_not_finite<Compute>(device, visibility, over, factors, x, found, to)
///         to += factors times the elements that were replaced by zeros, where they are visible
///     logsumexp(device, visibility, scores, to)             to[i][0] = the largest score of query i; `to` is (queries, 2)
///     finish_logsumexp(device, visibility, weights, to)     to[i][1] = minus the logarithm of that score's weight
///
/// hide takes any number of consecutive matrices. So does add_not_finite, whose matrices may contain the queries of
/// several heads, one head after the other: factors are (matrices, heads, queries, keys), operands of queries
/// (matrices, heads, queries, head_size), operands of keys (matrices, keys, head_size).
template <class Device>
struct attention_rows;

template <class Device>
struct attention_math {
    template <class Compute, class T>
    static void forward(Device& device, const attention_forward<T>& a) {
        const detail::attention_extents e = checked(device, a);
        const attention_visibility visible{e.queries, e.keys, a.options.mask, a.sequences};
        const workspace::lease of_weights(device.scratch(), floats(e.queries * e.keys)),
            of_sums(device.scratch(), floats(e.queries * e.head_size));
        const view<float, 2> weights(of_weights.as<float>(), {e.queries, e.keys}),
            sums(of_sums.as<float>(), {e.queries, e.head_size});
        for (extent batch = 0; batch < e.batch; ++batch) {
            for (extent head = 0; head < e.heads; ++head) {
                const extent group = head / e.members();
                view<float, 2> logsumexp;
                if (a.logsumexp.data() != nullptr) {
                    logsumexp = {a.logsumexp.data() + (batch * e.heads + head) * e.queries * 2, {e.queries, 2}};
                }
                to_weights<Compute>(device, visible, a.options, head_of(a.q, batch, head), head_of(a.k, batch, group),
                               weights, logsumexp);
                device.fill(sums.data(), sums.size(), 0.0f);
                add_seen<Compute>(device, visible, attention_sum::over_keys, weights, head_of(a.v, batch, group), sums);
                convert<Device>::run(device, const_view<float, 2>(sums), head_of(a.o, batch, head));
            }
        }
    }

    /// o and logsumexp are not read.
    template <class Compute, class T>
    static void backward(Device& device, const attention_backward<T>& a) {
        const detail::attention_extents e = checked(device, a);
        const attention_visibility visible{e.queries, e.keys, a.options.mask, a.sequences};
        const float scale = detail::attention_scale(a.options, e.head_size);
        const workspace::lease of_weights(device.scratch(), floats(e.queries * e.keys)),
            of_score_gradients(device.scratch(), floats(e.queries * e.keys)),
            of_dq(device.scratch(), floats(e.queries * e.head_size)),
            of_dk(device.scratch(), floats(e.keys * e.head_size)),
            of_dv(device.scratch(), floats(e.keys * e.head_size));
        const view<float, 2> weights(of_weights.as<float>(), {e.queries, e.keys}),
            score_gradients(of_score_gradients.as<float>(), {e.queries, e.keys}),
            dq(of_dq.as<float>(), {e.queries, e.head_size}), dk(of_dk.as<float>(), {e.keys, e.head_size}),
            dv(of_dv.as<float>(), {e.keys, e.head_size});
        for (extent batch = 0; batch < e.batch; ++batch) {
            for (extent group = 0; group < e.groups; ++group) {
                const auto k = head_of(a.k, batch, group), v = head_of(a.v, batch, group);
                device.fill(dk.data(), dk.size(), 0.0f);
                device.fill(dv.data(), dv.size(), 0.0f);
                for (extent head = group * e.members(); head < (group + 1) * e.members(); ++head) {
                    const auto q = head_of(a.q, batch, head), d_o = head_of(a.d_o, batch, head);
                    to_weights<Compute>(device, visible, a.options, q, k, weights, {});
                    // If the weights of a query are NaN, so are those of its masked keys (with packed sequences they
                    // are masked already).
                    if (visible.has_masked() && !a.sequences.are_there()) rows::mask_scores(device, visible, 0.0f, weights);
                    add_seen<Compute>(device, visible, attention_sum::over_queries, weights, d_o, dv);
                    multiply<Compute>(device, d_o, transpose(v), score_gradients);
                    // Masked score gradients become zero before sums over keys are computed, also where those are NaN.
                    if (visible.has_masked()) rows::mask_scores(device, visible, 0.0f, score_gradients);
                    softmax<Device>::backward(device, softmax_backward<float, float>{
                                                          .y = weights, .dy = score_gradients, .dx = score_gradients});
                    if (visible.has_masked()) rows::mask_scores(device, visible, 0.0f, score_gradients);
                    device.fill(dq.data(), dq.size(), 0.0f);
                    add_seen<Compute>(device, visible, attention_sum::over_keys, score_gradients, k, dq);
                    add_seen<Compute>(device, visible, attention_sum::over_queries, score_gradients, q, dk);
                    convert<Device>::run(device, const_view<float, 2>(dq), head_of(a.dq, batch, head), scale);
                }
                convert<Device>::run(device, const_view<float, 2>(dk), head_of(a.dk, batch, group), scale);
                convert<Device>::run(device, const_view<float, 2>(dv), head_of(a.dv, batch, group));
            }
        }
    }

  protected:
    using rows = attention_rows<Device>;

    template <class Arguments>
    static detail::attention_extents checked(Device& device, const Arguments& a) {
        const detail::attention_extents e = detail::check_attention_shapes(a);
        if (a.sequences.are_there()) attention_rows<Device>::check(device, a.sequences, e);
        return e;
    }
    static std::size_t floats(extent count) { return static_cast<std::size_t>(count) * sizeof(float); }

    /// (time, head_size)
    template <class T>
    static view<T, 2> head_of(const view<T, 4>& v, extent batch, extent head) {
        return {v.data() + batch * v.stride_of(0) + head * v.stride_of(2),
                {v.extent_of(1), v.extent_of(3)},
                {v.stride_of(1), 1}};
    }

    // Only two forms of products for all cases, so that few kernels are compiled.
    template <class Compute, class T>
    static void multiply(Device& device, const const_view<T, 2>& a, const const_view<T, 2>& b,
                         const view<float, 2>& c) {
        detail::check_matmul(a, b, c);
        matmul<Device>::template run<Compute>(device, a, b, epilogue_of(plain{}, c));
    }
    template <class Compute, class T>
    static void add_product(Device& device, const const_view<float, 2>& a, const const_view<T, 2>& b,
                            const view<float, 2>& c) {
        detail::check_matmul(a, b, c);
        matmul<Device>::template run<Compute>(device, a, b, epilogue_of(halftone::add_product{}, c));
    }

    /// to += factors x, or their transpose times x.
    template <class Compute, class T>
    static void add_seen(Device& device, const attention_visibility& visible, attention_sum over,
                         const view<float, 2>& factors, const const_view<T, 2>& x, const view<float, 2>& to) {
        const view<float, 2> left = over == attention_sum::over_keys ? factors : transpose(factors);
        if (!visible.has_masked()) return add_product<Compute>(device, left, x, to);
        const workspace::lease of_copy(device.scratch(), static_cast<std::size_t>(x.size()) * sizeof(T)),
            of_found(device.scratch(), static_cast<std::size_t>(x.extent_of(0)) * sizeof(std::int32_t));
        auto* const found = of_found.as<std::int32_t>();
        const const_view<T, 2> finite =
            rows::template finite<Compute>(device, x, view<T, 2>(of_copy.as<T>(), x.shape()), found);
        add_product<Compute>(device, left, finite, to);
        if (finite.data() != x.data())
            rows::template add_not_finite<Compute>(device, visible, over, factors, x, found, to);
    }

    /// weights = softmax(scale q k^T), and 0 for masked keys unless a score is NaN.
    template <class Compute, class T>
    static void to_weights(Device& device, const attention_visibility& visible, const attention_options& options,
                      const const_view<T, 2>& q, const const_view<T, 2>& k, const view<float, 2>& weights,
                      const view<float, 2>& logsumexp) {
        const float scale = detail::attention_scale(options, q.extent_of(1));
        multiply<Compute>(device, q, transpose(k), weights);
        // Masked scores are minus infinity, whose softmax is exactly 0 even if all other scores are very low.
        if (visible.has_masked()) rows::mask_scores(device, visible, bit_cast<float>(0xff800000u), weights);
        if (logsumexp.data() != nullptr) rows::logsumexp(device, visible, weights, logsumexp);
        softmax<Device>::forward(device, softmax_forward<float, float>{.x = weights, .y = weights, .scale = scale});
        // For queries without visible keys the softmax is NaN: set to 0.
        if (visible.sequences.are_there()) rows::mask_scores(device, visible, 0.0f, weights);
        if (logsumexp.data() != nullptr) rows::finish_logsumexp(device, visible, weights, logsumexp);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
