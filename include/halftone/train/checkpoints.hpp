// SPDX-License-Identifier: MIT
/// \file
/// Saves a trainer's run as its training_arguments say, and resumes it. Needs nlohmann-json, so no umbrella header
/// includes it.
///
///     ht::trainer trainer{device, model, {..., .output_dir = "run", .save_steps = 100, .save_total_limit = 2,
///                                         .resume_from_checkpoint = "newest"}};
///     ht::trainer_checkpoints checkpoints{trainer};            // loads the newest good checkpoint in run/, if there is one
///     trainer.train(data);                                     // saves run/checkpoint-100, ...
///
/// Resuming is bit-identical: steps k + 1 to N after a load have the losses and weights of a run of N steps, on the same
/// machine with the same program. Checkpoints are written beside the next step (io/checkpoint/saver.hpp). A checkpoint that
/// cannot be written does not end the training: callbacks get one on_save_failed until one can be written again, earlier
/// checkpoints stay, and train() throws at its end only if the last one is missing. After stop(), which may be called by a
/// handler of SIGTERM, the run is saved at the end of its step.
///
/// Of trainers that ht::join has joined to others, train/checkpoints_of_ranks.hpp saves and resumes the run.
#pragma once

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <halftone/io/checkpoint.hpp>
#include <halftone/train/callback.hpp>
#include <halftone/train/training_arguments.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The best checkpoint so far.
struct best_checkpoint {
    std::int64_t step = -1;  ///< -1: none
    double value = 0;        ///< of metric_for_best_model

    /// Calls f(name, field) for each field, for a checkpoint (io/fields.hpp).
    static void visit_fields(auto& self, auto&& f) { f("step", self.step), f("value", self.value); }
};

/// Whether checkpoints are written beside the training or before the next step begins.
enum class saving { beside, before_next_step };

/// What trainer_checkpoints does beside the trainer's arguments.
struct trainer_checkpoint_options {
    halftone::saving saving = halftone::saving::beside;
    policy_change policy = policy_change::refuse;  ///< for resuming under another policy
    /// For resuming with another learning rate, schedule or weight decay (io/checkpoint.hpp): ht::program_arguments.
    resume_arguments resume_with = saved_arguments;
    std::string arguments{};  ///< the program's arguments as JSON text; io/checkpoint.hpp's read_checkpoint_info returns it
    /// Called with one line for each damaged checkpoint that is skipped, for each conversion, and if there is no best model to load.
    std::function<void(const std::string& line)> on_note{};
    /// For resuming from number types of a user's own that the model has not, under policy_change::convert.
    std::vector<const value_traits*> own_numbers{};
};

namespace detail {

/// The files of a trainer that is alone: written beside its training.
class checkpoints_alone {
  public:
    static constexpr bool is_beside = true;
    explicit checkpoints_alone(const std::string& folder) : saver_(folder) {}

    /// Throws state_error for a trainer that is not alone.
    static void check_ranks(int /*rank*/, int count) {
        if (count > 1)
            fail<state_error>("trainer_checkpoints: ", count, " ranks train together; include <halftone/train/checkpoints_of_ranks.hpp> and make "
                              "ht::trainer_checkpoints checkpoints{trainer, comm} after ht::join");
    }
    bool is_first() const { return true; }
    /// What rank 0 has decided.
    template <class T>
    T of_first(const T& own) const {
        return own;
    }
    /// Calls f on all ranks; throws on all if one throws.
    template <class F>
    void on_all(const F& f) const {
        f();
    }

    /// Begins to save; wait() throws the io_error for which it failed.
    template <class... Parts>
    void save(const checkpoint_options& o, Parts&... parts) {
        saver_.save(o, parts...);
    }
    bool is_saving() const { return saver_.is_saving(); }
    void wait() { saver_.wait(); }

    const std::filesystem::path& folder() const { return saver_.folder(); }
    template <class... Parts>
    checkpoint_info load(const std::filesystem::path& path, const load_checkpoint_options& o, Parts&... parts) {
        return load_checkpoint(path, o, parts...);
    }
    template <class... Parts>
    std::optional<checkpoint_info> load_newest(const load_checkpoint_options& o, Parts&... parts) {
        return load_newest_checkpoint(saver_.folder(), o, parts...);
    }

  private:
    checkpoint_saver saver_;
};

}  // namespace detail

/// Saves and resumes the run of a trainer, and of further parts, which are saved with it: a loader's position, an
/// early_stopping. Make it after the trainer and before train(); it must live as long as train() runs. `Files` writes and
/// reads: of a trainer alone, or together with other ranks (train/checkpoints_of_ranks.hpp).
template <class Files, class Trainer, class... Parts>
class trainer_checkpoints final : public trainer_callback {
    static constexpr bool has_options = (std::is_same_v<std::remove_const_t<Parts>, trainer_checkpoint_options> || ...);

