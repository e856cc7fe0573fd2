// SPDX-License-Identifier: MIT
/// \file
/// Checkpoints of several ranks: each writes its ranges of the tensors, and any number of ranks reads them again.
///
///     ht::save_checkpoint(comm, "run", {.step = step}, model, optimizer, scaler, tape);          // called by all ranks
///     const auto from = ht::load_newest_checkpoint(comm, "run", {}, model, optimizer, scaler, tape);
///
/// It is a checkpoint as io/checkpoint.hpp describes it, in a folder that all ranks share, but with several files for each
/// part (io/checkpoint/shards.hpp). The parts are the same. Of what all ranks hold as a whole, such as the models of data
/// parallel training, each rank writes an equal share; of a model that ht::shard divides, and its optimizer, what it holds.
/// Anything else that is divided tells its ranges itself, which take the place of tensors of the parts:
///
///     struct my_shards {
///         void visit_ranges(auto&& f) { f("model", ht::shard_range{"h.0.up.weight", ht::dtype::f32, {64, 32}, 512, 512, read, write}); }
///     };
///     ht::save_checkpoint(comm, "run", {.step = step}, shards, model, optimizer);
///
/// It is atomic as a whole: all files are written and flushed before rank 0 writes the manifest and gives the folder its
/// name. A rank that fails makes the call throw on all ranks, and the earlier checkpoints stay. Loading on 4, 2 or 1 ranks
/// gives each the ranges that it holds there: rank r checks the checksums of files r, r + n, ..., reads what it needs of
/// all, and nothing changes on any rank unless all agree. Without a communicator, ht::load_checkpoint reads such a
/// checkpoint as well.
///
/// States (counters, the scale, random numbers) are saved once, if they are the same on all ranks, and otherwise for each
/// rank; these can be resumed by as many ranks only, or with policy_change::convert. Of a part with `static constexpr bool
/// is_of_first_rank = true`, rank 0's state is for all.
#pragma once

#include <cstring>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <halftone/io/checkpoint.hpp>
#include <halftone/number/integer.hpp>
#include <halftone/ranks/on_all_ranks.hpp>
#include <halftone/ranks/reduce.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A range of a tensor that a rank holds.
struct shard_range {
    std::string name;                       ///< of the tensor
    dtype type = dtype::f32;
    std::vector<extent> shape;              ///< of the whole tensor
    std::size_t first = 0, count = 0;       ///< elements, in row-major order
    std::function<void(std::byte* to, std::size_t first, std::size_t count)> read{};  ///< bytes of the range
    std::function<void(const std::byte* from)> write{};                               ///< the whole range
    std::string own{};  ///< the name of a number type of a user's own, whose elements are bytes
};

