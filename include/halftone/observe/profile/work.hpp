// SPDX-License-Identifier: MIT
/// \file
/// The work of operations, counted from the shapes and types of their records: floating-point operations and bytes.
///
///     const ht::operation_work w = ht::detail::forward_work(record);        // watched tapes tell it to listeners
///
/// A flop is an addition, subtraction, multiplication, division, or a call of a function (exp, log, sqrt, tanh) in the
/// operation's plain loops, where nothing is computed twice; comparisons and conversions are none. A sum of n terms that begins with zero has n
/// additions. Bytes are those of each tensor that the operation reads or writes, once each. Of the backward pass only
/// wanted gradients count.
///
///     operation              forward                            backward
///     product (m,k)(k,n)     2mkn                               2mkn for each factor's gradient
///     linear                 2mkn + mn (bias) + mn (residual)   2mkn each for x and weight, mn for the bias
///     mlp                    two linear, 9 for each gelu        four products, 18 for each gelu
///     conv2d                 2 |y| taps + |y| (bias)            2 |y| taps each, |y| for the bias
///     attention              (4d + 4) pairs + (d + 2) rows      (10d + 6) pairs + 2d rows
///     cross_entropy          3 |logits| + 4 rows + 1            4 |logits| + rows + 1
///     linear_cross_entropy   2mkn and the same                  2mkn each and the same; 2mkn if logits are not kept
///     layer_norm             8 |x| + 5 rows                     13 |x| + 2 rows
///     rms_norm               4 |x| + 4 rows                     9 |x| + 1 rows
///     softmax                5 |x|                              5 |x|
///     embedding              |y| with positions                 |y|, twice with positions
///     a map                  its operations for each element    twice that, and one for each element
///     others                 one for each element of inputs     one for each element of gradients
///
/// taps: channels of a group times the kernel's area, those on padding included. d: the head's size; pairs: of a query
/// and a key that it sees, in all heads (packed sequences count as one sequence); rows: queries in all heads.
#pragma once

#include <cmath>
#include <tuple>
#include <type_traits>

#include <halftone/autodiff/engine/hook.hpp>
#include <halftone/autodiff/engine/operation.hpp>
#include <halftone/policy/operations.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

// ---- types and sizes

template <class T>
inline constexpr arithmetic arithmetic_of = std::is_same_v<T, double>          ? arithmetic::fp64
                                            : std::is_same_v<T, float16>       ? arithmetic::fp16
                                            : std::is_same_v<T, bfloat16>      ? arithmetic::bf16
                                            : std::is_same_v<T, tfloat32>      ? arithmetic::tf32
                                            : std::is_same_v<T, float8_e4m3> ||
                                                    std::is_same_v<T, float8_e5m2>
                                                ? arithmetic::fp8
                                                : arithmetic::fp32;
template <class T, int N>
inline constexpr arithmetic arithmetic_of<split<T, N>> = arithmetic_of<T>;

/// Elements of a variable, a gradient or a parameter; 0 for one that is absent.
template <class V>
double elements_of(const V& v) {
    if constexpr (is_absent<V>) {
        return 0;
    } else {
        return static_cast<double>(v.shape().size());
    }
}
template <class T>
inline constexpr double bytes_each = 0;
template <class T, int Rank>
inline constexpr double bytes_each<variable<T, Rank>> = sizeof(T);
template <class T, int Rank>
inline constexpr double bytes_each<gradient_of<T, Rank>> = sizeof(T);
template <class Storage, int Rank>
inline constexpr double bytes_each<parameter<Storage, Rank>> = sizeof(typename Storage::compute);
template <class V>
    requires(V::is_variable)
inline constexpr double bytes_each<V> = sizeof(typename V::compute);

/// The bytes of a tensor as an operation reads it.
template <class V>
double bytes_of(const V& v) {
    return elements_of(v) * bytes_each<std::remove_cvref_t<V>>;
}
/// The bytes of its gradient, 0 if it takes none.
template <class T, int Rank>
double gradient_bytes(const gradient_of<T, Rank>& g) {
    return !g.is_empty() && g.is_wanted() ? bytes_of(g) : 0;
}
template <class V>
double gradient_bytes(const V& v) {
    if constexpr (is_absent<V>) {
        return 0;
    } else if constexpr (requires { typename V::storage::accumulate; }) {
        return v.is_frozen() ? 0 : elements_of(v) * sizeof(typename V::storage::accumulate);
    } else {
        return v.is_frozen() ? 0 : bytes_of(v);
    }
}
template <class V>
double gradient_elements(const V& v) {
    return gradient_bytes(v) == 0 ? 0 : elements_of(v);
}