  public:
    /// Loads the checkpoint that resume_from_checkpoint names. Throws as load_checkpoint does, and argument_error if a run
    /// that begins at its start would save beside the checkpoints of another one; state_error for a trainer that has joined
    /// other ranks than those that are given.
    explicit trainer_checkpoints(Trainer& trainer, Parts&... parts)
        requires(!has_options)
        : trainer_checkpoints(trainer, trainer_checkpoint_options{}, parts...) {}
    trainer_checkpoints(Trainer& trainer, const trainer_checkpoint_options& options, Parts&... parts)
        : trainer_checkpoints([&] { return Files(trainer.arguments().output_dir); }, trainer, options, parts...) {}
    /// Loads and saves with the trainers of all ranks of `comm`, with which this one has been joined before.
    /// Collective.
    template <class Ranks>
        requires(std::is_constructible_v<Files, Ranks&, std::string> && !has_options)
    trainer_checkpoints(Trainer& trainer, Ranks& comm, Parts&... parts)
        : trainer_checkpoints(trainer, comm, trainer_checkpoint_options{}, parts...) {}
    template <class Ranks>
        requires std::is_constructible_v<Files, Ranks&, std::string>
    trainer_checkpoints(Trainer& trainer, Ranks& comm, const trainer_checkpoint_options& options, Parts&... parts)
        : trainer_checkpoints([&] { return Files(comm, trainer.arguments().output_dir); }, trainer, options, parts...) {}

    /// The checkpoint from which the run goes on; nothing if it began at its start.
    const std::optional<checkpoint_info>& resumed() const { return resumed_; }
    /// The best checkpoint so far.
    const best_checkpoint& best() const { return best_.value; }
    /// Tells the value of a metric of the model as it is, for metric_for_best_model: from a callback's on_evaluate, say.
    /// The loss of evaluations is told as "eval_loss". Of several ranks, what rank 0 is told counts.
    void report(const std::string& metric, double value) { metrics_[metric] = value; }
    /// Saves now, in addition: between steps, from a callback's after_step. Of several ranks all call it. Throws io_error if it
    /// cannot be written.
    void save_now() {
        save();
        is_under_way_ = false;
        files_.wait();
        failed_.clear();
    }

    bool is_of_all_ranks() const override { return true; }
    void on_train_begin(const trainer_state&) override { files_.check_ranks(trainer_->rank(), trainer_->rank_count()); }
    void on_evaluate(const trainer_state&, const evaluation_result& r) override { report("eval_loss", r.loss); }
    void after_step(const trainer_state& s) override {
        const training_arguments& a = trainer_->arguments();
        settle(s, under_way::leave);
        const bool is_due = a.save_strategy == save_strategy::best
                                ? files_.of_first(is_better())
                                : a.save_steps != 0 && (s.step % a.save_steps == 0 || s.step == s.max_steps);
        if (is_due) try_to_save(s);
        metrics_.clear();  // after the next step the model is another one
    }
    void on_stop(const trainer_state& s) override {
        if (trainer_->arguments().save_steps != 0 && begun_step_ != s.step) try_to_save(s);
    }
    void on_train_end(const trainer_state& s) override {
        settle(s, under_way::wait);
        if (!failed_.empty()) save_now();
        if (trainer_->arguments().load_best_model_at_end) load_best();
    }

  private:
    template <class Make>
        requires std::is_invocable_r_v<Files, Make>
    trainer_checkpoints(const Make& make_files, Trainer& trainer, const trainer_checkpoint_options& options, Parts&... parts)
        : trainer_(&trainer), options_(options), parts_(parts...), files_(make_files()) {
        const training_arguments& a = trainer.arguments();
        files_.check_ranks(trainer.rank(), trainer.rank_count());
        if (!a.resume_from_checkpoint.empty()) {
            resume(a);
        } else if (detail::has_checkpoints(a)) {
            files_.on_all([&] { check_folder(a); });
        }
        trainer.note_checkpoints();
        trainer.add_callback(*this);
    }

    struct best_part {
        static constexpr const char* checkpoint_name = "best";
        best_checkpoint value;
        best_checkpoint state() const { return value; }
        void load(const best_checkpoint& b) { value = b; }
    };

    template <class F>
    auto with_parts(const F& f) {
        return std::apply([&](auto&... parts) { return f(*trainer_, best_, parts...); }, parts_);
    }
    void note(const std::string& line) const {
        if (options_.on_note && files_.is_first()) options_.on_note(line);
    }

    /// The checkpoints of an earlier run would be mistaken for this one's.
    static void check_folder(const training_arguments& a) {
        const auto there = list_checkpoints(a.output_dir);
        if (there.empty()) return;
        fail<argument_error>("training_arguments: output_dir ", a.output_dir, " has checkpoints of an earlier run, the newest of step ",
                             there.front().step, "; set resume_from_checkpoint, or name another folder");
    }
    void resume(const training_arguments& a) {
        const load_checkpoint_options o{.policy = options_.policy,
                                        .resume_with = options_.resume_with,
                                        .on_skipped = [this](const std::string& line) { note(line); },
                                        .own_numbers = options_.own_numbers};
        if (a.resume_from_checkpoint == "newest") {
            resumed_ = with_parts([&](auto&... parts) { return files_.load_newest(o, parts...); });
        } else {
            resumed_ = with_parts([&](auto&... parts) { return files_.load(a.resume_from_checkpoint, o, parts...); });
        }
        if (!resumed_) return;
        begun_step_ = resumed_->step;
        find_best();
        for (const std::string& line : resumed_->notes) note(line);
    }

