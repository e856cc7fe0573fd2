// SPDX-License-Identifier: MIT
/// \file
/// Gradients as variables: the result of tape.gradients() on a tape for second derivatives.
///
///     const auto grads = tape.gradients(loss, model, x);
///     const auto penalty = ht::norm(tape, grads);                    // of all gradients together
///     const auto slope = grads.of(model.head.weight);                // ht::variable<float, 2>
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <halftone/autodiff/engine/tape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// The variable in another shape of the same size, without a copy.
template <class T, int From, int Rank>
variable<T, Rank> reshaped(const variable<T, From>& v, const shape<Rank>& s) {
    v.graph().retain(v.slot());
    return {v.graph(), v.slot(), s};
}
template <class T, int Rank>
variable<T, 1> flat(const variable<T, Rank>& v) {
    return reshaped(v, shape<1>{v.size()});
}

}  // namespace detail

/// Gradients as variables of a tape, one for each parameter or variable that tape.gradients() was called with. They are
/// float, whatever types they were computed in.
template <class Device>
class gradient_variables {
  public:
    using device_type = Device;
    using tape_type = tape<Device, double_backward_tape>;

    gradient_variables(gradient_variables&& other) noexcept = default;
    gradient_variables& operator=(gradient_variables&& other) = delete;
    /// Returns the list's memory to the tape, which reuses it: a steady step allocates nothing.
    ~gradient_variables() {
        if (spare_ == nullptr) return;
        items_.clear();
        spare_->push_back(std::move(items_));
    }

    /// The gradient of a variable. Throws argument_error if gradients() was not called for it.
    template <class T, int Rank>
    variable<float, Rank> of(const variable<T, Rank>& v) const {
        return find(&v.graph(), static_cast<std::size_t>(v.slot()), v.shape());
    }
    /// The gradient of a parameter. Throws argument_error if gradients() was not called for it, or the loss does not
    /// depend on it.
    template <class Storage, int Rank>
    variable<float, Rank> of(const parameter<Storage, Rank>& p) const {
        return find(&p.owner(), p.entry(), p.shape());
    }
    /// The number of gradients, and each of them as a vector.
    std::size_t size() const { return items_.size(); }
    const variable<float, 1>& operator[](std::size_t i) const { return items_[i].value; }

    /// The gradients times 1 / *scale, a float in the device's memory: what scaler.unscale does.
    gradient_variables over(const float* scale) &&;

  private:
    friend tape_type;
    struct item {
        const void* owner;
        std::size_t key;
        variable<float, 1> value;
    };
    using lists = std::vector<std::vector<item>>;

    gradient_variables(tape_type& owner, const std::shared_ptr<lists>& spare) : tape_(&owner), spare_(spare) {
        if (!spare->empty()) {
            items_ = std::move(spare->back());
            spare->pop_back();
        }
        spare->reserve(spare->capacity() == 0 ? 8 : spare->size() + 1);
    }

    template <int Rank>
    variable<float, Rank> find(const void* owner, std::size_t key, const shape<Rank>& s) const;

    tape_type* tape_;
    std::shared_ptr<lists> spare_;
    std::vector<item> items_;
};

template <class Device>
template <int Rank>
variable<float, Rank> gradient_variables<Device>::find(const void* owner, std::size_t key, const shape<Rank>& s) const {
    for (const item& i : items_) {
        if (i.owner == owner && i.key == key) return detail::reshaped(i.value, s);
    }
    fail<argument_error>("gradients: none by this ", s, " among ", items_.size(),
                         "; it was not requested, or the loss does not depend on it");
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
