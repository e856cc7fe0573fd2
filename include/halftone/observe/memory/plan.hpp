// SPDX-License-Identifier: MIT
/// \file
/// The memory that a program will need, to the byte, before it runs: by kind, by parameter and layer, and the operation
/// at its peak.
///
///     const ht::memory_plan plan = ht::plan(device, [&](auto& d) {      // d in place of the device
///         ht::nn::gpt<ht::amp_bf16> model{d, config};
///         ht::trainer trainer{d, model, {.per_device_train_batch_size = 16, .max_steps = 2}};
///         trainer.train(data);
///     });
///     plan.print(std::cout);
///     if (plan.peak_bytes > budget) ...
///
/// The program itself runs, on a twin of the device, which partitions work and allocates as the device does, but computes
/// nothing and has no memory behind its addresses. So a plan takes the time of the host's code alone, needs almost no
/// memory, and cannot differ from the run. Two steps suffice to find the peak of any number of equal steps. Values that
/// the program reads from the device are zeros, or what the program has written there. A watched tape tells
/// the layers of activations, other contexts their blocks.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <ostream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <halftone/error.hpp>
#include <halftone/exec/measure.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The memory of one parameter, with the padding behind it in its slabs, or that of a layer.
struct planned_parameter {
    std::string path;  ///< "h.0.attn.qkv.weight", of a layer "h.0.attn.qkv"
    std::array<std::size_t, memory_kinds> bytes{};

    /// The parameter's bytes of a kind.
    std::size_t of(memory_kind kind) const { return bytes[static_cast<std::size_t>(kind)]; }
    /// The parameter's bytes of all kinds.
    std::size_t total() const {
        std::size_t sum = 0;
        for (const std::size_t each : bytes) sum += each;
        return sum;
    }
};

/// What a program will have in use. Bytes are those of device.memory().usage().
struct memory_plan {
    std::size_t peak_bytes = 0;                                ///< the most at one time
    std::array<std::size_t, memory_kinds> bytes_at_peak{};     ///< of each kind, at that time
    std::array<std::size_t, memory_kinds> peak_bytes_by_kind{};  ///< the most of each kind, each at its own time
    std::size_t held_bytes = 0;                                ///< the most taken from the system, gaps included
    std::string operation;                                     ///< the operation that ran at the peak; empty: none
    pass of_pass = pass::forward;                              ///< its pass
    std::vector<planned_parameter> parameters;                 ///< in the order in which layers add them
    std::vector<planned_parameter> activations;  ///< in use at the peak, by the layers that made them; an empty path for
                                                 ///< those of no layer

    /// Bytes of a kind at the peak of the sum of all kinds.
    std::size_t at_peak(memory_kind kind) const { return bytes_at_peak[static_cast<std::size_t>(kind)]; }
    /// The most bytes of a kind at one time.
    std::size_t peak_of(memory_kind kind) const { return peak_bytes_by_kind[static_cast<std::size_t>(kind)]; }
    /// The parameters' bytes, and those of activations at the peak, by layer: the first `depth` components of their
    /// paths ("h.0"), in the same order.
    std::vector<planned_parameter> layers(int depth) const {
        std::vector<planned_parameter> lines;
        const auto add = [&lines](const std::string& name, const planned_parameter& p) {
            auto line = lines.begin();
            while (line != lines.end() && line->path != name) ++line;
            if (line == lines.end()) line = lines.insert(line, {name, {}});
            for (std::size_t k = 0; k < p.bytes.size(); ++k) line->bytes[k] += p.bytes[k];
        };
        const auto end_of = [depth](const std::string& path) {
            std::size_t end = 0;
            for (int i = 0; i < depth && end != std::string::npos; ++i) end = path.find('.', end == 0 ? 0 : end + 1);
            return end;
        };
        for (const planned_parameter& p : parameters) {
            const std::size_t end = end_of(p.path);  // the parameter's own name is no layer
            add(p.path.substr(0, end == std::string::npos ? p.path.rfind('.') : end), p);
        }
        for (const planned_parameter& a : activations) {
            if (!a.path.empty()) add(a.path.substr(0, end_of(a.path)), a);
        }
        return lines;
    }
    /// The `most` layers with the most bytes, the largest first.
    std::vector<planned_parameter> largest_layers(std::size_t most, int depth = 2) const {
        std::vector<planned_parameter> all = layers(depth);
        std::stable_sort(all.begin(), all.end(), [](const planned_parameter& a, const planned_parameter& b) {
            return a.total() > b.total();
        });
        if (all.size() > most) all.resize(most);
        return all;
    }

