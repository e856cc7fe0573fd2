// SPDX-License-Identifier: MIT
/// \file
/// Attention without a stored score matrix (Dao et al. 2022, "FlashAttention"): o = softmax(scale q k^T + mask) v for
/// each batch and head. Problems that the flash kernels do not support, or on request all, are computed with a stored
/// score matrix: math/math.hpp.
///
///     ht::attention<ht::amp_bf16>(device, q, k, v, o, logsumexp, {.mask = ht::attention_mask::causal});
///     ht::attention<ht::amp_bf16>(device, q, k, v, o, logsumexp, options, sequences);   // packed sequences
///
/// All tensors are (batch, time, heads, head_size) views whose head_size is contiguous; other strides are arbitrary, so
/// that q, k and v may be slices of one (batch, time, 3, heads, head_size) buffer, and their gradients of another.
/// Grouped-query attention: with fewer heads (`groups`) in k and v, query head h reads key head h / (heads / groups).
///
/// Numeric contract: operands of products are rounded to `compute`, among them the weights of v (at most 1, before the
/// division by their sum; 0 below 2^-126) and the gradients of the scores. Sums, softmax and its gradient are float;
/// results are rounded once. The flash kernels divide at the end: there o is infinite if |v| times the sum of the
/// weights, which is at most the number of keys, leaves float's range. A query's logsumexp is stored as two floats, its
/// largest q k^T and the logarithm of the sum of exp(scale (q k^T - largest)), so that a large constant added to all
/// scores of a query costs no more accuracy than the scores lose by it. Masked keys have no effect on a query in any
/// bit, nor such a query on the key's gradients, even if they hold infinities or NaNs (only the sign of a zero may
/// differ). Deterministic: no sum's order depends on the number of threads. Doubles are computed in double throughout
/// (fp64.hpp), without a logsumexp.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/overlap.hpp>
#include <halftone/number/constants.hpp>
#include <halftone/number/split.hpp>
#include <halftone/policy/category.hpp>
#include <halftone/policy/check.hpp>
#include <halftone/policy/recipe.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Which keys a query sees.
enum class attention_mask {
    full,    ///< every query sees every key
    causal,  ///< query i sees the keys 0 to i + keys - queries: the last query sees all, as with cached keys
};

/// How attention is computed. Results differ only by rounding.
enum class attention_strategy {
    automatic,  ///< flash if its kernels support the problem, otherwise math
    flash,      ///< scores are computed by tiles and never stored
    math,       ///< scores are stored, in scratch memory: products and softmax, any head_size
};

/// How attention masks and scales its scores, and how it computes them.
struct attention_options {
    attention_mask mask = attention_mask::full;
    float scale = 0;  ///< factor of the scores, positive; 0 means 1 / sqrt(head_size)
    attention_strategy strategy = attention_strategy::automatic;
};

/// Sequences of various lengths, one after the other along time (packed text); q, k and v then have a batch of 1.
/// Sequence s has the queries [query_offsets[s], query_offsets[s + 1]) and the keys [key_offsets[s], key_offsets[s +
/// 1]), and its queries see its own keys only; a causal mask applies within each sequence. A query without visible keys
/// (in a sequence without keys, or one of the first under a causal mask with fewer keys than queries) has an o of 0 and
/// a logsumexp of (-3e38, 0); it gets and contributes no gradient.
///
/// Offsets that do not ascend from 0 to the tensors' end, or a sequence longer than `longest_...`, throw shape_error on
/// the CPU; a GPU's kernels clamp offsets and lengths, so that they never access memory outside of the tensors, but
/// results are then unspecified.
struct packed_sequences {
    const_view<std::int32_t, 1> query_offsets{};   ///< (sequences + 1), ascending from 0 to the queries of q
    const_view<std::int32_t, 1> key_offsets{};     ///< (sequences + 1), ascending from 0 to the keys of k
    extent longest_queries = 0, longest_keys = 0;  ///< at least those of the longest sequence: the grid follows from them

    /// The sequences of a self-attention, where each has as many keys as queries.
    static packed_sequences of(const const_view<std::int32_t, 1>& offsets, extent longest) {
        return {offsets, offsets, longest, longest};
    }
    bool are_there() const { return query_offsets.data() != nullptr; }
    extent count() const { return query_offsets.extent_of(0) - 1; }
};

