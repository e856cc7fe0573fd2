// SPDX-License-Identifier: MIT
/// \file
/// Compiled with -ffast-math: functions of maps are as exact as without it, and NaNs propagate. The expected values were computed
/// with 100 digits.
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/map/cpu.hpp>
#include <halftone/number/bits.hpp>
#include <halftone/number/classify.hpp>

#include "support/each_set.hpp"

namespace kernel_map_fast_math_tests {

namespace ht = halftone;

float of_bits(std::uint32_t bits) {
    volatile std::uint32_t memory = bits;
    return ht::bit_cast<float>(static_cast<std::uint32_t>(memory));
}

struct value {
    float at;
    double expected;
};

/// f at these points, within this number of ulp; each point in several vectors, because the compiler may fold the first one.
template <class F>
void check(ht::cpu& device, const std::string& name, double ulps, const F& f, const std::vector<value>& values) {
    CAPTURE(name);
    for (const auto& [at, expected] : values) {
        CAPTURE(at);
        volatile float hidden = at;
        const std::vector<float> x(37, static_cast<float>(hidden));
        std::vector<float> y(37);
        ht::map(device, f, ht::const_view<float, 1>(x.data(), {37}), ht::view<float, 1>(y.data(), {37}));
        // An ulp is at most 2^-23 of the value.
        const double most = ulps * 0x1p-23 * (expected < 0 ? -expected : expected);
        for (const float each : {y.front(), y.back()}) {
            const double error = static_cast<double>(each) - expected;
            CAPTURE(each);
            CHECK((error <= most && -error <= most));
        }
    }
}

TEST_CASE("fast math: functions whose value is a small difference") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        check(device, "log1p", 3, [](auto x) { return ht::log1p(x); },
              {{0x1.b7cdfep-34f, 0x1.b7cdfdffa18d8p-34},
               {-0x1.b7cdfep-34f, -0x1.b7cdfe005e728p-34},
               {0x1p-25f, 0x1.ffffff8000003p-26},
               {0x1.a36e2ep-14f, 0x1.a368cfb3c05a2p-14},
               {-0x1.333334p-2f, -0x1.6d3c3372a63e4p-2},
               {0x1.8p-1f, 0x1.1e85f5e7040d0p-1},
               {0x1.4p+4f, 0x1.85b2e946faeb1p+1}});
        check(device, "softplus", 4, [](auto x) { return ht::softplus(x); },
              {{-0x1.4p+4f, 0x1.1b48655a5141ep-29},
               {-0x1.09999ap+4f, 0x1.09427c09a2e2bp-24},
               {-0x1p+0f, 0x1.40c7abfbec124p-2},
               {0.0f, 0x1.62e42fefa39efp-1},
               {0x1.8p+1f, 0x1.86381c3f0115cp+1},
               {0x1.ep+4f, 0x1.e00000000001ap+4}});
        check(device, "expm1", 3, [](auto x) { return ht::expm1(x); },
              {{0x1.b7cdfep-34f, 0x1.b7cdfe005e728p-34},
               {-0x1.4f8b58p-17f, -0x1.4f8aea0c98facp-17},
               {0x1.99999ap-3f, 0x1.c56ecfa9689dap-3},
               {-0x1.8p+1f, -0x1.e6824f33314f5p-1},
               {0x1.2p+6f, 0x1.d531d8a7ee79cp+103},
               {0x1.62ccccp+6f, 0x1.f46ff7a98c267p+127}});
        check(device, "exp", 2, [](auto x) { return ht::exp(x); },
              {{-0x1.206666p+6f, 0x1.f98afc6a8fa82p-105},
               {-0x1p+0f, 0x1.78b56362cef38p-2},
               {0x1p-1f, 0x1.a61298e1e069cp+0},
               {0x1.2p+6f, 0x1.d531d8a7ee79cp+103},
               {0x1.62ccccp+6f, 0x1.f46ff7a98c267p+127}});
        check(device, "log", 2, [](auto x) { return ht::log(x); },
              {{0x1.000002p+0f, 0x1.fffffe000002bp-24},
               {0x1.666666p-1f, -0x1.6d3c3372a63e4p-2},
               {0x1.8p+1f, 0x1.193ea7aad030bp+0},
               {0x1.93e594p+99f, 0x1.144f6a00a27fbp+6}});
        check(device, "tanh", 3, [](auto x) { return ht::tanh(x); },
              {{0x1.0c6f7ap-20f, 0x1.0c6f79ffff9dap-20},
               {0x1.333334p-1f, 0x1.12f829bee7fabp-1},
               {-0x1p+1f, -0x1.ed9505e1bc3d4p-1},
               {0x1p+3f, 0x1.fffff872a91f8p-1}});
        check(device, "sigmoid", 3, [](auto x) { return ht::sigmoid(x); },
              {{-0x1.2p+6f, 0x1.175af0cf60ec5p-104},
               {-0x1.8p+1f, 0x1.848343c905445p-5},
               {0x1p-2f, 0x1.1fd5992bc4b83p-1},
               {0x1.2p+3f, 0x1.ffefd390a9cc2p-1}});
        check(device, "rsqrt", 2, [](auto x) { return ht::rsqrt(x); },
              {{0x1.4484cp-100f, 0x1.c6bf5257273edp+49},
               {0x1.8p+1f, 0x1.279a74590331cp-1},
               {0x1.93e594p+99f, 0x1.203af9ca13733p-50}});
    });
}

TEST_CASE("fast math: NaNs propagate, and zeros and infinities are preserved") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        const float nan = of_bits(0x7fc00000), infinity = of_bits(0x7f800000), zero = of_bits(0x80000000);
        const auto at = [&](const auto& f, auto x) {
            using T = decltype(x);
            const std::vector<T> in(20, x);
            std::vector<T> out(20);
            ht::map(device, f, ht::const_view<T, 1>(in.data(), {20}), ht::view<T, 1>(out.data(), {20}));
            return out[19];
        };
        const auto keeps_nan = [&](const char* name, const auto& f) {
            CAPTURE(std::string(name));
            CHECK(ht::is_nan(at(f, nan)));
            CHECK(ht::is_nan(at(f, static_cast<double>(nan))));
        };
        keeps_nan("relu", [](auto x) { return ht::relu(x); });
        keeps_nan("max", [](auto x) { return ht::max(x, 1.0f); });
        keeps_nan("min", [](auto x) { return ht::min(1.0f, x); });
        keeps_nan("exp", [](auto x) { return ht::exp(x); });
        keeps_nan("log1p", [](auto x) { return ht::log1p(x); });
        keeps_nan("softplus", [](auto x) { return ht::softplus(x); });
        keeps_nan("erf", [](auto x) { return ht::erf(x); });
        keeps_nan("silu", [](auto x) { return ht::silu(x); });
        CHECK(ht::is_nan(at([](auto x) { return ht::sqrt(x); }, nan)));
        CHECK(ht::is_nan(at([](auto x) { return ht::sqrt(x); }, of_bits(0xbf800000))));
        CHECK(ht::is_inf(at([](auto x) { return ht::rsqrt(x); }, of_bits(0))));
        CHECK(at([](auto x) { return ht::rsqrt(x); }, infinity) == 0.0f);
        CHECK(ht::is_inf(at([](auto x) { return ht::silu(x); }, infinity)));
        CHECK(ht::is_inf(at([](auto x) { return ht::log1p(x); }, of_bits(0xbf800000))));
        const float left = at([](auto x) { return ht::log1p(x); }, zero);
        CHECK(ht::bit_cast<std::uint32_t>(left) == 0x80000000);
    });
}

}  // namespace kernel_map_fast_math_tests
