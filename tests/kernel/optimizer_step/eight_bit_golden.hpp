// SPDX-License-Identifier: MIT
/// \file
/// A hundred steps of AdamW with moments in 8 bits, compared with tests/golden/adamw_8bit.py, on devices whose tests can read
/// the folder of golden numbers.
#pragma once

#include "kernel/optimizer_step/eight_bit_checks.hpp"
#include "optim/golden.hpp"

namespace eight_bit_checks {

/// tests/golden/adamw_8bit.py: parameter i, and its gradient in step t.
inline float golden_parameter(int i) { return static_cast<float>((31 * i) % 65 - 32) / 64; }
inline float golden_gradient(int i, int t) {
    if (i % 50 == 7) return 0;
    return static_cast<float>(((7919 * t + 104729LL * i + 31LL * i * i + 17LL * t * i) % 2049 - 1024) / 1024.0 /
                              std::exp2(i % 12));
}

/// Whether codes, largest magnitudes and parameters of 100 steps have the bits of the golden file, with this arithmetic.
template <class Device>
bool has_golden_bits(Device& device, const std::string& arithmetic) {
    const int n = 600;
    std::vector<float> w, g(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) w.push_back(golden_parameter(i));
    const slabs<float, ht::bfloat16, float> s(w, g);
    std::uint64_t digest = 0xcbf29ce484222325u;
    int done = 0, compared = 0;
    bool here = false, same = true;
    kernel::adamw_rule rule;
    double lr = 0, decay = 0;
    const auto step_to = [&](int last) {
        while (done < last) {
            ++done;
            for (int i = 0; i < n; ++i) s.gradient[i] = golden_gradient(i, done);
            const kernel::step_record record{.steps = done, .lr = lr};
            const kernel::gradient_factors none;
            auto a = s.arguments(none, record);
            a.step.rule = rule, a.step.rates.weight_decay = decay;
            run(device, a);
            for (const guarded<std::uint8_t>& codes : s.codes) {
                for (int i = 0; i < n; ++i) digest = (digest ^ codes[i]) * 0x100000001b3u;
            }
        }
    };
    int moment = 0;
    for (const support::golden_line& line : support::read_golden("adamw_8bit.txt")) {
        if (line.kind == "case") {
            here = line.words[0] == arithmetic;
            if (here) lr = line.number(1), rule = {line.number(2), line.number(3), line.number(4)}, decay = line.number(5);
        }
        if (!here || line.kind == "case" || line.kind == "map") continue;
        step_to(static_cast<int>(line.number(0)));
        const auto compare = [&](const auto& values) {
            for (std::size_t i = 1; i < line.words.size(); ++i)
                same = same && static_cast<double>(values[static_cast<extent>(i) - 1]) == line.number(i);
            ++compared;
        };
        if (line.kind == "parameters") compare(s.master), moment = 0;
        if (line.kind == "codes") compare(s.codes[moment]);
        if (line.kind == "absmax") compare(s.absmax[moment++]);
        if (line.kind == "digest") same = same && digest >> 32 == line.number(1) && (digest & 0xffffffffu) == line.number(2);
    }
    CHECK(compared == 3 * 5);
    CHECK(done == 100);
    CHECK(s.intact());
    return same;
}

}  // namespace eight_bit_checks
