// SPDX-License-Identifier: MIT
/// \file
/// Convolutions on tapes of the CPU: the checks are conv2d_checks.hpp's; gradients against differences in double, PyTorch's
/// numbers (golden/conv2d.py), types, refusals. twice_conv2d.hpp has its second derivatives.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <halftone/autodiff/double_backward/double_backward.hpp>
#include <halftone/kernel/conv2d/cpu.hpp>
#include <halftone/kernel/convert/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>
#include <halftone/observe/check_gradients.hpp>

#include "autodiff/conv2d_checks.hpp"
#include "support/bounds.hpp"

namespace autodiff_conv2d_tests {

namespace ht = halftone;
using ht::bfloat16, ht::extent, ht::float16;
using namespace conv2d_tape_checks;

TEST_CASE("conv2d on tapes: values and gradients, exact on small whole numbers") {
    ht::cpu device{{.threads = 2}};
    of_variables<float>(device);
    of_variables<bfloat16>(device);
    of_parameters<ht::full_fp32>(device);
    of_parameters<ht::amp_bf16>(device);
}

TEST_CASE("conv2d on tapes: gradients against differences in double") {
    ht::cpu device{{.threads = 1}};
    support::random data(5);
    const auto numbers = [&](extent n) {
        std::vector<double> all;
        for (extent i = 0; i < n; ++i) all.push_back(data.uniform(-1, 1));
        return all;
    };
    const auto agrees = [&](const ht::shape<4>& of_x, const ht::shape<4>& of_w, const ht::conv2d_options& options) {
        const auto x = numbers(of_x.size()), w = numbers(of_w.size()), b = numbers(of_w[0]);
        const auto report = ht::check_gradients(
            device, [&](auto& ctx, auto vx, auto vw, auto vb) { return ht::conv2d(ctx, vx, vw, vb, options); },
            ht::const_view<double, 4>(x.data(), of_x), ht::const_view<double, 4>(w.data(), of_w),
            ht::const_view<double, 1>(b.data(), {of_w[0]}));
        CHECK_MESSAGE(report.agrees(), report.text());
    };
    agrees({2, 2, 4, 5}, {3, 2, 3, 3}, {.stride = {2, 1}, .padding = {1, 1}});
    agrees({1, 4, 4, 3}, {4, 1, 2, 3}, {.padding = {0, 1}, .dilation = {2, 1}, .groups = 4});
    agrees({2, 3, 3, 3}, {2, 3, 1, 1}, {});
}

doubles read(std::istringstream& words) {
    doubles all;
    for (std::string word; words >> word && word != "|";) all.push_back(std::strtod(word.c_str(), nullptr));
    return all;
}
/// Element by element: (((by i + start) mod modulus) - modulus / 2) / divisor.
template <class T>
std::vector<T> sample(extent count, extent by, extent start, extent modulus, float divisor) {
    std::vector<T> all;
    for (extent i = 0; i < count; ++i)
        all.push_back(T(static_cast<float>((by * i + start) % modulus - modulus / 2) / divisor));
    return all;
}

struct found {
    doubles y, dx, dw, db;
};
template <class T>
found of_case(ht::cpu& device, const ht::shape<4>& of_x, const ht::shape<4>& of_w, const ht::conv2d_options& options) {
    const auto x = sample<T>(of_x.size(), 7, 3, 11, 4), w = sample<T>(of_w.size(), 5, 1, 9, 8),
               b = sample<T>(of_w[0], 3, 1, 5, 2);
    ht::tape tape{device};
    const auto vx = tape.leaf(ht::const_view<T, 4>(x.data(), of_x)), vw = tape.leaf(ht::const_view<T, 4>(w.data(), of_w));
    const auto vb = tape.leaf(ht::const_view<T, 1>(b.data(), {of_w[0]}));
    const auto y = ht::conv2d(tape, vx, vw, vb, options);
    tape.backward(weigh(tape, y, sample<float>(y.size(), 5, 2, 7, 2)));
    found f{values(device, y.view()), {}, values(device, tape.gradient(vw)), values(device, tape.gradient(vb))};
    if (of_x.size() != 0) f.dx = values(device, tape.gradient(vx));
    return f;
}

// Sums of multiples of 1/32, which floats hold exactly whatever their order: in fp32 both are equal. In 16 bits PyTorch may
// round within a sum.
void compare(const doubles& got, const doubles& want, double roundoff) {
    REQUIRE(got.size() == want.size());
    support::comparison c;
    for (std::size_t i = 0; i < want.size(); ++i)
        c.expect(got[i], want[i], roundoff == 0 ? 0 : support::gamma(3, roundoff) * (std::fabs(want[i]) + 1));
    if (!want.empty()) CHECK_MESSAGE(c.within(), c);
}

TEST_CASE("conv2d on tapes: values and gradients of PyTorch") {
    ht::cpu device{{.threads = 2}};
    std::ifstream file(HALFTONE_TEST_DATA "/conv2d.txt");
    REQUIRE(file);
    int lines = 0;
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == '#') continue;
        ++lines;
        CAPTURE(line.substr(0, line.find('|')));
        std::istringstream words(line);
        std::string type, bar;
        ht::shape<4> of_x{}, of_w{};
        ht::conv2d_options o;
        words >> type >> of_x[0] >> of_x[1] >> of_x[2] >> of_x[3] >> of_w[0] >> of_w[2] >> of_w[3] >> o.stride[0] >>
            o.stride[1] >> o.padding[0] >> o.padding[1] >> o.dilation[0] >> o.dilation[1] >> o.groups >> bar;
        of_w[1] = of_x[1] / o.groups;
        const auto run = [&] {
            return type == "fp32"   ? of_case<float>(device, of_x, of_w, o)
                   : type == "bf16" ? of_case<bfloat16>(device, of_x, of_w, o)
                                    : of_case<float16>(device, of_x, of_w, o);
        };
        if (bar == "throws") {
            CHECK_THROWS_AS(run(), ht::shape_error);
            continue;
        }
        const double roundoff = type == "fp32"   ? 0
                                : type == "bf16" ? ht::unit_roundoff<bfloat16>
                                                 : ht::unit_roundoff<float16>;
        const found got = run();
        compare(got.y, read(words), roundoff);
        compare(got.dx, read(words), roundoff);
        compare(got.dw, read(words), roundoff);
        compare(got.db, read(words), roundoff);
    }
    CHECK(lines == 27);
}

