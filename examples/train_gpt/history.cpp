// SPDX-License-Identifier: MIT
#include <filesystem>

#include <halftone/observe/memory/history.hpp>

#include "history.hpp"

namespace ht = halftone;

struct run_history::state {
    std::string file;
    ht::memory_history history;
};

namespace {

/// The options' file, or, where several policies are trained, that of this policy.
std::string file_of(const std::string& policy, const options& o) {
    std::filesystem::path file = o.memory_history;
    if (o.policies.size() > 1) file.replace_filename(file.stem().string() + "_" + policy + file.extension().string());
    return file.string();
}

}  // namespace

run_history::run_history(ht::memory_resource& memory, const std::string& policy, const options& o,
                         ht::range_listener* also)
    : listener_(also) {
    if (o.memory_history.empty()) return;
    const std::string file = file_of(policy, o), title = "Memory of " + o.model + ", " + policy;
    // A folder that cannot be written to is reported before training.
    if (o.on_write_error == ht::write_errors::stop) static_cast<void>(ht::output_file(file));
    state_.reset(new state{file, ht::memory_history(memory, {.out_of_memory = file, .title = title})});
    state_->history.also_tell(also);
    listener_ = &state_->history;
}
run_history::~run_history() = default;

ht::range_listener* run_history::listener() const { return listener_; }

void run_history::write() const {
    if (state_) state_->history.dump(state_->file);
}
