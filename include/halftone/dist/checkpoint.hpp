// SPDX-License-Identifier: MIT
/// \file
/// Checkpoints of several ranks: each writes its ranges of the tensors, and any number of ranks reads them again.
///
///     ht::save_checkpoint(comm, "run", {.step = step}, model, optimizer, scaler, tape);          // called by all ranks
///     const auto from = ht::load_newest_checkpoint(comm, "run", {}, model, optimizer, scaler, tape);
///
/// It is a checkpoint as io/checkpoint.hpp describes it, in a folder that all ranks share, but with several files for each
/// part (io/checkpoint/shards.hpp). The parts are the same. Of parts that all ranks hold as a whole, such as the models of
/// data parallel training, each rank writes an equal share. What is divided among ranks tells its ranges itself:
///
///     struct my_shards {
///         void visit_ranges(auto&& f) { f("model", ht::shard_range{"h.0.up.weight", ht::dtype::f32, {64, 32}, 512, 512, read, write}); }
///     };
///     ht::save_checkpoint(comm, "run", {.step = step}, shards, model, optimizer);   // the shards take the place of tensors
///
/// It is atomic as a whole: all files are written and flushed before rank 0 writes the manifest and gives the folder its
/// name. A rank that fails makes the call throw on all ranks, and the earlier checkpoints stay. Loading on 4, 2 or 1 ranks
/// gives each the ranges that it holds there: rank r checks the checksums of files r, r + n, ..., reads what it needs of
/// all, and nothing changes on any rank unless all agree. Without a communicator, ht::load_checkpoint reads such a
/// checkpoint as well.
///
/// States (counters, the scale, random numbers) are saved once, if they are the same on all ranks, and otherwise for each
/// rank; these can be resumed by as many ranks only, or with policy_change::convert.
#pragma once

#include <cstring>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <halftone/dist/reduce.hpp>
#include <halftone/io/checkpoint.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A range of a tensor that a rank holds.
struct shard_range {
    std::string name;                       ///< of the tensor
    dtype type = dtype::f32;
    std::vector<extent> shape;              ///< of the whole tensor
    std::size_t first = 0, count = 0;       ///< elements, in row-major order; a count of 0: this rank holds none of it
    std::function<void(std::byte* to, std::size_t first, std::size_t count)> read{};  ///< bytes of the range
    std::function<void(const std::byte* from)> write{};                               ///< the whole range
};

