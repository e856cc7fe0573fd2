// SPDX-License-Identifier: MIT
/// \file
/// The random numbers of a tape's operations (dropout): Philox's for (seed, pass, draw, index).
///
///     tape.seed(42);                                  // the next pass is pass 0 of seed 42
///     const ht::random_state then = tape.random_state();
///     ...
///     tape.restore(then);                             // the next pass draws the same numbers as the one after `then`
///
/// A pass is a forward and a backward pass; between the two the tape's seed and state cannot be changed. Draws are
/// numbered within a pass. After the first draw, seed and pass are in the device's memory: the first draw of each pass
/// increments the pass there, so that each replay of a captured step draws new numbers. The backward pass needs only
/// the number of a draw: it computes the random numbers again.
#pragma once

#include <cstdint>

#include <halftone/kernel/dropout/dropout.hpp>
#include <halftone/memory/resource.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The state from which a tape's random numbers follow; save it with a checkpoint, or to repeat a step.
struct random_state {
    std::uint64_t seed = 0;
    std::uint32_t pass = 0;  ///< the number of the next pass

    friend bool operator==(const random_state& a, const random_state& b) {
        return a.seed == b.seed && a.pass == b.pass;
    }

    /// Calls f(name, field) for each field, for a checkpoint (io/fields.hpp).
    static void visit_fields(auto& self, auto&& f) {
        f("seed", self.seed), f("pass", self.pass);
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

    /// The next draw of a pass, with its number.
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

    /// Waits for the device if anything was drawn.
    random_state state(memory_resource& memory) const;
    void restore(memory_resource& memory, const random_state& s);

    /// The device's memory of seed and pass, which is all that a pass changes; nullptr before the first draw.
    std::byte* memory() const { return record_.data(); }
    static constexpr std::size_t memory_bytes = sizeof(kernel::random_record);
    /// The next pass is a first one again: to be called when the memory has been given an earlier content, or, if there was
    /// none then (`had_drawn`), for the pass that drew first.
    void repeat(memory_resource& memory, bool had_drawn) {
        pass_ = none;
        if (!had_drawn && record_.data() != nullptr) write(memory);
    }

    /// The number of draws so far in the pass; recomputation goes back to an earlier number.
    std::uint32_t drawn(std::int64_t pass) const { return pass == pass_ ? number_ : 0; }
    void go_back(std::uint32_t drawn) { number_ = drawn; }

  private:
    static constexpr std::int64_t none = -1;
    /// Makes a seed's numbers differ from those of initial values and stochastic rounding.
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

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/autodiff/engine/random_draws.body.hpp>
#endif
