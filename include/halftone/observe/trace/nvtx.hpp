// SPDX-License-Identifier: MIT
/// \file
/// Ranges for Nsight Systems and other tools that read NVTX: an operation, a part of a step, a step.
///
///     ht::nvtx_listener marks;
///     trainer.listen(&marks);                              // then: nsys profile --trace nvtx,cuda ./program
///
/// Needs the headers of NVTX 3, which the CUDA Toolkit has in nvtx3/; they need no library. Without a tool attached a
/// range costs a call of a null function.
#pragma once

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)

#include <cstdio>

#include <nvtx3/nvToolsExt.h>

#include <halftone/exec/ranges.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Pushes and pops NVTX ranges of the domain "halftone".
class nvtx_listener final : public range_listener {
  public:
    nvtx_listener() : domain_(nvtxDomainCreateA("halftone")) {}
    ~nvtx_listener() override { nvtxDomainDestroy(domain_); }

    void begin(const char* operation, pass p) override {
        push(operation, static_cast<std::uint32_t>(p) + 1);
    }
    void end() override { nvtxDomainRangePop(domain_); }
    void begin_scope(const char* name, track on) override { push(name, static_cast<std::uint32_t>(on) + passes + 1); }
    void end_scope() override { nvtxDomainRangePop(domain_); }
    void begin_step(std::int64_t step) override {
        char text[32];
        std::snprintf(text, sizeof text, "step %lld", static_cast<long long>(step));
        push(text, 0);
    }
    void end_step() override { nvtxDomainRangePop(domain_); }

  private:
    void push(const char* name, std::uint32_t category) {
        nvtxEventAttributes_t range{};
        range.version = NVTX_VERSION;
        range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
        range.category = category;
        range.messageType = NVTX_MESSAGE_TYPE_ASCII;
        range.message.ascii = name;
        nvtxDomainRangePushEx(domain_, &range);
    }

    nvtxDomainHandle_t domain_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone

#endif
#endif
