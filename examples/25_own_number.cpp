// SPDX-License-Identifier: MIT
/// \file
/// Lesson 25: a number type of your own.
///
/// How should 16 bits be shared between a number's range and its precision? bfloat16 has 8 bits of exponent and 7 of
/// fraction, fp16 has 5 and 10. Nothing forbids 6 and 9, or half of these bits. A number type is a class that converts to
/// float and back, with its traits; it may then be a role of a policy like the library's own, and kernels, layers, loss
/// scales, optimizers, checkpoints and GPUs take it.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/number/check_number_type.hpp>

#include "with_device.hpp"

namespace ht = halftone;

// 1. The type: a float of E bits of exponent and F of fraction, encoded as IEEE 754 encodes its formats, in two bytes. It
// is trivially copyable, converts to float implicitly and exactly, and from float explicitly, rounded to nearest. All of
// it is integer code and one addition; HALFTONE_HD lets a GPU call it.
template <int E, int F>
class short_float {
    static_assert(E >= 2 && E <= 8 && F >= 1 && 1 + E + F <= 16);
    static constexpr int bias = (1 << (E - 1)) - 1;
    static constexpr int unused = 23 - F;                          // bits of a float's fraction that are rounded away
    static constexpr std::uint32_t rebias = (127 - bias) << 23;    // between the exponent fields of a float and of this
    static constexpr std::uint32_t least = (128 - bias) << 23;     // the bits of the least normal number, as a float
    static constexpr std::uint32_t infinity = ((1 << E) - 1) << F; // its code; codes above it are NaNs

  public:
    short_float() = default;
    HALFTONE_HD constexpr explicit short_float(float x) {
        const std::uint32_t bits = ht::bit_cast<std::uint32_t>(x), magnitude = bits & 0x7fffffff;
        std::uint32_t code = infinity + 1;
        if (magnitude < least) {
            // Subnormal numbers are multiples of 2^(1 - bias - F). A float of which that is the last bit, added, rounds.
            constexpr std::uint32_t aligned = static_cast<std::uint32_t>(127 + 23 + 1 - bias - F) << 23;
            code = ht::bit_cast<std::uint32_t>(ht::bit_cast<float>(magnitude) + ht::bit_cast<float>(aligned)) - aligned;
        } else if (magnitude <= 0x7f800000) {
            const std::uint32_t half = (1u << (unused - 1)) - 1, is_odd = magnitude >> unused & 1;  // ties to even
            code = (magnitude - rebias + half + is_odd) >> unused;
            code = code < infinity ? code : infinity;
        }
        code_ = static_cast<std::uint16_t>(code | bits >> 31 << (E + F));
    }
    HALFTONE_HD constexpr operator float() const {
        const std::uint32_t sign = static_cast<std::uint32_t>(code_ >> (E + F)) << 31;
        const std::uint32_t magnitude = code_ & ((1u << (E + F)) - 1), shifted = magnitude << unused;
        if (magnitude >= infinity) return ht::bit_cast<float>(sign | 0x7f800000 | (magnitude > infinity ? 0x400000 : 0));
        if (magnitude >= 1u << F) return ht::bit_cast<float>(sign | (shifted + rebias));
        const float above = ht::bit_cast<float>(shifted + least) - ht::bit_cast<float>(least);
        return ht::bit_cast<float>(sign | ht::bit_cast<std::uint32_t>(above));
    }

  private:
    std::uint16_t code_;
};

// 2. Its traits: a name, for ledgers and checkpoints, and a format, from which error bounds, lints and the need of a loss
// scale follow. ht::fixed_format is there for fixed point; a format without infinities says has_infinity = false.
template <int E, int F>
constexpr char short_float_name[] = {'e', '0' + E, 'm', '0' + F / 10, '0' + F % 10, 0};
template <int E, int F>
struct halftone::number_traits<short_float<E, F>> : halftone::ieee_format<F + 1, 3 - (1 << (E - 1)), 1 << (E - 1)> {
    static constexpr const char* name = short_float_name<E, F>;
    static constexpr bool ieee_encoding = E + F == 15;  // whether the code fills its bytes
};

// 3. A policy: operands, results and gradients in T; masters, sums and moments in float, as everywhere.
template <class T>
struct amp_of : ht::amp_fp16 {
    using compute = T;
    using output = T;
    using grad = T;
};

/// Learns y = sin(3 a) b.
template <class P>
struct net : ht::nn::model {
    using policy = P;
    ht::nn::mlp<ht::at<P, "mlp">> mlp;
    ht::nn::linear<ht::at<ht::with_output<P, float>, "last">> last;

    explicit net(auto& device) : model{device}, mlp{parameters(), 2, 32}, last{parameters(), 2, 1} { commit(*this, 1); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.mlp, self.last); }
};

template <class T>
float train(auto& device) {
    // What the traits promise, tried on every code and on two million floats.
    const std::string fault = ht::check_number_type<T>();
    if (!fault.empty()) throw ht::argument_error(fault);

    std::vector<float> inputs, targets;
    for (int i = 0; i < 256; ++i) {
        const float a = static_cast<float>(i % 16) / 8 - 1, b = static_cast<float>(i / 16) / 8 - 1;
        inputs.insert(inputs.end(), {a, b});
        targets.push_back(std::sin(3 * a) * b);
    }
    net<amp_of<T>> model{device};
    ht::adamw optimizer{device, model, {.lr = 1e-2}};
    ht::grad_scaler scaler{device, {.enabled = ht::model_needs_scaling<net<amp_of<T>>>}};
    ht::tape tape{device};
    ht::accumulator acc{model};
    float value = 0;
    for (int step = 0; step < 300; ++step) {
        const auto x = tape.to_device(ht::const_view<float, 2>(inputs.data(), {256, 2}));
        const auto y = model.last(tape, model.mlp(tape, x));
        const auto loss = ht::mean_squared_error(tape, y, ht::const_view<float, 2>(targets.data(), {256, 1}));
        value = loss.item();
        tape.backward(scaler.scale(loss), acc);
        auto grads = scaler.unscale(acc.take());
        optimizer.step(grads);
        scaler.update();
    }
    std::printf("%-8s u = 2^-%-2d  largest %-8.3g  loss scale %-6g  loss %.2g\n", ht::number_traits<T>::name,
                ht::number_traits<T>::significand_bits, ht::number_traits<T>::max,
                static_cast<double>(scaler.get_scale()), static_cast<double>(value));
    return value;
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) {
        const float bf16 = train<ht::bfloat16>(device), e8m7 = train<short_float<8, 7>>(device);
        const float e6m9 = train<short_float<6, 9>>(device), e6m3 = train<short_float<6, 3>>(device);
        std::printf("e8m07 learns as bfloat16 does: %s\n", std::fabs(e8m7 - bf16) <= 0.2f * bf16 ? "yes" : "no");
        std::printf("two bits of exponent become fraction, e6m09: %s\n", e6m9 <= bf16 ? "better" : "worse");
        std::printf("and six bits of fraction less, e6m03: %s\n", e6m3 > 4 * bf16 ? "far worse" : "no worse");
        // Prints: bfloat16 u = 2^-8   largest 3.39e+38  loss scale 1
        // Prints: e8m07    u = 2^-8   largest 3.39e+38  loss scale 1
        // Prints: e6m09    u = 2^-10  largest 4.29e+09  loss scale 65536
        // Prints: e6m03    u = 2^-4   largest 4.03e+09  loss scale 65536
        // Prints: e8m07 learns as bfloat16 does: yes
        // Prints: e6m09: better
        // Prints: e6m03: far worse
    });
}
