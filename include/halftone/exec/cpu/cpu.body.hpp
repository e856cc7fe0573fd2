// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in cpu.hpp that are no templates.
#pragma once

#include <halftone/exec/cpu/cpu.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

HALFTONE_OUT_OF_LINE cpu::cpu(const cpu_options& options)
    : memory_(std::make_unique<host_memory>(options.memory_limit)),
      workspace_(*memory_, options.workspace),
      set_(options.instruction_set ? *options.instruction_set : default_isa()) {
    memory_->set_arenas(options.arenas);
    if (options.instruction_set)
        detail::check_isa("cpu: its instruction set is", set_);  // default_isa has checked the other
    if (options.threads < 0 || options.threads > 4096)
        fail<argument_error>("cpu: ", options.threads, " threads; expected 0 (all cores) to 4096");
    if (options.executor == nullptr) {
        pool_ = std::make_unique<thread_pool>(options.threads == 0 ? detail::usable_processors() : options.threads);
        executor_ = pool_.get();
    } else {
        executor_ = options.executor;
    }
}

HALFTONE_OUT_OF_LINE void cpu::region::run(int worker) {
    const detail::float_control_scope as_the_caller(control);
    std::byte* const own = scratch + scratch_bytes * static_cast<std::size_t>(worker);
    shares.run(worker, [&](extent index) { call(body, index, own); });
}

HALFTONE_OUT_OF_LINE void cpu::run_region(extent count, std::size_t bytes, const void* body, body_call call) {
    const std::size_t each = round_up(bytes, block_alignment);
    const workspace::lease all(workspace_, each * static_cast<std::size_t>(threads()));
    if (measures_) return;
    if (count <= 1 || threads() == 1) {
        for (extent index = 0; index < count; ++index) call(body, index, all.data());
        return;
    }
    region work{body, call, all.data(), each, {count, threads()}};
    executor_->run([](void* argument, int worker) noexcept { static_cast<region*>(argument)->run(worker); }, &work);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
