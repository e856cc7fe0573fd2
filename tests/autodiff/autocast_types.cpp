// SPDX-License-Identifier: MIT
/// \file
/// The type of every free operation's result in every region, against PyTorch's (golden/autocast.py). No kernel is
/// compiled for it: the functions' own results are held to the same in their tests.
#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/tape.hpp>
#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/policy/operations.hpp>

namespace {

namespace ht = halftone;
namespace op = ht::op;
using ht::bfloat16, ht::float16;

template <class T>
constexpr const char* name_of = "";
template <>
constexpr const char* name_of<float16> = "fp16";
template <>
constexpr const char* name_of<bfloat16> = "bf16";
template <>
constexpr const char* name_of<float> = "fp32";
template <>
constexpr const char* name_of<double> = "fp64";
constexpr const char* const type_names[] = {"fp16", "bf16", "fp32", "fp64"};

template <class Op, class P, class... Inputs>
constexpr const char* output() {
    if constexpr (ht::operation_category<Op>::value == ht::category::banned &&
                  (std::is_same_v<P, ht::amp_fp16> || std::is_same_v<P, ht::amp_bf16>)) {
        return "banned";
    } else {
        return name_of<ht::free_output<P, Op, Inputs...>>;
    }
}

template <class Op, class P>
constexpr const char* of_one[] = {output<Op, P, float16>(), output<Op, P, bfloat16>(), output<Op, P, float>(),
                                  output<Op, P, double>()};
template <class Op, class P, class A>
constexpr const char* of_second[] = {output<Op, P, A, float16>(), output<Op, P, A, bfloat16>(),
                                     output<Op, P, A, float>(), output<Op, P, A, double>()};
template <class Op, class P>
constexpr const char* const* of_two[] = {of_second<Op, P, float16>, of_second<Op, P, bfloat16>, of_second<Op, P, float>,
                                         of_second<Op, P, double>};
template <class Op, class P, class As>
constexpr const char* explicitly[] = {
    name_of<ht::chosen_output<As, P, Op, float16>>, name_of<ht::chosen_output<As, P, Op, bfloat16>>,
    name_of<ht::chosen_output<As, P, Op, float>>, name_of<ht::chosen_output<As, P, Op, double>>};

struct row {
    std::string operation, region;
    const char* const* one;         ///< by the type of the only input
    const char* const* const* two;  ///< by that of the first, then the second
};

// The policy of nested regions is the inner one's.
using tape = ht::tape<ht::cpu>;
template <class Outer, class Inner>
using nested = ht::policy_of<decltype(ht::autocast<Inner>(ht::autocast<Outer>(std::declval<tape&>())))>;

template <class F>
void for_each_region(const F& f) {
    f.template operator()<ht::policy_of<tape>>("none");
    f.template operator()<ht::policy_of<decltype(ht::autocast<ht::amp_fp16>(std::declval<tape&>()))>>("fp16");
    f.template operator()<ht::amp_bf16>("bf16");
    f.template operator()<nested<ht::amp_fp16, ht::as_given>>("fp16>none");
    f.template operator()<nested<ht::amp_fp16, ht::full_fp32>>("fp16>fp32");
    f.template operator()<nested<ht::amp_bf16, ht::amp_fp16>>("bf16>fp16");
}

template <class... Ops>
void add_unary(std::vector<row>& rows) {
    for_each_region([&]<class P>(const char* region) {
        (rows.push_back({Ops::name, region, of_one<Ops, P>, nullptr}), ...);
    });
}
template <class... Ops>
void add_binary(std::vector<row>& rows) {
    for_each_region([&]<class P>(const char* region) {
        (rows.push_back({Ops::name, region, nullptr, of_two<Ops, P>}), ...);
    });
}
template <class Op>
void add_explicit(std::vector<row>& rows) {
    for_each_region([&]<class P>(const char* region) {
        const std::string name = Op::name;
        rows.push_back({name + "[fp16]", region, explicitly<Op, P, float16>, nullptr});
        rows.push_back({name + "[bf16]", region, explicitly<Op, P, bfloat16>, nullptr});
        rows.push_back({name + "[fp32]", region, explicitly<Op, P, float>, nullptr});
        rows.push_back({name + "[fp64]", region, explicitly<Op, P, double>, nullptr});
    });
}

std::vector<row> all_rows() {
    std::vector<row> rows;
    add_unary<op::exp, op::expm1, op::log, op::log1p, op::log2, op::log10, op::reciprocal, op::rsqrt, op::sinh,
              op::cosh, op::tan, op::neg, op::abs, op::sqrt, op::tanh, op::sigmoid, op::relu, op::mean, op::sum,
              op::softplus, op::gelu, op::silu, op::leaky_relu, op::dropout, op::softmax, op::log_softmax,
              op::layer_norm, op::rms_norm, op::norm, op::embedding, op::cross_entropy>(rows);
    add_binary<op::matmul, op::linear, op::attention, op::prelu, op::add, op::sub, op::mul, op::div, op::pow, op::atan2,
               op::dot, op::cat, op::stack, op::addcmul, op::addcdiv, op::mse_loss, op::l1_loss, op::smooth_l1_loss,
               op::huber_loss, op::binary_cross_entropy_with_logits, op::binary_cross_entropy>(rows);
    add_explicit<op::softmax>(rows);
    add_explicit<op::log_softmax>(rows);
    add_explicit<op::sum>(rows);
    return rows;
}

std::size_t index_of(const std::string& type) {
    return static_cast<std::size_t>(std::find(std::begin(type_names), std::end(type_names), type) -
                                    std::begin(type_names));
}

TEST_CASE("autocast: the type of every result is PyTorch's") {
    const std::vector<row> rows = all_rows();
    std::ifstream file(HALFTONE_TEST_DATA "/autocast.txt");
    REQUIRE(file);
    std::size_t lines = 0, types = 0;
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == '#') continue;
        ++lines;
        std::istringstream words(line);
        std::string operation, region;
        words >> operation >> region;
        const auto found = std::find_if(rows.begin(), rows.end(),
                                        [&](const row& r) { return r.operation == operation && r.region == region; });
        REQUIRE_MESSAGE(found != rows.end(), line);
        for (std::string word; words >> word;) {
            ++types;
            if (word == "banned") {
                // PyTorch bans it in a region of fp32, too, which torch.autocast does not offer for CUDA; there
                // halftone's advice is such a region.
                if (region != "fp16>fp32") CHECK_MESSAGE(std::string(found->two[0][0]) == "banned", line);
                continue;
            }
            const std::string inputs = word.substr(0, word.find(':')), want = word.substr(word.find(':') + 1);
            const std::size_t comma = inputs.find(',');
            const std::string got =
                comma == std::string::npos
                    ? found->one[index_of(inputs)]
                    : found->two[index_of(inputs.substr(0, comma))][index_of(inputs.substr(comma + 1))];
            CHECK_MESSAGE(got == want, operation, " in ", region, " of ", inputs, ": ", got, ", PyTorch's is ", want);
        }
    }
    CHECK(lines == rows.size());
    CHECK(types > 2400);
}

}  // namespace
