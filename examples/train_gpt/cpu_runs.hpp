// SPDX-License-Identifier: MIT
/// \file
/// The runs on the CPU, each compiled in a separate file (amp_bf16.cpp ...).
#pragma once

#include <algorithm>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/exec/cpu/processors.hpp>

#include "run.hpp"

extern template run_result run<halftone::full_fp32>(halftone::cpu&, const options&, const halftone::token_view&, const surroundings&);
extern template run_result run<halftone::amp_fp16>(halftone::cpu&, const options&, const halftone::token_view&, const surroundings&);
extern template run_result run<halftone::amp_bf16>(halftone::cpu&, const options&, const halftone::token_view&, const surroundings&);
extern template run_result run<halftone::tf32>(halftone::cpu&, const options&, const halftone::token_view&, const surroundings&);
extern template run_result run<halftone::fp8_hybrid>(halftone::cpu&, const options&, const halftone::token_view&, const surroundings&);
extern template run_result run_llama<halftone::full_fp32>(halftone::cpu&, const options&, const halftone::token_view&, const surroundings&);
extern template run_result run_llama<halftone::amp_fp16>(halftone::cpu&, const options&, const halftone::token_view&, const surroundings&);
extern template run_result run_llama<halftone::amp_bf16>(halftone::cpu&, const options&, const halftone::token_view&, const surroundings&);

inline halftone::cpu_options cpu_options_of(const options& o) {
    return {.threads = o.threads,
            .instruction_set = o.isa.empty() ? std::nullopt : std::optional(halftone::parse_isa(o.isa.c_str()))};
}
/// Those of one rank: without --threads it has an equal part of the processors.
inline halftone::cpu_options cpu_options_of_rank(const options& o) {
    halftone::cpu_options how = cpu_options_of(o);
    if (how.threads == 0 && o.ranks > 1) how.threads = std::max(1, halftone::detail::usable_processors() / static_cast<int>(o.ranks));
    return how;
}
