// SPDX-License-Identifier: MIT
/// \file
/// How much scratch memory operations will need, computed without running them.
///
///     const std::size_t bytes = ht::workspace_bytes(device, [&](auto& d) { ht::matmul<ht::amp_bf16>(d, a, b, c); });
///     ht::cpu small{{.workspace = memory}};             // a std::span<std::byte> of `bytes` bytes suffices for matmul
///
/// The operations run their host code on a twin of the device, which launches nothing and only counts scratch memory,
/// so the number is exact. Of views only shapes, strides and alignment are used; the memory is not touched and need not
/// exist.
#pragma once

#include <halftone/exec/capture.hpp>
#include <halftone/exec/matmul_engine.hpp>
#include <halftone/exec/ranges.hpp>
#include <halftone/exec/simt/architecture.hpp>
#include <halftone/exec/simt/simt.hpp>
#include <halftone/exec/workspace.hpp>
#include <halftone/memory/planned.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// The twin of a device's engine: leases its scratch memory, and multiplies nothing.
class measured_engine final : public matmul_engine {
  public:
    void measure_for(matmul_engine* real) { real_ = real; }

    const char* name() const override { return real_->name(); }
    bool can(const product_description& p) override { return real_->can(p); }
    bool prefers(const product_description& p) const override { return real_->prefers(p); }
    std::size_t workspace_bytes(const product_description& p) override { return real_->workspace_bytes(p); }
    void multiply(const product_description& p, workspace& scratch) override {
        const workspace::lease space(scratch, workspace_bytes(p));
    }

  private:
    matmul_engine* real_ = nullptr;
};

/// The twin of a device that runs GPU kernels: it answers all queries as the device does, and launches nothing.
template <simt_device Device>
class measured {
  public:
    static constexpr bool runs_simt_kernels = true;
    /// Whether the device captures steps, so that its twin has memory for their inputs (train/captured_step.hpp).
    static constexpr bool plans_captures = capturing_device<Device>;

    explicit measured(Device& real) : real_(&real), workspace_(measuring{}) {}
    /// For observe/memory/plan.hpp: with memory that is counted, of which tapes tell `listener`.
    measured(Device& real, memory_planning how, range_listener& listener)
        : real_(&real), memory_(how.limit), workspace_(memory_), listener_(&listener) {
        memory_.use_arenas_of(real.memory());
    }
    /// For observe/memory/plan.hpp in a program that is itself being planned: the twin of the device of which `twin` is
    /// one.
    measured(const measured& twin, memory_planning how, range_listener& listener)
        : measured(*twin.real_, how, listener) {}
    measured(const measured&) = delete;
    measured& operator=(const measured&) = delete;

    memory_resource& memory() { return memory_; }
    workspace& scratch() { return workspace_; }
    range_listener* listener() const { return listener_; }

    template <class Kernel>
    bool has_eight_bit_code() const {
        return real_->template has_eight_bit_code<Kernel>();
    }
    bool has_wgmma_code() const requires requires(Device& d) { d.has_wgmma_code(); }
    { return real_->has_wgmma_code(); }
    /// Has the type of the device's tensor maps, and describes nothing.
    template <class T, class... Shape>
    auto tile_map(const T* data, const Shape&... shape) const {
        return decltype(real_->tile_map(data, shape...)){};
    }
    template <class Kernel>
    void launch(const Kernel&) {}
    template <class Function>
    void run(const Function&) {}
    template <class T>
    void fill(T*, extent, T) {}
    void copy(void*, const void*, std::size_t) {}
    void upload(void*, const void*, std::size_t) {}

    bool reaches(const void* p) const { return memory_.owns(p) || real_->reaches(p); }
    simt::architecture architecture() const { return real_->architecture(); }
    Device& real() const { return *real_; }
    matmul_engine* engine_for(const product_description& p) requires requires(Device& d) { d.engine_for(p); }
    {
        matmul_engine* const engine = real_->engine_for(p);
        if (engine == nullptr) return nullptr;
        engine_.measure_for(engine);
        return &engine_;
    }

  private:
    Device* real_;
    planned_memory memory_;
    workspace workspace_;
    measured_engine engine_;
    range_listener* listener_ = nullptr;
};

/// The functions of exec/simt/sort.hpp.
template <class Device, class Key, class Value>
void sort_pairs(measured<Device>& device, const Key* keys, Key* sorted_keys, const Value* values, Value* sorted_values,
                extent count, int bits) {
    if (count <= 0) return;
    const workspace::lease space(device.scratch(),
                                 sort_bytes(device.real(), keys, sorted_keys, values, sorted_values, count, bits));
}
template <class Device, class Count>
void inclusive_sum(measured<Device>& device, Count* counts, extent count) {
    if (count <= 0) return;
    const workspace::lease space(device.scratch(), inclusive_sum_bytes(device.real(), counts, count));
}

}  // namespace detail

/// The largest number of bytes of scratch memory that calls(device) uses at one time; the memory is assumed to be
/// aligned to block_alignment. `calls` is a function of any device (a generic lambda, say) that calls operations of
/// kernel/ on its argument. It gets a twin of `device`, and must not use another device. Throws what the operations
/// throw for their shapes and arguments.
template <class Device, class Calls>
std::size_t workspace_bytes(Device& device, const Calls& calls) {
    if constexpr (simt_device<Device>) {
        detail::measured<Device> twin(device);
        calls(twin);
        return twin.scratch().peak();
    } else {
        Device twin(device, detail::measuring{});
        calls(twin);
        return twin.scratch().peak();
    }
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
