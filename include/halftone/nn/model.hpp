// SPDX-License-Identifier: MIT
/// \file
/// A base class for models: it owns the store that holds the parameters of its layers.
///
///     template <class P>
///     struct network : ht::nn::model {
///         using policy = P;
///         ht::nn::linear<ht::at<P, "up">> up;
///         ht::nn::linear<ht::at<P, "down">> down;
///
///         network(auto& device, ht::extent width)
///             : model{device}, up{parameters(), width, 4 * width}, down{parameters(), 4 * width, width} {
///             commit(*this, 7);                              // last: allocates and initialises, with seed 7
///         }
///         auto operator()(auto&& ctx, const auto& x) const { return down(ctx, ht::gelu(ctx, up(ctx, x))); }
///         static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
///     };
///
/// `visit` passes the layers inside (policy/model.hpp); their names come from at<>. Optimizers, accumulators and tables
/// accept any class with `parameters()` and `visit`: this base only makes one shorter to write.
#pragma once

#include <halftone/memory/store.hpp>
#include <halftone/policy/check.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// What a model of blocks multiplies in the forward pass of one token, for choosing what is computed again
/// (train/memory_budget.hpp).
struct token_work {
    int blocks = 0;    ///< their number
    double block = 0;  ///< multiplications in each of them
    double head = 0;   ///< in the head, which computes logits
};

/// The base of models: owns the store. Neither copyable nor movable.
class model {
  public:
    model(const model&) = delete;
    model& operator=(const model&) = delete;

    /// The store that holds the parameters of all layers.
    store& parameters() { return parameters_; }
    const store& parameters() const { return parameters_; }

  protected:
    /// The store allocates from this device's memory.
    template <class Device>
    explicit model(Device& device) : parameters_(device.memory()) {}
    ~model() = default;

    /// Allocates the parameters' memory and initialises it from the seed; to be called at the end of the constructor of
    /// `self`, after all layers have been constructed. Does not compile if the recipe of `self`, its `policy`, has a
    /// rule that matches no layer. Throws out_of_memory, and state_error when called twice.
    template <class Self>
    void commit(const Self& self, std::uint64_t seed = 0) {
        static_assert(std::is_base_of_v<model, Self> && !std::is_same_v<model, Self>,
                      "halftone: a model ends its own constructor: commit(*this)");
        static_cast<void>(self);
        if constexpr (layer<Self>) static_assert(check_recipe<typename Self::policy, Self>());
        parameters_.commit(seed);
    }

  private:
    store parameters_;
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
