// SPDX-License-Identifier: MIT
/// \file
/// Conversions between floats and 16-bit numbers.
#pragma once

#include <halftone/kernel/convert/cpu.hpp>

#include <memory_bound/family.hpp>

namespace bench {

template <class X, class Y>
void conversion(const memory_bound& b, const char* name, const char* from, const char* to) {
    namespace ht = halftone;
    for (const extent count : {extent{8192} * 3072, extent{512} * 1024}) {
        const std::string shape = std::to_string(count) + (count > 1 << 20 ? "" : " cached");
        b.run("convert", shape + " " + name, static_cast<double>(count) * (sizeof(X) + sizeof(Y)), [&](int n) {
            return [&, x = operands<X>(b.device, n, count), y = operands<Y>(b.device, n, count)](int k) {
                ht::kernel::convert<ht::cpu>::run(b.device, ht::const_view<X, 1>(x(k), {count}), ht::view<Y, 1>(y(k), {count}));
            };
        }, {{"op", "convert"}, {"count", count}, {"dtype", from}, {"to", to}});
    }
}

inline void conversions(const memory_bound& b) {
    using halftone::bfloat16, halftone::float16;
    conversion<float, bfloat16>(b, "fp32 to bf16", "float32", "bfloat16");
    conversion<bfloat16, float>(b, "bf16 to fp32", "bfloat16", "float32");
    conversion<float, float16>(b, "fp32 to fp16", "float32", "float16");
    conversion<float16, float>(b, "fp16 to fp32", "float16", "float32");
}

}  // namespace bench
