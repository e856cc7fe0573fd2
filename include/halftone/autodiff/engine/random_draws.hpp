// SPDX-License-Identifier: MIT
/// \file
/// Which random numbers the operations of a tape draw: those of (seed, pass, draw, index), by Philox.
///
///     tape.seed(42);                                  // from the next pass on, those of seed 42, pass 0
///     const ht::random_state then = tape.random_state();
///     ...
///     tape.restore(then);                             // the next pass draws what it drew then
///
/// A pass is a forward and a backward one, and between the two the tape takes no other seed or state; the draws of a pass
/// are numbered as they come. Seed and pass lie in the
/// device's memory once something was drawn: the first draw of a pass counts the pass there, so that each replay of a
/// captured step draws numbers of its own. Nothing is kept for the backward pass but the number of the draw: the
/// numbers are made again.
#pragma once

#include <cstdint>

#include <halftone/kernel/dropout/dropout.hpp>
#include <halftone/memory/resource.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What a tape's random numbers follow from: to be kept with a checkpoint, or to repeat a step.
struct random_state {
    std::uint64_t seed = 0;
    std::uint32_t pass = 0;  ///< the next one

    friend bool operator==(const random_state& a, const random_state& b) {
        return a.seed == b.seed && a.pass == b.pass;
    }
};

namespace detail {

struct count_pass {
    kernel::random_record* record;
    HALFTONE_HD void operator()() const { ++record->pass; }
};

class random_draws {
  public:
    struct draw {
        const kernel::random_record* record;
        std::uint32_t number;
    };

    /// The next draw of a pass, which has a number of its own.
    template <class Device>
    draw next(Device& device, std::int64_t pass) {
        if (record_.data() == nullptr) {
            record_ = buffer(device.memory(), sizeof(kernel::random_record), memory_kind::other);
            write(device.memory());
        }
        if (pass != pass_) {
            device.run(count_pass{record()});
            pass_ = pass;
            number_ = 0;
        }
        return {record(), number_++};
    }

    /// Waits for the device, where something was drawn.
    random_state state(memory_resource& memory) const {
        if (record_.data() == nullptr) return begin_;
        kernel::random_record now;
        memory.read(&now, record(), sizeof now);
        return {now.seed ^ own_seeds, now.pass + 1};
    }
    void restore(memory_resource& memory, const random_state& s) {
        begin_ = s;
        pass_ = none;
        if (record_.data() != nullptr) write(memory);
    }

    /// How many draws there were in the pass: what is computed a second time goes back to where it began.
    std::uint32_t drawn() const { return number_; }
    void go_back(std::uint32_t drawn) { number_ = drawn; }

  private:
    static constexpr std::int64_t none = -1;
    /// Initial values and stochastic rounding draw other numbers from the same seed.
    static constexpr std::uint64_t own_seeds = 0x64726f706f7574u;

    kernel::random_record* record() const { return reinterpret_cast<kernel::random_record*>(record_.data()); }
    void write(memory_resource& memory) {
        const kernel::random_record first{begin_.seed ^ own_seeds, begin_.pass - 1};
        memory.write(record_.data(), &first, sizeof first);
    }

    random_state begin_{};
    buffer record_;
    std::int64_t pass_ = none;
    std::uint32_t number_ = 0;
};

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