namespace detail {

struct no_ranges {
    void operator()(const char*, const shard_range&) const {}
};
/// Something that calls f("model", range) for all ranges that this rank holds of tensors that are divided, and that may have
/// finish_load(), called when they have been written.
template <class T>
concept tells_ranges = requires(T& t) { t.visit_ranges(no_ranges{}); };

/// The parts of a rank, with their ranges.
struct sharded_parts {
    std::vector<checkpoint_part> parts;
    std::vector<std::vector<shard_range>> ranges;      ///< of each part: this rank's
    std::vector<std::set<std::string>> divided;        ///< of each part: names of tensors of which ranks hold ranges
    std::vector<std::function<void()>> finish;
};

/// The share of one rank in tensors that every rank holds: equal shares of all numbers.
inline std::vector<shard_range> equal_share(const std::vector<part_tensor>& tensors, const communicator& comm) {
    std::size_t all = 0, before = 0;
    for (const part_tensor& t : tensors) all += t.bytes / t.numbers().bytes_of_number();
    const auto ranks = static_cast<std::size_t>(comm.size()), rank = static_cast<std::size_t>(comm.rank());
    const std::size_t each = ceil_div(all, ranks), begin = each * rank, end = begin + each;
    std::vector<shard_range> ranges;
    for (const part_tensor& t : tensors) {
        const std::size_t size = t.numbers().bytes_of_number(), count = t.bytes / size;
        const std::size_t dtypes = size / size_of(t.type);  // of a user's own type: its bytes
        const std::size_t first = std::clamp(begin, before, before + count) - before, last = std::clamp(end, before, before + count) - before;
        // An empty tensor is written by rank 0.
        if (first < last || (count == 0 && rank == 0)) {
            ranges.push_back({t.name,
                              t.type,
                              t.shape,
                              first * dtypes,
                              (last - first) * dtypes,
                              [read = t.read, skip = first * size](std::byte* to, std::size_t at, std::size_t bytes) {
                                  read(to, skip + at, bytes);
                              },
                              {},
                              t.own});
        }
        before += count;
    }
    return ranges;
}
/// All of the tensors that every rank holds, to be loaded.
inline std::vector<shard_range> whole_ranges(const std::vector<part_tensor>& tensors) {
    std::vector<shard_range> ranges;
    for (const part_tensor& t : tensors)
        ranges.push_back({t.name, t.type, t.shape, 0, t.bytes / size_of(t.type), t.read, t.write, t.own});
    return ranges;
}

/// A range of elements of a number type with this name.
inline shard_range range_of_numbers(const std::string& name, const char* type, std::size_t each, const std::vector<extent>& shape,
                                    const element_range& part) {
    part_tensor whole{.name = name, .shape = shape};
    set_type(whole, type, each);
    const std::size_t dtypes = each / size_of(whole.type);  // of a user's own type: its bytes
    return {name, whole.type, whole.shape, part.first * dtypes, part.count * dtypes, {}, {}, whole.own};
}
/// The elements of a parameter, without the gap after it, of which a rank holds [first, first + count).
inline element_range without_gap(const store_entry& e, const element_range& part) {
    return part.count == 0 ? element_range{} : element_range{part.first, std::min(part.count, e.count - part.first)};
}

/// Calls f for each range of a divided store's parameters; those of which every rank has all are left out.
template <class F>
void visit_divided_parameters(store& parameters, const communicator& comm, const F& f) {
    for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
        const store_entry& e = parameters.entries()[i];
        if (!is_in_checkpoint(parameters, e)) continue;
        const store_group& g = parameters.groups()[e.group];
        const store_run& r = parameters.runs()[e.run];
        const bool is_copy = !r.master.is_there();
        if ((is_copy ? r.copy : r.master).is_whole) continue;
        const element_range part = without_gap(e, part_of_rank(e, r, static_cast<std::size_t>(comm.rank())));
        const std::size_t each = is_copy ? g.copy_bytes : g.split != nullptr ? sizeof(float) : g.param_bytes;
        shard_range range = range_of_numbers(e.path, (is_copy ? g.copy_type : g.param_type)->name, each, e.shape, part);
        range.read = [&parameters, &e, each, part](std::byte* to, std::size_t first, std::size_t count) {
            read_values(parameters, e, part.first + first / each, count / each, to);
        };
        range.write = [&parameters, &e, &g, i, is_copy, part](const std::byte* from) {
            if (!is_copy) return parameters.write(i, part.first, from, part.count);
            parameters.memory().write(g.copy.data() + (e.copy + part.first) * g.copy_bytes, from, part.count * g.copy_bytes);
        };
        f(range);
    }
}
/// Calls f(range, is_whole) for each range of an optimizer's moments and averages that this rank holds; is_whole: every rank
/// has all of it.
template <class Optimizer, class F>
void visit_divided_slabs(Optimizer& optimizer, const F& f) {
    store& parameters = optimizer.parameter_store();
    optimizer.visit_slabs([&](const optimizer_slab& s) {
        const store_entry& e = parameters.entries()[s.entry];
        const bool is_of_blocks = s.name.rfind("absmax_", 0) == 0;
        const std::vector<extent> whole =
            is_of_blocks ? std::vector<extent>{static_cast<extent>(ceil_div(e.count, 256u))} : e.shape;
        const std::size_t count = s.bytes() / s.each;
        shard_range range = range_of_numbers(s.name + "." + e.path, s.type, s.each, whole, {s.first, count});
        memory_resource& memory = parameters.memory();
        range.read = [&memory, data = s.data](std::byte* to, std::size_t first, std::size_t bytes) { memory.read(to, data + first, bytes); };
        range.write = [&memory, data = s.data, bytes = s.bytes()](const std::byte* from) { memory.write(data, from, bytes); };
        f(range, parameters.runs()[e.run].moment.is_whole);
    });
}

/// The ranges that parts tell, by part.
using told_ranges = std::map<std::string, std::vector<shard_range>>;