/// The operations of a pointwise expression: each node that is neither an argument nor a constant.
template <class E>
inline constexpr double expression_flops = 0;
template <template <class...> class Node, class... E>
inline constexpr double expression_flops<Node<E...>> = 1 + (0 + ... + expression_flops<E>);
template <class... E>
inline constexpr double expression_flops<pack<E...>> = (0 + ... + expression_flops<E>);

inline operation_work& operator+=(operation_work& a, const operation_work& b) {
    a.flops += b.flops, a.bytes += b.bytes, a.products += b.products;
    return a;
}

// ---- the rules, by the operations' kinds: of any record with such members

/// The default: one flop for each element. Records with their gradients in a tuple or a vector, or with one dx.
template <class Kind>
struct work_rule {
    template <class Record>
    static double flops_of_element(const Record&) {
        if constexpr (requires(const Record& r) { r.expression; }) {
            return expression_flops<std::remove_cvref_t<decltype(std::declval<const Record&>().expression)>>;
        } else {
            return 1;
        }
    }
    template <class Record, class F>
    static void each_gradient(const Record& r, const F& f) {
        if constexpr (requires { std::tuple_size<std::remove_cvref_t<decltype(r.gradients)>>::value; }) {
            std::apply([&](const auto&... g) { (f(g), ...); }, r.gradients);
        } else if constexpr (requires { r.gradients.begin(); }) {
            for (const auto& g : r.gradients) f(g);
        } else if constexpr (requires { std::tuple_size<std::remove_cvref_t<decltype(r.destinations)>>::value; }) {
            std::apply([&](const auto&... g) { (f(g), ...); }, r.destinations);
        } else if constexpr (requires { r.dx.shape(); }) {
            f(r.dx);
        } else if constexpr (requires { r.source.shape(); }) {
            f(r.source);
        }
    }
    template <class Record>
    static operation_work forward(const Record& r) {
        operation_work w;
        double most = 0;
        each_gradient(r, [&](const auto& input) {
            w.bytes += bytes_of(input);
            most = std::max(most, elements_of(input));
        });
        if constexpr (requires { r.dy.shape(); }) {
            w.bytes += bytes_of(r.dy);
            most = std::max(most, elements_of(r.dy));
        }
        w.flops = most * flops_of_element(r);
        return w;
    }
    template <class Record>
    static operation_work backward(const Record& r) {
        operation_work w;
        double all = 0, most = 0;
        each_gradient(r, [&](const auto& input) {
            w.bytes += gradient_bytes(input);
            all += gradient_elements(input);
            most = std::max(most, elements_of(input));
        });
        if (all == 0) return w;
        if constexpr (requires { r.dy.shape(); }) w.bytes += bytes_of(r.dy);
        if constexpr (requires { r.inputs; })
            std::apply([&](const auto&... kept) { ((w.bytes += kept.is_empty() ? 0 : bytes_of(kept)), ...); }, r.inputs);
        w.flops = requires { r.expression; } ? most * (2 * flops_of_element(r) + 1) : all;
        return w;
    }
};

template <class Roles>
struct types_of_products {
    static constexpr arithmetic forward = arithmetic_of<typename Roles::compute>,
                                backward = arithmetic_of<typename Roles::input_grad>;
};
template <class Record>
struct roles_within {
    static constexpr arithmetic forward = arithmetic::fp32, backward = arithmetic::fp32;
};
template <template <class, class...> class Record, class Roles, class... More>
    requires requires { typename Roles::input_grad; }
struct roles_within<Record<Roles, More...>> : types_of_products<Roles> {};
template <template <class, class, class, int, class...> class Record, class Roles, class X, class Y, int Rank, class... More>
    requires requires { typename Roles::input_grad; }
