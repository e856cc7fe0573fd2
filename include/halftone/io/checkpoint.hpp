// SPDX-License-Identifier: MIT
/// \file
/// Checkpoints of everything that a run needs to go on with the same bits.
///
///     ht::save_checkpoint("run", {.step = step, .save_total_limit = 2}, model, optimizer, scaler, tape);   // run/checkpoint-300
///
///     const auto from = ht::load_newest_checkpoint("run", {}, model, optimizer, scaler, tape);
///     for (std::int64_t step = from ? from->step : 0; step < steps; ++step) ...
///
/// Parts are, in any order: models (masters, or what they kept; states of layers; amaxes of delayed scaling), optimizers
/// (moments in their types, 8-bit codes with their absmax values, averages, step counts, rate), scalers, tapes (the random
/// numbers of dropout), outlier guards, accumulators (which hold nothing between steps: within a window saving is
/// refused), trainers, data loaders (their position), and objects with state() and load() of a struct that names its fields
/// (io/fields.hpp). Everything else of a run follows from its program: options, data. Learning rate, schedule and weight decay that the
/// optimizer was made with have to be those of the checkpoint, unless the program says that its own ones count.
///
/// A checkpoint is a folder: model.safetensors and optimizer.safetensors, which other programs read, too, and
/// checkpoint.json, with all counters, sizes and checksums. It is complete or not there (checkpoint/write.hpp). Loading
/// is all or nothing: sizes, checksums, names, shapes and types are compared before anything changes, and so is the policy
/// of every layer, role by role. Under another policy it is refused, or converted on request. Of the optional role `stream`, which
/// older checkpoints do not state, the notes say what it was, and what it is.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <halftone/io/checkpoint/folder.hpp>
#include <halftone/io/checkpoint/read.hpp>
#include <halftone/io/checkpoint/saver.hpp>
#include <halftone/io/checkpoint/write.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Saves the parts of a run as folder/checkpoint-STEP; returns its path. An earlier checkpoint of that step is replaced,
/// and those beyond the limit are removed, when it is complete. Throws io_error, and everything is then as before;
/// state_error within a window of micro-batches; argument_error for a negative step. On a GPU it waits for the device.
template <class... Parts>
std::filesystem::path save_checkpoint(const std::filesystem::path& folder, const checkpoint_options& o, Parts&... parts) {
    return detail::write_checkpoint(folder, o, detail::contents_of(detail::parts_of(parts...)));
}

/// How a checkpoint is loaded.
struct load_checkpoint_options {
    policy_change policy = policy_change::refuse;
    /// Whether the rate, schedule and weight decay are the checkpoint's, and the program has to have made its optimizer with the
    /// same, or the program's, whatever the checkpoint has.
    resume_arguments resume_with = saved_arguments;
    /// load_newest_checkpoint calls it for each checkpoint that is damaged or incomplete, with one line.
    std::function<void(const std::string& line)> on_skipped{};
    /// Number types of a user's own that the checkpoint has and the program's model has not, for policy_change::convert:
    /// {&ht::value_traits_of<my_float16>}.
    std::vector<const value_traits*> own_numbers{};
};

namespace detail {

inline load_request request_of(const load_checkpoint_options& o) {
    load_request request{.policy = o.policy, .arguments = o.resume_with};
    for (const value_traits* t : o.own_numbers) request.own_numbers.add(t);
    return request;
}

}  // namespace detail

/// Loads the parts from a checkpoint; it may have others in addition. All or nothing: throws io_error if a file is missing
/// or cannot be read, and checkpoint_error if one is damaged, or of another model, optimizer, policy or learning rate; the parts are then
/// as they were. Needs host memory for the checkpoint.
template <class... Parts>
checkpoint_info load_checkpoint(const std::filesystem::path& checkpoint, const load_checkpoint_options& o, Parts&... parts) {
    auto all = detail::parts_of(parts...);
    return detail::read_checkpoint(checkpoint, all, detail::request_of(o));
}

/// Loads the newest good checkpoint of a folder; nothing if there is none. A damaged one is skipped, with a call of
/// on_skipped. A good one that does not fit (of another model, optimizer or policy) is an error: checkpoint_error.
template <class... Parts>
std::optional<checkpoint_info> load_newest_checkpoint(const std::filesystem::path& folder, const load_checkpoint_options& o,
                                                      Parts&... parts) {
    auto all = detail::parts_of(parts...);
    for (const checkpoint_place& c : list_checkpoints(folder)) {
        try {
            return detail::read_checkpoint(c.path, all, detail::request_of(o));
        } catch (const io_error& e) {
            try {
                verify_checkpoint(c.path);
            } catch (const io_error&) {
                if (o.on_skipped) o.on_skipped(detail::sentence("skipped ", c.path.string(), ": ", e.what()));
                continue;
            }
            throw;
        }
    }
    return std::nullopt;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
