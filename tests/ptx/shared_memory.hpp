// SPDX-License-Identifier: MIT
/// \file
/// A block's shared memory, and which threads have accessed each byte of it since the block's last barrier.
///
/// Accesses of two threads to the same byte, one of them a write, with nothing between that orders them, are a race. Threads of
/// different warps are ordered only by a barrier of the block, those of one warp also by `bar.warp.sync`. Atomic operations do not
/// count.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace halftone::ptx {

enum class access : std::uint8_t { reads, writes, is_atomic };

class shared_memory {
  public:
    /// Prepares the memory for the next block; all values are NaN.
    void begin(std::size_t bytes) {
        words_.assign(bytes / 8 + 2, ~std::uint64_t{0});  // two more, so that the bytes behind belong to no other array
        bytes_ = bytes;
        if (4 * traces_.size() < bytes + 4) traces_.resize(bytes / 4 + 1), parts_.resize(4 * traces_.size());
        ++phase_;
    }
    void pass_barrier() { ++phase_; }

    std::byte* data() { return reinterpret_cast<std::byte*>(words_.data()); }
    std::size_t size() const { return bytes_; }

    /// Whether the access is a race with an earlier one. order: the number of bar.warp.sync of the thread's warp so far.
    bool is_race(std::uint64_t at, std::uint64_t bytes, access how, int thread, std::uint32_t order) {
        if (how == access::is_atomic) return false;
        const bool by_words = at % 4 == 0 && bytes % 4 == 0;
        bool is_one = false;
        for (std::uint64_t w = at / 4; w <= (at + bytes - 1) / 4; ++w) {
            word& it = traces_[w];
            if (it.whole.phase != phase_) it = {{phase_, {}, {}}, false};
            if (by_words && !it.is_split) {
                is_one = note(it.whole, how, thread, order) || is_one;
                continue;
            }
            trace* const parts = &parts_[4 * w];
            if (!it.is_split) std::fill_n(parts, 4, it.whole);
            it.is_split = true;
            for (std::uint64_t b = 4 * w; b < 4 * w + 4; ++b)
                if (b >= at && b < at + bytes) is_one = note(parts_[b], how, thread, order) || is_one;
        }
        return is_one;
    }

  private:
    static constexpr int nobody = -1, several_warps = -2, several_threads = -3;  // of warp w: several_threads - w
    struct visit {
        int thread = nobody;
        std::uint32_t order = 0;
    };
    struct trace {
        std::uint64_t phase = 0;  // the number of barriers before the access
        visit writer{}, reader{};
    };
    /// Separate records for four bytes that are not accessed as one.
    struct word {
        trace whole;
        bool is_split;
    };
    static int warp_of(const visit& v) { return v.thread >= 0 ? v.thread / 32 : several_threads - v.thread; }
    static bool meets(const visit& v, int thread, std::uint32_t order) {
        if (v.thread == nobody || v.thread == thread) return false;
        return v.thread == several_warps || warp_of(v) != thread / 32 || v.order == order;
    }
    static bool note(trace& t, access how, int thread, std::uint32_t order) {
        const bool is_race =
            meets(t.writer, thread, order) || (how == access::writes && meets(t.reader, thread, order));
        if (how == access::writes) {
            t.writer = {thread, order};
        } else if (t.reader.thread == nobody || t.reader.thread == thread) {
            t.reader = {thread, order};
        } else if (t.reader.thread != several_warps) {
            const int warp = warp_of(t.reader);
            t.reader = {warp == thread / 32 ? several_threads - warp : several_warps, order};
        }
        return is_race;
    }

    std::vector<std::uint64_t> words_;
    std::size_t bytes_ = 0;
    std::vector<word> traces_;
    std::vector<trace> parts_;
    std::uint64_t phase_ = 0;
};

}  // namespace halftone::ptx
