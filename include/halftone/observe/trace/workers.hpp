// SPDX-License-Identifier: MIT
/// \file
/// The work of a CPU's threads as rows of a trace.
///
///     ht::thread_pool pool{4};
///     ht::trace_recorder trace;
///     ht::traced_executor workers{pool, trace};
///     ht::cpu device{{.executor = &workers}};
///
/// Each row shows when that worker was inside a parallel region, with the name and the layer of the operation that
/// began the region. While nothing is recorded a region costs one comparison more.
#pragma once

#include <vector>

#include <halftone/exec/cpu/executor.hpp>
#include <halftone/observe/trace/recorder.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// An executor that runs regions on another one and records its workers. Both, and the recorder, must outlive its use;
/// one context uses it.
class traced_executor final : public executor {
  public:
    traced_executor(executor& inner, trace_recorder& trace) : inner_(&inner), trace_(&trace) {
        if (trace.parts() == trace_parts::cpu) return;
        for (int w = 0; w < inner.concurrency(); ++w)
            lanes_.push_back(&trace.lane("worker " + std::to_string(w)));
    }

    int concurrency() const override { return inner_->concurrency(); }
    void run(task function, void* argument) override {
        if (lanes_.empty() || !trace_->is_recording()) return inner_->run(function, argument);
        region work{function, argument, this, trace_->running(), trace_->running_layer()};
        inner_->run(&region::run, &work);
    }

  private:
    struct region {
        task function;
        void* argument;
        traced_executor* owner;
        const char* name;
        const char* layer;

        static void run(void* of, int worker) noexcept {
            const region& r = *static_cast<region*>(of);
            const std::int64_t begin = r.owner->trace_->now();
            r.function(r.argument, worker);
            r.owner->lanes_[static_cast<std::size_t>(worker)]->add(*r.name == 0 ? "region" : r.name, r.layer, begin,
                                                                  r.owner->trace_->now());
        }
    };

    executor* inner_;
    trace_recorder* trace_;
    std::vector<trace_lane*> lanes_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
