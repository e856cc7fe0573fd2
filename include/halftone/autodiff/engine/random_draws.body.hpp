// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in random_draws.hpp that are no templates.
#pragma once

#include <halftone/autodiff/engine/random_draws.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE random_state random_draws::state(memory_resource& memory) const {
    if (record_.data() == nullptr) return begin_;
    kernel::random_record now;
    memory.read(&now, record(), sizeof now);
    return {now.seed ^ own_seeds, now.pass + 1};
}

HALFTONE_OUT_OF_LINE void random_draws::restore(memory_resource& memory, const random_state& s) {
    begin_ = s;
    pass_ = none;
    if (record_.data() != nullptr) write(memory);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
