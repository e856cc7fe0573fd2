// SPDX-License-Identifier: MIT
/// \file
/// The lines of the precision ledger: the struct of a line, and the lines of each operation as functions of its types.
/// policy/ledger.hpp puts them together from a model's type, observe/ledger/ledger.hpp from the operations that were
/// called.
///
///     constexpr auto e = ht::detail::ledger::entry<float, ht::bfloat16>("exp", ht::ledger_pass::forward, operand);
///     e.in, e.accumulate, e.out                            // "float", "float", "bfloat16"
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include <halftone/config.hpp>
#include <halftone/policy/category.hpp>
#include <halftone/policy/model.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The pass of a step that a line of the ledger belongs to.
enum class ledger_pass { forward, recomputation, input_gradient, weight_gradient };

/// "forward", "recomputation", "input gradient" or "weight gradient".
constexpr const char* name(ledger_pass p) {
    constexpr const char* names[] = {"forward", "recomputation", "input gradient", "weight gradient"};
    return names[static_cast<int>(p)];
}

/// An operand: the type in which it is stored and the type in which it is read.
struct ledger_operand {
    const char* name = nullptr;  ///< nullptr: no operand
    const char* stored = nullptr;
    const char* read = nullptr;
    bool is_cast = false;
};

/// One line.
struct ledger_entry {
    static constexpr int most_operands = 3;

    const char* op = "";
    ledger_pass pass = ledger_pass::forward;
    const char* in = "";          ///< the type that the operation computes in
    const char* accumulate = "";  ///< the type that it sums in
    const char* out = "";         ///< the type of the result, in memory
    ledger_operand operands[most_operands] = {};
    const char* path = "-";  ///< the layer's path; "-" for an operation outside of any layer
    const char* after = "";  ///< for an operation outside of any layer that was called: the last layer called before it

    /// How many operands are read in another type than they are stored in.
    constexpr int casts() const {
        int n = 0;
        for (const ledger_operand& o : operands) n += o.is_cast ? 1 : 0;
        return n;
    }
};

