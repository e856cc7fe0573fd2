// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in matmul_engine.hpp that are no templates.
#pragma once

#include <halftone/exec/matmul_engine.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE engine_slot::engine_slot(engine_use use) : use_(use) {
    if (const char* name = std::getenv("HALFTONE_MATMUL"); name != nullptr && *name != '\0') {
        use_ = std::strcmp(name, "halftone") == 0 ? engine_use::never : engine_use::always;
        if (use_ == engine_use::always) asked_for_ = name;
    }
}

HALFTONE_OUT_OF_LINE matmul_engine* engine_slot::engine_for(const product_description& p) const {
    if (asked_for_ != nullptr && (engine_ == nullptr || std::strcmp(asked_for_, engine_->name()) != 0)) {
        fail<argument_error>("matmul: HALFTONE_MATMUL is ", asked_for_, "; this device has ",
                             engine_ == nullptr ? "no engine" : engine_->name(), " in addition to halftone");
    }
    if (engine_ == nullptr || use_ == engine_use::never) return nullptr;
    return (use_ == engine_use::always || engine_->prefers(p)) && engine_->can(p) ? engine_.get() : nullptr;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
