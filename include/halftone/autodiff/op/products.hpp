// SPDX-License-Identifier: MIT
/// \file
/// The operations, apart from pointwise maps, of which gradients are composed: matrix products, sums along rows and
/// columns and their transposes (broadcasts), attention's heads separated and joined, rows gathered and scattered. The
/// gradient of each is composed of the same operations. Used by rules and compositions (double_backward/rules.hpp).
///
/// Numeric contract: products as kernel::matmul; sums in float; copies are exact.
#pragma once

#include <array>

#include <halftone/autodiff/double_backward/tape.hpp>
#include <halftone/kernel/embedding/embedding.hpp>
#include <halftone/kernel/matmul/matmul.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Contiguous matrices: `stored` is their shape in memory, (count, rows, columns).
template <class T>
struct matrices {
    T* data;
    shape<3> stored;
    orientation turned = orientation::straight;

    extent count() const { return stored[0]; }
    extent rows() const { return stored[turned == orientation::straight ? 1 : 2]; }
    extent columns() const { return stored[turned == orientation::straight ? 2 : 1]; }
    view<T, 3> all() const {
        const view<T, 3> as_stored(data, stored);
        return turned == orientation::straight ? as_stored : transpose(as_stored);
    }
    matrices operator!() const { return {data, stored, !turned}; }
};

/// A variable with its orientation.
template <class T>
struct factor {
    variable<T, 1> values;  // empty if not needed
    shape<3> stored;
    orientation turned = orientation::straight;

    matrices<const T> view() const { return {values.is_empty() ? nullptr : values.view().data(), stored, turned}; }
    factor operator!() const { return {values, stored, !turned}; }
};
template <class T, int Rank>
factor<T> factor_of(const variable<T, Rank>& v, const shape<3>& stored, orientation turned = orientation::straight) {
    return {flat(v), stored, turned};
}

/// c = (or +=) ab, for each pair of matrices.
template <class Compute, class Device, class A, class B, class C>
void multiply_each(Device& device, const matrices<A>& a, const matrices<B>& b, C* c, write_mode mode) {
    product_each<Compute>(device, a.all(), b.all(), view<C, 3>(c, {a.count(), a.rows(), b.columns()}), mode);
}

/// Forward products in Compute; backward ones in ByLeft (for the gradient of the left factor) and ByRight.
template <class ByLeft, class ByRight, class A, class B, class Y>
struct product_record {
    using operation = op::matmul;
    factor<A> a;  // each is kept if the other takes a gradient
    factor<B> b;
    gradient_of<A, 1> da;
    gradient_of<B, 1> db;
    gradient_of<Y, 1> dy;
    shape<3> y;

    template <class Tape>
    void propagate(Tape& tape) {
        const matrices<const Y> g{dy.view().data(), y};
        if (const auto to = tape.gradient_target(da)) {
            if (a.turned == orientation::straight) {
                multiply_each<ByLeft>(tape.device(), g, !b.view(), to.data, to.mode);
            } else {
                multiply_each<ByLeft>(tape.device(), b.view(), !g, to.data, to.mode);
            }
        }
        if (const auto to = tape.gradient_target(db)) {
            if (b.turned == orientation::straight) {
                multiply_each<ByRight>(tape.device(), !a.view(), g, to.data, to.mode);
            } else {
                multiply_each<ByRight>(tape.device(), !g, a.view(), to.data, to.mode);
            }
        }
    }
};

/// The products ab, consecutive matrices.
template <class Compute, class ByLeft, class ByRight, class Y, class Root, class A, class B>
variable<Y, 1> recorded_product(Root& root, const factor<A>& a, const factor<B>& b) {
    const auto range = root.range(op::matmul::name);
    const bool of_a = a.values.wants_gradient(), of_b = b.values.wants_gradient();
    const shape<3> s{a.view().count(), a.view().rows(), b.view().columns()};
    auto y = root.template make<Y>(shape<1>{s.size()}, of_a || of_b);
    multiply_each<Compute>(root.device(), a.view(), b.view(), y.view().data(), write_mode::overwrite);
    if (of_a || of_b) {
        root.record(product_record<ByLeft, ByRight, A, B, Y>{{of_b ? a.values : variable<A, 1>{}, a.stored, a.turned},
                                                             {of_a ? b.values : variable<B, 1>{}, b.stored, b.turned},
                                                             gradient_of(a.values),
                                                             gradient_of(b.values),
                                                             gradient_of(y),
                                                             s});
    }
    return y;
}
template <class Compute, class Y, class Root, class A, class B>
variable<Y, 1> recorded_product(Root& root, const factor<A>& a, const factor<B>& b) {
    return recorded_product<Compute, Compute, Compute, Y>(root, a, b);
}