/// The name of the last part of a kind over a store.
inline std::string part_over(const sharded_parts& all, store& parameters, const std::string& kind) {
    const auto found = std::find_if(all.parts.rbegin(), all.parts.rend(), [&](const checkpoint_part& p) {
        return p.latch == &parameters.readers() && p.name.rfind(kind, 0) == 0;
    });
    return found->name;
}
/// The ranges of a part that has just been added, if its store is divided. Tensors of a divided store that all ranks have
/// stay tensors of the part, with the shapes that they have in one that is not divided.
template <class T>
void tell_divided(sharded_parts& all, told_ranges& told, const communicator& comm, T& value) {
    if constexpr (!part_list<T> && part_model<T>) {
        if (value.parameters().is_divided())
            visit_divided_parameters(value.parameters(), comm, [&](const shard_range& r) { told[part_over(all, value.parameters(), "model")].push_back(r); });
    } else if constexpr (!part_list<T> && part_optimizer<T>) {
        if (!value.parameter_store().is_divided()) return;
        const std::string name = part_over(all, value.parameter_store(), "optimizer");
        checkpoint_part& part = *std::find_if(all.parts.begin(), all.parts.end(), [&](const checkpoint_part& p) { return p.name == name; });
        part.tensors.clear();
        visit_divided_slabs(value, [&](const shard_range& r, bool is_whole) {
            if (!is_whole) return told[name].push_back(r);
            part.tensors.push_back({.name = r.name,
                                    .type = r.type,
                                    .shape = r.shape,
                                    .bytes = r.count * size_of(r.type),
                                    .read = r.read,
                                    .write = r.write,
                                    .own = r.own});
        });
    }
}
template <class T>
void add_sharded(sharded_parts& all, told_ranges& told, const communicator& comm, T& value) {
    if constexpr (tells_ranges<T>) {
        value.visit_ranges([&told](const char* part, const shard_range& r) { told[part].push_back(r); });
        if constexpr (requires { value.finish_load(); }) all.finish.push_back([&value] { value.finish_load(); });
        return;
    } else {
        add_part(all.parts, value);
    }
    if constexpr (part_list<T>) {
        value.visit_checkpoint_parts([&](const char*, auto& part) { tell_divided(all, told, comm, part); });
    } else {
        tell_divided(all, told, comm, value);
    }
}

/// The texts that the ranks give, by their numbers. Collective.
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

/// The parts of all ranks. Collective. Tensors of which nobody tells ranges are held by all; `saves`: with this rank's share
/// of these.
template <class... Parts>
sharded_parts sharded_parts_of(communicator& comm, bool saves, Parts&... values) {
    sharded_parts all;
    told_ranges told;
    on_all_ranks(comm, "checkpoint.parts", [&] {
        (add_sharded(all, told, comm, values), ...);
        for (const auto& [name, ranges] : told) {
            const auto is_named = [&named = name](const checkpoint_part& p) { return p.name == named; };
            if (std::none_of(all.parts.begin(), all.parts.end(), is_named))
                fail<argument_error>("checkpoint: there are ranges of ", name, ", which is none of the parts");
        }
    });
    for (checkpoint_part& part : all.parts) {
        std::vector<shard_range> ranges = std::move(told[part.name]);
        std::string own;
        for (const shard_range& r : ranges) own += r.name + '\n';
        std::set<std::string> divided;  // by any rank: this one may hold nothing of a tensor
        for (const std::string& names : gather_texts(comm, "checkpoint.ranges", own)) {
            for (std::size_t at = 0, end = 0; (end = names.find('\n', at)) != std::string::npos; at = end + 1) divided.insert(names.substr(at, end - at));
        }
        std::erase_if(part.tensors, [&divided](const part_tensor& t) { return divided.count(t.name) != 0; });
        for (shard_range& r : saves ? equal_share(part.tensors, comm) : whole_ranges(part.tensors)) ranges.push_back(std::move(r));
        all.ranges.push_back(std::move(ranges));
        all.divided.push_back(std::move(divided));
    }
    return all;
}

/// Writes this rank's files; returns their manifest's lines.
inline nlohmann::json write_shards(communicator& comm, const std::filesystem::path& folder, std::int64_t step, const sharded_parts& all) {
    nlohmann::json files = nlohmann::json::object();
    for (std::size_t i = 0; i < all.parts.size(); ++i) {
        std::vector<tensor_source> sources;
        std::map<std::string, std::string> metadata{{"format", "pt"}, {"step", std::to_string(step)}};
        for (const shard_range& r : all.ranges[i]) {
            std::size_t elements = 0;
            if (!count_of(r.shape, size_of(r.type), elements) || r.first > elements || r.count > elements - r.first)
                fail<argument_error>("checkpoint: elements ", r.first, " to ", r.first + r.count, " of ", r.name, ", which is ", shape_text(r.shape));
            if (r.count == 0 && elements != 0) continue;
            const bool is_whole = r.count == elements && (comm.size() == 1 || !r.name.ends_with(']'));
            sources.push_back({is_whole ? r.name : range_name(r.name, r.shape, r.first, r.first + r.count), r.type,
                               is_whole ? r.shape : std::vector<extent>{static_cast<extent>(r.count)}, r.read});
            if (!r.own.empty()) metadata[number_key(r.name)] = r.own;
        }
        if (sources.empty()) continue;
        const std::string name = shard_file_name(all.parts[i].name, comm.rank(), comm.size());
        durable_file out(folder / name, file_naming::at_once);
        write_safetensors_to(out, sources, metadata);
        out.commit();
        files[name] = {{"bytes", out.size()}, {"crc32", hex(out.checksum())}};
    }
    return files;
}

