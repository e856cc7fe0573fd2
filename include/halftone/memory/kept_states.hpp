// SPDX-License-Identifier: MIT
/// \file
/// What passes over a model change beside gradients, brought back afterwards: layers' states, such as running statistics, and
/// the amaxes of this window of delayed scaling. For a diagnosis that runs passes of its own.
///
///     const detail::kept_states kept(model.parameters());            // until the end of the scope
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

#include <halftone/memory/store.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Keeps copies in host memory; on a GPU it waits for the device.
class kept_states {
  public:
    explicit kept_states(store& parameters) : parameters_(&parameters), amaxes_(parameters.amaxes().window_amaxes()) {
        parameters.check_committed();
        each([this](std::byte* data, std::size_t bytes) {
            values_.emplace_back(bytes);
            parameters_->memory().read(values_.back().data(), data, bytes);
        });
    }
    kept_states(const kept_states&) = delete;
    kept_states& operator=(const kept_states&) = delete;
    ~kept_states() {
        try {
            auto value = values_.begin();
            each([&](std::byte* data, std::size_t bytes) { parameters_->memory().write(data, (value++)->data(), bytes); });
            parameters_->amaxes().set_window_amaxes(amaxes_);
        } catch (const std::exception&) {  // a device that is lost: its next use says so
        }
    }

  private:
    template <class F>
    void each(const F& f) const {
        for (const store_entry& e : parameters_->entries()) {
            const store_group& g = parameters_->groups()[e.group];
            if (e.is_state) f(g.master.data() + e.master * g.param_bytes, e.count * g.param_bytes);
        }
    }

    store* parameters_;
    std::vector<std::uint32_t> amaxes_;
    std::vector<std::vector<std::byte>> values_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
