// SPDX-License-Identifier: MIT
/// \file
/// Checkpoints that do not fit or are damaged are refused, and nothing changes then; which are kept; saving beside the steps.
/// tests/io/resume.cpp has the bits of resumed runs.
#include <chrono>

#include <doctest/doctest.h>

#include <halftone/data/data_loader.hpp>
#include <halftone/io/weights.hpp>

#include "data/loader_stops.hpp"
#include "io/run.hpp"
#include "support/median.hpp"
#include "support/temporary_folder.hpp"
#include "support/unstated_stream.hpp"

namespace io_checkpoint_tests {

namespace ht = halftone;
namespace fs = std::filesystem;

using keeping::run;

using fp16_run = run<ht::amp_fp16, keeping::by_adamw>;

template <class Error, class F>
std::string refusal(const F& f) {
    try {
        f();
    } catch (const Error& e) {
        CHECK(std::string(e.what()).find('\n') == std::string::npos);
        return e.what();
    }
    FAIL_CHECK("nothing was thrown");
    return {};
}
bool has(const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
    return text.find(part) != std::string::npos;
}

TEST_CASE("checkpoint: another policy is refused with its roles, and converted on request") {
    const support::temporary_folder folder;
    fp16_run half;
    for (int i = 0; i < 5; ++i) half.step(i);
    half.save(folder.path(), 5);
    const auto path = folder.path() / "checkpoint-5";
    run<ht::amp_bf16, keeping::by_adamw> other;
    other.step(0);
    const std::string before = other.bytes();
    const std::string why = refusal<ht::checkpoint_error>([&] { other.load(path); });
    has(why, "another policy: compute is float16 there, bfloat16 here: the model, down, norm, up; grad is float16 there, "
             "bfloat16 here: the model, down, norm, up; output is float16 there, bfloat16 here");
    has(why, "policy_change::convert");
    CHECK(other.bytes() == before);
    const ht::checkpoint_info info = other.load(path, {.policy = ht::policy_change::convert});
    CHECK(info.notes.size() == 2);
    has(info.notes[1], "the loss is no longer scaled");
    CHECK(other.model.up.weight.master()(3, 2) == half.model.up.weight.master()(3, 2));
    CHECK(static_cast<float>(other.model.up.weight.values()(3, 2)) ==
          static_cast<float>(ht::bfloat16(half.model.up.weight.master()(3, 2))));
    CHECK(other.optimizer.steps() == half.optimizer.steps());
}

/// A model's and its optimizer's checkpoint from before policies had a role `stream`, and what a load of it does.
TEST_CASE("checkpoint: without the role `stream`, and nothing else different, it is loaded, which the notes say") {
    using ht::amp_bf16, ht::bfloat16, ht::with_stream;
    const support::temporary_folder folder;
    run<support::amp_bf16_without_stream, keeping::by_adamw> old;
    for (int i = 0; i < 3; ++i) old.step(i);
    old.save(folder.path(), 3);
    const auto path = folder.path() / "checkpoint-3";
    run<with_stream<amp_bf16, bfloat16>, keeping::by_adamw> same;
    CHECK(same.load(path).notes ==
          std::vector<std::string>{"it was saved without the role `stream`, which is then its `output`"});
    CHECK(support::bytes_of(same.model.parameters()) == support::bytes_of(old.model.parameters()));
    CHECK(old.load(path).notes.empty());
    run<amp_bf16, keeping::by_adamw> wide;
    CHECK(wide.load(path).notes ==
          std::vector<std::string>{
              "it was saved without the role `stream`: that run kept the sums of its residual stream in its "
              "`output`, bfloat16, and this program keeps them in float; ht::with_stream<P, ht::bfloat16> "
              "goes on as before"});
    CHECK(support::bytes_of(wide.model.parameters()) == support::bytes_of(old.model.parameters()));
    CHECK(wide.optimizer.steps() == 3);
    CHECK(wide.load(path, {.policy = ht::policy_change::convert}).notes.size() == 1);
    // With another difference it is refused for that one.
    run<ht::with_grad<amp_bf16, float>, keeping::by_adamw> other;
    const std::string why = refusal<ht::checkpoint_error>([&] { other.load(path); });
    has(why, "another policy: grad is bfloat16 there, float here: the model, down, norm, up; load it");
    CHECK(other.load(path, {.policy = ht::policy_change::convert}).notes.size() == 2);
}

TEST_CASE("checkpoint: one that states its `stream` is refused with another") {
    const support::temporary_folder folder;
    run<ht::with_stream<ht::amp_bf16, ht::bfloat16>, keeping::by_adamw> narrow;
    narrow.save(folder.path(), 1);
    const auto path = folder.path() / "checkpoint-1";
    run<ht::amp_bf16, keeping::by_adamw> wide;
    has(refusal<ht::checkpoint_error>([&] { wide.load(path); }),
        "another policy: stream is bfloat16 there, float here: the model, down, norm, up");
    CHECK(wide.load(path, {.policy = ht::policy_change::convert}).notes.size() == 1);
    run<support::amp_bf16_without_stream, keeping::by_adamw> silent;
    CHECK(silent.load(path).notes.empty());
    wide.save(folder.path(), 2);
    has(refusal<ht::checkpoint_error>([&] { silent.load(folder.path() / "checkpoint-2"); }),
        "another policy: stream is float there, bfloat16 (its `output`) here: the model, down, norm, up");
}

/// The notes of a load into a GPT of policy Here of the checkpoint of one of policy There.
template <class There, class Here>
std::vector<std::string> gpt_notes() {
    const support::temporary_folder folder;
    ht::cpu device{{.threads = 1}};
    const ht::nn::gpt_config config{.vocabulary = 19, .context = 8, .layers = 1, .heads = 2, .width = 16};
    ht::nn::gpt<There> there{device, config, 7};
    ht::nn::gpt<Here> here{device, config, 8};
    ht::save_checkpoint(folder.path(), {.step = 1}, there);
    return ht::load_checkpoint(folder.path() / "checkpoint-1", {}, here).notes;
}

TEST_CASE("checkpoint: in a GPT only the stream of \"embed\" counts") {
    using old = support::amp_bf16_without_stream;
    using ht::amp_bf16, ht::recipe, ht::rule, ht::with_output;
    const auto changed = gpt_notes<old, amp_bf16>();
    REQUIRE(changed.size() == 1);
    has(changed[0],
        "`output`, bfloat16, and this program keeps them in float; ht::with_stream<P, ht::bfloat16> goes on");
    const std::vector<std::string> equal{"it was saved without the role `stream`, which is then its `output`"};
    CHECK(gpt_notes<recipe<old, rule<"embed", with_output<old, float>>>,
                    recipe<amp_bf16, rule<"embed", with_output<amp_bf16, float>>>>() == equal);
    CHECK(gpt_notes<ht::full_fp32, ht::full_fp32>().empty());
}

TEST_CASE("checkpoint: missing parts and open windows are refused") {
    const support::temporary_folder folder;
    fp16_run r;
    r.step(0);
    r.save(folder.path(), 1);
    const auto path = folder.path() / "checkpoint-1";
    ht::save_checkpoint(folder.path(), {.step = 2}, r.model, r.tape);
    has(refusal<ht::checkpoint_error>([&] { r.load(folder.path() / "checkpoint-2"); }),
        "checkpoint-2 has no optimizer; it has model, random");
    ht::load_checkpoint(folder.path() / "checkpoint-1", {}, r.model);  // a part alone
    r.pass(1, 0);
    has(refusal<ht::state_error>([&] { r.save(folder.path(), 3); }), "within a window of 1 micro-batches");
    has(refusal<ht::state_error>([&] { r.load(path); }), "within a window of 1 micro-batches");
    CHECK(!fs::exists(folder.path() / "checkpoint-3"));
    has(refusal<ht::argument_error>([&] { ht::save_checkpoint(folder.path(), {.step = -1}, r.model); }), "step is -1");
    CHECK(ht::list_checkpoints(folder.path()).size() == 2);
}

TEST_CASE("checkpoint: averages are not saved as the parameters") {
    const support::temporary_folder folder;
    fp16_run r;
    for (int i = 0; i < 6; ++i) r.step(i);
    r.save(folder.path(), 6);
    ht::checkpoint_saver saver(folder.path());
    {
        const auto averaged = r.optimizer.average_parameters();
        const std::string what = "checkpoint: saved or loaded while average_parameters() has put averages in place";
        has(refusal<ht::state_error>([&] { r.save(folder.path(), 7); }), what);
        has(refusal<ht::state_error>([&] { ht::save_checkpoint(folder.path(), {.step = 7}, r.model); }), what);
        has(refusal<ht::state_error>([&] { ht::save_checkpoint(folder.path(), {.step = 7}, r.optimizer); }), what);
        has(refusal<ht::state_error>([&] { saver.save({.step = 7}, r.model, r.optimizer); }), what);
        has(refusal<ht::state_error>([&] { r.load(folder.path() / "checkpoint-6"); }), what);
        ht::save_weights(r.model, folder.path() / "averages.safetensors");
    }
    CHECK(ht::list_checkpoints(folder.path()).size() == 1);
    r.save(folder.path(), 7);
    saver.save({.step = 8}, r.model, r.optimizer);
    saver.wait();
    CHECK(ht::list_checkpoints(folder.path()).size() == 3);
}

/// A state of a user's own.
struct position {
    std::int64_t epoch = 0, row = 0;
    std::vector<double> scores;
    std::string name;
    static void visit_fields(auto& self, auto&& f) { f("epoch", self.epoch), f("row", self.row), f("scores", self.scores), f("name", self.name); }
};
struct loader {
    static constexpr const char* checkpoint_name = "loader";
    position now;
    position state() const { return now; }
    void load(const position& p) {
        if (p.row > 100) throw ht::argument_error("loader: there are 100 rows");
        now = p;
    }
};

TEST_CASE("checkpoint: a loader's position is a part; a load that a part refuses changes no other") {
    const support::temporary_folder folder;
    fp16_run r;
    loader rows{{3, 70, {0.1, -0.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}, "\xc3\xa4"}};
    r.step(0);
    ht::save_checkpoint(folder.path(), {.step = 1, .metrics = {{"eval_loss", 0.5}}, .arguments = R"({"lr": 0.1})"}, r.model, r.tape, rows, r.scaler);
    loader back;
    const auto info = ht::load_checkpoint(folder.path() / "checkpoint-1", {}, back);
    CHECK(info.metrics.at("eval_loss") == 0.5);
    CHECK(info.arguments == R"({"lr":0.1})");
    CHECK(back.now.epoch == 3);
    CHECK(back.now.row == 70);
    CHECK(back.now.name == rows.now.name);
    CHECK(back.now.scores[0] == 0.1);
    CHECK(std::signbit(back.now.scores[1]));
    CHECK(back.now.scores[2] == std::numeric_limits<double>::infinity());
    CHECK(std::isnan(back.now.scores[3]));
    rows.now.row = 101;
    r.step(1);
    ht::save_checkpoint(folder.path(), {.step = 2}, r.model, r.tape, r.scaler, rows);
    fp16_run other;
    other.step(5), other.step(6);
    const std::string before = other.bytes();
    has(refusal<ht::checkpoint_error>([&] { ht::load_checkpoint(folder.path() / "checkpoint-2", {}, other.model, other.tape, other.scaler, back); }),
        "loader: there are 100 rows");
    CHECK(other.bytes() == before);
}

TEST_CASE("checkpoint: a data loader goes on in the middle of its epoch") {
    const support::temporary_folder folder;
    const data_test::numbers source{40};
    const auto rest = [](auto& loader) {
        std::vector<ht::extent> ids;
        while (const data_test::id_batch* batch = loader.next()) ids.insert(ids.end(), batch->values.data(), batch->values.data() + batch->values.size());
        return ids;
    };
    ht::data_loader straight{source, {.batch_size = 4, .num_workers = 0, .seed = 3}, &data_test::collate};
    for (int i = 0; i < 3; ++i) straight.next();
    ht::save_checkpoint(folder.path(), {.step = 3}, straight);
    const auto expected = rest(straight);
    CHECK(expected.size() == 28);
    ht::data_loader resumed{source, {.batch_size = 4, .num_workers = 2, .seed = 3}, &data_test::collate};
    resumed.next();
    ht::load_checkpoint(folder.path() / "checkpoint-3", {}, resumed);
    CHECK(resumed.position().rows == 12);
    CHECK(rest(resumed) == expected);
    const data_test::numbers shorter{20};
    ht::data_loader other{shorter, {.batch_size = 4, .seed = 3}, &data_test::collate};
    CHECK_THROWS_AS(ht::load_checkpoint(folder.path() / "checkpoint-3", {}, other), ht::checkpoint_error);
}

TEST_CASE("checkpoint: every damage is found, and the newest good one is loaded") {
    const support::temporary_folder folder;
    fp16_run r;
    for (int i = 1; i <= 3; ++i) {
        r.step(i);
        r.save(folder.path(), i);
    }
    const auto newest = folder.path() / "checkpoint-3";
    const auto intact = folder.path() / "intact";
    fs::copy(newest, intact, fs::copy_options::recursive);
    const auto loads = [&] {
        std::vector<std::string> skipped;
        const ht::load_checkpoint_options o{.on_skipped = [&](const std::string& line) { skipped.push_back(line); }};
        fp16_run other;
        const auto found = other.with_parts([&](auto&... parts) { return ht::load_newest_checkpoint(folder.path(), o, parts...); });
        REQUIRE(found);
        CHECK(found->step == 2);
        REQUIRE(skipped.size() == 1);
        has(skipped[0], "skipped " + newest.string());
        fs::remove_all(newest);
        fs::copy(intact, newest, fs::copy_options::recursive);
    };
    for (const char* const name : {"model.safetensors", "optimizer.safetensors", "checkpoint.json"}) {
        const std::string whole = support::temporary_folder::read(newest / name);
        for (const std::size_t at : {std::size_t{3}, whole.size() / 3, whole.size() / 2, whole.size() - 2}) {
            CAPTURE(name);
            CAPTURE(at);
            std::string changed = whole;
            changed[at] = static_cast<char>(changed[at] ^ 1);
            folder.write(std::string("checkpoint-3/") + name, changed);
            loads();
            folder.write(std::string("checkpoint-3/") + name, whole.substr(0, at));
            loads();
        }
        fs::remove(newest / name);
        loads();
    }
    // One that is whole and does not fit is no reason to load an older one.
    run<ht::amp_bf16, keeping::by_adamw> single;
    refusal<ht::checkpoint_error>([&] { single.with_parts([&](auto&... parts) { ht::load_newest_checkpoint(folder.path(), {}, parts...); }); });
    fp16_run other;
    CHECK(!ht::load_newest_checkpoint(folder.path() / "none", {}, other.model));
    CHECK(ht::read_checkpoint_info(newest).step == 3);
    CHECK(ht::verify_checkpoint(newest).step == 3);
}

std::string steps_in(const fs::path& folder) {
    std::string text;
    for (const auto& c : ht::list_checkpoints(folder)) text += std::to_string(c.step) + ' ';
    return text;
}

TEST_CASE("checkpoint: the newest and the best are kept, and what crashes leave is cleaned") {
    const support::temporary_folder folder;
    fp16_run r;
    const auto save = [&](std::int64_t step, int limit, std::optional<std::int64_t> best = std::nullopt) {
        ht::save_checkpoint(folder.path(), {.step = step, .save_total_limit = limit, .best = best}, r.model);
    };
    for (int i = 1; i <= 4; ++i) save(i, 0);
    CHECK(steps_in(folder.path()) == "4 3 2 1 ");
    save(5, 2, 1);
    CHECK(steps_in(folder.path()) == "5 4 1 ");
    save(6, 2, 6);
    CHECK(steps_in(folder.path()) == "6 5 ");
    save(6, 2);  // again
    CHECK(steps_in(folder.path()) == "6 5 ");
    save(4, 2);  // a run that was resumed before step 5
    CHECK(steps_in(folder.path()) == "4 ");
    folder.write("checkpoint-7.part/model.safetensors", "x");
    folder.write("checkpoint-8.gone/model.safetensors", "x");
    folder.write("checkpoint-04/x", "x"), folder.write("checkpoint--4/x", "x"), folder.write("checkpoint-/x", "x"), folder.write("checkpoint-4x/x", "x");
    fs::rename(folder.path() / "checkpoint-4", folder.path() / "checkpoint-4.old");  // killed while it was replaced
    CHECK(steps_in(folder.path()) == "4 ");
    CHECK(ht::load_newest_checkpoint(folder.path(), {}, r.model)->step == 4);
    save(9, 0);
    CHECK(steps_in(folder.path()) == "9 4 ");
    CHECK(!fs::exists(folder.path() / "checkpoint-7.part"));
    CHECK(!fs::exists(folder.path() / "checkpoint-8.gone"));
}

TEST_CASE("checkpoint: saved beside the steps, with the bits of the moment of the save") {
    const support::temporary_folder folder;
    fp16_run r, again;
    ht::checkpoint_saver saver(folder.path());
    for (int i = 1; i <= 12; ++i) {
        r.step(i);
        r.with_parts([&](auto&... parts) { saver.save({.step = i}, parts...); });
    }
    saver.wait();
    CHECK(!saver.is_saving());
    CHECK(saver.failure().empty());
    for (int i = 1; i <= 12; ++i) {
        again.step(i);
        fp16_run loaded;
        loaded.load(folder.path() / ("checkpoint-" + std::to_string(i)));
        CHECK(loaded.bytes() == again.bytes());
    }
    // A failure is told once, and does not hinder the next save.
    folder.write("no folder", "");
    ht::checkpoint_saver failing(folder.path() / "no folder");
    failing.save({.step = 1}, r.model);
    CHECK_THROWS_AS(failing.wait(), ht::io_error);
    failing.wait();
    fs::remove(folder.path() / "no folder");
    failing.save({.step = 1}, r.model);
    failing.wait();
    CHECK(steps_in(folder.path() / "no folder") == "1 ");
}

/// GPT-2's number of parameters, in one layer.
struct wide : ht::nn::model {
    using policy = ht::amp_bf16;
    ht::nn::linear<ht::at<policy, "fc">> fc;
    explicit wide(ht::cpu& device) : ht::nn::model(device), fc(parameters(), 11136, 11136) { commit(*this, 1); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

TEST_CASE("checkpoint: saving 124 million parameters blocks the loop for less than 50 ms" * doctest::test_suite("times") * doctest::skip()) {
    const support::temporary_folder folder;
    ht::cpu device;
    wide model(device);
    ht::adamw optimizer{device, model, {.lr = 1e-3}};
    ht::checkpoint_saver saver(folder.path());
    const auto milliseconds = [](auto&& f) {
        const auto begin = std::chrono::steady_clock::now();
        f();
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    };
    std::vector<double> all;
    for (int i = 1; i <= 5; ++i) {
        const double blocked = milliseconds([&] { saver.save({.step = i, .save_total_limit = 1}, model, optimizer); });
        const double copied = milliseconds([&] { model.parameters().await_readers(); });
        const double written = milliseconds([&] { saver.wait(); });
        MESSAGE("save() ", blocked, " ms, copied ", copied, " ms later, written ", written, " ms later");
        all.push_back(blocked);
    }
    CHECK(support::median(all) < 50);
    const double loading = milliseconds([&] { ht::load_checkpoint(folder.path() / "checkpoint-5", {}, model, optimizer); });
    MESSAGE("loaded in ", loading, " ms");
}

}  // namespace io_checkpoint_tests