namespace detail::ledger {

template <class T>
inline constexpr const char* type_name = number_traits<T>::name;

constexpr bool same_text(const char* a, const char* b) {
    while (*a != 0 && *a == *b) ++a, ++b;
    return *a == *b;
}
constexpr bool same_operand(const ledger_operand& a, const ledger_operand& b) {
    if (a.name == nullptr || b.name == nullptr) return a.name == b.name;
    return same_text(a.name, b.name) && same_text(a.stored, b.stored) && same_text(a.read, b.read);
}

/// Whether reading Stored as Read is a conversion: reading a float as tfloat32 or split<bfloat16, N> is none.
template <class Stored, class Read>
constexpr ledger_operand operand(const char* name) {
    return {name, type_name<Stored>, type_name<Read>, !std::is_same_v<Stored, storage_of<Read>>};
}

/// An operation that computes in In and whose result has type Out.
template <class In, class Out>
constexpr ledger_entry entry(const char* op, ledger_pass pass, ledger_operand a, ledger_operand b = {},
                             ledger_operand c = {}) {
    return {op, pass, type_name<In>, type_name<promote<float, storage_of<In>>>, type_name<Out>, {a, b, c}};
}

/// The type in which a product with the incoming gradient reads its other operand; where eight bits are scaled, the
/// type of the forward pass.
template <class Compute, class Grad>
using beside_gradient = std::conditional_t<eight_bit<Grad>, Compute, Grad>;

/// The stored type of a parameter that an operation computing in Compute reads: the copy's if it holds as much, else
/// the master's.
template <class Storage, class Compute>
using parameter_read = std::conditional_t<contains<typename Storage::compute, Compute>, typename Storage::compute,
                                          typename Storage::param>;

/// The stored type of the operand that the weight's gradient reads: 8-bit versions of x (made by the forward pass) and
/// of the gradient (made for the input's gradient) are kept and read again.
template <class Stored, class Read>
using kept = std::conditional_t<eight_bit<Read>, Read, Stored>;

/// The lines without line I, which belongs to a pass that does not run.
template <std::size_t I, std::size_t N>
constexpr std::array<ledger_entry, N - 1> without(const std::array<ledger_entry, N>& all) {
    std::array<ledger_entry, N - 1> others{};
    for (std::size_t i = 0; i + 1 < N; ++i) others[i] = all[i < I ? i : i + 1];
    return others;
}

/// x weightᵀ, a linear layer: x has type X and the result Y; Types has `compute`, `input_grad` and `weight_grad`.
template <class Types, class X, class Y, class Storage>
constexpr std::array<ledger_entry, 3> linear(const char* op) {
    using C = typename Types::compute;
    using I = typename Types::input_grad;
    using G = typename Types::weight_grad;
    using W = parameter_read<Storage, C>;
    return {
        entry<C, Y>(op, ledger_pass::forward, operand<X, C>("x"), operand<W, C>("weight")),
        entry<I, X>(op, ledger_pass::input_gradient, operand<Y, I>("dy"), operand<W, beside_gradient<C, I>>("weight")),
        entry<G, typename Storage::accumulate>(op, ledger_pass::weight_gradient, operand<kept<Y, G>, G>("dy"),
                                               operand<kept<X, beside_gradient<C, G>>, beside_gradient<C, G>>("x"))};
}

/// Two linear layers with an activation between them. The activation's input is kept in Output, its result in the type of
/// the products' operands; 8-bit operands are computed from an Output.
template <class Types, class X, class Y, class Storage>
constexpr std::array<ledger_entry, 6> mlp(const char* op) {
    using C = typename Types::compute;
    using I = typename Types::input_grad;
    using G = typename Types::weight_grad;
    using O = typename Types::output;
    using H = std::conditional_t<eight_bit<C>, O, storage_of<C>>;
    using W = parameter_read<Storage, C>;
    using B = beside_gradient<C, G>;
    using A = typename Storage::accumulate;
    return {
        entry<C, H>(op, ledger_pass::forward, operand<X, C>("x"), operand<W, C>("up")),
        entry<C, Y>(op, ledger_pass::forward, operand<H, C>("hidden"), operand<W, C>("down")),
        entry<I, O>(op, ledger_pass::input_gradient, operand<Y, I>("dy"), operand<W, beside_gradient<C, I>>("down")),
        entry<I, X>(op, ledger_pass::input_gradient, operand<O, I>("dhidden"), operand<W, beside_gradient<C, I>>("up")),
        entry<G, A>(op, ledger_pass::weight_gradient, operand<kept<Y, G>, G>("dy"), operand<kept<H, B>, B>("hidden")),
        entry<G, A>(op, ledger_pass::weight_gradient, operand<kept<O, G>, G>("dhidden"), operand<kept<X, B>, B>("x"))};
}

/// Norms, softmax, losses and all other operations that compute by rows or elements, in In. One pass gives all
/// gradients.
template <class In, class X, class Y>
constexpr std::array<ledger_entry, 2> rows(const char* op) {
    return {entry<In, Y>(op, ledger_pass::forward, operand<X, In>("x")),
            entry<In, X>(op, ledger_pass::input_gradient, operand<X, In>("x"), operand<Y, In>("dy"))};
}

/// A norm whose input takes no gradient: its backward pass computes the gradients of gain and bias.
template <class In, class X, class Y, class Storage>
constexpr std::array<ledger_entry, 2> rows_of_constant(const char* op) {
    return {entry<In, Y>(op, ledger_pass::forward, operand<X, In>("x")),
            entry<In, typename Storage::accumulate>(op, ledger_pass::weight_gradient, operand<X, In>("x"),
                                                    operand<Y, In>("dy"))};
}

/// A free operation of one input that computes in the input's type and whose gradient reads the input again.
template <class T>
constexpr std::array<ledger_entry, 2> activation(const char* op, const char* after) {
    std::array<ledger_entry, 2> lines{
        entry<T, T>(op, ledger_pass::forward, operand<T, T>("a")),
        entry<T, T>(op, ledger_pass::input_gradient, operand<T, T>("dy"), operand<T, T>("a"))};
    for (ledger_entry& e : lines) e.after = after;
    return lines;
}

/// A conversion of a result from the type that it was computed in to another.
template <class X, class Y>
constexpr std::array<ledger_entry, 2> cast(const char* op, const char* after) {
    std::array<ledger_entry, 2> lines{entry<X, Y>(op, ledger_pass::forward, operand<X, X>("a")),
                                      entry<X, X>(op, ledger_pass::input_gradient, operand<Y, X>("dy"))};
    for (ledger_entry& e : lines) e.after = after;
    return lines;
}

template <class Y, class Storage>
constexpr std::array<ledger_entry, 2> embedding(const char* op) {
    using W = typename Storage::compute;
    return {entry<W, Y>(op, ledger_pass::forward, operand<W, W>("table")),
            entry<Y, typename Storage::accumulate>(op, ledger_pass::weight_gradient, operand<Y, Y>("dy"))};
}

/// Attention. Queries, keys, values and the result have one type.
template <class Compute, class Backward, class T>
constexpr std::array<ledger_entry, 2> attention(const char* op) {
    return {
        entry<Compute, T>(op, ledger_pass::forward, operand<T, Compute>("qkv")),
        entry<Backward, T>(op, ledger_pass::input_gradient, operand<T, Backward>("qkv"), operand<T, Backward>("dy"))};
}

/// A linear layer with cross entropy: logits are rounded to the role `output` in registers, and computed again in the
/// backward pass unless they are kept.
template <class Types, class X, class Storage>
constexpr std::array<ledger_entry, 4> linear_cross_entropy(const char* op) {
    using C = typename Types::compute;
    using I = typename Types::input_grad;
    using G = typename Types::weight_grad;
    using L = typename Types::output;
    using W = parameter_read<Storage, C>;
    return {entry<C, float>(op, ledger_pass::forward, operand<X, C>("x"), operand<W, C>("weight"),
                            operand<L, float>("logits")),
            entry<C, L>(op, ledger_pass::recomputation, operand<X, C>("x"), operand<W, C>("weight"),
                        operand<L, float>("logits")),
            entry<I, X>(op, ledger_pass::input_gradient, operand<L, I>("dlogits"), operand<W, I>("weight")),
            entry<G, typename Storage::accumulate>(op, ledger_pass::weight_gradient, operand<L, G>("dlogits"),
                                                   operand<X, G>("x"))};
}

}  // namespace detail::ledger

/// Whether two lines are equal.
constexpr bool operator==(const ledger_entry& a, const ledger_entry& b) {
    using detail::ledger::same_text;
    bool same = same_text(a.path, b.path) && same_text(a.after, b.after) && same_text(a.op, b.op) && a.pass == b.pass &&
                same_text(a.in, b.in) && same_text(a.accumulate, b.accumulate) && same_text(a.out, b.out);
    for (int i = 0; i < ledger_entry::most_operands; ++i)
        same = same && detail::ledger::same_operand(a.operands[i], b.operands[i]);
    return same;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