struct roles_within<Record<Roles, X, Y, Rank, More...>> : types_of_products<Roles> {};
template <template <class, class, int, class> class Record, class Roles, class X, int Rank, class Weight>
    requires requires { typename Roles::input_grad; }
struct roles_within<Record<Roles, X, Rank, Weight>> : types_of_products<Roles> {};
template <template <class, class, class, class, int, orientation, orientation> class Record, class Roles, class A, class B,
          class Y, int Rank, orientation OfA, orientation OfB>
    requires requires { typename Roles::input_grad; }
struct roles_within<Record<Roles, A, B, Y, Rank, OfA, OfB>> : types_of_products<Roles> {};

/// A product of `products` flops, and others.
template <class Record>
operation_work forward_product(const Record&, double products, double others, double bytes) {
    return {products + others, bytes, products, roles_within<Record>::forward, false};
}
template <class Record>
operation_work backward_product(const Record&, double products, double others, double bytes) {
    return {products + others, bytes, products, roles_within<Record>::backward, false};
}

template <>
struct work_rule<operation_kind::linear> {
    template <class Record>
    static operation_work forward(const Record& r) {
        const double y = elements_of(r.dy), residual = r.has_residual ? 1 : 0, bias = is_absent<decltype(r.bias)> ? 0 : 1;
        return forward_product(r, 2 * y * static_cast<double>(r.weight.shape()[1]), (residual + bias) * y,
                               bytes_of(r.dx) + bytes_of(r.weight) + bytes_of(r.bias) + (1 + residual) * bytes_of(r.dy));
    }
    template <class Record>
    static operation_work backward(const Record& r) {
        const double y = elements_of(r.dy), product = 2 * y * static_cast<double>(r.weight.shape()[1]);
        const bool of_x = r.dx.is_wanted(), of_weight = !r.weight.is_frozen(), of_bias = !r.bias.is_frozen();
        double bytes = bytes_of(r.dy) + gradient_bytes(r.dx) + gradient_bytes(r.weight) + gradient_bytes(r.bias);
        if (of_x) bytes += bytes_of(r.weight);
        if (of_weight) bytes += bytes_of(r.dx);  // x itself
        return backward_product(r, (of_x + of_weight) * product, of_bias ? y : 0, bytes);
    }
};

template <>
struct work_rule<operation_kind::mlp> {
    static constexpr double gelu = 9, gelu_gradient = 18;
    template <class Record>
    struct sizes {
        double rows, hidden, in, out, product, hidden_bytes;
        explicit sizes(const Record& r)
            : rows(elements_of(r.dy) / static_cast<double>(r.down.shape()[0])),
              hidden(rows * static_cast<double>(r.up.shape()[0])),
              in(elements_of(r.dx)),
              out(elements_of(r.dy)),
              product(2 * hidden * static_cast<double>(r.up.shape()[1])),
              hidden_bytes(hidden * bytes_each<std::remove_cvref_t<decltype(r.pre)>>) {}
    };
    /// A perceptron in 8 bits has a residual always: without one it is two layers.
    template <class Record>
    static bool adds_residual(const Record& r) {
        if constexpr (requires { r.has_residual; }) {
            return r.has_residual;
        } else {
            return true;
        }
    }
    template <class Record>
    static operation_work forward(const Record& r) {
        const sizes<Record> s(r);
        constexpr double bias = is_absent<decltype(r.up_bias)> ? 0 : 1;
        const double residual = adds_residual(r) ? 1 : 0;
        const double bytes = bytes_of(r.dx) + bytes_of(r.up) + bytes_of(r.down) + bytes_of(r.up_bias) +
                             bytes_of(r.down_bias) + (r.pre.is_empty() ? 1 : 2) * s.hidden_bytes +
                             (1 + residual) * bytes_of(r.dy);
        return forward_product(r, 2 * s.product, (bias + gelu) * s.hidden + (bias + residual) * s.out, bytes);
    }
    template <class Record>
    static operation_work backward(const Record& r) {
        const sizes<Record> s(r);
        const bool of_pre = !r.pre.is_empty(), of_x = r.dx.is_wanted(), of_up = !r.up.is_frozen(),
                   of_down = !r.down.is_frozen();
        const double biases = (r.up_bias.is_frozen() ? 0 : s.hidden) + (r.down_bias.is_frozen() ? 0 : s.out);
        double bytes = bytes_of(r.dy) + gradient_bytes(r.dx) + gradient_bytes(r.up) + gradient_bytes(r.down) +
                       gradient_bytes(r.up_bias) + gradient_bytes(r.down_bias);
        if (of_down) bytes += s.hidden_bytes;
        if (of_pre) bytes += s.hidden_bytes + bytes_of(r.down);
        if (of_pre && of_x) bytes += bytes_of(r.up);
        if (of_pre && of_up) bytes += bytes_of(r.dx);
        const double products = (of_down ? 1 : 0) + (of_pre ? 1 + (of_x ? 1 : 0) + (of_up ? 1 : 0) : 0);
        return backward_product(r, products * s.product, (of_pre ? gelu_gradient * s.hidden : 0) + biases, bytes);
    }
};