    /// Prints the peak, the bytes of each kind at the peak, and the parameters' by layer, in MiB.
    void print(std::ostream& out, int depth = 2) const {
        const auto line = [&out](const std::string& what, std::size_t bytes) {
            char text[160];
            std::snprintf(text, sizeof text, "  %-28s %12.2f MiB", what.c_str(),
                          static_cast<double>(bytes) / (1 << 20));
            out << text << '\n';
        };
        out << "peak: " << peak_bytes << " bytes, "
            << (operation.empty() ? "outside of all operations" : operation + ", " + name(of_pass)) << '\n';
        for (int k = 0; k < memory_kinds; ++k) {
            const auto kind = static_cast<memory_kind>(k);
            if (at_peak(kind) != 0) line(name(kind), at_peak(kind));
        }
        out << (activations.empty() ? "parameters: masters, copies, gradients and moments\n"
                                    : "layers: masters, copies, gradients, moments, and activations at the peak\n");
        for (const planned_parameter& layer : layers(depth)) line(layer.path, layer.total());
    }
};

namespace detail {

/// Stores the operation that runs, and the bytes in use at each new peak.
class plan_listener final : public range_listener, public memory_listener {
  public:
    bool wants_origins() const override { return true; }
    void begin(const char* operation, pass p) override { running_.push_back({operation, p, no_layer}); }
    void end() override { running_.pop_back(); }
    void layer(const char* path) override {
        const std::string_view whole(path);  // "h.0 after h.0.attn.proj", "after norm" for operations between layers
        running_.back().layer =
            number_of(std::string(whole.substr(0, whole.starts_with("after ") ? 0 : whole.find(' '))));
    }

    void on_allocate(const void* block, std::size_t bytes, memory_kind kind) override {
        if (kind != memory_kind::activation) return;
        const std::size_t layer = running_layer();
        live_[layer] += bytes;
        layer_of_block_[block] = layer;
    }
    void on_free(const void* block, std::size_t bytes, memory_kind kind) override {
        if (kind != memory_kind::activation) return;
        const auto found = layer_of_block_.find(block);
        if (found == layer_of_block_.end()) return;
        live_[found->second] -= bytes;
        layer_of_block_.erase(found);
    }
    void on_peak(const memory_usage& usage) override {
        at_peak_ = live_;
        plan_.operation = running_.empty() ? "" : running_.back().operation;
        plan_.of_pass = running_.empty() ? pass::forward : running_.back().of_pass;
        for (int k = 0; k < memory_kinds; ++k)
            plan_.bytes_at_peak[static_cast<std::size_t>(k)] = usage.live(static_cast<memory_kind>(k));
    }
    void on_parameter(memory_kind kind, const char* path, std::ptrdiff_t bytes, const void*) override {
        auto& all = plan_.parameters;
        auto p = all.begin();
        while (p != all.end() && p->path != path) ++p;
        if (p == all.end()) p = all.insert(p, {path, {}});
        p->bytes[static_cast<std::size_t>(kind)] += static_cast<std::size_t>(bytes);
    }

    /// The plan, with the peaks of `usage`.
    memory_plan take(const memory_usage& usage) {
        plan_.peak_bytes = usage.peak();
        plan_.held_bytes = usage.peak_held();
        for (int k = 0; k < memory_kinds; ++k)
            plan_.peak_bytes_by_kind[static_cast<std::size_t>(k)] = usage.peak(static_cast<memory_kind>(k));
        for (std::size_t i = 0; i < at_peak_.size(); ++i) {
            if (at_peak_[i] == 0) continue;
            planned_parameter each{layers_[i], {}};
            each.bytes[static_cast<std::size_t>(memory_kind::activation)] = at_peak_[i];
            plan_.activations.push_back(std::move(each));
        }
        return std::move(plan_);
    }

  private:
    struct running {
        const char* operation;
        pass of_pass;
        std::size_t layer;
    };
    static constexpr std::size_t no_layer = static_cast<std::size_t>(-1);