template <class ByLeft, class ByRight, class A, class B, class Y>
struct rule<product_record<ByLeft, ByRight, A, B, Y>> {
    template <class Tape>
    static void run(Tape& tape, const product_record<ByLeft, ByRight, A, B, Y>& r, const auto& gradient) {
        const factor<Y> g{gradient, r.y};
        if (tape.takes(r.da)) {
            tape.give(r.da, r.a.turned == orientation::straight ? recorded_product<ByLeft, A>(tape.inner(), g, !r.b)
                                                                : recorded_product<ByLeft, A>(tape.inner(), r.b, !g));
        }
        if (tape.takes(r.db)) {
            tape.give(r.db, r.b.turned == orientation::straight ? recorded_product<ByRight, B>(tape.inner(), !r.a, g)
                                                                : recorded_product<ByRight, B>(tape.inner(), !g, r.a));
        }
    }
};

/// `count` elements that are all the same value, without a gradient.
template <class Root>
variable<float, 1> filled(Root& root, extent count, float value) {
    auto v = root.template make<float>(shape<1>{count}, false);
    root.device().fill(v.view().data(), count, value);
    return v;
}

/// The sum of each row of (rows, width).
template <class Root>
variable<float, 1> row_sums(Root& root, const variable<float, 1>& x, extent rows) {
    const extent width = rows == 0 ? 0 : x.size() / rows;
    return recorded_product<float, float>(root, factor_of(x, {1, rows, width}),
                                          factor_of(filled(root, width, 1), {1, width, 1}));
}
/// Broadcasts each value to all columns of its row.
template <class Root>
variable<float, 1> in_columns(Root& root, const variable<float, 1>& x, extent width) {
    return recorded_product<float, float>(root, factor_of(x, {1, x.size(), 1}),
                                          factor_of(filled(root, width, 1), {1, 1, width}));
}
/// The sum of each row, broadcast to all its columns.
template <class Root>
variable<float, 1> row_totals(Root& root, const variable<float, 1>& x, extent rows) {
    return in_columns(root, row_sums(root, x, rows), rows == 0 ? 0 : x.size() / rows);
}
/// The sum of each column of (rows, width).
template <class Y, class Root, class X>
variable<Y, 1> column_sums(Root& root, const variable<X, 1>& x, extent width) {
    const extent rows = width == 0 ? 0 : x.size() / width;
    return recorded_product<float, Y>(root, factor_of(filled(root, rows, 1), {1, 1, rows}),
                                      factor_of(x, {1, rows, width}));
}

// ---- attention's heads

/// The layout of several adjacent parts, (batch, time, heads, size) each, as one product computes queries, keys and
/// values, and of the separated parts, (batch, heads, time, size). The parts after the first may have fewer heads.
struct head_layout {
    extent batch, time, heads, size, other_heads = 0;  // 0: as many as the first part

    extent heads_of(extent part) const { return part == 0 || other_heads == 0 ? heads : other_heads; }
    extent heads_before(extent part) const { return part == 0 ? 0 : heads + (part - 1) * heads_of(part); }
    extent count(extent part) const { return batch * time * heads_of(part) * size; }
    extent count_of_all(extent parts) const { return batch * time * heads_before(parts) * size; }
};

