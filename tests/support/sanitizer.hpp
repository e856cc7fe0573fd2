// SPDX-License-Identifier: MIT
/// \file
/// Whether tests run under a sanitizer, whose own memory does not respect limits, and which ends the program if too
/// much memory is allocated.
#pragma once

namespace support {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool has_sanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool has_sanitizer = true;
#else
inline constexpr bool has_sanitizer = false;
#endif
#else
inline constexpr bool has_sanitizer = false;
#endif

}  // namespace support
