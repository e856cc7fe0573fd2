// SPDX-License-Identifier: MIT
#include <algorithm>
#include <fstream>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include <halftone/io/checkpoint/folder.hpp>
#include <halftone/io/checkpoint/verify.hpp>

#include "report.hpp"

namespace fs = std::filesystem;
using json = nlohmann::json;

namespace {

/// The newest checkpoint of a policy that is good.
std::optional<ht::checkpoint_info> newest_of(const options& o, const std::string& policy) {
    for (const ht::checkpoint_place& c : ht::list_checkpoints(o.out / policy)) {
        try {
            return ht::verify_checkpoint(c.path);
        } catch (const ht::io_error&) {  // told when it is loaded
        }
    }
    return std::nullopt;
}

/// The ranks of a run with these arguments, and the windows of its steps.
std::int64_t ranks_of(const json& arguments) { return arguments.value("ranks", std::int64_t{1}); }
std::int64_t windows_of(const json& arguments) {
    return ranks_of(arguments) * arguments.value("batch", std::int64_t{0}) *
           arguments.value("accumulation", std::int64_t{0});
}

/// Steps may be more, or fewer; the weights of --init have gone into the checkpoint; ranks others, and what they divide, if they take the same windows.
void check_arguments(const ht::checkpoint_info& from, const std::string& arguments) {
    if (from.arguments.empty()) return;
    const std::string was_saved = "--resume: " + from.path.string() + " was saved with ";
    json there = json::parse(from.arguments), here = json::parse(arguments);
    for (json* each : {&there, &here}) each->erase("steps"), each->erase("init"), each->erase("zero");
    if (ranks_of(there) != ranks_of(here)) {
        if (windows_of(there) != windows_of(here)) {
            refuse(was_saved, windows_of(there), " windows in a step on ", ranks_of(there), " ranks; here it has ",
                   windows_of(here), " on ", ranks_of(here), ", which --batch and --accumulation change");
        }
        for (const char* const name : {"ranks", "batch", "accumulation"}) there.erase(name), here.erase(name);
    }
    for (const auto& [name, value] : here.items()) {
        if (!there.contains(name)) refuse(was_saved, name, " unknown; here it is ", value.dump());
        if (there[name] != value) refuse(was_saved, name, " ", there[name].dump(), "; here it is ", value.dump());
    }
    for (const auto& [name, value] : there.items()) {
        if (!here.contains(name)) refuse(was_saved, name, " ", value.dump(), "; here it is unknown");
    }
}

/// The lines of a policy that a run from its beginning to `step` would have written: without those of steps that are done
/// again, and without the one that tells the state at an interruption.
bool is_kept(const json& line, std::int64_t step, std::int64_t steps) {
    const auto at = line["step"].get<std::int64_t>(), logging = std::max<std::int64_t>(1, steps / 20);
    return at <= step && (!line.contains("loss") || at % logging == 0 || at == steps);
}

}  // namespace

ht::part_file rejoin_metrics(const options& o, const std::string& arguments) {
    if (o.save_steps == 0 && !o.resume) return ht::part_file::kept;
    const fs::path part = o.out / "metrics.jsonl.part";
    std::string kept;
    if (o.resume) {
        std::map<std::string, std::int64_t> steps;
        for (const std::string& policy : o.policies) {
            const auto from = newest_of(o, policy);
            if (from) check_arguments(*from, arguments);
            steps[policy] = from ? from->step : 0;
        }
        std::ifstream before(fs::exists(part) ? part : o.out / "metrics.jsonl", std::ios::binary);
        for (std::string text; std::getline(before, text);) {
            const json line = json::parse(text, nullptr, false);  // the last one may be cut
            if (!line.is_object() || !line.contains("policy") || !line.contains("step")) continue;
            const auto found = steps.find(line["policy"].get<std::string>());
            if (found != steps.end() && is_kept(line, found->second, o.steps)) kept += text + "\n";
        }
    }
    ht::detail::durable_file out(part);
    out.write(kept.data(), kept.size());
    out.commit();
    return ht::part_file::continued;
}