namespace kernel {

/// The arguments of the forward pass.
template <class T>
struct attention_forward {
    const_view<T, 4> q;     ///< (batch, queries, heads, head_size)
    const_view<T, 4> k, v;  ///< (batch, keys, groups, head_size)
    view<T, 4> o;           ///< as q
    /// (batch, heads, queries, 2), or without data if not wanted. The first number is a query's largest visible q k^T,
    /// the second the logarithm of the sum of exp(scale (q k^T - largest)); scale times the first plus the second is
    /// the logsumexp.
    view<float, 4> logsumexp{};
    attention_options options{};
    packed_sequences sequences{};  ///< without offsets every entry of the batch is one sequence
};

/// The arguments of the backward pass.
template <class T>
struct attention_backward {
    const_view<T, 4> q, k, v, o;     ///< as in the forward pass
    const_view<float, 4> logsumexp;  ///< the forward pass's result
    const_view<T, 4> d_o;            ///< as o
    view<T, 4> dq, dk, dv;           ///< as q, k and v; overwritten
    attention_options options{};
    packed_sequences sequences{};  ///< as in the forward pass
};

/// A device's flash kernels: forward<Compute> and backward<Compute>, for every Compute that is not a split number
/// (number/split.hpp), since they do not split operands. They ignore options.strategy. They throw shape_error, and
/// argument_error for a scale that is negative or not finite. They also have these functions:
///
///     static const char* why_not_flash(const detail::attention_extents&);   // nullptr: they support the problem
///     // Of several kernels: nullptr if the fastest ones run, otherwise why not.
///     template <class Compute, class Arguments> static const char* why_not_matrix_units(const Arguments&);
template <class Device>
struct attention;

namespace fp64 {

/// Attention on doubles (fp64.hpp), whatever the strategy.
template <class Device>
void attend(Device& device, const attention_forward<double>& a);
template <class Device>
void attend(Device& device, const attention_backward<double>& a);

}  // namespace fp64

/// The math strategy, which math/math.hpp implements for all devices.
template <class Device>
struct attention_math;

}  // namespace kernel

namespace detail {

/// The largest head_size of flash kernels: what one packed block of an operand holds.
inline constexpr extent most_head_size = 256;

/// The score of a masked key, and the largest score of a query without visible keys. Finite, because under -ffast-math
/// the compiler may assume that all numbers are.
inline constexpr float attention_masked_score = -3.0e38f;

inline float attention_scale(const attention_options& options, extent head_size) {
    return options.scale == 0 ? static_cast<float>(1 / std::sqrt(static_cast<double>(head_size))) : options.scale;
}

/// The extents of an attention problem.
struct attention_extents {
    extent batch, queries, keys, heads, groups, head_size;