    std::size_t running_layer() {
        for (auto r = running_.rbegin(); r != running_.rend(); ++r) {
            if (r->layer != no_layer) return r->layer;
        }
        return number_of({});
    }
    std::size_t number_of(const std::string& layer) {
        const auto [known, is_new] = numbers_.try_emplace(layer, layers_.size());
        if (is_new) layers_.push_back(layer), live_.push_back(0);
        return known->second;
    }

    std::vector<running> running_;
    std::unordered_map<std::string, std::size_t> numbers_;
    std::vector<std::string> layers_;             // by number
    std::vector<std::size_t> live_, at_peak_;     // bytes of activations, by the layer's number
    std::unordered_map<const void*, std::size_t> layer_of_block_;
    memory_plan plan_;
};

/// The twin of a device on which a program runs without computing.
template <class Device>
struct planning_twin {
    using type = Device;
};
template <simt_device Device>
struct planning_twin<Device> {
    using type = measured<Device>;
};
template <class Device>
struct planning_twin<measured<Device>> {
    using type = measured<Device>;
};

}  // namespace detail

/// The memory that calls(device) would need. `calls` is a function of any device (a generic lambda, say) that makes
/// models, optimizers and tapes on its argument and runs some steps; it must not use another device. `memory_limit`: bytes
/// that the program may take from the system, as the option of a context. Throws what the program throws for its shapes
/// and arguments, and out_of_memory where the limit does not suffice.
template <class Device, class Calls>
memory_plan plan(Device& device, const Calls& calls, std::size_t memory_limit = static_cast<std::size_t>(-1)) {
    detail::plan_listener listener;
    typename detail::planning_twin<Device>::type twin(device, detail::memory_planning{memory_limit}, listener);
    twin.memory().usage().listen(&listener);
    calls(twin);
    return listener.take(twin.memory().usage());
}

/// The largest number from 1 to `most` whose plan, plan_of(number), has a peak of at most `budget` bytes; 0 if there is
/// none. The peak must not fall as the number grows: of sequences in a micro-batch, of tokens in a sequence.
///
///     const ht::extent batch = ht::largest_within(budget, 256, [&](ht::extent n) { return ht::plan(device, training_of(n)); });
template <class PlanOf>
extent largest_within(std::size_t budget, extent most, const PlanOf& plan_of) {
    if (most < 1) fail<argument_error>("largest_within: at most ", most, "; expected 1 or more");
    const auto fits = [&](extent n) { return plan_of(n).peak_bytes <= budget; };
    extent fitting = 0, step = 1;
    while (fitting + step <= most && fits(fitting + step)) {
        fitting += step;
        step *= 2;
    }
    for (step /= 2; step > 0; step /= 2) {
        if (fitting + step <= most && fits(fitting + step)) fitting += step;
    }
    return fitting;
}

/// A way to run a program: a struct of the settings that save memory, with a member `cost`, the program's time in any unit.
template <class Way>
struct budget_choice {
    Way way{};
    memory_plan plan{};
    bool fits = false;  ///< false: no way is within the budget, and this one has the lowest peak
};

/// The cheapest of `ways` whose plan, plan_of(way), has a peak of at most `budget` bytes; of equally cheap ones the first.
/// If no way fits, that with the lowest peak. Throws argument_error for no ways.
///
///     const auto choice = ht::cheapest_within(budget, ways, [&](const way& w) { return ht::plan(device, training(w)); });
///     if (choice.fits) train(choice.way);
template <class Way, class PlanOf>
budget_choice<Way> cheapest_within(std::size_t budget, std::vector<Way> ways, const PlanOf& plan_of) {
    if (ways.empty()) fail<argument_error>("cheapest_within: no ways to choose from");
    std::stable_sort(ways.begin(), ways.end(), [](const Way& a, const Way& b) { return a.cost < b.cost; });
    budget_choice<Way> least;
    for (const Way& way : ways) {
        memory_plan plan = plan_of(way);
        const bool fits = plan.peak_bytes <= budget;
        if (fits || &way == &ways.front() || plan.peak_bytes < least.plan.peak_bytes)
            least = {way, std::move(plan), fits};
        if (fits) break;
    }
    return least;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
