// SPDX-License-Identifier: MIT
/// \file
/// What compiles alike here and in PyTorch and means something else (docs/from_pytorch.md): PyTorch's numbers (golden/meanings.py),
/// ours, and how to get PyTorch's.
#include <halftone/number/float8.hpp>

#include "nn/layers.hpp"
#include "optim/golden.hpp"

namespace nn_meanings_tests {

namespace ht = halftone;

std::vector<support::golden_line> lines_of(const char* kind) {
    std::vector<support::golden_line> lines;
    for (support::golden_line& line : support::read_golden("meanings.txt"))
        if (line.kind == kind) lines.push_back(std::move(line));
    REQUIRE(!lines.empty());
    return lines;
}

TEST_CASE(
    "meanings: causal attention of fewer queries than keys counts from the last key, and is_causal from the first") {
    ht::cpu device{{.threads = 1}};
    ht::inference eval{device};
    const std::vector<float> same(5 * 8);  // equal scores: the mean of the keys that a query sees
    std::vector<float> number_of_key(5 * 8);
    for (std::size_t i = 0; i < number_of_key.size(); ++i) number_of_key[i] = static_cast<float>(i / 8);
    const auto q = eval.constant(ht::view<const float, 4>(same.data(), {1, 2, 1, 8}));
    const auto k = eval.constant(ht::view<const float, 4>(same.data(), {1, 5, 1, 8}));
    const auto v = eval.constant(ht::view<const float, 4>(number_of_key.data(), {1, 5, 1, 8}));
    const auto ours = ht::attention(eval, q, k, v, {.mask = ht::attention_mask::causal});
    CHECK(ours.view()(0, 0, 0, 0) == 1.5f);  // keys 0 to 3
    CHECK(ours.view()(0, 1, 0, 0) == 2);     // keys 0 to 4
    const auto theirs = ht::attention(eval, q, k, v, {}, [](auto, auto query, auto key) { return key <= query; });
    const support::golden_line line = lines_of("is_causal")[0];
    for (ht::extent i = 0; i < 2; ++i)
        CHECK(theirs.view()(0, i, 0, 0) == doctest::Approx(line.number(static_cast<std::size_t>(i))).epsilon(1e-6));
}

TEST_CASE("meanings: RMSNorm without an epsilon") {
    const std::vector<float> x{1e-4f, -1e-4f, 2e-4f, 0};
    ht::cpu device{{.threads = 1}};
    ht::inference eval{device};
    const auto input = eval.constant(ht::view<const float, 2>(x.data(), {1, 4}));
    const nn_test::alone<ht::nn::rms_norm<ht::full_fp32>> ours(4), theirs(4, 1.1920929e-7f);
    const auto y = ours.layer(eval, input), z = theirs.layer(eval, input);
    const support::golden_line line = lines_of("rms_norm")[0];
    for (ht::extent i = 0; i < 4; ++i) {
        const double value = static_cast<double>(x[static_cast<std::size_t>(i)]);
        CHECK(static_cast<double>(y.view()(0, i)) == doctest::Approx(value / std::sqrt(1.5e-8 + 1e-6)).epsilon(1e-6));
        CHECK(static_cast<double>(z.view()(0, i)) ==
              doctest::Approx(line.number(static_cast<std::size_t>(i))).epsilon(1e-6));
    }
}

TEST_CASE("meanings: float8_e4m3 beyond its range is NaN, and PyTorch's is 448") {
    for (const support::golden_line& line : lines_of("float8_e4m3")) {
        const float x = static_cast<float>(line.number(0)), theirs = static_cast<float>(line.number(1));
        CAPTURE(x);
        CHECK(static_cast<float>(ht::saturate<ht::float8_e4m3>(x)) == theirs);
        if (std::fabs(x) > 464) {
            CHECK(ht::is_nan(ht::float8_e4m3(x)));
        } else {
            CHECK(static_cast<float>(ht::float8_e4m3(x)) == theirs);
        }
    }
    for (const support::golden_line& line : lines_of("float8_e5m2"))  // the same numbers in both, infinity among them
        CHECK(static_cast<double>(static_cast<float>(ht::float8_e5m2(static_cast<float>(line.number(0))))) ==
              line.number(1));
}

}  // namespace nn_meanings_tests
