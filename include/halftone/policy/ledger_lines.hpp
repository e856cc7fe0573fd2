// SPDX-License-Identifier: MIT
/// \file
/// What the precision ledger is made of: a line, and the lines of each operation as they follow from its types.
/// policy/ledger.hpp writes them for a model's type, observe/ledger/ledger.hpp for what was called.
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

/// An operand as it lies in memory and as it is read.
struct ledger_operand {
    const char* name = nullptr;  ///< nullptr: none
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
    const char* path = "-";  ///< of the layer; "-" outside of any
    const char* after = "";  ///< outside of any, and of what was called: the last layer before it

    /// How many operands are rounded to another type before they are read.
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

/// tfloat32 and split<bfloat16, N> are how products read floats, and no conversion of their own.
template <class Stored, class Read>
constexpr ledger_operand operand(const char* name) {
    return {name, type_name<Stored>, type_name<Read>, !std::is_same_v<Stored, storage_of<Read>>};
}

/// An operation that computes in In, and gives Out.
template <class In, class Out>
constexpr ledger_entry entry(const char* op, ledger_pass pass, ledger_operand a, ledger_operand b = {},
                             ledger_operand c = {}) {
    return {op, pass, type_name<In>, type_name<promote<float, storage_of<In>>>, type_name<Out>, {a, b, c}};
}

/// What a product with an incoming gradient reads its other operand in: as the forward pass did where eight bits are
/// scaled.
template <class Compute, class Grad>
using beside_gradient = std::conditional_t<eight_bit<Grad>, Compute, Grad>;

/// What an operation that computes in Compute reads of a parameter: its copy where that holds as much, else the master.
template <class Storage, class Compute>
using parameter_read = std::conditional_t<contains<typename Storage::compute, Compute>, typename Storage::compute,
                                          typename Storage::param>;

/// What the weight's gradient reads: what was made in eight bits, of x for the forward pass and of the gradient for its
/// other product, is kept.
template <class Stored, class Read>
using kept = std::conditional_t<eight_bit<Read>, Read, Stored>;

/// Without the I-th line: of a pass that does not run.
template <std::size_t I, std::size_t N>
constexpr std::array<ledger_entry, N - 1> without(const std::array<ledger_entry, N>& all) {
    std::array<ledger_entry, N - 1> others{};
    for (std::size_t i = 0; i + 1 < N; ++i) others[i] = all[i < I ? i : i + 1];
    return others;
}

/// x weightᵀ: x arrives in X and the result is Y; Types has compute, input_grad, weight_grad.
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

/// Two of them, with an activation between that is kept in Output before it and in the type of the products behind it;
/// what these read in eight bits is made out of Output.
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

/// Norms, softmax, losses and all that computes row by row or element by element in In. One pass gives all gradients.
template <class In, class X, class Y>
constexpr std::array<ledger_entry, 2> rows(const char* op) {
    return {entry<In, Y>(op, ledger_pass::forward, operand<X, In>("x")),
            entry<In, X>(op, ledger_pass::input_gradient, operand<X, In>("x"), operand<Y, In>("dy"))};
}

/// A norm of what takes no gradient: the pass is there for gain and bias.
template <class In, class X, class Y, class Storage>
constexpr std::array<ledger_entry, 2> rows_of_constant(const char* op) {
    return {entry<In, Y>(op, ledger_pass::forward, operand<X, In>("x")),
            entry<In, typename Storage::accumulate>(op, ledger_pass::weight_gradient, operand<X, In>("x"),
                                                    operand<Y, In>("dy"))};
}

/// A free operation of one input, in its type, whose gradient reads it once more.
template <class T>
constexpr std::array<ledger_entry, 2> activation(const char* op, const char* after) {
    std::array<ledger_entry, 2> lines{
        entry<T, T>(op, ledger_pass::forward, operand<T, T>("a")),
        entry<T, T>(op, ledger_pass::input_gradient, operand<T, T>("dy"), operand<T, T>("a"))};
    for (ledger_entry& e : lines) e.after = after;
    return lines;
}

/// What is given in another type than it was computed in.
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

/// Queries, keys, values and the result have one type.
template <class Compute, class Backward, class T>
constexpr std::array<ledger_entry, 2> attention(const char* op) {
    return {
        entry<Compute, T>(op, ledger_pass::forward, operand<T, Compute>("qkv")),
        entry<Backward, T>(op, ledger_pass::input_gradient, operand<T, Backward>("qkv"), operand<T, Backward>("dy"))};
}

/// Logits are rounded to the role `output` in passing, and computed again in the backward pass unless they are kept.
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

/// Two lines that say the same.
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
