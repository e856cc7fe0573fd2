// SPDX-License-Identifier: MIT
/// \file
/// What a step changes before it is done, as it was at the step's beginning: layers' states, such as running statistics of
/// batch norm, the window of an outlier guard, and the number of the next random draws. A step that an exception has ended,
/// and that is repeated, begins with these. Included by training_step.hpp.
#pragma once

#include <cstddef>
#include <vector>

#include <halftone/autodiff/engine/random_draws.hpp>
#include <halftone/memory/store.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Keeps copies in the device's memory, made and brought back in order with the device's other work, without waiting for it.
template <class Device>
class step_beginning {
  public:
    step_beginning(Device& device, const store& parameters) : device_(&device), parameters_(&parameters) {
        find_states();
        make_room();
    }

    /// Keeps everything as it is now; `guard` is a pointer to an outlier guard, or nullptr.
    template <class Guard>
    void keep(random_draws& draws, const Guard* guard) {
        find_states();
        if (guard != nullptr) guard->visit_memory([this](std::byte* data, std::size_t bytes) { add(data, bytes); });
        had_drawn_ = draws.memory() != nullptr;
        if (had_drawn_) add(draws.memory(), random_draws::memory_bytes);
        make_room();
        each([this](std::byte* now, std::byte* kept, std::size_t bytes) { device_->copy(kept, now, bytes); });
        is_kept_ = true;
    }
    /// Brings back what was kept, once.
    void take_back(random_draws& draws) {
        if (!is_kept_) return;
        each([this](std::byte* now, std::byte* kept, std::size_t bytes) { device_->copy(now, kept, bytes); });
        draws.repeat(device_->memory(), had_drawn_);
        is_kept_ = false;
    }
    /// The step is done.
    void forget() { is_kept_ = false; }

  private:
    struct piece {
        std::byte* data;
        std::size_t bytes;
    };
    void add(std::byte* data, std::size_t bytes) {
        if (bytes != 0) pieces_.push_back({data, bytes});
    }
    /// The states of the store's layers, of which neighbours are one piece.
    void find_states() {
        pieces_.clear();
        for (const store_entry& e : parameters_->entries()) {
            if (!e.is_state) continue;
            const store_group& g = parameters_->groups()[e.group];
            std::byte* const data = g.master.data() + e.master * g.param_bytes;
            const std::size_t bytes = parameters_->room(e) * g.param_bytes;
            if (!pieces_.empty() && pieces_.back().data + pieces_.back().bytes == data) {
                pieces_.back().bytes += bytes;
            } else {
                add(data, bytes);
            }
        }
    }
    void make_room() {
        std::size_t all = 0;
        for (const piece& p : pieces_) all += p.bytes;
        if (all > kept_.bytes()) kept_ = buffer(device_->memory(), all, memory_kind::other);
    }
    template <class F>
    void each(const F& f) const {
        std::byte* kept = kept_.data();
        for (const piece& p : pieces_) {
            f(p.data, kept, p.bytes);
            kept += p.bytes;
        }
    }

    Device* device_;
    const store* parameters_;
    std::vector<piece> pieces_;
    buffer kept_;
    bool had_drawn_ = false, is_kept_ = false;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
