// SPDX-License-Identifier: MIT
/// \file
/// Stacks of the emulated GPU's fibers, and their registration with the address sanitizer.
#pragma once

#include <cstddef>
#include <vector>

#include <boost/context/protected_fixedsize_stack.hpp>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace halftone::emulator {

struct stack_range {
    const void* bottom = nullptr;
    std::size_t bytes = 0;
};

#if defined(__SANITIZE_ADDRESS__)
/// fake: the current stack's record of the address sanitizer; nullptr if the stack ends.
inline void begin_switch(void** fake, const stack_range& to) {
    __sanitizer_start_switch_fiber(fake, to.bottom, to.bytes);
}
inline void end_switch(void* fake, stack_range* from) {
    __sanitizer_finish_switch_fiber(fake, from == nullptr ? nullptr : &from->bottom,
                                    from == nullptr ? nullptr : &from->bytes);
}
/// Clears marks of frames that an exception has left, before the memory is used again.
inline void forget_frames(const boost::context::stack_context& s) {
    __asan_unpoison_memory_region(static_cast<char*>(s.sp) - s.size, s.size);
}
#else
inline void begin_switch(void**, const stack_range&) {}
inline void end_switch(void*, stack_range*) {}
inline void forget_frames(const boost::context::stack_context&) {}
#endif

/// A stack that returns to the pool: created once, used by many launches.
struct stack_pool {
    static constexpr std::size_t bytes = 128 * 1024;
    boost::context::protected_fixedsize_stack source{bytes};
    std::vector<boost::context::stack_context> unused;

    stack_pool() = default;
    stack_pool(const stack_pool&) = delete;
    ~stack_pool() {
        for (auto& s : unused) source.deallocate(s);
    }
    boost::context::stack_context take() {
        if (unused.empty()) return source.allocate();
        const auto s = unused.back();
        unused.pop_back();
        return s;
    }
};
struct pooled_stack {
    stack_pool* pool;
    boost::context::stack_context allocate() { return pool->take(); }
    void deallocate(boost::context::stack_context& s) {
        forget_frames(s);
        pool->unused.push_back(s);
    }
};

}  // namespace halftone::emulator
