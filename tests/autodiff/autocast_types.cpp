// SPDX-License-Identifier: MIT
/// \file
/// The type of every free operation's result in every region, by both lists of categories, compared with PyTorch's
/// (golden/operations.txt): for functions, their declared result types, without running them; for operations that only layers have,
/// their categories.
///
/// Outside of autocast losses of 16-bit inputs are floats here, and have 16 bits in PyTorch: models compute their losses there
/// (autodiff/op/loss.hpp).
#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/autodiff/op/elementwise_loss.hpp>
#include <halftone/autodiff/op/channel_norm.hpp>
#include <halftone/autodiff/op/pooling.hpp>
#include <halftone/autodiff/op/gather.hpp>
#include <halftone/autodiff/op/join.hpp>
#include <halftone/autodiff/op/mask.hpp>

#include "support/golden_operations.hpp"

namespace autodiff_autocast_types_tests {

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

/// What a function of a context and of variables with these elements returns.
template <class F, class Context, class... Inputs>
constexpr const char* returned = name_of<typename std::remove_cvref_t<
    std::invoke_result_t<const F&, Context&, const ht::variable<Inputs, 2>&...>>::value_type>;
/// What the category says of an operation that only layers have.
template <class Op>
struct by_category_of {
    template <class Context, class... Inputs>
    auto operator()(Context&, const ht::variable<Inputs, 2>&...) const
        -> ht::variable<ht::free_output<ht::policy_of<Context>, Op, Inputs...>, 2>;
};

template <class F, class C>
constexpr const char* of_one[] = {returned<F, C, float16>, returned<F, C, bfloat16>, returned<F, C, float>,
                                  returned<F, C, double>};
template <class F, class C, class A>
constexpr const char* of_second[] = {returned<F, C, A, float16>, returned<F, C, A, bfloat16>, returned<F, C, A, float>,
                                     returned<F, C, A, double>};
template <class F, class C>
constexpr const char* const* of_two[] = {of_second<F, C, float16>, of_second<F, C, bfloat16>, of_second<F, C, float>,
                                         of_second<F, C, double>};

struct row {
    std::string operation, region;
    const char* const* one;         ///< by the type of the only input
    const char* const* const* two;  ///< by that of the first, then the second; nullptr, too: banned
};

using eval = ht::inference<ht::cpu>;
template <class P>
using in_region = decltype(ht::autocast<P>(std::declval<eval&>()));
template <class Outer, class Inner>
using nested = decltype(ht::autocast<Inner>(std::declval<in_region<Outer>&>()));

template <template <class> class Lists, class F>
void for_each_region(const std::string& lists, const F& f) {
    using fp16 = Lists<ht::amp_fp16>;
    using bf16 = Lists<ht::amp_bf16>;
    f.template operator()<eval>(lists + "none");
    f.template operator()<in_region<fp16>>(lists + "fp16");
    f.template operator()<in_region<bf16>>(lists + "bf16");
    f.template operator()<nested<fp16, ht::as_given>>(lists + "fp16>none");
    f.template operator()<nested<fp16, Lists<ht::full_fp32>>>(lists + "fp16>fp32");
    f.template operator()<nested<bf16, fp16>>(lists + "bf16>fp16");
}
template <class P>
using as_it_is = P;
template <class F>
void for_each_region(const F& f) {
    for_each_region<as_it_is>("", f);
    for_each_region<ht::with_cpu_lists>("cpu ", f);
}

using rows_of_operations = std::vector<row>;
template <class F>
void add_unary(rows_of_operations& rows, const char* name, const F&) {
    for_each_region([&]<class C>(const std::string& region) { rows.push_back({name, region, of_one<F, C>, nullptr}); });
}
template <class F>
void add_binary(rows_of_operations& rows, const char* name, const F&) {
    for_each_region([&]<class C>(const std::string& region) { rows.push_back({name, region, nullptr, of_two<F, C>}); });
}
template <class F>
void add_banned(rows_of_operations& rows, const char* name, const F&) {
    for_each_region([&]<class C>(const std::string& region) {
        using P = ht::policy_of<C>;
        if constexpr (std::is_same_v<P, ht::amp_fp16> || std::is_same_v<P, ht::amp_bf16>) {
            rows.push_back({name, region, nullptr, nullptr});
        } else {
            rows.push_back({name, region, nullptr, of_two<F, C>});
        }
    });
}

const auto softmax = []<class As>(As, auto& c, const auto& x) { return ht::softmax<As>(c, x); };
const auto log_softmax = []<class As>(As, auto& c, const auto& x) { return ht::log_softmax<As>(c, x); };
const auto sum = []<class As>(As, auto& c, const auto& x) { return ht::sum<As>(c, x); };
template <class F>
void add_explicit(rows_of_operations& rows, const std::string& name, const F& f) {
    const auto add = [&]<class As>(As) {
        add_unary(rows, (name + "[" + name_of<As> + "]").c_str(),
                  [f](auto& c, const auto& x) { return f(As{}, c, x); });
    };
    add(float16{}), add(bfloat16{}), add(float{}), add(double{});
    add_unary(rows, name.c_str(), [f](auto& c, const auto& x) { return f(ht::by_category{}, c, x); });
}

rows_of_operations all_rows() {
    rows_of_operations rows;
    // clang-format off
#define HALFTONE_FUNCTION(tag, category) add_unary(rows, #tag, [](auto& c, const auto& x) { return ht::tag(c, x); });
#include <halftone/policy/operation_table.hpp>
    add_unary(rows, "mean", [](auto& c, const auto& x) { return ht::mean(c, x); });
    add_unary(rows, "norm", [](auto& c, const auto& x) { return ht::norm(c, x); });
    add_unary(rows, "dropout", [](auto& c, const auto& x) { return ht::dropout(c, x, {.p = 0.1f}); });
    add_unary(rows, "glu", [](auto& c, const auto& x) { return ht::glu(c, x); });
    add_unary(rows, "cross_entropy", [](auto& c, const auto& x) { return ht::cross_entropy(c, x, ht::const_view<std::int32_t, 1>()); });
    add_unary(rows, "cumsum", [](auto& c, const auto& x) { return ht::cumsum(c, x, ht::axes<0>); });
    add_unary(rows, "logsumexp", [](auto& c, const auto& x) { return ht::logsumexp(c, x, ht::axes<0>); });
    add_unary(rows, "var", [](auto& c, const auto& x) { return ht::var(c, x, ht::axes<0>); });
    add_unary(rows, "std", [](auto& c, const auto& x) { return ht::std(c, x, ht::axes<0>); });
    add_unary(rows, "amax", [](auto& c, const auto& x) { return ht::amax(c, x, ht::axes<0>); });
    add_unary(rows, "amin", [](auto& c, const auto& x) { return ht::amin(c, x, ht::axes<0>); });
    add_unary(rows, "prod", [](auto& c, const auto& x) { return ht::prod(c, x, ht::axes<0>); });
    add_binary(rows, "matmul", [](auto& c, const auto& a, const auto& b) { return ht::matmul(c, a, b); });
    add_binary(rows, "linear", [](auto& c, const auto& a, const auto& b) { return ht::linear(c, a, b); });
    const auto as_image = [](auto& c, const auto& a) { return ht::reshape(c, a, ht::shape<4>{1, 1, 4, 4}); };
    add_binary(rows, "conv2d", [as_image](auto& c, const auto& a, const auto& b) { return ht::conv2d(c, as_image(c, a), as_image(c, b)); });
    add_binary(rows, "add", [](auto& c, const auto& a, const auto& b) { return ht::add(c, a, b); });
    add_binary(rows, "sub", [](auto& c, const auto& a, const auto& b) { return ht::sub(c, a, b); });
    add_binary(rows, "mul", [](auto& c, const auto& a, const auto& b) { return ht::mul(c, a, b); });
    add_binary(rows, "div", [](auto& c, const auto& a, const auto& b) { return ht::div(c, a, b); });
    add_binary(rows, "pow", [](auto& c, const auto& a, const auto& b) { return ht::pow(c, a, b); });
    add_binary(rows, "atan2", [](auto& c, const auto& a, const auto& b) { return ht::atan2(c, a, b); });
    add_binary(rows, "dot", [](auto& c, const auto& a, const auto& b) { return ht::dot(c, a, b); });
    add_binary(rows, "mse_loss", [](auto& c, const auto& a, const auto& b) { return ht::mean_squared_error(c, a, b); });
    add_binary(rows, "l1_loss", [](auto& c, const auto& a, const auto& b) { return ht::l1_loss(c, a, b); });
    add_binary(rows, "smooth_l1_loss", [](auto& c, const auto& a, const auto& b) { return ht::smooth_l1_loss(c, a, b); });
    add_binary(rows, "huber_loss", [](auto& c, const auto& a, const auto& b) { return ht::huber_loss(c, a, b); });
    add_binary(rows, "binary_cross_entropy_with_logits", [](auto& c, const auto& a, const auto& b) { return ht::binary_cross_entropy_with_logits(c, a, b); });
    add_banned(rows, "binary_cross_entropy", [](auto& c, const auto& a, const auto& b) { return ht::binary_cross_entropy(c, a, b); });
    add_binary(rows, "prelu", [](auto& c, const auto& a, const auto& b) { return ht::prelu(c, a, ht::reshape(c, b, ht::shape<1>{1})); });
    add_binary(rows, "cat", [](auto& c, const auto& a, const auto& b) { return ht::cat(c, 0, a, b); });
    add_binary(rows, "stack", [](auto& c, const auto& a, const auto& b) { return ht::stack(c, 0, a, b); });
    add_binary(rows, "addcmul", [](auto& c, const auto& a, const auto& b) { return ht::addcmul(c, a, b, b); });
    add_binary(rows, "addcdiv", [](auto& c, const auto& a, const auto& b) { return ht::addcdiv(c, a, b, b); });
    using index = ht::const_view<std::int32_t, 2>;
    add_unary(rows, "gather", [](auto& c, const auto& x) { return ht::gather(c, x, ht::axes<0>, index()); });
    add_unary(rows, "index_select", [](auto& c, const auto& x) { return ht::index_select(c, x, ht::axes<0>, ht::const_view<std::int32_t, 1>()); });
    add_unary(rows, "take_along_dim", [](auto& c, const auto& x) { return ht::take_along_dim(c, x, ht::axes<0>, index()); });
    add_unary(rows, "masked_fill", [](auto& c, const auto& x) { return ht::masked_fill(c, x, ht::const_view<bool, 2>(), 0.5); });
    add_unary(rows, "tril", [](auto& c, const auto& x) { return ht::tril(c, x); });
    add_unary(rows, "triu", [](auto& c, const auto& x) { return ht::triu(c, x); });
    add_binary(rows, "where", [](auto& c, const auto& a, const auto& b) { return ht::where(c, ht::const_view<bool, 2>(), a, b); });
    add_binary(rows, "scatter_add", [](auto& c, const auto& a, const auto& b) { return ht::scatter_add(c, a, ht::axes<0>, index(), b); });
    add_binary(rows, "index_add", [](auto& c, const auto& a, const auto& b) { return ht::index_add(c, a, ht::axes<0>, ht::const_view<std::int32_t, 1>(), b); });
    add_unary(rows, "permute", [](auto& c, const auto& x) { return ht::permute(c, x, ht::axes<1, 0>); });
    add_unary(rows, "transpose", [](auto& c, const auto& x) { return ht::transpose(c, x, ht::axes<0, 1>); });
    add_unary(rows, "slice", [](auto& c, const auto& x) { return ht::slice(c, x, ht::axes<1>, 1, 3); });
    add_unary(rows, "select", [](auto& c, const auto& x) { return ht::select(c, x, ht::axes<1>, 1); });
    add_unary(rows, "split_with_sizes", [](auto& c, const auto& x) { return ht::chunk<2>(c, x, ht::axes<1>)[0]; });
    add_unary(rows, "flip", [](auto& c, const auto& x) { return ht::flip(c, x, ht::axes<1>); });
    add_unary(rows, "expand", [](auto& c, const auto& x) { return ht::expand(c, x, ht::shape<3>{2, -1, -1}); });
    using ht::reshape, ht::absent;
    constexpr ht::shape<4> image{1, 1, 4, 4};
    add_unary(rows, "max_pool2d", [=](auto& c, const auto& x) { return ht::max_pool2d(c, reshape(c, x, image), {2}); });
    add_unary(rows, "avg_pool2d", [=](auto& c, const auto& x) { return ht::avg_pool2d(c, reshape(c, x, image), {2}); });
    add_unary(rows, "adaptive_avg_pool2d", [=](auto& c, const auto& x) { return ht::adaptive_avg_pool2d(c, reshape(c, x, image), 1); });
    add_unary(rows, "batch_norm", [=](auto& c, const auto& x) { return ht::batch_norm(c, reshape(c, x, image), absent{}, absent{}, absent{}, absent{}); });
    add_unary(rows, "group_norm", [=](auto& c, const auto& x) { return ht::group_norm(c, reshape(c, x, image), 1); });
    // clang-format on
    add_unary(rows, "layer_norm", by_category_of<op::layer_norm>{});
    add_unary(rows, "rms_norm", by_category_of<op::rms_norm>{});
    add_unary(rows, "embedding", by_category_of<op::embedding>{});
    add_binary(rows, "attention", by_category_of<op::attention>{});
    add_explicit(rows, "softmax", softmax);
    add_explicit(rows, "log_softmax", log_softmax);
    add_explicit(rows, "sum", sum);
    return rows;
}

/// Whether it is a loss outside autocast that has 16 bits in PyTorch.
bool is_float_here(const std::string& operation, const std::string& region, const std::string& type) {
    const bool is_loss = operation.ends_with("_loss") || operation.find("cross_entropy") != std::string::npos;
    return is_loss && region.ends_with("none") && (type == "fp16" || type == "bf16");
}

std::size_t index_of(const std::string& type) {
    return static_cast<std::size_t>(std::find(std::begin(type_names), std::end(type_names), type) -
                                    std::begin(type_names));
}

struct counts {
    std::size_t lines = 0, types = 0, losses = 0;
};

/// One line of a table: a region, and inputs:output of an operation there. `lists` stands before the regions' names in `rows`.
void check_line(const rows_of_operations& rows, const std::string& operation, const std::string& lists, const std::string& line,
                counts& all) {
    ++all.lines;
    std::istringstream words(line);
    std::string region;
    words >> region;
    region = lists + region;
    const auto found = std::find_if(rows.begin(), rows.end(),
                                    [&](const row& r) { return r.operation == operation && r.region == region; });
    REQUIRE_MESSAGE(found != rows.end(), operation, " in ", region);
    for (std::string word; words >> word;) {
        ++all.types;
        if (word == "banned") {
            // PyTorch bans it in a region of fp32, too, which torch.autocast does not offer for CUDA; there
            // halftone's advice is such a region.
            if (!region.ends_with("fp16>fp32")) CHECK_MESSAGE(found->two == nullptr, operation, " in ", region);
            continue;
        }
        const std::string inputs = word.substr(0, word.find(':'));
        std::string want = word.substr(word.find(':') + 1);
        if (is_float_here(operation, region, want)) ++all.losses, want = "fp32";
        const std::size_t comma = inputs.find(',');
        const std::string got =
            comma == std::string::npos
                ? found->one[index_of(inputs)]
                : found->two[index_of(inputs.substr(0, comma))][index_of(inputs.substr(comma + 1))];
        CHECK_MESSAGE(got == want, operation, " in ", region, " of ", inputs, ": ", got, ", PyTorch's is ", want);
    }
}

TEST_CASE("autocast: the type of every result is PyTorch's") {
    const rows_of_operations rows = all_rows();
    const support::golden_operations golden = support::read_golden_operations();
    // Each row of the table has a line, but for those that PyTorch does not have as one operation (tests/policy/operations.cpp).
    const std::string_view without[] = {"cast", "map", "rotary", "swiglu", "geglu", "mlp", "linear_cross_entropy", "sparse_embedding"};
#define HALFTONE_OPERATION(tag, category, kind, ...) \
    if (std::find(std::begin(without), std::end(without), #tag) == std::end(without)) golden.of(op::tag::name);
#include <halftone/policy/operation_table.hpp>
    for (const std::string lists : {"", "cpu "}) {
        counts all;
        for (const support::golden_operation& g : golden.each) {
            const std::string table = lists.empty() ? g.types_on_cuda + " cuda" : g.types_on_cpu + " cpu";
            REQUIRE(golden.types.count(table) == 1);
            for (const std::string& line : golden.types.at(table)) check_line(rows, g.name, lists, line, all);
        }
        CHECK(all.lines * 2 == rows.size());
        CHECK(all.types > 2400);
        CHECK(all.losses == 7 * 2 * 2);  // of each loss, of fp16 and of bf16, outside all regions and where one is switched off
    }
}

}  // namespace autodiff_autocast_types_tests