template <>
struct work_rule<operation_kind::product> {
    /// The number of terms of a result's element.
    template <class Record>
    static double terms(const Record& r) {
        if constexpr (requires { r.a.view().columns(); }) {
            return static_cast<double>(r.a.view().columns());
        } else {
            constexpr int last = std::remove_cvref_t<decltype(r.a)>::rank - 1;
            const auto matrix = [](const auto& s) { return static_cast<double>(s[last - 1] * s[last]); };
            return std::round(std::sqrt(matrix(r.da.shape()) * matrix(r.db.shape()) / std::max(1.0, matrix(r.dy.shape()))));
        }
    }
    template <class Record>
    static operation_work forward(const Record& r) {
        return forward_product(r, 2 * elements_of(r.dy) * terms(r), 0, bytes_of(r.da) + bytes_of(r.db) + bytes_of(r.dy));
    }
    template <class Record>
    static operation_work backward(const Record& r) {
        const bool of_a = r.da.is_wanted(), of_b = r.db.is_wanted();
        const double bytes = bytes_of(r.dy) + gradient_bytes(r.da) + gradient_bytes(r.db) + (of_a ? bytes_of(r.db) : 0) +
                             (of_b ? bytes_of(r.da) : 0);
        return backward_product(r, 2 * (of_a + of_b) * elements_of(r.dy) * terms(r), 0, bytes);
    }
};

template <>
struct work_rule<operation_kind::conv2d> {
    template <class Record>
    static double product(const Record& r) {
        const auto& s = r.weight.shape();
        return 2 * elements_of(r.dy) * static_cast<double>(s[1] * s[2] * s[3]);
    }
    template <class Record>
    static operation_work forward(const Record& r) {
        return forward_product(r, product(r), is_absent<decltype(r.bias)> ? 0 : elements_of(r.dy),
                               bytes_of(r.dx) + bytes_of(r.weight) + bytes_of(r.bias) + bytes_of(r.dy));
    }
    template <class Record>
    static operation_work backward(const Record& r) {
        const bool of_x = r.dx.is_wanted(), of_weight = !r.weight.is_frozen();
        double bytes = bytes_of(r.dy) + gradient_bytes(r.dx) + gradient_bytes(r.weight) + gradient_bytes(r.bias);
        if (of_x) bytes += bytes_of(r.weight);
        if (of_weight) bytes += bytes_of(r.dx);
        return backward_product(r, (of_x + of_weight) * product(r), r.bias.is_frozen() ? 0 : elements_of(r.dy), bytes);
    }
};

