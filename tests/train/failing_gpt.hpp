// SPDX-License-Identifier: MIT
/// \file
/// A GPT whose loss throws once, in the `left`-th micro-batch after `left` was set.
#pragma once

#include <stdexcept>

#include <halftone/nn/gpt.hpp>

namespace train_test {

namespace ht = halftone;

struct failing_gpt : ht::nn::gpt<ht::amp_fp16> {
    using gpt::gpt;
    mutable int left = 0;

    template <class Context, class Batch>
    ht::variable<float, 0> loss(Context&& ctx, const Batch& batch) const {
        const auto loss = gpt::loss(ctx, batch);
        if (--left == 0) throw std::runtime_error("a bad batch");
        return loss;
    }
};

}  // namespace train_test