    /// The best checkpoint stands beside the one that was loaded, which may be in another folder than the run's. Where it is
    /// not, what is best is found anew.
    void find_best() {
        if (best_.value.step < 0) return;
        std::error_code failed;
        best_folder_ = std::filesystem::weakly_canonical(resumed_->path, failed).parent_path();
        if (files_.of_first(std::filesystem::exists(detail::checkpoint_path(best_folder_, best_.value.step), failed)))
            return;
        note(detail::sentence("trainer_checkpoints: the best checkpoint so far, of step ", best_.value.step,
                              ", is not in ", best_folder_.string(), "; only those from now on count"));
        best_.value = {};
    }

    /// Whether the metric for the best model has been told since the last step, and is better than at all checkpoints.
    bool is_better() const {
        const training_arguments& a = trainer_->arguments();
        const auto told = metrics_.find(a.metric_for_best_model);
        if (told == metrics_.end() || is_nan(told->second)) return false;
        if (best_.value.step < 0) return true;
        return a.greater_is_better ? told->second > best_.value.value : told->second < best_.value.value;
    }

    /// Begins to save.
    void save() {
        const scoped_range here(trainer_->listener(), "checkpoint", track::files);
        const training_arguments& a = trainer_->arguments();
        checkpoint_options o{.step = trainer_->state().step, .metrics = metrics_, .arguments = options_.arguments,
                             .save_total_limit = a.save_total_limit};
        before_ = best_.value, folder_before_ = best_folder_;
        if (is_better()) best_.value = {o.step, metrics_.at(a.metric_for_best_model)};
        best_.value = files_.of_first(best_.value);
        if (best_.value.step == o.step) best_folder_ = files_.folder();
        if (best_.value.step >= 0) o.best = best_.value.step;
        begun_step_ = o.step;
        with_parts([&](auto&... parts) { files_.save(o, parts...); });
        is_under_way_ = true;
    }
    void try_to_save(const trainer_state& s) {
        settle(s, under_way::wait);
        save();
        trainer_->for_each_callback([&](trainer_callback& c) { c.on_save(s); });
        if (!Files::is_beside || options_.saving == saving::before_next_step) settle(s, under_way::wait);
    }
    /// Tells callbacks of a save that has failed. One that is under way is waited for or left alone.
    enum class under_way { wait, leave };
    void settle(const trainer_state& s, under_way what) {
        if (!is_under_way_ || (what == under_way::leave && files_.is_saving())) return;
        is_under_way_ = false;
        const scoped_range here(trainer_->listener(), "checkpoint, its end", track::files);
        try {
            files_.wait();
            failed_.clear();
        } catch (const io_error& e) {
            best_.value = before_, best_folder_ = folder_before_;
            begun_step_ = -1;
            if (failed_.empty()) trainer_->for_each_callback([&](trainer_callback& c) { c.on_save_failed(s, e.what()); });
            failed_ = e.what();
        }
    }

    void load_best() {
        if (best_.value.step < 0) {
            const std::string& metric = trainer_->arguments().metric_for_best_model;
            const std::string why = detail::sentence("trainer_checkpoints: load_best_model_at_end, but no evaluation has told a number as ",
                                                     metric, "; the model has the weights of the last step");
            note(why);
            return trainer_->add_note(why);
        }
        files_.load(detail::checkpoint_path(best_folder_, best_.value.step),
                    {.policy = options_.policy, .own_numbers = options_.own_numbers}, trainer_->model());
    }

    Trainer* trainer_;
    trainer_checkpoint_options options_;
    std::tuple<Parts&...> parts_;
    Files files_;
    std::optional<checkpoint_info> resumed_;
    best_part best_;
    std::map<std::string, double> metrics_;
    std::filesystem::path best_folder_;    ///< the folder of the best checkpoint
    best_checkpoint before_;               ///< the best before the save that is under way
    std::filesystem::path folder_before_;  ///< its folder
    std::string failed_;               ///< why the last save failed; empty: it did not
    std::int64_t begun_step_ = -1;     ///< the step of the last save, if it has not failed
    bool is_under_way_ = false;
};

template <class Trainer, class... Parts>
    requires((!std::is_same_v<std::remove_const_t<Parts>, trainer_checkpoint_options> && ...))
trainer_checkpoints(Trainer&, Parts&...) -> trainer_checkpoints<detail::checkpoints_alone, Trainer, Parts...>;
template <class Trainer, class... Parts>
trainer_checkpoints(Trainer&, const trainer_checkpoint_options&, Parts&...) -> trainer_checkpoints<detail::checkpoints_alone, Trainer, Parts...>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
