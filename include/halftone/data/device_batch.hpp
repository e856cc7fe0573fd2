// SPDX-License-Identifier: MIT
/// \file
/// How a data loader hands a batch to a device: a CPU reads it where it is; for a GPU its views are copied from pinned
/// memory to the GPU's, in the order of the GPU's other work.
///
/// The copy of the next batch overwrites the GPU's memory of this one. It comes after the kernels that read this one,
/// because both are work of the same context. The host's memory is written again only after the event that follows its
/// copy.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <halftone/data/batch_memory.hpp>
#include <halftone/exec/capture.hpp>
#include <halftone/memory/resource.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Stands for the device of a loader that has none.
struct no_device {};

/// An event after the device's work so far; nullptr if its copies have finished on return.
template <class Device>
auto event_after_work(Device& device) {
    if constexpr (requires { device.record().wait(); }) {
        return device.record();
    } else {
        return nullptr;
    }
}

/// Batches stay in host memory.
template <class Device, class Batch>
class batch_uploads {
  public:
    static constexpr bool leaves_host_memory = false;
    struct event {
        void wait() const {}
    };

    explicit batch_uploads(Device*) {}
    void prepare(batch_memory&) {}
    const Batch* take(const Batch& batch, event&) { return &batch; }
};

/// Batches are copied to a device that works asynchronously.
template <capturing_device Device, class Batch>
class batch_uploads<Device, Batch> {
    using event_type = decltype(event_after_work(std::declval<Device&>()));

  public:
    static constexpr bool leaves_host_memory = true;

    /// The end of the last copy from a slot's memory, if there was one. wait() may be called by any thread.
    class event {
      public:
        event() = default;
        event(const event&) = delete;
        event& operator=(const event&) = delete;
        ~event() {
            try {
                wait();
            } catch (...) {  // the device has failed: there is no copy any more
            }
        }
        void wait() {
            if constexpr (!std::is_same_v<event_type, std::nullptr_t>) {
                if (passed_) passed_->wait();
            }
            passed_.reset();
        }
        void record(Device& device) { passed_.emplace(event_after_work(device)); }

      private:
        std::optional<event_type> passed_;
    };

    explicit batch_uploads(Device* device) : device_(device) {}

    /// Makes a batch's memory such that the device copies from it without waiting.
    void prepare(batch_memory& memory) {
        if constexpr (requires { device_->pinned(std::size_t{}); }) {
            memory.allocate_by([device = device_](std::size_t bytes) -> std::unique_ptr<host_block> {
                return std::make_unique<device_readable_block<decltype(device->pinned(bytes))>>(device->pinned(bytes), bytes);
            });
        }
    }

    /// The batch with views of the device's memory; `copied` is passed when the host's is no longer read.
    const Batch* take(const Batch& batch, event& copied) {
        std::size_t bytes = 0;
        const auto count = [&bytes](const auto& v) {
            expect_contiguous("data_loader", "a tensor of the batch", v);
            bytes += bytes_of(v);
            return v;
        };
        static_assert(requires { batch.with_views(count); },
                      "halftone: data_loader: a batch for a device has with_views(f), which gives the batch with f(view) "
                      "in place of each view, as ht::language_batch has");
        (void)batch.with_views(count);
        if (memory_.bytes() < bytes) memory_ = buffer(device_->memory(), bytes, memory_kind::other);
        std::size_t used = 0;
        batch_.emplace(batch.with_views([&]<class T, int Rank>(const view<T, Rank>& v) {
            std::byte* const to = memory_.data() + used;
            used += bytes_of(v);
            const std::size_t size = static_cast<std::size_t>(v.size()) * sizeof(T);
            if (size != 0) device_->copy(to, v.data(), size);
            return view<T, Rank>{reinterpret_cast<T*>(to), v.shape()};
        }));
        copied.record(*device_);
        return &*batch_;
    }

  private:
    template <class View>
    static std::size_t bytes_of(const View& v) {
        return round_up(static_cast<std::size_t>(v.size()) * sizeof(*v.data()), block_alignment);
    }

    Device* device_;
    buffer memory_;
    std::optional<Batch> batch_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