    extent members() const { return groups == 0 ? 0 : heads / groups; }  ///< query heads that share a key head
};

/// The part [first, first + count) of a tensor along time.
template <class T>
view<T, 4> times_of(const view<T, 4>& v, extent first, extent count) {
    return {v.data() + first * v.stride_of(1), {v.extent_of(0), count, v.extent_of(2), v.extent_of(3)}, v.strides()};
}

template <class T>
void check_attention_operand(const char* which, const view<T, 4>& v, const shape<4>& expected) {
    if (!(v.shape() == expected)) fail<shape_error>("attention: ", which, " is ", v.shape(), "; expected ", expected);
    if (v.stride_of(3) != 1 && v.extent_of(3) > 1) {
        fail<shape_error>("attention: ", which, " ", v.shape(), " has gaps within a head; its strides are ",
                          v.strides());
    }
}

/// Throws shape_error unless a tensor that is written to has the expected shape, no gaps within a head, and each
/// element once.
template <class T>
void check_attention_result(const char* which, const view<T, 4>& v, const shape<4>& expected) {
    check_attention_operand(which, v, expected);
    expect_elements_once("attention", which, v);
}

/// Checks shapes alone: the offsets are in the device's memory.
void check_sequences(const packed_sequences& s, const attention_extents& e);

/// Checks the offsets themselves; for devices whose memory the host can read.
void check_offsets(const char* what, const const_view<std::int32_t, 1>& offsets, extent whole, extent longest);
inline void check_offsets(const packed_sequences& s, const attention_extents& e) {
    check_offsets("queries", s.query_offsets, e.queries, s.longest_queries);
    check_offsets("keys", s.key_offsets, e.keys, s.longest_keys);
}

/// Checks that hold for every strategy.
template <class T>
attention_extents check_attention_shapes(const view<T, 4>& q, const view<T, 4>& k, const view<T, 4>& v,
                                         const attention_options& options, const packed_sequences& sequences) {
    const attention_extents e{q.extent_of(0), q.extent_of(1), k.extent_of(1),
                              q.extent_of(2), k.extent_of(2), q.extent_of(3)};
    check_attention_operand("q", q, q.shape());
    check_attention_operand("k", k, {e.batch, e.keys, e.groups, e.head_size});
    check_attention_operand("v", v, k.shape());
    if (e.head_size < 1) fail<shape_error>("attention: head_size is ", e.head_size, "; expected at least 1");
    if (e.groups == 0 ? e.heads != 0 : e.heads % e.groups != 0) {
        fail<shape_error>("attention: ", e.heads, " query heads cannot share ", e.groups, " key heads evenly");
    }
    if (sequences.are_there()) {
        check_sequences(sequences, e);
    } else if (e.keys == 0 && e.queries != 0) {
        fail<shape_error>("attention: ", e.queries, " queries and no key");
    } else if (options.mask == attention_mask::causal && e.keys < e.queries) {
        fail<shape_error>("attention: a causal mask over ", e.queries, " queries and ", e.keys,
                          " keys; expected at least as many keys");
    }
    if (!(options.scale >= 0 && options.scale <= 3.0e38f)) {
        fail<argument_error>("attention: scale is ", options.scale,
                             "; expected a positive number, or 0 for 1 / sqrt(head_size)");
    }
    return e;
}

/// Why no device's flash kernels support a problem, or nullptr if they may.
constexpr const char* why_not_flash(const attention_extents& e) {
    return e.head_size > most_head_size ? "flash kernels take a head_size of at most 256" : nullptr;
}

template <class T>
attention_extents check_attention_shapes(const kernel::attention_forward<T>& a) {
    const attention_extents e = check_attention_shapes(a.q, a.k, a.v, a.options, a.sequences);
    check_attention_result("o", a.o, a.q.shape());
    kernel::expect_optional("attention", "logsumexp", a.logsumexp, {e.batch, e.heads, e.queries, 2});
    return e;
}

template <class T>
attention_extents check_attention_shapes(const kernel::attention_backward<T>& a) {
    const attention_extents e = check_attention_shapes(a.q, a.k, a.v, a.options, a.sequences);
    check_attention_operand("o", a.o, a.q.shape());
    check_attention_operand("d_o", a.d_o, a.q.shape());
    check_attention_result("dq", a.dq, a.q.shape());
    check_attention_result("dk", a.dk, a.k.shape());
    check_attention_result("dv", a.dv, a.k.shape());
    kernel::expect("attention", "logsumexp", a.logsumexp, {e.batch, e.heads, e.queries, 2});
    return e;
}

/// Further checks of the flash strategy.
template <class Arguments>
attention_extents check_attention(const Arguments& a) {
    const attention_extents e = check_attention_shapes(a);
    if (const char* const why_not = why_not_flash(e)) {
        fail<shape_error>("attention: ", why_not, "; head_size is ", e.head_size);
    }
    return e;
}

}  // namespace detail

/// A strategy, and why it was chosen and not the other.
struct attention_choice {
    attention_strategy strategy;
    std::string reason;  ///< "math: head_size is 512; flash kernels take at most 256"
};

