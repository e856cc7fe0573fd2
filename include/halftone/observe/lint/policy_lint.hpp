// SPDX-License-Identifier: MIT
/// \file
/// Checks whether a policy's types can hold numbers and sums of given sizes. If the sizes are known at compile time,
/// the compiler reports it, with the sizes in its message. observe/lint/lint.hpp applies the same rules to a model with
/// run-time sizes.
///
///     static_assert(ht::check_sum_length<ht::at<P, "fc">, 4096>());          // sums of 4,096 products, in float or wider
///     static_assert(ht::check_micro_batches<P, 512>());                      // 512 micro-batches added in role `accumulate`
///     static_assert(ht::check_loss_scale<P, 65536, 128 * 1024>());           // a scaled mean over 131,072 tokens
///     static_assert(ht::check_product_range<P, 4096, 8, 1>());               // |x| <= 8, |w| <= 1, in role `output`
///     static_assert(ht::check_scaled_range<P, 100000>());                    // in eight bits: largest / smallest
///
/// The lengths of an operation's sums, forward and backward:
///
/// | operation     | sums of |
/// | ------------- | ------- |
/// | linear        | its inputs; its outputs, for the input's gradient; a micro-batch's rows, for the weight's |
/// | attention     | head_size, for scores; the keys and queries of a sequence |
/// | cross-entropy | the classes |
/// | embedding     | the tokens of a micro-batch, which may all be one |
/// | norms         | the width of a row; the rows of a micro-batch, for the gradients of gain and bias |
///
/// The rules are facts of rounding to nearest (Higham 2002, chapter 4), not of taste:
///
/// - With a significand of p bits, a running sum of k terms of equal size stops growing at the 2^p-th term, because the
///   next term is half a unit in the last place: a fraction of 1 - 2^p / k of the terms is lost. From there on the error
///   bound of any sequential sum, k u / (1 - k u), is void, too. Kernels sum in the wider of float and the role `accum`,
///   and float counts 2^24 terms; gradient buffers have the type of the role `accumulate`.
/// - The gradient of a mean over n terms is up to 1 / n for each term, times the loss scale.
/// - A product of k pairs can reach k |x| |w|.
/// - In a tensor that is scaled so that its largest number becomes the format's largest (policy/scaling.hpp), numbers of
///   at most half the format's least number become zero.
#pragma once

#include <cstdint>
#include <type_traits>

#include <halftone/config.hpp>
#include <halftone/number/traits.hpp>
#include <halftone/policy/promotion.hpp>
#include <halftone/policy/recipe.hpp>
#include <halftone/policy/roles.hpp>
#include <halftone/policy/scaling.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The number of terms of equal size that a running sum in T can count: 2^p.
template <number T>
inline constexpr std::uint64_t countable_terms = std::uint64_t{1} << number_traits<T>::significand_bits;

/// The fraction of k terms of equal size that a running sum in T loses.
template <number T>
constexpr double lost_share(std::uint64_t k) {
    return k <= countable_terms<T> ? 0.0 : 1.0 - static_cast<double>(countable_terms<T>) / static_cast<double>(k);
}

/// The largest ratio of a tensor's largest number to another number that does not become zero when it is scaled to T by
/// the rule.
template <number T>
constexpr double scaled_range(const scaling_rule& rule) {
    // A power-of-two scale is up to a binade below the scale that would use the whole range.
    const double unused = static_cast<double>(1 << rule.margin) * (rule.steps == scale_steps::powers_of_two ? 2 : 1);
    return number_traits<T>::max / unused / (number_traits<T>::min_subnormal / 2);
}

/// The type in which kernels sum under the policy at P: float, or `accum` if that is wider.
template <class P>
using summed_in = promote<float, typename policy_within<P, as_given>::accum>;

namespace detail {

template <class P>
struct narrower_gradient {
    using policy = policy_within<P, as_given>;
    using output = typename policy::output;
    using stream = stream_of<policy>;
    // An 8-bit gradient has a scale of its own.
    using grad = std::conditional_t<eight_bit<typename policy::grad>, output, typename policy::grad>;
    using stored = std::conditional_t<(number_traits<stream>::max < number_traits<output>::max), stream, output>;
    using type = std::conditional_t<(number_traits<stored>::max < number_traits<grad>::max), stored, grad>;
};

}  // namespace detail

/// The type with the smaller range among those that gradients pass through under the policy at P: as stored (roles
/// `output` and `stream`) and as backward products read them (role `grad`).
template <class P>
using narrowest_gradient = typename detail::narrower_gradient<P>::type;

// Types that appear in the compiler's message.
/// The number of terms of a sum.
template <std::uint64_t Terms>
struct terms {};
/// The precision of the type in which it is computed.
template <int Bits>
struct significand_bits {};
/// The number of its terms, of equal size, that are lost.
template <std::uint64_t Terms>
struct lost_terms {};
/// The loss scale.
template <std::uint64_t Scale>
struct loss_scale {};
/// The largest finite number of a type, limited to 64 bits.
template <std::uint64_t Number>
struct largest_number {};
/// The number that is reached, rounded to an integer.
template <std::uint64_t Number>
struct reached_number {};

