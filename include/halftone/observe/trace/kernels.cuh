// SPDX-License-Identifier: MIT
/// \file
/// When a GPU's kernels ran: a row of a trace. Each operation is between two events of the stream, which are read after
/// the step, so that the host does not wait inside of it.
///
///     ht::trace_recorder trace{device, {.schedule = {.wait = 10, .active = 3, .repeat = 1}}};
///     ht::cuda_kernel_times kernels{device, trace};
///     ht::listener_list all{{&trace, &kernels}};           // the recorder first: its schedule decides
///     trainer.listen(&all);
///
/// A time contains what the stream did between the operation's first and last kernel, to about half a microsecond.
#pragma once

#include <string>
#include <vector>

#include <halftone/exec/cuda/cuda.cuh>
#include <halftone/observe/trace/recorder.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A listener that times the kernels of operations on a device's stream. Device and recorder must outlive it.
class cuda_kernel_times final : public range_listener {
  public:
    /// Records at most `most` operations a step; later ones of the step have no time.
    cuda_kernel_times(cuda& device, trace_recorder& trace, std::size_t most = 4096)
        : device_(&device), trace_(&trace), most_(most) {
        if (trace.parts() != trace_parts::cpu) lane_ = &trace.lane("GPU kernels");
    }

    bool wants_origins() const override { return lane_ != nullptr && trace_->is_recording(); }
    void begin(const char* operation, pass) override {
        if (!is_timing() || timed_.size() == most_) {
            open_.push_back(none);
            return;
        }
        open_.push_back(timed_.size());
        timed_.push_back({operation, {}, next_event(), none});
    }
    void end() override {
        if (open_.empty()) return;
        const std::size_t which = open_.back();
        open_.pop_back();
        if (which != none && is_timing()) timed_[which].end = next_event();
    }
    void layer(const char* path) override {
        if (!open_.empty() && open_.back() != none) timed_[open_.back()].layer = path;
    }
    void begin_step(std::int64_t) override {
        drop();
        if (lane_ == nullptr || !trace_->is_recording()) return;
        device_->synchronize();  // the stream is empty now, so that both clocks are at one moment
        first_ = next_event();
        began_ = trace_->now();
        is_in_step_ = true;
    }
    /// Waits for the stream, and reads the times.
    void end_step() override {
        if (!is_in_step_) return;
        is_in_step_ = false;
        for (const timed& t : timed_) {
            if (t.end == none) continue;
            const auto at = [&](std::size_t event) {
                return began_ + static_cast<std::int64_t>(1e9 * seconds_between(events_[first_], events_[event]));
            };
            lane_->add(t.operation, t.layer.c_str(), at(t.begin), at(t.end));
        }
        drop();
    }

  private:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);
    struct timed {
        const char* operation;
        std::string layer;
        std::size_t begin, end;
    };

    bool is_timing() const { return is_in_step_; }
    /// Records an event; those of earlier steps are used again.
    std::size_t next_event() {
        if (used_ == events_.size()) {
            events_.push_back(device_->record());
        } else {
            const detail::current_device here(device_->device());
            detail::cuda_check(cudaEventRecord(events_[used_].get(), device_->stream()), "cudaEventRecord");
        }
        return used_++;
    }
    void drop() {
        timed_.clear();
        used_ = 0;
        is_in_step_ = false;
    }

    cuda* device_;
    trace_recorder* trace_;
    std::size_t most_, first_ = 0, used_ = 0;
    trace_lane* lane_ = nullptr;
    std::vector<cuda_event> events_;
    std::vector<timed> timed_;
    std::vector<std::size_t> open_;
    std::int64_t began_ = 0;
    bool is_in_step_ = false;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