/// The manifest's entries of all ranks' files and states.
inline nlohmann::json shared_manifest(communicator& comm, const checkpoint_options& o, const sharded_parts& all, const nlohmann::json& files) {
    nlohmann::json states = nlohmann::json::object();
    on_all_ranks(comm, "checkpoint.state", [&] {
        for (const checkpoint_part& p : all.parts) states[p.name] = p.state();
    });
    nlohmann::json manifest{{"step", o.step}, {"metrics", nlohmann::json::object()}, {"parts", states}, {"files", nlohmann::json::object()}};
    if (comm.size() > 1) manifest["ranks"] = comm.size();
    for (const auto& [name, value] : o.metrics) manifest["metrics"][name] = to_json(value);
    if (!o.arguments.empty()) manifest["arguments"] = parse_json<argument_error>("checkpoint: arguments", o.arguments);
    for (const std::string& text : gather_texts(comm, "checkpoint.files", files.dump())) manifest["files"].update(nlohmann::json::parse(text));
    std::vector<nlohmann::json> of_ranks;
    for (const std::string& text : gather_texts(comm, "checkpoint.states", states.dump())) of_ranks.push_back(nlohmann::json::parse(text));
    for (const checkpoint_part& p : all.parts) {
        manifest["parts"][p.name] = of_ranks[0][p.name];
        const auto is_other = [&](const nlohmann::json& j) { return j[p.name] != of_ranks[0][p.name]; };
        const bool differs = !p.is_of_first_rank && std::any_of(of_ranks.begin(), of_ranks.end(), is_other);
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

/// The values of a part's ranges, as `write` takes them. `named`: tensors of which other ranks hold ranges.
inline std::vector<std::vector<std::byte>> read_ranges(const std::string& where, const std::string& part, const std::vector<shard_range>& ranges,
                                                       std::set<std::string> named, const shard_files& files, load_request& request) {
    tensor_faults faults;
    std::vector<std::vector<std::byte>> values;
    for (const shard_range& r : ranges) {
        named.insert(r.name);
        values.emplace_back();
        const shard_files::tensor* const there = files.find(r.name);
        if (there == nullptr) {
            faults.missing.add(r.name);
            continue;
        }
        const stored_numbers stored{there->type, there->shape, there->own}, here{r.type, r.shape, r.own};
        if (!faults.fits(r.name, stored, here, request.converts(), request.own_numbers)) continue;
        // Places in dtypes, of which a number of a user's own type has several.
        const std::size_t each = here.bytes_of_number() / size_of(r.type),
                          dtypes = stored.bytes_of_number() / size_of(there->type);
        const std::size_t numbers = r.count / each;
        values.back().resize(numbers * stored.bytes_of_number());
        shard_files::read(*there, r.first / each * dtypes, numbers * dtypes, values.back().data());
        if (stored == here) continue;
        std::vector<std::byte> converted(numbers * here.bytes_of_number());
        faults.convert(r.name, stored, values.back().data(), here, converted.data(), numbers, request.own_numbers);
        values.back() = std::move(converted);
    }
    for (const auto& [name, t] : files.tensors()) {
        if (named.count(name) == 0) faults.unexpected.add(name);
    }
    faults.expect_none(where, part);
    return values;
}

/// Loads a checkpoint on all ranks, or on none.
inline checkpoint_info read_sharded(communicator& comm, const std::filesystem::path& path, sharded_parts& all,
                                    const load_checkpoint_options& o) {
    checkpoint_info info;
    load_request request = request_of(o);
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
            if (number++ % comm.size() == comm.rank()) check_file(path / name, manifest);
        }
        for (std::size_t i = 0; i < all.parts.size(); ++i) {
            const shard_files files(path, manifest, all.parts[i].name);
            if (files.is_empty() && !all.ranges[i].empty()) fail<checkpoint_error>(path.string(), " has no ", all.parts[i].name, ".safetensors");
            values.push_back(read_ranges((path / all.parts[i].name).string(), all.parts[i].name, all.ranges[i], all.divided[i], files, request));
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
    const detail::sharded_parts all = detail::sharded_parts_of(comm, true, parts...);
    return detail::write_sharded(comm, folder, o, all);
}

/// Loads the parts of all ranks from a checkpoint of any number of ranks, or of a run without any. Called by all ranks. All
/// or nothing, on all ranks: throws io_error and checkpoint_error as without a communicator, if one rank fails, and
/// communication_error.
template <class... Parts>
checkpoint_info load_checkpoint(communicator& comm, const std::filesystem::path& checkpoint, const load_checkpoint_options& o, Parts&... parts) {
    detail::sharded_parts all = detail::sharded_parts_of(comm, false, parts...);
    return detail::read_sharded(comm, checkpoint, all, o);
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
