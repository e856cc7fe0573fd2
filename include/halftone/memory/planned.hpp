// SPDX-License-Identifier: MIT
/// \file
/// Memory that is counted but not allocated, to determine how much a program would allocate.
///
/// Host code that runs on it computes addresses; no kernel may run. observe/memory/plan.hpp makes devices with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <halftone/memory/resource.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// A constructor's tag, for a device that counts what a program would allocate and computes nothing.
struct memory_planning {
    explicit memory_planning(std::size_t most = static_cast<std::size_t>(-1)) : limit(most) {}
    std::size_t limit;  ///< bytes that may be taken from the system
};

}  // namespace detail

/// Returns addresses that must not be read or written; no address is returned twice. Small values that the host writes,
/// such as a loss scale, are stored; everything else that the host reads is zero.
class planned_memory final : public memory_resource {
  public:
    /// At most `limit` bytes at a time.
    explicit planned_memory(std::size_t limit = static_cast<std::size_t>(-1)) : limit_(limit) {}

    void write(void* to, const void* from, std::size_t bytes) override;
    void read(void* to, const void* from, std::size_t bytes) override;
    void clear(void* to, std::size_t) override {
        if (const auto found = find(to); found != values_.end()) values_.erase(found);
    }
    bool has_contents() const override { return false; }
    std::size_t page_bytes() const override { return page; }
    std::size_t limit() const override { return limit_; }
    /// Whether the address may be that of such a memory, and is none of the program's.
    static bool is_planned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) >= first; }
    /// Whether the address is one that was returned.
    bool owns(const void* p) const {
        const auto at = reinterpret_cast<std::uintptr_t>(p);
        return at >= first && at < next_;
    }

  private:
    static constexpr std::size_t most_remembered = 4096;
    static constexpr std::size_t page = std::size_t{2} << 20;
    static constexpr std::size_t range_bytes = static_cast<std::size_t>(-1) / 1024 / page * page;
    static constexpr std::size_t first = std::size_t{1} << 62;  // no program has memory there

    struct value {
        const void* place;
        std::vector<std::byte> bytes;
    };

    std::vector<value>::iterator find(const void* place) {
        return std::find_if(values_.begin(), values_.end(), [place](const value& v) { return v.place == place; });
    }
    std::byte* obtain(std::size_t bytes) override {
        if (bytes > limit_ - usage().held() || bytes > static_cast<std::size_t>(-1) / 2 - next_) return nullptr;
        return reinterpret_cast<std::byte*>(std::exchange(next_, next_ + round_up(bytes, page)));
    }
    void release(std::byte*, std::size_t) noexcept override {}
    address_range obtain_range() override {
        return {reinterpret_cast<std::byte*>(std::exchange(next_, next_ + range_bytes)), range_bytes};
    }
    bool commit(std::byte*, std::size_t bytes) override { return bytes <= limit_ - usage().held(); }

    std::size_t limit_;
    std::size_t next_ = first;
    std::vector<value> values_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/memory/planned.body.hpp>
#endif