namespace detail {

struct no_ranges {
    void operator()(const char*, const shard_range&) const {}
};
/// Something that calls f("model", range) for all ranges that this rank holds of tensors that are divided, and for tensors
/// of which it holds none; and that may have finish_load(), called when they have been written.
template <class T>
concept tells_ranges = requires(T& t) { t.visit_ranges(no_ranges{}); };

/// The parts of a rank, with their ranges.
struct sharded_parts {
    std::vector<checkpoint_part> parts;
    std::vector<std::vector<shard_range>> ranges;          ///< of each part
    std::vector<std::function<void()>> finish;
};

/// The share of one rank in tensors that every rank holds: equal shares of all elements.
inline std::vector<shard_range> equal_share(const std::vector<part_tensor>& tensors, const communicator& comm) {
    std::size_t all = 0, before = 0;
    for (const part_tensor& t : tensors) all += t.bytes / size_of(t.type);
    const auto ranks = static_cast<std::size_t>(comm.size()), rank = static_cast<std::size_t>(comm.rank());
    const std::size_t each = (all + ranks - 1) / ranks, begin = each * rank, end = begin + each;
    std::vector<shard_range> ranges;
    for (const part_tensor& t : tensors) {
        const std::size_t size = size_of(t.type), count = t.bytes / size;
        const std::size_t first = std::clamp(begin, before, before + count) - before, last = std::clamp(end, before, before + count) - before;
        // An empty tensor is written by rank 0.
        if (first < last || (count == 0 && rank == 0)) {
            ranges.push_back({t.name, t.type, t.shape, first, last - first,
                              [read = t.read, skip = first * size](std::byte* to, std::size_t at, std::size_t bytes) { read(to, skip + at, bytes); }});
        }
        before += count;
    }
    return ranges;
}
/// All of the tensors that every rank holds, to be loaded.
inline std::vector<shard_range> whole_ranges(const std::vector<part_tensor>& tensors) {
    std::vector<shard_range> ranges;
    for (const part_tensor& t : tensors) ranges.push_back({t.name, t.type, t.shape, 0, t.bytes / size_of(t.type), t.read, t.write});
    return ranges;
}

template <class T>
void add_sharded(sharded_parts& all, std::map<std::string, std::vector<shard_range>>& told, T& value) {
    if constexpr (tells_ranges<T>) {
        value.visit_ranges([&told](const char* part, const shard_range& r) { told[part].push_back(r); });
        if constexpr (requires { value.finish_load(); }) all.finish.push_back([&value] { value.finish_load(); });
    } else {
        add_part(all.parts, value);
    }
}

/// The parts, whose tensors are those that nobody tells ranges of. `saves`: with this rank's share of these.
template <class... Parts>
sharded_parts sharded_parts_of(const communicator& comm, bool saves, Parts&... values) {
    sharded_parts all;
    std::map<std::string, std::vector<shard_range>> told;
    (add_sharded(all, told, values), ...);
    for (checkpoint_part& part : all.parts) {
        std::vector<shard_range> ranges = std::move(told[part.name]);
        std::set<std::string> named;
        for (const shard_range& r : ranges) named.insert(r.name);
        std::erase_if(part.tensors, [&named](const part_tensor& t) { return named.count(t.name) != 0; });
        for (shard_range& r : saves ? equal_share(part.tensors, comm) : whole_ranges(part.tensors)) ranges.push_back(std::move(r));
        all.ranges.push_back(std::move(ranges));
        told.erase(part.name);
    }
    for (const auto& [name, ranges] : told) {
        if (!ranges.empty()) fail<argument_error>("checkpoint: there are ranges of ", name, ", which is none of the parts");
    }
    return all;
}

/// What a rank tells the others of a call that it made.
struct rank_outcome {
    enum : int { done, other, file, checkpoint } kind = done;  ///< the type of its exception
    char message[244]{};                                       ///< the beginning of it
};

/// Calls f on this rank, and returns if no rank's call has thrown. Otherwise throws on all: on the rank itself what its call
/// has thrown, on others an exception that names that rank. All are io_errors, or on no rank.
template <class F>
void on_all_ranks(communicator& comm, const char* what, const F& f) {
    rank_outcome mine;
    std::exception_ptr thrown;
    const auto note = [&](decltype(mine.kind) kind, const char* message) {
        mine.kind = kind;
        std::strncpy(mine.message, message, sizeof mine.message - 1);
        thrown = std::current_exception();
    };
    try {
        f();
    } catch (const communication_error&) {
        throw;  // the others cannot be told
    } catch (const checkpoint_error& e) {
        note(rank_outcome::checkpoint, e.what());
    } catch (const io_error& e) {
        note(rank_outcome::file, e.what());
    } catch (const std::exception& e) {
        note(rank_outcome::other, e.what());
    }
    const std::vector<rank_outcome> all = gather_values(comm, what, mine);
    std::size_t worst = 0;
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
        const bool is_worse = all[worst].kind == rank_outcome::done || all[rank].kind < all[worst].kind;
        if (all[rank].kind != rank_outcome::done && is_worse) worst = rank;
    }
    const rank_outcome& o = all[worst];
    if (o.kind == rank_outcome::done) return;
    if (thrown && (o.kind == rank_outcome::other) == (mine.kind == rank_outcome::other)) std::rethrow_exception(thrown);
    const std::string text = sentence("checkpoint: rank ", worst, ": ", std::string(o.message, strnlen(o.message, sizeof o.message)));
    if (o.kind == rank_outcome::checkpoint) throw checkpoint_error(text);
    if (o.kind == rank_outcome::file) throw io_error(text);
    throw state_error(text);
}

