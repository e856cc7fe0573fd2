// SPDX-License-Identifier: MIT
/// \file
/// Attention with its gradient; kernel/attention has the options and the strategies.
///
///     auto o = ht::attention<roles>(ctx, q, k, v, {.mask = ht::attention_mask::causal});   // all (batch, time, heads, head_size)
///     auto o = ht::self_attention<roles>(ctx, qkv, heads, options);       // qkv: (batch, time, 3 width), o: (batch, time, width)
///     // Packed sequences: qkv is (1, time, 3 width), offsets (sequences + 1).
///     auto o = ht::self_attention<roles>(ctx, qkv, heads, options, ht::packed_sequences::of(offsets, longest));
///
/// All products of the backward pass, including that of the recomputed scores, read their operands in the roles'
/// `input_grad`, so that the recomputed weights are as exact as that type and `compute` allow. There are no parameters,
/// so `weight_grad` is not used.
#pragma once

#include <halftone/autodiff/engine/operation.hpp>
#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/attention/attention.hpp>
#include <halftone/kernel/cache_heads/cache_heads.hpp>
#include <halftone/kernel/cache_heads/eight_bit/eight_bit.hpp>
#include <halftone/tensor/key_value_cache.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The number of query heads, and the number of key and value heads, each of which several query heads may share
/// (grouped-query attention, Ainslie et al. 2023). A single number sets both.
struct attention_heads {
    extent queries, keys;

    attention_heads(extent all) : queries(all), keys(all) {}  // NOLINT(google-explicit-constructor)
    attention_heads(extent of_queries, extent of_keys) : queries(of_queries), keys(of_keys) {}
};

namespace detail {

/// A view of the queries, the keys or the values in a (batch, time, (heads + 2 kv_heads) head_size) buffer, as (batch,
/// time, heads, head_size).
template <class T>
view<T, 4> slice_of_qkv(T* data, const shape<3>& s, const attention_heads& heads, int which) {
    const extent head_size = s[2] / (heads.queries + 2 * heads.keys);
    const extent begin = which == 0 ? 0 : heads.queries + (which - 1) * heads.keys;
    return {data + begin * head_size,
            {s[0], s[1], which == 0 ? heads.queries : heads.keys, head_size},
            {s[1] * s[2], s[2], head_size, 1}};
}
/// The shape of the result, (batch, time, heads head_size). Throws shape_error if qkv is not such a buffer.
inline shape<3> attention_result(const shape<3>& qkv, const attention_heads& heads) {
    const extent slices = heads.queries + 2 * heads.keys;
    if (heads.queries < 1 || heads.keys < 1 || qkv[2] % slices != 0) {
        if (heads.queries == heads.keys)
            fail<shape_error>("self_attention: qkv is ", qkv, "; its last extent is not a multiple of 3 times ",
                              heads.queries, " heads");
        fail<shape_error>("self_attention: qkv is ", qkv, "; its last extent is not a multiple of ", heads.queries,
                          " query heads and twice ", heads.keys, " key heads");
    }
    return {qkv[0], qkv[1], qkv[2] / slices * heads.queries};
}
/// (batch, time, width) as (batch, time, heads, head_size).
template <class T>
view<T, 4> in_heads(T* data, const shape<3>& s, extent heads) {
    return {data, {s[0], s[1], heads, s[2] / heads}};
}

/// Packed sequences with offsets that the device can read: the caller's, or a copy on the device that this object owns.
struct device_sequences {
    variable<std::int32_t, 1> query_offsets{}, key_offsets{};  ///< empty if nothing was copied
    packed_sequences sequences{};
    key_value_cache* cache = nullptr;         ///< stores keys and values; `sequences` are those of its current step
    variable<std::int32_t, 1> slots{};       ///< slot of each token in the cache

    device_sequences() = default;
    device_sequences(const packed_sequences& s) : sequences(s) {}
    device_sequences(const variable<std::int32_t, 1>& of_queries, const variable<std::int32_t, 1>& of_keys,
                     const packed_sequences& s, key_value_cache* keeps = nullptr, const variable<std::int32_t, 1>& at = {})
        : query_offsets(of_queries), key_offsets(of_keys), sequences(s), cache(keeps), slots(at) {}