/// to = from, where one is a part of `parts` with layout (batch, time, heads, size), and the other has layout (batch,
/// heads, time, size).
template <class Device, class T>
void split_part(Device& device, const head_layout& h, extent parts, extent part, const T* together, T* contiguous) {
    const extent row = h.heads_before(parts) * h.size, heads = h.heads_of(part);
    for (extent i = 0; i < h.batch * heads; ++i) {
        const extent begin = i / heads * h.time * row + (h.heads_before(part) + i % heads) * h.size;
        kernel::convert<Device>::run(device, const_view<T, 2>(together + begin, {h.time, h.size}, {row, 1}),
                                     view<T, 2>(contiguous + i * h.time * h.size, {h.time, h.size}));
    }
}
template <class Device, class T>
void join_part(Device& device, const head_layout& h, extent parts, extent part, const T* contiguous, T* together) {
    const extent row = h.heads_before(parts) * h.size, heads = h.heads_of(part);
    for (extent i = 0; i < h.batch * heads; ++i) {
        const extent begin = i / heads * h.time * row + (h.heads_before(part) + i % heads) * h.size;
        kernel::convert<Device>::run(device, const_view<T, 2>(contiguous + i * h.time * h.size, {h.time, h.size}),
                                     view<T, 2>(together + begin, {h.time, h.size}, {row, 1}));
    }
}

template <class T, std::size_t Parts>
struct split_heads_record {
    using operation = op::attention;
    head_layout layout;
    gradient_of<T, 1> dtogether;
    std::array<gradient_of<T, 1>, Parts> dparts;

    template <class Tape>
    void backward(Tape& tape) {
        bool any = false;
        for (const auto& d : dparts) any = any || d.is_there();
        if (!any) return;
        contribute(tape, dtogether, [&](const view<T, 1>& out) {
            tape.device().fill(out.data(), out.size(), T(0.0f));
            for (std::size_t p = 0; p < Parts; ++p) {
                if (dparts[p].is_there())
                    join_part(tape.device(), layout, Parts, static_cast<extent>(p), as_const(dparts[p].view()).data(),
                              out.data());
            }
        });
        for (const auto& d : dparts) tape.finish(d);
    }
};
template <class T, std::size_t Parts>
struct join_heads_record {
    using operation = op::attention;
    head_layout layout;
    std::array<gradient_of<T, 1>, Parts> dparts;
    gradient_of<T, 1> dy;

    template <class Tape>
    void propagate(Tape& tape) {
        for (std::size_t p = 0; p < Parts; ++p) {
            contribute(tape, dparts[p], [&](const view<T, 1>& out) {
                split_part(tape.device(), layout, Parts, static_cast<extent>(p), as_const(dy.view()).data(),
                           out.data());
            });
        }
    }
};

/// The parts of x, each as (batch, heads, time, size).
template <std::size_t Parts, class Root, class T>
std::array<variable<T, 1>, Parts> split_heads(Root& root, const variable<T, 1>& x, const head_layout& layout) {
    std::array<variable<T, 1>, Parts> parts;
    split_heads_record<T, Parts> r{layout, gradient_of(x), {}};
    for (std::size_t p = 0; p < Parts; ++p) {
        parts[p] = root.template make<T>(shape<1>{layout.count(static_cast<extent>(p))}, x.wants_gradient());
        split_part(root.device(), layout, Parts, static_cast<extent>(p), as_const(x.view()).data(),
                   parts[p].view().data());
        r.dparts[p] = gradient_of(parts[p]);
    }
    if (x.wants_gradient()) root.record(std::move(r));
    return parts;
}
/// The inverse of split_heads: joins parts into one tensor.
template <std::size_t Parts, class Root, class T>
variable<T, 1> join_heads(Root& root, const std::array<variable<T, 1>, Parts>& parts, const head_layout& layout) {
    bool wanted = false;
    for (const auto& p : parts) wanted = wanted || p.wants_gradient();
    auto y = root.template make<T>(shape<1>{layout.count_of_all(static_cast<extent>(Parts))}, wanted);
    join_heads_record<T, Parts> r{layout, {}, gradient_of(y)};
    for (std::size_t p = 0; p < Parts; ++p) {
        join_part(root.device(), layout, Parts, static_cast<extent>(p), as_const(parts[p].view()).data(),
                  y.view().data());
        r.dparts[p] = gradient_of(parts[p]);
    }
    if (wanted) root.record(std::move(r));
    return y;
}

