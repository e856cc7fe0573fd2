// SPDX-License-Identifier: MIT
/// \file
/// Ranges of the host's addresses whose pages get memory later: for arenas that grow without moving.
///
///     const address_range all = detail::host_pages::reserve(page);          // addresses only
///     if (detail::host_pages::commit(all.data, 8 * page)) ...               // memory for the first eight pages
#pragma once

#include <cstddef>
#include <cstdint>

#include <halftone/config.hpp>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace halftone {
inline namespace HALFTONE_ABI {

/// A range of addresses; {nullptr, 0}: none.
struct address_range {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
};

namespace detail::host_pages {

#if defined(__linux__)
/// Whether the system has them.
inline constexpr bool exist = true;

/// Reserves as many addresses as the machine has memory, or, if the process may not have so many, half as many, and so
/// on. Begins at a multiple of `page`, a power of two.
inline address_range reserve(std::size_t page) {
    std::size_t bytes = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    for (bytes = (bytes / page + 1) * page; bytes >= page; bytes = bytes / 2 / page * page) {
        void* const at = mmap(nullptr, bytes + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) continue;
        auto* const first = static_cast<std::byte*>(at);
        const std::size_t before = -reinterpret_cast<std::uintptr_t>(at) % page;
        if (before != 0) munmap(first, before);
        munmap(first + before + bytes, page - before);
        return {first + before, bytes};
    }
    return {};
}

/// Memory for pages of a range, huge pages if the system has them; false if there is none.
inline bool commit(std::byte* at, std::size_t bytes) {
    if (mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0) return false;
#if defined(MADV_HUGEPAGE)
    static_cast<void>(madvise(at, bytes, MADV_HUGEPAGE));  // a hint
#endif
    return true;
}

/// Returns the memory of pages. A new mapping in place of the old one, because only that also ends the system's
/// reservation of memory for them.
inline void decommit(std::byte* at, std::size_t bytes) {
    if (mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        madvise(at, bytes, MADV_DONTNEED);
}

inline void release(const address_range& range) { munmap(range.data, range.bytes); }
#else
inline constexpr bool exist = false;

inline address_range reserve(std::size_t) { return {}; }
inline bool commit(std::byte*, std::size_t) { return false; }
inline void decommit(std::byte*, std::size_t) {}
inline void release(const address_range&) {}
#endif

}  // namespace detail::host_pages
}  // namespace HALFTONE_ABI
}  // namespace halftone