    /// Offsets from host memory are checked here.
    template <class Root>
    static device_sequences to(Root& root, const device_sequences& given, const attention_extents& e) {
        const packed_sequences& s = given.sequences;
        if (!s.are_there()) return {};
        check_sequences(s, e);
        if (!given.query_offsets.is_empty()) return given;
        const bool one = s.key_offsets.data() == s.query_offsets.data();
        if (!root.device().reaches(s.query_offsets.data()))
            check_offsets("queries", s.query_offsets, e.queries, s.longest_queries);
        if (!root.device().reaches(s.key_offsets.data())) check_offsets("keys", s.key_offsets, e.keys, s.longest_keys);
        const auto of_queries = root.to_device(s.query_offsets);
        const auto of_keys = one ? of_queries : root.to_device(s.key_offsets);
        return {of_queries, of_keys, {of_queries.view(), of_keys.view(), s.longest_queries, s.longest_keys}};
    }
};

/// The roles that a layer passes to its operations, as opposed to an element type.
template <class Roles>
concept operation_roles = requires { typename Roles::compute; typename Roles::input_grad; };

/// The backward pass of attention for queries, keys and values in one tensor; the gradients are written to another such
/// tensor.
template <class T>
kernel::attention_backward<T> self_attention_backward(const variable<T, 3>& qkv, const variable<T, 3>& o,
                                                      const variable<float, 4>& logsumexp, const gradient_of<T, 3>& d_o,
                                                      const attention_heads& heads, const attention_options& options,
                                                      const view<T, 3>& dqkv) {
    const shape<3>& s = qkv.shape();
    const T* const in = qkv.view().data();
    T* const out = dqkv.data();
    return {.q = slice_of_qkv(in, s, heads, 0),
            .k = slice_of_qkv(in, s, heads, 1),
            .v = slice_of_qkv(in, s, heads, 2),
            .o = as_const(in_heads(o.view().data(), o.shape(), heads.queries)),
            .logsumexp = logsumexp.view(),
            .d_o = as_const(in_heads(d_o.view().data(), o.shape(), heads.queries)),
            .dq = slice_of_qkv(out, s, heads, 0),
            .dk = slice_of_qkv(out, s, heads, 1),
            .dv = slice_of_qkv(out, s, heads, 2),
            .options = options};
}

template <class Roles, class T>
struct self_attention_record {
    using operation = op::attention;
    variable<T, 3> qkv, o;
    variable<float, 4> logsumexp;
    gradient_of<T, 3> dqkv, dy;
    attention_heads heads;
    attention_options options;
    device_sequences packed;

    template <class Tape>
    void propagate(Tape& tape) {
        contribute(tape, dqkv, [&](const view<T, 3>& out) {
            auto a = self_attention_backward(qkv, o, logsumexp, dy, heads, options, out);
            a.sequences = packed.sequences;
            run_attention<typename Roles::input_grad>(tape.device(), a);
        });
    }
};

template <class Roles, class T>
struct attention_record {
    using operation = op::attention;
    variable<T, 4> q, k, v, o;
    variable<float, 4> logsumexp;
    gradient_of<T, 4> dq, dk, dv, dy;
    attention_options options;
    device_sequences packed;