template <>
struct work_rule<operation_kind::attention> {
    template <class Record>
    struct sizes {
        double rows, pairs, size, bytes_of_all;  // size: of a head; bytes of q, k, v and o
        explicit sizes(const Record& r) {
            extent batch, queries, keys, heads, each;
            if constexpr (requires { r.heads.queries; }) {
                batch = r.qkv.shape()[0], queries = keys = r.qkv.shape()[1], heads = r.heads.queries;
                each = r.o.shape()[2] / heads;
                bytes_of_all = bytes_of(r.qkv) + bytes_of(r.o);
            } else {
                batch = r.q.shape()[0], queries = r.q.shape()[1], keys = r.k.shape()[1], heads = r.q.shape()[2];
                each = r.q.shape()[3];
                bytes_of_all = bytes_of(r.q) + bytes_of(r.k) + bytes_of(r.v) + bytes_of(r.o);
            }
            double seen = static_cast<double>(queries) * static_cast<double>(keys);
            if (r.options.mask == decltype(r.options.mask)::causal) {  // the last query sees all keys
                const extent first = std::max<extent>(queries - keys, 0), seeing = queries - first;
                seen = 0.5 * static_cast<double>(seeing) * static_cast<double>(2 * keys - seeing + 1);
            }
            const double of = static_cast<double>(batch * heads);
            rows = of * static_cast<double>(queries), pairs = of * seen, size = static_cast<double>(each);
        }
    };
    template <class Record>
    static operation_work forward(const Record& r) {
        const sizes<Record> s(r);
        return forward_product(r, 4 * s.size * s.pairs, 4 * s.pairs + (s.size + 2) * s.rows,
                               s.bytes_of_all + bytes_of(r.logsumexp));
    }
    template <class Record>
    static operation_work backward(const Record& r) {
        const sizes<Record> s(r);
        return backward_product(r, 10 * s.size * s.pairs, 6 * s.pairs + 2 * s.size * s.rows,
                                2 * s.bytes_of_all + bytes_of(r.logsumexp));
    }
};

template <>
struct work_rule<operation_kind::cross_entropy> {
    template <class Record>
    static const auto& logits(const Record& r) {
        if constexpr (requires { r.gradients; }) {
            return std::get<0>(r.gradients);
        } else {
            return r.dlogits;
        }
    }
    template <class Record>
    static double rows(const Record& r) {
        const auto& s = logits(r).shape();
        return static_cast<double>(rows_of(s));
    }
    template <class Record>
    static operation_work forward(const Record& r) {
        return {3 * elements_of(logits(r)) + 4 * rows(r) + 1, bytes_of(logits(r)) + 16 * rows(r) + 8, 0,
                arithmetic::fp32, false};
    }
    template <class Record>
    static operation_work backward(const Record& r) {
        return {4 * elements_of(logits(r)) + rows(r) + 1, 2 * bytes_of(logits(r)) + 12 * rows(r) + 8, 0, arithmetic::fp32, false};
    }
};

template <>
struct work_rule<operation_kind::linear_cross_entropy> {
    template <class Record>
    struct sizes {
        double rows, logits, product;
        explicit sizes(const Record& r)
            : rows(elements_of(r.dx) / static_cast<double>(r.weight.shape()[1])),
              logits(rows * static_cast<double>(r.weight.shape()[0])),
              product(2 * logits * static_cast<double>(r.weight.shape()[1])) {}
    };
    template <class Record>
    static double kept_bytes(const Record& r) {
        if constexpr (requires { r.logits.is_empty(); }) {
            return r.logits.is_empty() ? 0 : bytes_of(r.logits);
        } else {
            return 0;
        }
    }
    /// The bytes of the sums from which a frozen head's gradient follows: the forward pass has its product.
    template <class Record>
    static double weight_sum_bytes(const Record& r) {
        if constexpr (requires { r.weight_sums.is_empty(); }) {
            return r.weight_sums.is_empty() ? 0 : bytes_of(r.weight_sums);
        } else {
            return 0;
        }
    }
    template <class Record>
    static operation_work forward(const Record& r) {
        const sizes<Record> s(r);
        const double products = weight_sum_bytes(r) == 0 ? 1 : 2;
        return forward_product(
            r, products * s.product, 3 * s.logits + 4 * s.rows + 1,
            bytes_of(r.dx) + bytes_of(r.weight) + kept_bytes(r) + weight_sum_bytes(r) + 16 * s.rows + 8);
    }
    template <class Record>
    static operation_work backward(const Record& r) {
        const sizes<Record> s(r);
        if (weight_sum_bytes(r) != 0)
            return backward_product(r, 0, 4 * elements_of(r.dx),
                                    weight_sum_bytes(r) + 2 * gradient_bytes(r.dx) + 12 * s.rows + 8);
        const double products = (kept_bytes(r) == 0 ? 1 : 0) + (r.dx.is_wanted() ? 1 : 0) + (r.weight.is_frozen() ? 0 : 1);
        return backward_product(r, products * s.product, 4 * s.logits + s.rows + 1,
                                bytes_of(r.dx) + bytes_of(r.weight) + kept_bytes(r) + gradient_bytes(r.dx) +
                                    gradient_bytes(r.weight) + 12 * s.rows + 8);
    }
};

