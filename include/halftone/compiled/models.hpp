// SPDX-License-Identifier: MIT
/// \file
/// The models in the library halftone::compiled: the GPT of each of the presets full_fp32, amp_bf16 and amp_fp16, on
/// plain tapes and in inference contexts on the CPU, with accumulators, AdamW and AdamW with 8-bit moments. amp.hpp
/// includes this file if HALFTONE_COMPILED is defined; see compiled/kernels.hpp. Sources that specialise
/// operation_category define HALFTONE_OWN_CATEGORIES: these models were compiled without that, and are compiled again.
#pragma once

#include <halftone/compiled/kernels.hpp>
#include <halftone/nn/gpt.hpp>
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/adamw_8bit.hpp>
#include <halftone/scale/accumulator.hpp>

#if defined(HALFTONE_COMPILED)

// `extern` in every source except the one of the library that compiles these.
#if !defined(HALFTONE_COMPILED_MODELS)
#define HALFTONE_COMPILED_MODELS extern
#endif

namespace halftone {
inline namespace HALFTONE_ABI {

#define HALFTONE_GPT(P)                                                                                              \
    HALFTONE_COMPILED_MODELS template nn::gpt<P>::gpt(cpu&, const nn::gpt_config&, std::uint64_t);                   \
    HALFTONE_COMPILED_MODELS template variable<layer_stream<P>, 3>                                                   \
    nn::stack<nn::transformer_block, P, "h">::operator()(tape<cpu>&, variable<layer_stream<P>, 3>, const documents&) \
        const;                                                                                                       \
    HALFTONE_COMPILED_MODELS template variable<layer_stream<P>, 3>                                                   \
    nn::stack<nn::transformer_block, P, "h">::operator()(inference<cpu>&, variable<layer_stream<P>, 3>,              \
                                                         const documents&) const;                                    \
    HALFTONE_COMPILED_MODELS template class accumulator<through_scaler, types<nn::gpt<P>>>;                          \
    HALFTONE_COMPILED_MODELS template class detail::optimizer<cpu, nn::gpt<P>>;                                      \
    HALFTONE_COMPILED_MODELS template class detail::rule_optimizer<cpu, nn::gpt<P>, kernel::adamw_rule>;             \
    HALFTONE_COMPILED_MODELS template class adamw<cpu, nn::gpt<P>>;                                                  \
    HALFTONE_COMPILED_MODELS template class detail::eight_bit_optimizer<cpu, nn::gpt<P>, kernel::adamw_rule>;        \
    HALFTONE_COMPILED_MODELS template class adamw_8bit<cpu, nn::gpt<P>>;                                             \
    HALFTONE_COMPILED_MODELS template step_outcome<cpu>                                                              \
    detail::eight_bit_optimizer<cpu, nn::gpt<P>, kernel::adamw_rule>::step(gradients<cpu, types<nn::gpt<P>>>&);      \
    HALFTONE_COMPILED_MODELS template step_outcome<cpu>                                                              \
    detail::rule_optimizer<cpu, nn::gpt<P>, kernel::adamw_rule>::step(gradients<cpu, types<nn::gpt<P>>>&)
HALFTONE_GPT(full_fp32);
HALFTONE_GPT(amp_bf16);
HALFTONE_GPT(amp_fp16);
#undef HALFTONE_GPT
// Without a loss scale.
#define HALFTONE_UNSCALED(P)                                                            \
    HALFTONE_COMPILED_MODELS template class accumulator<unscaled_t, types<nn::gpt<P>>>; \
    HALFTONE_COMPILED_MODELS template step_outcome<cpu>                                 \
    detail::rule_optimizer<cpu, nn::gpt<P>, kernel::adamw_rule>::step(gradients<void, types<nn::gpt<P>>>&)
HALFTONE_UNSCALED(full_fp32);
HALFTONE_UNSCALED(amp_bf16);
#undef HALFTONE_UNSCALED

}  // namespace HALFTONE_ABI
}  // namespace halftone

#undef HALFTONE_COMPILED_MODELS

#endif