namespace detail {

/// Chooses the strategy for a problem. Throws argument_error if flash is requested and not supported.
template <class Device>
attention_strategy strategy_for(const attention_options& options, const attention_extents& e) {
    const char* const why_not = kernel::attention<Device>::why_not_flash(e);
    switch (options.strategy) {
        case attention_strategy::math:
            return attention_strategy::math;
        case attention_strategy::flash:
            if (why_not == nullptr) break;
            fail<argument_error>("attention: flash was requested; ", why_not, ", and head_size is ", e.head_size);
        default:
            if (why_not != nullptr) return attention_strategy::math;
    }
    return attention_strategy::flash;
}

/// Runs the strategy that the arguments request or the extents allow.
template <class Compute, class Device, class T>
void run_attention(Device& device, const kernel::attention_forward<T>& a) {
    if (strategy_for<Device>(a.options, check_attention_shapes(a)) == attention_strategy::math) {
        kernel::attention_math<Device>::template forward<Compute>(device, a);
    } else {
        kernel::attention<Device>::template forward<unsplit<Compute>>(device, a);
    }
}
template <class Compute, class Device, class T>
void run_attention(Device& device, const kernel::attention_backward<T>& a) {
    if (strategy_for<Device>(a.options, check_attention_shapes(a)) == attention_strategy::math) {
        kernel::attention_math<Device>::template backward<Compute>(device, a);
    } else {
        kernel::attention<Device>::template backward<unsplit<Compute>>(device, a);
    }
}

template <class Compute, class Device>
void run_attention(Device& device, const kernel::attention_forward<double>& a) {
    static_assert(std::is_same_v<Compute, double>,
                  "halftone: attention: doubles are read in another type (roles `compute` and `input_grad`); cast "
                  "them, ht::cast<float>(ctx, q), or compute in double: ht::full_fp64");
    kernel::fp64::attend(device, a);
}
template <class Compute, class Device>
void run_attention(Device& device, const kernel::attention_backward<double>& a) {
    static_assert(std::is_same_v<Compute, double>,
                  "halftone: attention: doubles are read in another type (roles `compute` and `input_grad`); cast "
                  "them, ht::cast<float>(ctx, q), or compute in double: ht::full_fp64");
    kernel::fp64::attend(device, a);
}

}  // namespace detail

/// The strategy that ht::attention takes for these views, and the reason; on a device with several kernels for it, also
/// why it is not the fastest one. Throws shape_error and argument_error as ht::attention does.
///
///     ht::choose_attention<ht::amp_bf16>(device, views).reason
///     // "flash: math would store 4096 x 4096 scores a head; no matrix units: head_size is not a multiple of 8"
template <class P, class Device, class T>
attention_choice choose_attention(const Device&, const kernel::attention_forward<T>& views) {
    using flash = kernel::attention<Device>;
    const detail::attention_extents e = detail::check_attention_shapes(views);
    const attention_strategy taken = detail::strategy_for<Device>(views.options, e);
    if (taken == attention_strategy::math) {
        const char* const why_not = flash::why_not_flash(e);
        if (why_not == nullptr) return {taken, "math: it was requested"};
        return {taken, detail::sentence("math: head_size is ", e.head_size, "; ", why_not)};
    }
    std::string reason = detail::sentence("flash: math would store ", e.queries, " x ", e.keys, " scores a head");
    using compute = unsplit<unscaled_compute<P>>;
    if constexpr (requires { flash::template why_not_matrix_units<compute>(views); }) {
        const char* const why_not = flash::template why_not_matrix_units<compute>(views);
        if (why_not != nullptr) reason += detail::sentence("; no matrix units: ", why_not);
    }
    return {taken, reason};
}

namespace detail {

/// Throws shape_error if a result is in the memory of what it is computed from.
template <class Device, class Q, class K, class V, class O>
void expect_results_apart(Device& device, const Q& q, const K& k, const V& v, const O& o,
                          const view<float, 4>& logsumexp) {
    expect_apart(device, "attention", "q", q, "o", o);
    expect_apart(device, "attention", "k", k, "o", o);
    expect_apart(device, "attention", "v", v, "o", o);
    expect_apart(device, "attention", "q", q, "logsumexp", logsumexp);
    expect_apart(device, "attention", "k", k, "logsumexp", logsumexp);
    expect_apart(device, "attention", "v", v, "logsumexp", logsumexp);
    expect_apart(device, "attention", "o", o, "logsumexp", logsumexp);
}

/// Throws shape_error if a gradient is in the memory of another one or of what they are computed from.
template <class Device, class T>
void expect_results_apart(Device& device, const kernel::attention_backward<T>& a) {
    if (device.scratch().is_measuring()) return;
    const named_elements read[] = {elements_of("q", a.q), elements_of("k", a.k), elements_of("v", a.v),
                                   elements_of("o", a.o), elements_of("d_o", a.d_o)};
    const named_elements written[] = {elements_of("dq", a.dq), elements_of("dk", a.dk), elements_of("dv", a.dv)};
    for (int i = 0; i < 3; ++i) {
        for (const named_elements& each : read) expect_apart("attention gradients", each, written[i]);
        for (int before = 0; before < i; ++before) expect_apart("attention gradients", written[before], written[i]);
    }
}

}  // namespace detail