/// Norms of rows: flops for an element and for a row, forward and backward.
template <int ForwardElement, int ForwardRow, int BackwardElement, int BackwardRow>
struct norm_work {
    template <class Record>
    static double rows(const Record& r) {
        return elements_of(r.rstd);
    }
    template <class Record>
    static double parameters(const Record& r) {
        if constexpr (requires { r.bias; }) {
            return bytes_of(r.gain) + bytes_of(r.bias);
        } else {
            return bytes_of(r.gain);
        }
    }
    template <class Record>
    static double statistics(const Record& r) {
        return (requires { r.mean; } ? 2 : 1) * bytes_of(r.rstd);
    }
    template <class Record>
    static operation_work forward(const Record& r) {
        return {ForwardElement * elements_of(r.dx) + ForwardRow * rows(r),
                bytes_of(r.dx) + bytes_of(r.dy) + parameters(r) + statistics(r), 0, arithmetic::fp32, false};
    }
    template <class Record>
    static operation_work backward(const Record& r) {
        double bytes = 2 * bytes_of(r.dx) + bytes_of(r.dy) + bytes_of(r.gain) + statistics(r) + gradient_bytes(r.gain);
        if constexpr (requires { r.bias; }) bytes += gradient_bytes(r.bias);
        return {BackwardElement * elements_of(r.dx) + BackwardRow * rows(r), bytes, 0, arithmetic::fp32, false};
    }
};
template <>
struct work_rule<operation_kind::layer_norm> : norm_work<8, 5, 13, 2> {};
template <>
struct work_rule<operation_kind::rms_norm> : norm_work<4, 4, 9, 1> {};

template <>
struct work_rule<operation_kind::softmax> {
    template <class Record>
    static operation_work forward(const Record& r) {
        return {5 * elements_of(r.dx), bytes_of(r.dx) + bytes_of(r.dy), 0, arithmetic::fp32, false};
    }
    template <class Record>
    static operation_work backward(const Record& r) {
        return {5 * elements_of(r.dx), bytes_of(r.dx) + 2 * bytes_of(r.dy), 0, arithmetic::fp32, false};
    }
};
template <>
struct work_rule<operation_kind::embedding> {
    template <class Record>
    static constexpr bool has_positions = !is_absent<decltype(std::declval<const Record&>().positions)>;
    template <class Record>
    static operation_work forward(const Record& r) {
        const double y = elements_of(r.dy), tokens = elements_of(r.tokens);
        const double row = y / std::max(1.0, tokens);
        double bytes = bytes_of(r.dy) + 4 * tokens + y * bytes_each<std::remove_cvref_t<decltype(r.table)>>;
        if constexpr (has_positions<Record>)
            bytes += row * static_cast<double>(r.tokens.shape()[1]) * bytes_each<std::remove_cvref_t<decltype(r.positions)>>;
        return {has_positions<Record> ? y : 0, bytes, 0, arithmetic::fp32, false};
    }
    template <class Record>
    static operation_work backward(const Record& r) {
        const double y = elements_of(r.dy);
        double flops = r.table.is_frozen() ? 0 : y;
        double bytes = bytes_of(r.dy) + 4 * elements_of(r.tokens) + gradient_bytes(r.table);
        if constexpr (has_positions<Record>) {
            if (!r.positions.is_frozen()) flops += y;
            bytes += gradient_bytes(r.positions);
        }
        return {flops, bytes, 0, arithmetic::fp32, false};
    }
};

/// What an operation with this record did.
template <class Record>
operation_work forward_work(const Record& r) {
    return work_rule<kind_of<typename Record::operation>>::forward(r);
}
/// What its backward function will do.
template <class Record>
operation_work backward_work(const Record& r) {
    return work_rule<kind_of<typename Record::operation>>::backward(r);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