using eval = ht::inference<ht::cpu>;
template <class P, class X, class W>
using in_region = typename std::remove_cvref_t<decltype(ht::conv2d(
    std::declval<ht::region<P, eval>>(), std::declval<const ht::variable<X, 4>&>(),
    std::declval<const ht::variable<W, 4>&>(), ht::conv2d_options{}))>::value_type;
static_assert(std::is_same_v<in_region<ht::amp_bf16, float, float>, bfloat16>);
static_assert(std::is_same_v<in_region<ht::amp_fp16, float, bfloat16>, float16>);
static_assert(std::is_same_v<in_region<ht::full_fp32, bfloat16, bfloat16>, float>);
static_assert(std::is_same_v<in_region<ht::as_given, bfloat16, float>, float>);
static_assert(std::is_same_v<in_region<ht::amp_bf16, double, float>, double>);

TEST_CASE("conv2d on tapes: shapes that do not fit") {
    ht::cpu device{{.threads = 1}};
    ht::inference ctx{device};
    const std::vector<float> numbers(64);
    const auto x = ctx.constant(ht::const_view<float, 4>(numbers.data(), {1, 4, 4, 4})),
               w = ctx.constant(ht::const_view<float, 4>(numbers.data(), {2, 3, 1, 1}));
    const auto b = ctx.constant(ht::const_view<float, 1>(numbers.data(), {3}));
    CHECK_THROWS_WITH_AS(ht::conv2d(ctx, x, w),
                         "conv2d: the weight is (2, 3, 1, 1); for x (1, 4, 4, 4) in 1 group it is (outputs, 4, height, "
                         "width), of a window that is not empty",
                         ht::shape_error);
    const auto fitting = ctx.constant(ht::const_view<float, 4>(numbers.data(), {2, 4, 1, 1}));
    CHECK_THROWS_WITH_AS(ht::conv2d(ctx, x, fitting, b), "conv2d: bias is (3); expected (2)", ht::shape_error);
    CHECK_THROWS_AS(ht::conv2d(ctx, x, fitting, {.stride = {1, 0}}), ht::argument_error);
}

}  // namespace autodiff_conv2d_tests
