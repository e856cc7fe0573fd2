// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in amax_history.hpp that are no templates.
#pragma once

#include <halftone/memory/amax_history.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

HALFTONE_OUT_OF_LINE void amax_histories::commit(memory_resource& memory) {
    memory_ = &memory;
    on_device_ = buffer(memory, records_.size() * sizeof(amax_record), memory_kind::other);
    history_ = buffer(memory, static_cast<std::size_t>(windows_) * sizeof(std::uint32_t), memory_kind::other);
    memory.write(on_device_.data(), records_.data(), on_device_.bytes());
    memory.clear(history_.data(), history_.bytes());
}

HALFTONE_OUT_OF_LINE amax_record* amax_histories::record(std::size_t entry, scaled_tensor tensor) const {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        if (layers_[i].entry == entry && on_device_.data() != nullptr)
            return records() + 3 * i + static_cast<std::size_t>(tensor);
    }
    fail<state_error>(
        "linear: delayed scaling of a weight whose layer was made under another policy, and keeps no history; let "
        "the layer have the policy, or take ht::current_scaling<>");
}

HALFTONE_OUT_OF_LINE std::vector<amax_state> amax_histories::read() const {
    std::vector<amax_record> now(records_.size());
    std::vector<std::uint32_t> windows(static_cast<std::size_t>(windows_));
    if (memory_ != nullptr) {
        memory_->read(now.data(), on_device_.data(), on_device_.bytes());
        memory_->read(windows.data(), history_.data(), history_.bytes());
    }
    std::vector<amax_state> states;
    for (std::size_t i = 0; i < now.size(); ++i) {
        amax_state s{layers_[i / 3].path, static_cast<scaled_tensor>(i % 3), now[i].now.scale, {}};
        for (int w = 0; w < now[i].rule.history; ++w) s.history.push_back(bit_cast<float>(windows[place(now[i], w)]));
        states.push_back(std::move(s));
    }
    return states;
}

HALFTONE_OUT_OF_LINE std::vector<std::uint32_t> amax_histories::window_amaxes() const {
    const std::vector<amax_record> now = read_records();
    std::vector<std::uint32_t> amaxes(now.size());
    for (std::size_t i = 0; i < now.size(); ++i) amaxes[i] = now[i].amax;
    return amaxes;
}

HALFTONE_OUT_OF_LINE void amax_histories::set_window_amaxes(const std::vector<std::uint32_t>& amaxes) {
    std::vector<amax_record> now = read_records();
    for (std::size_t i = 0; i < now.size(); ++i) now[i].amax = amaxes[i];
    if (!now.empty()) memory_->write(on_device_.data(), now.data(), on_device_.bytes());
}

HALFTONE_OUT_OF_LINE void amax_histories::forget() {
    if (records_.empty() || memory_ == nullptr) return;
    std::vector<amax_record> now(records_.size());
    memory_->read(now.data(), on_device_.data(), on_device_.bytes());
    for (amax_record& r : now) r.amax = 0;
    memory_->write(on_device_.data(), now.data(), on_device_.bytes());
}

HALFTONE_OUT_OF_LINE void amax_histories::load(const std::vector<amax_state>& states) {
    if (memory_ == nullptr) fail<state_error>("amax history: load() before the store's commit");
    if (states.size() != records_.size())
        fail<argument_error>("amax history: ", states.size(), " states for ", records_.size(), " tensors");
    std::vector<amax_record> now = records_;
    std::vector<std::uint32_t> windows(static_cast<std::size_t>(windows_));
    for (std::size_t i = 0; i < now.size(); ++i) {
        const amax_state& s = states[i];
        const char* const tensor = name(static_cast<scaled_tensor>(i % 3));
        if (s.path != layers_[i / 3].path || s.tensor != static_cast<scaled_tensor>(i % 3)) {
            fail<argument_error>("amax history: the state of ", s.path, ", ", name(s.tensor), "; expected ",
                                 layers_[i / 3].path, ", ", tensor);
        }
        if (static_cast<int>(s.history.size()) != now[i].rule.history) {
            fail<argument_error>("amax history: ", s.path, ", ", tensor, ": ", s.history.size(), " windows; expected ",
                                 now[i].rule.history);
        }
        if (!is_finite(s.scale) || !(s.scale > 0) || !is_finite(1 / s.scale))
            fail<argument_error>("amax history: ", s.path, ", ", tensor, ": the scale is ", s.scale);
        for (const float amax : s.history) {
            if (!is_finite(amax) || !(amax >= 0))
                fail<argument_error>("amax history: ", s.path, ", ", tensor, ": a largest magnitude of ", amax);
        }
        now[i].now = {s.scale, 1 / s.scale};
        for (int w = 0; w < now[i].rule.history; ++w)
            windows[place(now[i], w)] = bit_cast<std::uint32_t>(std::fabs(s.history[static_cast<std::size_t>(w)]));
    }
    memory_->write(on_device_.data(), now.data(), on_device_.bytes());
    memory_->write(history_.data(), windows.data(), history_.bytes());
}

HALFTONE_OUT_OF_LINE std::vector<amax_record> amax_histories::read_records() const {
    std::vector<amax_record> now(memory_ == nullptr ? 0 : records_.size());
    if (!now.empty()) memory_->read(now.data(), on_device_.data(), on_device_.bytes());
    return now;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
