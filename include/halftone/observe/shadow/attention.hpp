// SPDX-License-Identifier: MIT
/// \file
/// Error bounds of attention, for shadow runs.
///
/// Let S be a bound of |score| of a query (by norms). Scores have errors of at most e = gamma S, and their exponentials
/// a factor of at most exp(2 e), including the sum that divides them. Weights of v and gradients of scores are rounded
/// to the compute type (kernel/attention/attention.hpp). The propagation of these errors is summed in double, weight by
/// weight: as much work as attention itself.
#pragma once

#include <halftone/autodiff/op/attention.hpp>
#include <halftone/kernel/attention/reference.hpp>
#include <halftone/observe/shadow/products.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Operands in host memory, and the destinations of bounds.
struct shadow_heads {
    const_view<float, 4> q, k, v, o, d_o;
    view<double, 4> of_o{}, dq{}, dk{}, dv{};
    attention_options options{};

    template <class Function>
    static double largest_norm(const view<const float, 4>& x, extent batch, extent head, const Function& each) {
        double largest = 0;
        for (extent t = 0; t < x.extent_of(1); ++t) {
            const double n = std::sqrt(reference::dot(x, x, batch, t, head, t, head));
            each(t, n);
            largest = std::max(largest, n);
        }
        return largest;
    }

    /// Compute: the compute type of the pass; `read`: the relative error of operands as read; sums: as sum_error.
    template <class Compute>
    void run(pass which, double read, double sums_of_head, double sums_of_keys) const {
        static_assert(check_no_step<operand_rounding::to<Compute>().step != 0>());  // of attention weights, too
        constexpr double u = unit_roundoff<float>;
        const double store = contains<Compute, float> ? 0 : number_traits<Compute>::unit_roundoff;
        const extent keys = k.extent_of(1), queries = q.extent_of(1), size = q.extent_of(3);
        const double scale = reference::attention_scale(options, size);
        const double score = 2 * read + read * read + sums_of_head + 16 * u;
        std::vector<double> p, ds, error;
        for (extent batch = 0; batch < q.extent_of(0); ++batch) {
            for (extent head = 0; head < q.extent_of(2); ++head) {
                const extent group = head / (q.extent_of(2) / k.extent_of(2));
                const auto nobody = [](extent, double) {};
                const double largest_k = largest_norm(k, batch, group, nobody),
                             largest_v = largest_norm(v, batch, group, nobody);
                for (extent i = 0; i < queries; ++i) {
                    reference::attention_weights(q, k, batch, i, head, options, p);
                    if (p.empty()) continue;
                    const double largest = scale * std::sqrt(reference::dot(q, q, batch, i, head, i, head)) * largest_k;
                    const double relative = std::expm1(2 * (score * largest + 16 * u)) + 2 * store + sums_of_keys;
                    // Weights that are so small compared with the largest, which is 1, that they lose bits or become 0.
                    const double lost = contains<Compute, float> ? 0 : store * number_traits<Compute>::min_normal;
                    if (which == pass::forward) {
                        for (std::size_t j = 0; j < p.size(); ++j) {
                            for (extent d = 0; d < size; ++d) {
                                of_o(batch, i, head, d) +=
                                    ((relative + read) * p[j] + lost) *
                                    std::fabs(static_cast<double>(v(batch, static_cast<extent>(j), group, d)));
                            }
                        }
                        continue;
                    }
                    const double g = std::sqrt(reference::dot(d_o, d_o, batch, i, head, i, head));
                    const double most = g * (largest_v + std::sqrt(reference::dot(o, o, batch, i, head, i, head)));
                    const double mean = reference::dot(d_o, o, batch, i, head, i, head);
                    ds.resize(p.size());
                    double squares = 0;
                    for (std::size_t j = 0; j < p.size(); ++j) {
                        ds[j] = p[j] * (reference::dot(d_o, v, batch, i, head, static_cast<extent>(j), group) - mean);
                        squares += ds[j] * ds[j];
                    }
                    const double rms = std::sqrt(squares / static_cast<double>(p.size()));
                    const auto round = contains<Compute, float> ? rounding_rule{u, 0} : rounding_rule::to<Compute>(rms);
                    for (std::size_t at = 0; at < p.size(); ++at) {
                        const auto j = static_cast<extent>(at);
                        double off = p[at] * most * (relative + 2 * read + read * read + sums_of_head + 8 * u);
                        off += round(std::fabs(ds[at]) + off);
                        off += (read + sums_of_keys) * (std::fabs(ds[at]) + off);
                        for (extent d = 0; d < size; ++d) {
                            const auto of = [&](const view<const float, 4>& x, extent t, extent h) {
                                return std::fabs(static_cast<double>(x(batch, t, h, d)));
                            };
                            dq(batch, i, head, d) += scale * off * of(k, j, group);
                            dk(batch, j, group, d) += scale * off * of(q, i, head);
                            dv(batch, j, group, d) += ((relative + read) * p[at] + lost) * of(d_o, i, head);
                        }
                    }
                }
            }
        }
        static_cast<void>(keys);
    }
    template <class Compute>
    void run(pass which, double read, double sums_of_head, double sums_of_keys,
             const packed_sequences& sequences) const {
        if (!sequences.are_there()) return run<Compute>(which, read, sums_of_head, sums_of_keys);
        for (extent s = 0; s < sequences.count(); ++s) {
            const reference::sequence_times at(sequences, s);
            shadow_heads part{at.of_queries(q), at.of_keys(k), at.of_keys(v), {}, {}, {}, {}, {}, {}, options};
            if (which == pass::forward) {
                part.of_o = at.of_queries(of_o);
            } else {
                part.o = at.of_queries(o), part.d_o = at.of_queries(d_o);
                part.dq = at.of_queries(dq), part.dk = at.of_keys(dk), part.dv = at.of_keys(dv);
            }
            part.run<Compute>(which, read, sums_of_head, sums_of_keys);
        }
    }
};