/// o = softmax(scale q k^T + mask) v; shapes as in kernel::attention_forward, all of one element type. `logsumexp` may
/// be a view without data if no gradient is needed. o must not overlap the others. Throws shape_error and
/// argument_error.
template <class P, class Device, class Q, class K, class V, class O>
    requires(detail::viewable<Q> && detail::viewable<K> && detail::viewable<V> && detail::viewable<O>)
void attention(Device& device, const Q& q, const K& k, const V& v, const O& o, const view<float, 4>& logsumexp = {},
               const attention_options& options = {}, const packed_sequences& sequences = {}) {
    using roles = resolve<P>;
    static_assert(check_policy<roles>());
    using T = typename decltype(as_view(q))::value_type;
    detail::expect_results_apart(device, q, k, v, o, logsumexp);
    detail::run_attention<unscaled_compute<roles>>(
        device,
        kernel::attention_forward<T>{as_view(q), as_view(k), as_view(v), as_view(o), logsumexp, options, sequences});
}

/// Overloads that fail with a message, where compilers would only list candidates.
template <class Device, class Q, class K, class V, class O>
    requires(detail::viewable<Q> && detail::viewable<K> && detail::viewable<V> && detail::viewable<O>)
void attention(Device&, const Q&, const K&, const V&, const O&, const view<float, 4>& = {}, const attention_options& = {},
               const packed_sequences& = {}) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: attention is called without a policy: ht::attention<ht::amp_bf16>(device, q, k, v, o)");
}
template <class Device, class T>
void attention_gradients(Device&, const kernel::attention_backward<T>&) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: attention_gradients is called without a policy: "
                  "ht::attention_gradients<ht::amp_bf16>(device, views)");
}
template <class Device, class T>
attention_choice choose_attention(const Device&, const kernel::attention_forward<T>&) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: choose_attention is called without a policy: "
                  "ht::choose_attention<ht::amp_bf16>(device, views)");
    return {};
}

/// The gradients of attention with respect to q, k and v, from that of o. Throws shape_error and argument_error.
template <class P, class Device, class T>
void attention_gradients(Device& device, const kernel::attention_backward<T>& views) {
    using roles = resolve<P>;
    static_assert(check_policy<roles>());
    detail::expect_results_apart(device, views);
    detail::run_attention<unscaled_compute<roles>>(device, views);
}
/// The gradients of attention with respect to q, k and v, with the views as arguments: d_o is the gradient of o; dq, dk
/// and dv, with the shapes of q, k and v, are overwritten.
template <class P, class Device, class Q, class K, class V, class O, class Do, class Dq, class Dk, class Dv>
    requires(detail::viewable<Q> && detail::viewable<K> && detail::viewable<V> && detail::viewable<O> &&
             detail::viewable<Do> && detail::viewable<Dq> && detail::viewable<Dk> && detail::viewable<Dv>)
void attention_gradients(Device& device, const Q& q, const K& k, const V& v, const O& o,
                         const const_view<float, 4>& logsumexp, const Do& d_o, const Dq& dq, const Dk& dk, const Dv& dv,
                         const attention_options& options = {}, const packed_sequences& sequences = {}) {
    attention_gradients<P>(device, kernel::attention_backward<typename detail::view_of<Q>::value_type>{
                                       as_view(q), as_view(k), as_view(v), as_view(o), logsumexp, as_view(d_o),
                                       as_view(dq), as_view(dk), as_view(dv), options, sequences});
}

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/attention/attention.body.hpp>
#endif
