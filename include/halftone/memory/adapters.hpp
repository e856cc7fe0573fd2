// SPDX-License-Identifier: MIT
/// \file
/// Low-rank adapters (LoRA, Hu et al. 2021): which linear layers of a model have one, and of which rank. The types of
/// adapters and of the base are the policy's (policy/lora.hpp).
///
///     const ht::add_adapters added{device, {.rank = 16, .alpha = 32, .targets = {"*.attn", "*.mlp"}}};
///     ht::nn::llama<ht::lora<ht::amp_bf16, ht::pure_bf16>> model{device, config};      // y = W x + b + alpha / rank B A x
///
/// A layer's adapter has the parameters "lora_A", (rank, in), and "lora_B", (out, rank), below the layer's path; B begins as
/// zeros, so that the model begins as its base. Where a layer's rows are those of several products (q, k and v; gate and up),
/// each of these has an adapter of its own, with its name in the path: "h.0.attn.qkv.q.lora_B". Their rows of A are one
/// parameter, "h.0.attn.qkv.lora_A", so that the layer's input is read once.
///
/// All other parameters are frozen: they have no gradient, no moments, and no master if kernels read a copy.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <halftone/memory/capture_dependency.hpp>
#include <halftone/memory/resource.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The rank and alpha of the adapters at some paths.
struct adapter_pattern {
    std::string pattern;                        ///< as in adapter_options::targets
    std::optional<extent> rank = std::nullopt;  ///< not set: that of the options
    std::optional<double> alpha = std::nullopt;
};

/// Which linear layers have adapters, and of which form. Patterns are those of recipes (path_matches, policy/path.hpp).
struct adapter_options {
    extent rank = 8;                          ///< PEFT's r
    double alpha = 8;                         ///< PEFT's lora_alpha: B A x is multiplied by alpha / rank
    bool rank_stabilized = false;             ///< multiplied by alpha / sqrt(rank) instead (rsLoRA, Kalajdzievski 2023)
    float dropout = 0;                        ///< of the adapters' inputs, while training
    std::vector<std::string> targets{"*"};    ///< the layers with adapters, or the blocks of their rows: "*.qkv.q"
    std::vector<adapter_pattern> patterns{};  ///< where rank or alpha differ; of several that match, the last counts
    std::vector<std::string> trained{};       ///< parameters of the base that are trained, too: PEFT's modules_to_save
};

/// An adapter, in the store of its model.
struct store_adapter {
    std::string path;                 ///< "h.0.attn.qkv.q", or that of the layer if all of its rows have one adapter
    std::size_t weight = 0;           ///< index of the adapted parameter, (out, in)
    std::size_t a = 0, b = 0;         ///< indices of A and B
    extent first_row = 0, rows = 0;   ///< the rows of the weight that are adapted
    extent first_rank = 0, rank = 0;  ///< its rows of A
    double scale = 1;                 ///< of B A
};

namespace detail {

/// Rank and scale of an adapter.
struct adapter_sizes {
    extent rank;
    double scale;
};
/// Rank and scale of the adapter that the options want at this path, if they want one.
std::optional<adapter_sizes> chosen_adapter(const adapter_options& o, const std::string& path);

/// The adapters of a store, and the options from which they follow.
class adapter_list final : public capture_dependency {
  public:
    /// By the options that the memory has now; without options there are no adapters.
    explicit adapter_list(memory_resource& memory)
        : capture_dependency(&memory.capture_dependencies(), "adapters have been merged"), options_(memory.adapters()) {
        if (options_ == nullptr) return;
        is_used_.resize(options_->targets.size()), is_pattern_used_.resize(options_->patterns.size());
    }
    /// The options, or nullptr.
    const std::shared_ptr<const adapter_options>& options() const { return options_; }
    /// Rank and scale of the adapter at this path, if there is to be one.
    std::optional<adapter_sizes> chosen(const std::string& path);
    /// Adds an adapter.
    void add(store_adapter a) { all_.push_back(std::move(a)); }
    const std::vector<store_adapter>& all() const { return all_; }
    /// Whether the weights contain the adapters now: layers then leave these out.
    bool are_merged() const { return are_merged_; }
    void set_merged() {
        are_merged_ = true;
        change();
    }
    /// Whether layers add adapters to their results now.
    bool are_in_use() const { return !all_.empty() && !are_merged_; }
    /// Throws argument_error for a target at which the model has no linear layer that can have an adapter, and for a pattern at
    /// which it has no adapter.
    void check_targets() const;

  private:
    std::shared_ptr<const adapter_options> options_;
    std::vector<bool> is_used_{}, is_pattern_used_{};  // by targets, by patterns
    std::vector<store_adapter> all_{};
    bool are_merged_ = false;
};

/// What each adapter that is in use is multiplied by, as text that reads back as the same number, by its path.
std::map<std::string, std::string> scales_of(const adapter_list& adapters);
/// The first adapter whose scale differs from that in a file, in words; empty if there is none. What the file does not tell is not compared.
std::string scale_difference(const adapter_list& adapters, const std::map<std::string, std::string>& there);

/// Throws argument_error for options out of range.
void check_adapter_options(const adapter_options& o);

}  // namespace detail

/// While an object of this class exists, models that are made on the device have adapters at the linear layers that the options
/// choose, if these have a policy ht::lora, and all else is frozen. A model keeps its adapters when the object ends. Of two
/// objects the later one counts.
class add_adapters {
  public:
    /// Throws argument_error for a rank below 1, a dropout outside of [0, 1), an alpha that is not finite, and an empty list of
    /// targets. Targets that no layer has are found when a model is made.
    template <class Device>
    add_adapters(Device& device, adapter_options options)
        : add_adapters(device.memory(), std::make_shared<const adapter_options>(std::move(options))) {}
    add_adapters(const add_adapters&) = delete;
    add_adapters& operator=(const add_adapters&) = delete;
    ~add_adapters() { memory_->set_adapters(before_); }

    /// With options that may be none: nullptr.
    add_adapters(memory_resource& memory, std::shared_ptr<const adapter_options> options)
        : memory_(&memory), before_(memory.adapters()) {
        if (options != nullptr) detail::check_adapter_options(*options);
        memory.set_adapters(std::move(options));
    }

  private:
    memory_resource* memory_;
    std::shared_ptr<const adapter_options> before_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/memory/adapters.body.hpp>
#endif