/// Offsets of packed sequences in host memory.
struct host_sequences {
    std::vector<std::int32_t> queries, keys;
    packed_sequences sequences;

    template <class Device>
    host_sequences(Device& device, const packed_sequences& s) {
        if (!s.are_there()) return;
        queries.resize(static_cast<std::size_t>(s.query_offsets.size()));
        keys.resize(static_cast<std::size_t>(s.key_offsets.size()));
        device.memory().read(queries.data(), s.query_offsets.data(), queries.size() * sizeof queries[0]);
        device.memory().read(keys.data(), s.key_offsets.data(), keys.size() * sizeof keys[0]);
        sequences = {{queries.data(), s.query_offsets.shape()},
                     {keys.data(), s.key_offsets.shape()},
                     s.longest_queries,
                     s.longest_keys};
    }
};

template <class Compute, class T, class Device>
void run_shadow_heads(Device& device, const shadow_heads& h, pass which, const packed_sequences& s) {
    const host_sequences sequences(device, s);
    h.run<Compute>(which, read_error<Compute, T>, sum_error<Compute, Device>(h.q.extent_of(3)),
                   sum_error<Compute, Device>(
                       std::max(h.k.extent_of(1), h.q.extent_of(1) * (h.q.extent_of(2) / h.k.extent_of(2)))),
                   sequences.sequences);
}

template <class Roles, class T>
struct attention_bounds<self_attention_record<Roles, T>> {
    using record = self_attention_record<Roles, T>;

    static shadow_heads heads(const record& r, const std::vector<float>& qkv) {
        const shape<3>& s = r.qkv.shape();
        return {slice_of_qkv(qkv.data(), s, r.heads, 0),
                slice_of_qkv(qkv.data(), s, r.heads, 1),
                slice_of_qkv(qkv.data(), s, r.heads, 2),
                {},
                {},
                {},
                {},
                {},
                {},
                r.options};
    }
    template <class Notes>
    static void forward(Notes& notes, const record& r) {
        const auto qkv = notes.read(r.qkv.view());
        shadow_heads h = heads(r, qkv);
        std::vector<double> bound(static_cast<std::size_t>(r.o.size()));
        h.of_o = in_heads(bound.data(), r.o.shape(), r.heads.queries);
        run_shadow_heads<typename Roles::compute, T>(notes.device(), h, pass::forward, r.packed.sequences);
        notes.bound_value(r.o.view().data(), std::move(bound));
    }
    template <class Notes>
    static auto backward(Notes& notes, const record& r) {
        std::vector<double> bound;
        if (r.dy.is_there()) {
            const auto qkv = notes.read(r.qkv.view()), o = notes.read(r.o.view()), d_o = notes.read(r.dy.view());
            shadow_heads h = heads(r, qkv);
            h.o = in_heads(o.data(), r.o.shape(), r.heads.queries), h.d_o = in_heads(d_o.data(), r.o.shape(), r.heads.queries);
            bound.resize(qkv.size());
            const shape<3>& s = r.qkv.shape();
            h.dq = slice_of_qkv(bound.data(), s, r.heads, 0), h.dk = slice_of_qkv(bound.data(), s, r.heads, 1);
            h.dv = slice_of_qkv(bound.data(), s, r.heads, 2);
            run_shadow_heads<typename Roles::input_grad, T>(notes.device(), h, pass::backward, r.packed.sequences);
        }
        return [&notes, &r, bound] {
            if (!bound.empty()) notes.bound_gradient(r.dqkv, bound);
        };
    }
};

template <class Roles, class T>
struct attention_bounds<attention_record<Roles, T>> {
    using record = attention_record<Roles, T>;

    struct copies {
        std::vector<float> q, k, v;
        shadow_heads heads;

        template <class Notes>
        copies(const Notes& notes, const record& r)
            : q(notes.read(r.q.view())), k(notes.read(r.k.view())), v(notes.read(r.v.view())) {
            heads.q = {q.data(), r.q.shape()}, heads.k = {k.data(), r.k.shape()}, heads.v = {v.data(), r.v.shape()};
            heads.options = r.options;
        }
    };
    template <class Notes>
    static void forward(Notes& notes, const record& r) {
        copies c(notes, r);
        std::vector<double> bound(c.q.size());
        c.heads.of_o = {bound.data(), r.q.shape()};
        run_shadow_heads<typename Roles::compute, T>(notes.device(), c.heads, pass::forward, r.packed.sequences);
        notes.bound_value(r.o.view().data(), std::move(bound));
    }
    template <class Notes>
    static auto backward(Notes& notes, const record& r) {
        std::vector<double> dq, dk, dv;
        if (r.dy.is_there()) {
            copies c(notes, r);
            const auto o = notes.read(r.o.view()), d_o = notes.read(r.dy.view());
            c.heads.o = {o.data(), r.q.shape()}, c.heads.d_o = {d_o.data(), r.q.shape()};
            dq.resize(c.q.size()), dk.resize(c.k.size()), dv.resize(c.v.size());
            c.heads.dq = {dq.data(), r.q.shape()}, c.heads.dk = {dk.data(), r.k.shape()};
            c.heads.dv = {dv.data(), r.v.shape()};
            run_shadow_heads<typename Roles::input_grad, T>(notes.device(), c.heads, pass::backward,
                                                            r.packed.sequences);
        }
        return [&notes, &r, dq, dk, dv] {
            if (dq.empty()) return;
            notes.bound_gradient(r.dq, dq);
            notes.bound_gradient(r.dk, dk);
            notes.bound_gradient(r.dv, dv);
        };
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