    template <class Tape>
    void propagate(Tape& tape) {
        // The kernel computes all three gradients at once, into new memory; each is then taken over as a gradient or
        // added to it.
        const auto gq = tape.template make<T>(q.shape(), false), gk = tape.template make<T>(k.shape(), false),
                   gv = tape.template make<T>(v.shape(), false);
        run_attention<typename Roles::input_grad>(
            tape.device(), kernel::attention_backward<T>{q.view(), k.view(), v.view(), o.view(), logsumexp.view(),
                                                         as_const(dy.view()), gq.view(), gk.view(), gv.view(), options,
                                                         packed.sequences});
        give(tape, gq, dq);
        give(tape, gk, dk);
        give(tape, gv, dv);
    }
    template <class Tape>
    static void give(Tape& tape, const variable<T, 4>& value, const gradient_of<T, 4>& to) {
        if (!tape.takes_gradient(to)) return;
        if (!to.is_there()) return tape.give_gradient(value, to);
        add_into(tape, value.view(), view(tape.gradient_target(to).data, to.shape()));
    }
};

/// Stores the keys and values of a step's tokens in the cache's next layer: (2 kv_heads, slots, head_size) of all steps.
template <class Device, class T>
view<T, 3> store_heads(Device& device, const device_sequences& at, const const_view<T, 2>& rows, extent first_column,
                       extent heads, extent head_size) {
    const view<T, 3> cache = at.cache->template next_layer<T>(heads, head_size);
    kernel::cache_heads<Device>::run(
        device, kernel::cache_heads_arguments<T>{rows, first_column, as_const(at.slots.view()), cache});
    return cache;
}
/// Stores the keys and values of a step's tokens in the cache's next layer in eight bits; `scratch`, (2 kv_heads,
/// slots, head_size), receives the keys and values of all sequences that have queries.
template <class Device, class T>
void store_eight_bit_heads(Device& device, const device_sequences& at, const const_view<T, 2>& rows, extent first_column,
                           const view<T, 3>& scratch) {
    using kernel_of_heads = kernel::eight_bit_heads<Device>;
    const eight_bit_layer cache = at.cache->next_eight_bit_layer(scratch.extent_of(0), scratch.extent_of(2));
    kernel_of_heads::quantize(device, kernel::quantize_heads_arguments<T>{rows, first_column, as_const(at.slots.view()),
                                                                          cache.codes, cache.scales});
    kernel_of_heads::dequantize(
        device, kernel::dequantize_heads_arguments<T>{as_const(cache.codes), as_const(cache.scales),
                                                      as_const(at.query_offsets.view()), as_const(at.key_offsets.view()),
                                                      at.cache->capacity(), scratch});
}

/// Attention over a cache's keys and values, (2 kv_heads, slots, head_size).
template <class Roles, class Root, class T>
variable<T, 3> attend_to_cache(Root& root, const variable<T, 3>& qkv, const attention_heads& heads,
                               const attention_options& options, const device_sequences& at, const view<T, 3>& cache) {
    using device = typename Root::device_type;
    const shape<3> s = qkv.shape(), result = attention_result(s, heads);
    const extent slots = cache.extent_of(1), size = cache.extent_of(2);
    auto o = root.template make<T>(result, false);
    const auto kept = [&](extent first) {
        return const_view<T, 4>(cache.data() + first * slots * size, {1, slots, heads.keys, size},
                                {cache.size(), size, slots * size, 1});
    };
    const kernel::attention_forward<T> all{.q = slice_of_qkv<const T>(qkv.view().data(), s, heads, 0),
                                           .k = kept(0),
                                           .v = kept(heads.keys),
                                           .o = in_heads(o.view().data(), o.shape(), heads.queries),
                                           .options = options,
                                           .sequences = at.sequences};
    const attention_extents extents{1, s[1], slots, heads.queries, heads.keys, size};
    if (!std::is_same_v<T, double> && strategy_for<device>(options, extents) != attention_strategy::math) {
        run_attention<typename Roles::compute>(root.device(), all);
        return o;
    }
    // Math attention over all sequences together would store the scores between different sequences, and doubles do not
    // support packed sequences, so each sequence is computed separately.
    const cache_step& step = at.cache->step();
    for (std::size_t i = 0; i + 1 < step.query_offsets.size(); i += 2) {
        const extent query = step.query_offsets[i], queries = step.query_offsets[i + 1] - query, key = step.key_offsets[i];
        if (queries == 0) continue;
        kernel::attention_forward<T> one = all;
        one.q = times_of(all.q, query, queries), one.o = times_of(all.o, query, queries);
        one.k = times_of(all.k, key, step.key_offsets[i + 1] - key);
        one.v = times_of(all.v, key, step.key_offsets[i + 1] - key);
        one.sequences = {};
        run_attention<typename Roles::compute>(root.device(), one);
    }
    return o;
}

/// Attention over the keys and values of a cache, to which those of this step are added first. In eight bits a layer's keys
/// and values are read into scratch memory; so much of it is there for one layer only.
template <class Roles, class Root, class T>
variable<T, 3> cached_self_attention(Root& root, const variable<T, 3>& qkv, const attention_heads& heads,
                                     const attention_options& options, const device_sequences& at) {
    auto& device = root.device();
    const extent size = attention_result(qkv.shape(), heads)[2] / heads.queries, first_column = heads.queries * size;
    if (options.mask != attention_mask::causal)
        fail<argument_error>("self_attention: a key-value cache requires attention_mask::causal");
    const const_view<T, 2> rows = as_rows(qkv);
    if (at.cache->type() == cache_type::as_computed) {
        const view<T, 3> cache = store_heads(device, at, rows, first_column, 2 * heads.keys, size);
        return attend_to_cache<Roles>(root, qkv, heads, options, at, cache);
    }
    const shape<3> all{2 * heads.keys, at.cache->sequences() * at.cache->capacity(), size};
    const workspace::lease scratch(device.scratch(), static_cast<std::size_t>(all.size()) * sizeof(T));
    const view<T, 3> cache(scratch.template as<T>(), all);
    store_eight_bit_heads(device, at, rows, first_column, cache);
    return attend_to_cache<Roles>(root, qkv, heads, options, at, cache);
}

}  // namespace detail

/// o = softmax(scale q kᵀ + mask) v. q and o: (batch, queries, heads, head_size), k and v: (batch, keys, heads,
/// head_size). Offsets of packed sequences may be in host memory; memory that the device can read must stay unchanged
/// until the backward pass has run. Throws shape_error and argument_error as the kernels do, also for offsets, unless
/// only the GPU can read them.
template <class Roles, class Context, class T>
    requires detail::operation_roles<Roles>