/// The same text of each rank.
inline std::vector<std::string> gather_texts(communicator& comm, const char* what, const std::string& mine) {
    const std::vector<std::uint64_t> sizes = gather_values<std::uint64_t>(comm, what, mine.size());
    const auto most = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
    std::string padded = mine, all(most * sizes.size(), '\0');
    padded.resize(most);
    comm.all_gather(what, padded.data(), all.data(), most);
    std::vector<std::string> texts;
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) texts.push_back(all.substr(rank * most, static_cast<std::size_t>(sizes[rank])));
    return texts;
}

/// Writes this rank's files; returns their manifest's lines.
inline nlohmann::json write_shards(communicator& comm, const std::filesystem::path& folder, std::int64_t step, const sharded_parts& all) {
    nlohmann::json files = nlohmann::json::object();
    for (std::size_t i = 0; i < all.parts.size(); ++i) {
        std::vector<tensor_source> sources;
        for (const shard_range& r : all.ranges[i]) {
            std::size_t elements = 0;
            if (!count_of(r.shape, size_of(r.type), elements) || r.first > elements || r.count > elements - r.first)
                fail<argument_error>("checkpoint: elements ", r.first, " to ", r.first + r.count, " of ", r.name, ", which is ", shape_text(r.shape));
            if (r.count == 0 && elements != 0) continue;
            const bool is_whole = r.count == elements && (comm.size() == 1 || !r.name.ends_with(']'));
            sources.push_back({is_whole ? r.name : range_name(r.name, r.shape, r.first, r.first + r.count), r.type,
                               is_whole ? r.shape : std::vector<extent>{static_cast<extent>(r.count)}, r.read});
        }
        if (sources.empty()) continue;
        const std::string name = shard_file_name(all.parts[i].name, comm.rank(), comm.size());
        durable_file out(folder / name, file_naming::at_once);
        write_safetensors_to(out, sources, {{"format", "pt"}, {"step", std::to_string(step)}});
        out.commit();
        files[name] = {{"bytes", out.size()}, {"crc32", hex(out.checksum())}};
    }
    return files;
}

/// The manifest's entries of all ranks' files and states.
inline nlohmann::json shared_manifest(communicator& comm, const checkpoint_options& o, const sharded_parts& all, const nlohmann::json& files) {
    nlohmann::json states = nlohmann::json::object();
    for (const checkpoint_part& p : all.parts) states[p.name] = p.state();
    nlohmann::json manifest{{"step", o.step}, {"metrics", nlohmann::json::object()}, {"parts", states}, {"files", nlohmann::json::object()}};
    if (comm.size() > 1) manifest["ranks"] = comm.size();
    for (const auto& [name, value] : o.metrics) manifest["metrics"][name] = to_json(value);
    if (!o.arguments.empty()) manifest["arguments"] = parse_json<argument_error>("checkpoint: arguments", o.arguments);
    for (const std::string& text : gather_texts(comm, "checkpoint.files", files.dump())) manifest["files"].update(nlohmann::json::parse(text));
    std::vector<nlohmann::json> of_ranks;
    for (const std::string& text : gather_texts(comm, "checkpoint.states", states.dump())) of_ranks.push_back(nlohmann::json::parse(text));
    for (const checkpoint_part& p : all.parts) {
        manifest["parts"][p.name] = of_ranks[0][p.name];
        const bool differs = std::any_of(of_ranks.begin(), of_ranks.end(), [&](const nlohmann::json& j) { return j[p.name] != of_ranks[0][p.name]; });
        for (const nlohmann::json& j : of_ranks) {
            if (differs) manifest["of_ranks"][p.name].push_back(j[p.name]);
        }
    }
    return manifest;
}