namespace detail {

template <class T>
constexpr std::uint64_t whole_largest() {
    constexpr double most = 18446744073709551615.0;
    return number_traits<T>::max >= most ? ~std::uint64_t{0} : static_cast<std::uint64_t>(number_traits<T>::max);
}
template <class T, std::uint64_t K>
inline constexpr std::uint64_t lost_of = K <= countable_terms<T> ? 0 : K - countable_terms<T>;

template <std::uint64_t... Factors>
constexpr std::uint64_t product_of() {
    std::uint64_t product = 1;
    // Saturates on overflow, which suffices for the comparison.
    for (const std::uint64_t f : {Factors...})
        product = f != 0 && product > ~std::uint64_t{0} / f ? ~std::uint64_t{0} : product * f;
    return product;
}

template <class Terms, class Bits, class Lost>
struct sum_length_check;
template <std::uint64_t K, class Bits, std::uint64_t Lost>
struct sum_length_check<terms<K>, Bits, lost_terms<Lost>> {
    static_assert(Lost == 0,
                  "halftone: a sum of so many terms in the type that kernels sum in (float, or the role `accum` where "
                  "it is wider) loses some: of terms of equal size, those after the 2^significand_bits-th change "
                  "nothing; how many stands in lost_terms<...>. Sum in shorter pieces, or in fp64, ht::full_fp64");
};
template <class Terms, class Bits, class Lost>
struct micro_batches_check;
template <std::uint64_t K, class Bits, std::uint64_t Lost>
struct micro_batches_check<terms<K>, Bits, lost_terms<Lost>> {
    static_assert(Lost == 0,
                  "halftone: the gradients of so many micro-batches add up in buffers (role `accumulate`) that lose "
                  "some: of gradients of equal size, those after the 2^significand_bits-th change nothing; how many "
                  "stands in lost_terms<...>. Take ht::with_accumulate<P, float>, or larger micro-batches");
};
template <class Scale, class Terms, class Largest, bool Holds>
struct loss_scale_check {
    static_assert(
        Holds,
        "halftone: the gradient of a mean over so many terms begins at up to loss_scale<...> / terms<...>, which is "
        "beyond the largest number of the types that gradients pass through (roles `grad` and `output`): start with a "
        "smaller scale, ht::grad_scaler_options::init_scale, and keep max_scale below it");
};
template <class Terms, class Reached, class Largest, bool Holds>
struct product_range_check {
    static_assert(Holds,
                  "halftone: products of so many terms of these sizes reach a number that this policy's results (role "
                  "`output`) cannot hold: take ht::with_output<P, ht::bfloat16> or float, or smaller operands; both "
                  "numbers stand in reached_number<...> and largest_number<...>");
};

template <class Ratio, class Largest, bool Holds>
struct scaled_range_check {
    static_assert(Holds,
                  "halftone: numbers of a tensor that are so much smaller than its largest are zero in the eight bits "
                  "that this policy scales (role `compute`), since a tensor has one scale: take a smaller margin in "
                  "its scaling, or ht::with_compute<P, ht::bfloat16>; both ratios stand in reached_number<...> and "
                  "largest_number<...>");
};

template <class R>
constexpr double range_of_compute() {
    if constexpr (eight_bit<typename R::compute>) {
        return scaled_range<typename R::compute>(scaling_of<R>::rule);
    } else {
        return number_traits<typename R::compute>::max / (number_traits<typename R::compute>::min_subnormal / 2);
    }
}

}  // namespace detail

/// True, or a compile-time error: for sums of K terms as kernels compute them under the policy at P, in float or in a
/// wider `accum`.
template <class P, std::uint64_t K>
consteval bool check_sum_length() {
    using t = summed_in<P>;
    return sizeof(detail::sum_length_check<terms<K>, significand_bits<number_traits<t>::significand_bits>,
                                           lost_terms<detail::lost_of<t, K>>>) > 0;
}

/// True, or a compile-time error: for gradients of K micro-batches, added in the role `accumulate`.
template <class P, std::uint64_t K>
consteval bool check_micro_batches() {
    using t = typename resolve<P>::accumulate;
    return sizeof(detail::micro_batches_check<terms<K>, significand_bits<number_traits<t>::significand_bits>,
                                              lost_terms<detail::lost_of<t, K>>>) > 0;
}

/// True, or a compile-time error: for a loss that is a mean over Terms (1 for a sum), times Scale, in the roles `grad`
/// and `output`.
template <class P, std::uint64_t Scale, std::uint64_t Terms = 1>
consteval bool check_loss_scale() {
    static_assert(Terms > 0, "halftone: check_loss_scale: a mean has one term, at least");
    constexpr std::uint64_t largest = detail::whole_largest<narrowest_gradient<P>>();
    constexpr bool holds = Scale / Terms < largest || (Scale / Terms == largest && Scale % Terms == 0);
    return sizeof(detail::loss_scale_check<loss_scale<Scale>, terms<Terms>, largest_number<largest>, holds>) > 0;
}

/// True, or a compile-time error: for a product of K pairs of magnitudes up to X and W, in the role `output`.
template <class P, std::uint64_t K, std::uint64_t X, std::uint64_t W>
consteval bool check_product_range() {
    constexpr std::uint64_t reached = detail::product_of<K, X, W>(),
                            largest = detail::whole_largest<typename resolve<P>::output>();
    constexpr bool holds = reached <= largest || largest == ~std::uint64_t{0};
    return sizeof(detail::product_range_check<terms<K>, reached_number<reached>, largest_number<largest>, holds>) > 0;
}

/// True, or a compile-time error: for operands in the role `compute` of the policy at P whose largest is Ratio times
/// the smallest that should not become zero. Operands of more than eight bits are not scaled: for them the format's own
/// range counts.
template <class P, std::uint64_t Ratio>
consteval bool check_scaled_range() {
    constexpr double range = detail::range_of_compute<resolve<P>>();
    constexpr std::uint64_t most =
        range >= 1.8446744073709550e19 ? ~std::uint64_t{0} : static_cast<std::uint64_t>(range);
    return sizeof(detail::scaled_range_check<reached_number<Ratio>, largest_number<most>,
                                             (static_cast<double>(Ratio) < range)>) > 0;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