variable<T, 4> attention(Context&& context, const variable<T, 4>& q, const variable<T, 4>& k, const variable<T, 4>& v,
                         const attention_options& options = {}, const detail::device_sequences& sequences = {}) {
    auto& root = context.root();
    const auto range = root.template range<Roles>(op::attention::name);
    const bool wanted = detail::wants_gradient(q, k, v);
    const bool keeps = std::remove_cvref_t<Context>::records && wanted;
    auto o = root.template make<T>(q.shape(), wanted);
    const shape<4> rows{q.shape()[0], q.shape()[2], keeps ? q.shape()[1] : 0, 2};
    auto logsumexp = root.template make<float>(rows, false);
    const auto packed = detail::device_sequences::to(
        root, sequences, {q.shape()[0], q.shape()[1], k.shape()[1], q.shape()[2], k.shape()[2], q.shape()[3]});
    detail::run_attention<typename Roles::compute>(
        root.device(),
        kernel::attention_forward<T>{q.view(), k.view(), v.view(), o.view(),
                                     keeps ? logsumexp.view() : view<float, 4>{}, options, packed.sequences});
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) {
            root.record(detail::attention_record<Roles, T>{q, k, v, o, logsumexp, gradient_of(q), gradient_of(k),
                                                           gradient_of(v), gradient_of(o), options, packed});
        }
    }
    return o;
}

/// Attention of q, k and v in one tensor, as a single product computes them: (batch, time, (heads + 2 kv_heads)
/// head_size). With the sequences of a step of a key-value cache (tensor/key_value_cache.hpp), queries attend to the
/// keys of the cache. Throws shape_error if the last extent is not a multiple of heads + 2 kv_heads.
template <class Roles, class Context, class T>
variable<T, 3> self_attention(Context&& context, const variable<T, 3>& qkv, const attention_heads& heads,
                              const attention_options& options = {}, const detail::device_sequences& sequences = {}) {
    const shape<3> s = qkv.shape(), result = detail::attention_result(s, heads);
    auto& root = context.root();
    const auto range = root.template range<Roles>(op::attention::name);
    if constexpr (!std::remove_cvref_t<Context>::records) {
        if (sequences.cache != nullptr)
            return detail::cached_self_attention<Roles>(root, qkv, heads, options, sequences);
    }
    const bool wanted = qkv.wants_gradient();
    const bool keeps = std::remove_cvref_t<Context>::records && wanted;
    auto o = root.template make<T>(result, wanted);
    const shape<4> rows{s[0], heads.queries, keeps ? s[1] : 0, 2};
    auto logsumexp = root.template make<float>(rows, false);
    const T* in = qkv.view().data();
    const auto packed =
        detail::device_sequences::to(root, sequences, {s[0], s[1], s[1], heads.queries, heads.keys, result[2] / heads.queries});
    detail::run_attention<typename Roles::compute>(
        root.device(), kernel::attention_forward<T>{.q = detail::slice_of_qkv(in, s, heads, 0),
                                                    .k = detail::slice_of_qkv(in, s, heads, 1),
                                                    .v = detail::slice_of_qkv(in, s, heads, 2),
                                                    .o = detail::in_heads(o.view().data(), o.shape(), heads.queries),
                                                    .logsumexp = keeps ? logsumexp.view() : view<float, 4>{},
                                                    .options = options,
                                                    .sequences = packed.sequences});
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted)
            root.record(detail::self_attention_record<Roles, T>{qkv, o, logsumexp, gradient_of(qkv), gradient_of(o),
                                                                heads, options, packed});
    }
    return o;
}
/// o = softmax(scale q kᵀ + mask) v on a tape for second derivatives: composed of products, softmax and sums, with
/// stored scores.
template <class Roles, class Context, class T>
    requires detail::operation_roles<Roles> && detail::records_double_backward<Context>
variable<T, 4> attention(Context&& context, const variable<T, 4>& q, const variable<T, 4>& k, const variable<T, 4>& v,
                         const attention_options& options = {}, const detail::device_sequences& sequences = {}) {
    return detail::composition<op::attention, Roles>::run(context.root(), q, k, v, options, sequences.sequences);
}
/// self_attention on a tape for second derivatives, likewise.
template <class Roles, class Context, class T>
    requires detail::records_double_backward<Context> variable<T, 3> self_attention(
        Context&& context, const variable<T, 3>& qkv, const attention_heads& heads, const attention_options& options = {},
        const detail::device_sequences& sequences = {}) {
        return detail::composition<op::attention, Roles>::run(context.root(), qkv, heads, options, sequences.sequences);
    }

}  // namespace HALFTONE_ABI
}  // namespace halftone