/// Writes a checkpoint of all ranks; returns its folder.
inline std::filesystem::path write_sharded(communicator& comm, const std::filesystem::path& folder, const checkpoint_options& o,
                                           const sharded_parts& all) {
    const auto part = checkpoint_path(folder, o.step, ".part");
    try {
        on_all_ranks(comm, "checkpoint.begin", [&] {
            if (comm.size() > most_shards) fail<argument_error>("checkpoint: ", comm.size(), " ranks; expected ", most_shards, " at most");
            if (o.step < 0) fail<argument_error>("checkpoint: step is ", o.step, "; expected 0 or more");
            if (comm.rank() != 0) return;
            begin_part(folder, o.step);
        });
        nlohmann::json files;
        on_all_ranks(comm, "checkpoint.write", [&] { files = write_shards(comm, part, o.step, all); });
        const nlohmann::json manifest = shared_manifest(comm, o, all, files);
        on_all_ranks(comm, "checkpoint.manifest", [&] {
            if (comm.rank() != 0) return;
            write_manifest(part, manifest);
            flush_folder(part);
            publish(part, folder, o.step);
            keep_newest(folder, o);
        });
    } catch (...) {
        if (comm.rank() == 0) remove_all_quietly(part);
        throw;
    }
    return checkpoint_path(folder, o.step);
}

/// The values of a part's ranges, each where `write` takes them from.
inline std::vector<std::vector<std::byte>> read_ranges(const std::string& where, const std::string& part, const std::vector<shard_range>& ranges,
                                                       const shard_files& files, load_request& request) {
    name_list missing, unexpected, differing;
    std::set<std::string> named;
    std::vector<std::vector<std::byte>> values;
    for (const shard_range& r : ranges) {
        named.insert(r.name);
        values.emplace_back();
        const shard_files::tensor* const there = files.find(r.name);
        if (there == nullptr) {
            missing.add(r.name);
            continue;
        }
        const bool converts = there->type != r.type && request.converts() && is_float(there->type) && is_float(r.type);
        if (there->shape != r.shape || (there->type != r.type && !converts)) {
            differing.add(r.name + ", which is " + name(there->type) + ' ' + shape_text(there->shape) + " there, " + name(r.type) + ' ' + shape_text(r.shape) + " here");
            continue;
        }
        values.back().resize(r.count * size_of(there->type));
        shard_files::read(*there, r.first, r.count, values.back().data());
        if (!converts) continue;
        std::vector<std::byte> converted(r.count * size_of(r.type));
        convert(there->type, values.back().data(), r.type, converted.data(), r.count);
        values.back() = std::move(converted);
    }
    for (const auto& [name, t] : files.tensors()) {
        if (named.count(name) == 0) unexpected.add(name);
    }
    expect_no_faults(where, part, missing, unexpected, differing);
    return values;
}

/// Loads a checkpoint on all ranks, or on none.
inline checkpoint_info read_sharded(communicator& comm, const std::filesystem::path& path, sharded_parts& all, policy_change policy) {
    checkpoint_info info;
    load_request request{policy, {}};
    std::vector<undoable> changes;
    std::vector<std::vector<std::vector<std::byte>>> values;
    std::uint32_t seen = 0;
    on_all_ranks(comm, "checkpoint.read", [&] {
        const nlohmann::json manifest = read_manifest(path);
        const std::string text = manifest.dump();
        crc32 sum;
        sum.add(text.data(), text.size());
        seen = sum.value();
        info = info_of(path, manifest);
        changes = prepare_parts(path, manifest, all.parts, comm.rank(), comm.size(), request);
        int number = 0;
        for (const auto& [name, file] : manifest["files"].items()) {
            if (number++ % comm.size() == comm.rank()) check_file(path / name, file);
        }
        for (std::size_t i = 0; i < all.parts.size(); ++i) {
            const shard_files files(path, manifest, all.parts[i].name);
            if (files.is_empty() && !all.ranges[i].empty()) fail<checkpoint_error>(path.string(), " has no ", all.parts[i].name, ".safetensors");
            values.push_back(read_ranges((path / all.parts[i].name).string(), all.parts[i].name, all.ranges[i], files, request));
        }
    });
    const std::vector<std::uint32_t> seen_by = gather_values(comm, "checkpoint.seen", seen);
    for (std::size_t rank = 1; rank < seen_by.size(); ++rank) {
        if (seen_by[rank] != seen_by[0])
            fail<checkpoint_error>(path.string(), ": rank ", rank, " reads another manifest than rank 0; expected a folder that all ranks share");
    }
    bool is_applied = false;
    try {
        on_all_ranks(comm, "checkpoint.apply", [&] { apply_changes(path, changes), is_applied = true; });
    } catch (...) {
        for (auto c = changes.rbegin(); is_applied && c != changes.rend(); ++c) c->undo();
        throw;
    }
    for (std::size_t i = 0; i < all.parts.size(); ++i) {
        if (all.parts[i].latch != nullptr) all.parts[i].latch->wait();
        for (std::size_t k = 0; k < values[i].size(); ++k) {
            if (all.ranges[i][k].count != 0) all.ranges[i][k].write(values[i][k].data());
        }
    }
    for (const checkpoint_part& p : all.parts) p.finish();
    for (const auto& f : all.finish) f();
    info.notes = std::move(request.notes);
    return info;
}

}  // namespace detail