template <class T, std::size_t Parts>
struct rule<split_heads_record<T, Parts>> {
    template <class Tape>
    static void run(Tape& tape, const split_heads_record<T, Parts>& r) {
        bool any = false;
        for (const auto& d : r.dparts) any = any || tape.has(d);
        if (!any) return;
        std::array<variable<T, 1>, Parts> parts;
        for (std::size_t p = 0; p < Parts; ++p) {
            if (tape.has(r.dparts[p])) {
                parts[p] = tape.take(r.dparts[p]);
            } else {
                parts[p] = tape.inner().template make<T>(r.dparts[p].shape(), false);
                tape.device().fill(parts[p].view().data(), parts[p].size(), T(0.0f));
            }
        }
        if (tape.takes(r.dtogether)) tape.give(r.dtogether, join_heads(tape.inner(), parts, r.layout));
    }
};
template <class T, std::size_t Parts>
struct rule<join_heads_record<T, Parts>> {
    template <class Tape>
    static void run(Tape& tape, const join_heads_record<T, Parts>& r, const auto& gradient) {
        const auto parts = split_heads<Parts>(tape.inner(), gradient, r.layout);
        for (std::size_t p = 0; p < Parts; ++p) {
            if (tape.takes(r.dparts[p])) tape.give(r.dparts[p], parts[p]);
        }
    }
};

// ---- rows of a table (embedding)

template <class Y>
struct scatter_record {
    using operation = op::embedding;
    variable<std::int32_t, 1> tokens;
    gradient_of<Y, 1> drows;
    gradient_of<float, 1> dy;
    extent vocabulary, width;

    template <class Tape>
    void propagate(Tape& tape) {
        contribute(tape, drows, [&](const view<Y, 1>& out) {
            kernel::embedding<typename Tape::device_type>::forward(
                tape.device(), kernel::embedding_forward<float, Y>{
                                   .tokens = tokens.view(),
                                   .table = const_view<float, 2>(dy.view().data(), {vocabulary, width}),
                                   .out = view<Y, 2>(out.data(), {tokens.size(), width})});
        });
    }
};

/// (vocabulary, width): for each token the sum of its rows, 0 if it has none.
template <class Root, class Y>
variable<float, 1> scatter(Root& root, const variable<std::int32_t, 1>& tokens, const variable<Y, 1>& rows,
                           extent vocabulary, extent width) {
    auto table = root.template make<float>(shape<1>{vocabulary * width}, rows.wants_gradient());
    kernel::embedding<typename Root::device_type>::backward(
        root.device(),
        kernel::embedding_backward<Y, float>{.tokens = tokens.view(),
                                             .dy = const_view<Y, 2>(rows.view().data(), {tokens.size(), width}),
                                             .dtable = view<float, 2>(table.view().data(), {vocabulary, width}),
                                             .mode = write_mode::overwrite});
    if (rows.wants_gradient())
        root.record(scatter_record<Y>{tokens, gradient_of(rows), gradient_of(table), vocabulary, width});
    return table;
}

template <class T>
struct extend_record {
    using operation = op::embedding;
    gradient_of<T, 1> dx, dy;

    template <class Tape>
    void propagate(Tape& tape) {
        if (const auto to = tape.gradient_target(dx)) {
            const view<T, 1> from(dy.view().data(), dx.shape()), out(to.data, dx.shape());
            if (to.mode == write_mode::overwrite) {
                tape.device().copy(out.data(), from.data(), static_cast<std::size_t>(from.size()) * sizeof(T));
            } else {
                add_into(tape, from, out);
            }
        }
    }
};

/// x, padded with zeros at the end.
template <class Root, class T>
variable<T, 1> extended(Root& root, const variable<T, 1>& x, extent count) {
    if (x.size() == count) return x;
    auto y = root.template make<T>(shape<1>{count}, x.wants_gradient());
    root.device().copy(y.view().data(), x.view().data(), static_cast<std::size_t>(x.size()) * sizeof(T));
    root.device().fill(y.view().data() + x.size(), count - x.size(), T(0.0f));
    if (x.wants_gradient()) root.record(extend_record<T>{gradient_of(x), gradient_of(y)});
    return y;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