/// Saves the parts of all ranks as folder/checkpoint-STEP; returns its path. Called by all ranks, with a folder that they
/// share. Throws on all ranks if one fails, and everything is then as before: io_error; state_error within a window of
/// micro-batches; argument_error for a negative step or impossible ranges; communication_error.
template <class... Parts>
std::filesystem::path save_checkpoint(communicator& comm, const std::filesystem::path& folder, const checkpoint_options& o, Parts&... parts) {
    detail::sharded_parts all;
    detail::on_all_ranks(comm, "checkpoint.parts", [&] { all = detail::sharded_parts_of(comm, true, parts...); });
    return detail::write_sharded(comm, folder, o, all);
}

/// Loads the parts of all ranks from a checkpoint of any number of ranks, or of a run without any. Called by all ranks. All
/// or nothing, on all ranks: throws io_error and checkpoint_error as without a communicator, if one rank fails, and
/// communication_error.
template <class... Parts>
checkpoint_info load_checkpoint(communicator& comm, const std::filesystem::path& checkpoint, const load_checkpoint_options& o, Parts&... parts) {
    detail::sharded_parts all;
    detail::on_all_ranks(comm, "checkpoint.parts", [&] { all = detail::sharded_parts_of(comm, false, parts...); });
    return detail::read_sharded(comm, checkpoint, all, o.policy);
}

/// Loads the newest good checkpoint of a folder on all ranks; nothing if there is none. A damaged one is skipped, with a
/// call of on_skipped on each rank; a good one that does not fit is an error: checkpoint_error. Called by all ranks.
template <class... Parts>
std::optional<checkpoint_info> load_newest_checkpoint(communicator& comm, const std::filesystem::path& folder, const load_checkpoint_options& o,
                                                      Parts&... parts) {
    std::string listed;
    detail::on_all_ranks(comm, "checkpoint.list", [&] {
        if (comm.rank() != 0) return;
        for (const checkpoint_place& c : list_checkpoints(folder)) listed += c.path.filename().string() + '\n';
    });
    const std::string names = detail::gather_texts(comm, "checkpoint.names", listed)[0];
    for (std::size_t at = 0, end = 0; (end = names.find('\n', at)) != std::string::npos; at = end + 1) {
        const std::filesystem::path path = folder / names.substr(at, end - at);
        try {
            return load_checkpoint(comm, path, o, parts...);
        } catch (const io_error& e) {
            bool is_good = true;
            try {
                detail::on_all_ranks(comm, "checkpoint.verify", [&] {
                    if (comm.rank() == 0) static_cast<void>(verify_checkpoint(path));
                });
            } catch (const io_error&) {
                is_good = false;
            }
            if (is_good) throw;
            if (o.on_skipped) o.on_skipped(detail::sentence("skipped ", path.string(), ": ", e.what()));
        }
    }
    return std::nullopt;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
