// SPDX-License-Identifier: MIT
/// \file
/// A model's weights in .safetensors files, by the paths of its parameters, both ways.
///
///     ht::save_weights(model, "model.safetensors");                 // masters: fp32 under every amp_ policy
///     ht::save_weights(model, "model", {.type = ht::dtype::bf16, .max_shard_bytes = 1'000'000'000});    // a folder
///     ht::load_weights(model, "model.safetensors");                 // all or nothing
///     ht::load_weights(model, "other", {.names = [](const std::string& path) { return "transformer." + path; }});
///
/// A file's numbers may have any floating-point type: they are converted to the parameters' types, each rounded once, and
/// the copies that kernels read are rounded from these. Names are the paths of the store ("h.0.attn.qkv.weight"), shapes
/// those of the layers; states of layers, such as running statistics, are included. A frozen parameter that kept only its
/// copy is saved as that.
///
/// Numbers of a type of a user's own are stored as unsigned integers of their bytes, U16 say, with the type's name in the
/// metadata: "halftone.number.h.0.attn.qkv.weight": "my_float16". They are loaded under that type alone, with their bits;
/// under another type, or without the name, they are refused. With `type` they are stored as such numbers.
///
/// Of a model that ht::shard divides among ranks, all of them call these functions. Loading, each reads its part of the files: of a
/// tensor the bytes of the elements whose masters it has, and of one that is stored transposed all, as these are spread over it. Saving, a
/// tensor at a time is gathered, and the first rank writes.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <halftone/io/lost_numbers.hpp>
#include <halftone/io/tensor_files.hpp>
#include <halftone/memory/store.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The name of a parameter in a file, by its path in the model. An empty name: the file does not have it.
using weight_names = std::function<std::string(const std::string& path)>;
/// Whether a file stores the transpose of a parameter, by its path in the model; only matrices can be.
using weight_transposes = std::function<bool(const std::string& path)>;
/// One of several tensors of a file that are a parameter together, and how many of the parameter's rows it has.
struct weight_piece {
    std::string name;
    extent rows = 0;
};
/// The tensors of a file whose rows, one behind the other, are those of a parameter, by its path in the model: q_proj, k_proj and
/// v_proj, say, of a product that halftone computes as one. None: `names` tells.
using weight_pieces = std::function<std::vector<weight_piece>(const std::string& path)>;

/// Which of a model's parameters are saved or loaded: what adapters are is in memory/adapters.hpp.
enum class weights_of {
    all,
    base,     ///< without adapters
    trained,  ///< those that are not frozen; of a model with adapters all but its base, and layers' states
};

/// How weights are saved.
struct save_weights_options {
    std::optional<dtype> type = std::nullopt;  ///< a floating-point type for all; by default each parameter's own
    std::uint64_t max_shard_bytes = tensor_file_options{}.max_shard_bytes;  ///< the most bytes in a file of a folder
    std::map<std::string, std::string> metadata = detail::usual_metadata();  ///< {{"format", "pt"}}
    weight_names names{};            ///< by default the paths
    weight_transposes transposed{};  ///< by default none
    weight_pieces pieces{};          ///< by default each parameter is one tensor
    weights_of which = weights_of::all;
};

/// What a file may lack or have in addition.
enum class name_matching {
    exact,       ///< every parameter and no other tensor
    parameters,  ///< every parameter; other tensors are ignored
    any,         ///< parameters that the file lacks stay as they are; other tensors are ignored
};

/// How weights are loaded.
struct load_weights_options {
    weight_names names{};  ///< by default the paths
    name_matching matching = name_matching::exact;
    weight_transposes transposed{};  ///< by default none
    std::function<bool(const std::string& name)> ignored{};  ///< tensors of the file that are no weights; by default none
    weight_pieces pieces{};                                  ///< by default each parameter is one tensor
    /// Reads one tensor at a time, in the host memory that the largest needs, rather than all before the first is written to the
    /// model. Files that are of another model, or have numbers that a parameter's type does not hold, are found before that, too;
    /// but if reading fails on the way the model has a part of the weights.
    bool one_at_a_time = false;
    weights_of which = weights_of::all;
};

namespace detail {

/// The number type of a parameter's values: of its masters or, if it has none, of its copies.
inline const value_traits& saved_type(const store_group& g, const store_entry& e) {
    return *(e.master == store_entry::nowhere ? g.copy_type : g.param_type);
}
/// The type in a file of values of these traits; for a user's own type that of unsigned integers as wide.
inline dtype saved_dtype(const value_traits& t) {
    if (t.is_own) return t.bytes == 1 ? dtype::u8 : t.bytes == 2 ? dtype::u16 : dtype::u32;
    return static_cast<dtype>(dtype_of_number(t.name));
}
/// The key in a file's metadata of the name of a tensor's number type, where that is a user's own.
inline std::string number_key(const std::string& tensor) { return "halftone.number." + tensor; }
/// The name of a user's own number type that a file's tensor has; empty: it has one of safetensors.
template <class Files>
std::string own_type_of(const Files& files, const tensor_info& t) {
    const auto found = files.metadata().find(number_key(t.name));
    return found == files.metadata().end() ? std::string() : found->second;
}

/// Values of a parameter's type as numbers of a file's, each rounded once.
inline void convert_from(const value_traits& own, const std::byte* from, dtype type, std::byte* to, std::size_t count) {
    if (!own.is_own) return convert(saved_dtype(own), from, type, to, count);
    if (type == saved_dtype(own)) {
        std::copy_n(from, count * own.bytes, to);
        return;
    }
    std::vector<double> wide(count);
    own.to_doubles(from, count, wide.data());
    convert(dtype::f64, reinterpret_cast<const std::byte*>(wide.data()), type, to, count);
}
/// The inverse.
inline void convert_to(const value_traits& own, dtype type, const std::byte* from, std::byte* to, std::size_t count) {
    if (!own.is_own) return convert(type, from, saved_dtype(own), to, count);
    std::vector<double> wide(count);
    convert(type, from, dtype::f64, reinterpret_cast<std::byte*>(wide.data()), count);
    own.from_doubles(wide.data(), count, to);
}

/// Copies the values of a parameter, or of a part of it, to host memory: its masters, joined if they are split, or, if it
/// has none, its copies.
inline void read_values(const store& parameters, const store_entry& e, std::size_t first, std::size_t count, std::byte* to) {
    const store_group& g = parameters.groups()[e.group];
    memory_resource& memory = parameters.memory();
    if (!parameters.is_here(e, first, count))
        fail<state_error>("weights: ", e.path, " is sharded, and this rank has a part of it only; ht::shard's read() gathers it");
    if (e.master == store_entry::nowhere) {
        memory.read(to, g.copy.data() + (e.copy + first) * g.copy_bytes, count * g.copy_bytes);
    } else if (g.split == nullptr) {
        memory.read(to, g.master.data() + (e.master + first) * g.param_bytes, count * g.param_bytes);
    } else {
        std::vector<bfloat16> nearest(count);
        std::vector<bfloat16_remainder> rest(count);
        memory.read(nearest.data(), g.copy.data() + (e.copy + first) * g.copy_bytes, count * sizeof(bfloat16));
        memory.read(rest.data(), g.master.data() + (e.master + first) * g.param_bytes, count * sizeof(bfloat16_remainder));
        for (std::size_t i = 0; i < count; ++i) {
            const float joined = halftone::join(float_halves{nearest[i], rest[i]});
            std::memcpy(to + i * sizeof joined, &joined, sizeof joined);
        }
    }
}
/// Calls f; of a model that is divided among ranks it throws on all ranks if f does so on one. `what` names the call.
template <class F>
void on_ranks_of(const store& parameters, const char* what, const F& f) {
    store_sharding* const ranks = parameters.sharding_if_any();
    return ranks == nullptr ? f() : ranks->on_all(what, f);
}
/// Whether this rank writes the files of a model: the only one, or the first of those among which it is divided.
inline bool is_writer(const store& parameters) {
    return parameters.sharding_if_any() == nullptr || parameters.sharding_if_any()->is_first();
}

/// Reads values of parameters, a whole one at a time where ranks have a piece each; that is collective, and is done once for calls
/// that follow each other.
class value_reader {
  public:
    explicit value_reader(const store& parameters) : parameters_(&parameters) {}
    void operator()(std::size_t index, std::size_t first, std::size_t count, std::byte* to) {
        const store_entry& e = parameters_->entries()[index];
        if (!is_in_pieces(e)) return read_values(*parameters_, e, first, count, to);
        const std::size_t each = saved_type(parameters_->groups()[e.group], e).bytes;
        if (held_ != index) {
            values_.resize(e.count * each);
            parameters_->sharding()->read_whole(index, values_.data());
            held_ = index;
        }
        std::memcpy(to, values_.data() + first * each, count * each);
    }

  private:
    bool is_in_pieces(const store_entry& e) const {
        if (parameters_->sharding_if_any() == nullptr) return false;
        const store_run& r = parameters_->runs()[e.run];
        return !(r.master.is_there() ? r.master : r.copy).is_whole;
    }
    const store* parameters_;
    std::size_t held_ = store_entry::nowhere;
    std::vector<std::byte> values_{};
};

/// The inverse: values of the saved type. The store's copies are refreshed by the caller.
inline void write_values(store& parameters, std::size_t index, std::size_t first, std::size_t count,
                         const std::byte* values) {
    const store_entry& e = parameters.entries()[index];
    const store_group& g = parameters.groups()[e.group];
    if (e.master != store_entry::nowhere) return parameters.write(index, first, values, count);
    parameters.memory().write(g.copy.data() + (e.copy + first) * g.copy_bytes, values, count * g.copy_bytes);
}

/// Values of a part of a parameter, with its copies, unless ranks gather these.
inline void write_loaded(store& parameters, std::size_t index, const element_range& part, const std::byte* values) {
    if (parameters.entries()[index].master == store_entry::nowhere)
        return write_values(parameters, index, part.first, part.count, values);
    parameters.write_with_copies(index, part.first, values, part.count);
}

/// The transpose of a row-major matrix of elements of so many bytes.
inline std::vector<std::byte> transposed_bytes(const std::byte* from, std::size_t rows, std::size_t columns, std::size_t element) {
    std::vector<std::byte> to(rows * columns * element);
    constexpr std::size_t side = 32;  // of the squares that are copied one by one: both stay in L1
    for (std::size_t r0 = 0; r0 < rows; r0 += side) {
        for (std::size_t c0 = 0; c0 < columns; c0 += side) {
            for (std::size_t r = r0; r < std::min(rows, r0 + side); ++r) {
                for (std::size_t c = c0; c < std::min(columns, c0 + side); ++c)
                    std::memcpy(to.data() + (c * rows + r) * element, from + (r * columns + c) * element, element);
            }
        }
    }
    return to;
}
/// Whether `transposed` names this parameter. Throws argument_error for one that is no matrix.
inline bool is_stored_transposed(const weight_transposes& transposed, const store_entry& e) {
    if (!transposed || !transposed(e.path)) return false;
    if (e.shape.size() != 2) fail<argument_error>("weights: ", e.path, " is no matrix, and has no transpose");
    return true;
}
/// The shape of a parameter in a file.
inline std::vector<extent> shape_in_file(const store_entry& e, bool is_transposed) {
    return is_transposed ? std::vector<extent>{e.shape[1], e.shape[0]} : std::vector<extent>(e.shape.begin(), e.shape.end());
}

/// A list of names in a sentence: at most eight.
struct name_list {
    std::string text;
    std::size_t count = 0;
    void add(const std::string& name) {
        if (++count <= 8) text += (count == 1 ? "" : ", ") + shown(name);
    }
    std::string all() const { return count <= 8 ? text : text + " and " + std::to_string(count - 8) + " more"; }
};

/// Adds a list of names to a sentence of faults, unless it is empty.
inline void say(std::string& faults, const char* what, const name_list& list, const char* remedy = "") {
    if (list.count != 0) faults += (faults.empty() ? "" : "; ") + std::string(what) + list.all() + remedy;
}
/// Adds a tensor to a list if it has a number that was lost when its numbers were converted.
inline void note_lost(name_list& lost, const std::string& tensor, const value_traits& there, const std::byte* from,
                      const value_traits& here, const std::byte* to, std::size_t count) {
    if (const auto x = first_lost(there, from, here, to, count))
        lost.add(sentence(tensor, ", ", *x, " for a ", here.name));
}

/// A tensor of a file that is a parameter, or consecutive rows of one.
struct stored_piece {
    std::string name;
    std::vector<extent> shape;         ///< in the file
    std::size_t first = 0, count = 0;  ///< the parameter's elements
    bool is_transposed = false;
};
/// The tensors of a file that a parameter is stored in; none: the file does not have it. `Options` are those of saving or of
/// loading. Throws argument_error for pieces that have not as many rows as the parameter.
template <class Options>
std::vector<stored_piece> stored_pieces(const store& parameters, const store_entry& e, const Options& o) {
    const adapter_list& adapters = parameters.adapters();
    if (e.is_adapter && (o.which == weights_of::base || adapters.are_merged())) return {};
    if (o.which == weights_of::trained && (adapters.all().empty() ? e.frozen : e.is_base)) return {};
    const auto parts = o.pieces ? o.pieces(e.path) : std::vector<weight_piece>{};
    if (parts.empty()) {
        const std::string named = o.names ? o.names(e.path) : e.path;
        if (named.empty()) return {};
        const bool is_transposed = is_stored_transposed(o.transposed, e);
        return {{named, shape_in_file(e, is_transposed), 0, e.count, is_transposed}};
    }
    const extent rows = e.shape.size() == 0 ? 1 : e.shape[0];
    const std::size_t each = rows == 0 ? 0 : e.count / static_cast<std::size_t>(rows);
    std::vector<stored_piece> pieces;
    extent row = 0;
    for (const weight_piece& part : parts) {
        std::vector<extent> shape(e.shape.begin(), e.shape.end());
        if (!shape.empty()) shape[0] = part.rows;
        pieces.push_back(
            {part.name, shape, static_cast<std::size_t>(row) * each, static_cast<std::size_t>(part.rows) * each});
        row += part.rows;
    }
    if (row != rows) fail<argument_error>("weights: the pieces of ", e.path, " have ", row, " rows of ", rows);
    return pieces;
}

/// Values of a parameter as the numbers of a tensor that is saved. Throws argument_error for one that this type does not hold.
inline void convert_to_save(const std::string& tensor, const value_traits& own, const std::byte* from, dtype type,
                            std::byte* to, std::size_t count) {
    convert_from(own, from, type, to, count);
    if (type == saved_dtype(own)) return;
    if (const auto x = first_lost(own, from, traits_of(type), to, count))
        fail<argument_error>("save_weights: ", shown(tensor), " has ", *x, ", which ", name(type), " does not hold");
}

/// Gives the bytes of a matrix's transpose, part after part. The transpose is made when the first one is asked for, and
/// freed after the last.
inline auto transposed_values(const std::shared_ptr<value_reader>& read, std::size_t index, const store_entry& e,
                              const std::string& tensor, const value_traits& own, dtype type) {
    return [read, index, &e, tensor, &own, type, all = std::make_shared<std::vector<std::byte>>()](
               std::byte* to, std::size_t first, std::size_t bytes) {
        if (all->empty()) {
            std::vector<std::byte> values(e.count * own.bytes), converted(e.count * size_of(type));
            (*read)(index, 0, e.count, values.data());
            convert_to_save(tensor, own, values.data(), type, converted.data(), e.count);
            *all = transposed_bytes(converted.data(), static_cast<std::size_t>(e.shape[0]),
                                    static_cast<std::size_t>(e.shape[1]), size_of(type));
        }
        std::memcpy(to, all->data() + first, bytes);
        if (first + bytes == all->size()) std::vector<std::byte>().swap(*all);
    };
}

inline std::vector<tensor_source> weight_sources(const store& parameters, const save_weights_options& o) {
    parameters.check_committed();
    if (o.type && !is_float(*o.type))
        fail<argument_error>("save_weights: type is ", name(*o.type), "; expected a floating-point type");
    std::vector<tensor_source> sources;
    const auto read = std::make_shared<value_reader>(parameters);
    for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
        const store_entry& e = parameters.entries()[i];
        const value_traits& own = saved_type(parameters.groups()[e.group], e);
        const dtype type = o.type.value_or(saved_dtype(own));
        for (const stored_piece& piece : stored_pieces(parameters, e, o)) {
            if (piece.is_transposed) {
                sources.push_back(
                    {piece.name, type, piece.shape, transposed_values(read, i, e, piece.name, own, type)});
                continue;
            }
            const auto values_of_piece = [read, i, tensor = piece.name, &own, type, of_piece = piece.first](
                                             std::byte* to, std::size_t first, std::size_t bytes) {
                const std::size_t each = size_of(type), begin = of_piece + first / each, count = bytes / each;
                std::vector<std::byte> values(count * own.bytes);
                (*read)(i, begin, count, values.data());
                convert_to_save(tensor, own, values.data(), type, to, count);
            };
            sources.push_back({piece.name, type, piece.shape, values_of_piece});
        }
    }
    return sources;
}
/// The metadata of such a file: the user's, and the names of number types of a user's own.
inline std::map<std::string, std::string> weight_metadata(const store& parameters, const save_weights_options& o) {
    auto metadata = o.metadata;
    for (const store_entry& e : parameters.entries()) {
        const value_traits& own = saved_type(parameters.groups()[e.group], e);
        for (const stored_piece& piece : stored_pieces(parameters, e, o)) {
            metadata.erase(number_key(piece.name));  // of another file, whose metadata these may be
            if (own.is_own && !o.type) metadata[number_key(piece.name)] = own.name;
        }
    }
    return metadata;
}

inline bool is_one_file(const std::filesystem::path& path) { return path.extension() == ".safetensors"; }
/// Asks sources for what the writer of their files asks for, in the same order: what other ranks do meanwhile.
inline void follow_writer(const std::vector<tensor_source>& sources, const std::filesystem::path& path,
                          std::uint64_t most) {
    for (const auto& of_file :
         is_one_file(path) ? std::vector<std::vector<tensor_source>>{sources} : divide(sources, most))
        visit_pieces(in_file_order(of_file), [](const std::byte*, std::size_t) {});
}

}  // namespace detail

/// Writes the parameters of a store; see save_weights for a model.
inline void save_weights(const store& parameters, const std::filesystem::path& path, const save_weights_options& o = {}) {
    const auto sources = detail::weight_sources(parameters, o);
    const auto metadata = detail::weight_metadata(parameters, o);
    detail::on_ranks_of(parameters, "save_weights.write", [&] {
        if (!detail::is_writer(parameters)) return detail::follow_writer(sources, path, o.max_shard_bytes);
        if (detail::is_one_file(path)) return write_safetensors(path, sources, metadata);
        write_tensor_files(path, sources, {o.max_shard_bytes, metadata});
    });
}
/// Writes a model's parameters to a file *.safetensors, or to a folder of any other name (write_tensor_files). Replaces
/// earlier files when all is written. Throws io_error, and argument_error for numbers beyond the largest of options' type; earlier files
/// then stay. On a GPU it waits for the device.
template <class Model>
    requires requires(const Model& m) { m.parameters().entries(); }
void save_weights(const Model& model, const std::filesystem::path& path, const save_weights_options& o = {}) {
    save_weights(model.parameters(), path, o);
}

namespace detail {

/// A tensor of a file and what it holds of a model.
struct matched_tensor {
    std::size_t entry;
    const value_traits* own;  ///< the type of the parameter's values
    const tensor_info* from;
    stored_piece piece;
};

/// The tensors of files that are parameters. `Files` is tensor_files, or has its members tensors(), find(), read(), metadata() and
/// error, which it throws if the files are of another model.
template <class Files>
std::vector<matched_tensor> match_tensors(const store& parameters, const Files& files, const std::string& where,
                                          const load_weights_options& o) {
    std::vector<matched_tensor> matches;
    std::set<std::string> used;
    name_list missing, unexpected, mismatched;
    for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
        const store_entry& e = parameters.entries()[i];
        const value_traits& own = saved_type(parameters.groups()[e.group], e);
        for (const stored_piece& piece : stored_pieces(parameters, e, o)) {
            const tensor_info* const t = files.find(piece.name);
            used.insert(piece.name);
            if (t == nullptr) {
                missing.add(piece.name);
            } else if (t->shape != piece.shape) {
                mismatched.add(piece.name + ' ' + shape_text(t->shape) + ", which is " + shape_text(piece.shape));
            } else if (const std::string there = own_type_of(files, *t);
                       there.empty() ? !is_float(t->type)
                                     : !own.is_own || there != own.name || t->type != saved_dtype(own)) {
                mismatched.add(piece.name + ", which is " + (there.empty() ? name(t->type) : there) + " there");
            } else {
                matches.push_back({i, &own, t, piece});
            }
        }
    }
    for (const tensor_info& t : files.tensors()) {
        if (used.count(t.name) == 0 && !(o.ignored && o.ignored(t.name))) unexpected.add(t.name);
    }
    std::string faults;
    if (o.matching != name_matching::any) say(faults, "missing: ", missing);
    if (o.matching == name_matching::exact) say(faults, "unexpected: ", unexpected);
    say(faults, "of another shape or type: ", mismatched);
    if (faults.empty() && matches.empty()) faults = "no tensor has the name of a parameter";
    if (!faults.empty()) fail<typename Files::error>("load_weights: ", where, " is of another model: ", faults);
    return matches;
}

/// The elements of a parameter that this rank takes from a tensor of it.
inline element_range taken_here(const store& parameters, const matched_tensor& m) {
    const element_range here = parameters.values_here(parameters.entries()[m.entry]);
    const std::size_t begin = std::max(m.piece.first, here.first),
                      end = std::min(m.piece.first + m.piece.count, here.first + here.count);
    return begin < end ? element_range{begin, end - begin} : element_range{};
}

/// Host memory through which elements come from a file, one chunk after the other.
struct loading_room {
    std::vector<std::byte> stored{}, values{};

    static std::byte* of(std::vector<std::byte>& memory, std::size_t bytes) {
        if (memory.size() < bytes) memory.resize(bytes);
        return memory.data();
    }
};
/// So many elements of a tensor as values of its parameter's type, each rounded once; a number that this type does not hold is
/// added to `lost`.
template <class Files>
const std::byte* converted_elements(const Files& files, const matched_tensor& m, const element_range& part,
                                    name_list& lost, loading_room& room) {
    const value_traits& own = *m.own;
    const std::size_t each = size_of(m.from->type);
    std::byte* const values = room.of(room.values, part.count * own.bytes);
    if (m.from->type == saved_dtype(own)) {
        files.read(*m.from, part.first * each, part.count * each, values);
    } else {
        std::byte* const stored = room.of(room.stored, part.count * each);
        files.read(*m.from, part.first * each, part.count * each, stored);
        convert_to(own, m.from->type, stored, values, part.count);
        note_lost(lost, m.from->name, traits_of(m.from->type), stored, own, values, part.count);
    }
    return values;
}

/// Calls f(part, values) for the parts of a parameter, at most `most` elements each, that this rank takes from a tensor. Of a
/// transposed one all of it is read, and given at once.
template <class Files, class F>
void visit_values(const store& parameters, const Files& files, const matched_tensor& m, std::size_t most,
                  name_list& lost, loading_room& room, const F& f) {
    const element_range part = taken_here(parameters, m);
    if (part.count == 0) return;
    if (m.piece.is_transposed) {
        const store_entry& e = parameters.entries()[m.entry];
        const std::vector<std::byte> all =
            transposed_bytes(converted_elements(files, m, {0, m.piece.count}, lost, room),
                             static_cast<std::size_t>(e.shape[1]), static_cast<std::size_t>(e.shape[0]), m.own->bytes);
        return f(part, all.data() + part.first * m.own->bytes);
    }
    const std::size_t faults = lost.count;
    for (std::size_t done = 0; done < part.count && lost.count == faults; done += most) {
        const element_range some{part.first + done, std::min(most, part.count - done)};
        f(some, converted_elements(files, m, {some.first - m.piece.first, some.count}, lost, room));
    }
}

/// Ends the waiting of parameters (defer_parameters): those that these tensors do not have as a whole get their initial values.
inline void end_waiting_for(store& parameters, const std::vector<matched_tensor>& matches) {
    std::vector<std::size_t> loaded(parameters.entries().size());
    for (const matched_tensor& m : matches) loaded[m.entry] += m.piece.count;
    parameters.end_waiting([&](std::size_t i) { return loaded[i] < parameters.entries()[i].count; });
}

/// load_weights from files that are open; `where` begins the messages.
template <class Files>
void load_weights_of(store& parameters, const Files& files, const std::string& where, const load_weights_options& o) {
    if (!parameters.is_waiting()) parameters.check_committed();
    constexpr std::size_t whole = static_cast<std::size_t>(-1), chunk = std::size_t{1} << 18;  // which stays in L2
    std::vector<matched_tensor> matches;
    std::vector<std::vector<std::byte>> values;
    name_list lost;
    loading_room room;
    // On all ranks, everything that can be refused is before anything is written to the model.
    on_ranks_of(parameters, "load_weights.read", [&] {
        matches = match_tensors(parameters, files, where, o);
        for (const matched_tensor& m : matches) {
            const auto keep = [&](const element_range& part, const std::byte* from) {
                if (!o.one_at_a_time) values.back().assign(from, from + part.count * m.own->bytes);
            };
            if (!o.one_at_a_time) values.emplace_back();
            if (!o.one_at_a_time || (m.from->type != saved_dtype(*m.own) && may_lose(traits_of(m.from->type), *m.own)))
                visit_values(parameters, files, m, o.one_at_a_time ? chunk : whole, lost, room, keep);
        }
        if (lost.count != 0)
            fail<typename Files::error>("load_weights: ", where,
                                        " has numbers that the types of parameters do not hold: ", lost.all());
    });
    if (parameters.is_waiting()) end_waiting_for(parameters, matches);
    on_ranks_of(parameters, "load_weights.write", [&] {
        for (std::size_t i = 0; i < matches.size(); ++i) {
            const matched_tensor& m = matches[i];
            const auto write = [&](const element_range& part, const std::byte* from) {
                write_loaded(parameters, m.entry, part, from);
            };
            if (o.one_at_a_time) {
                visit_values(parameters, files, m, chunk, lost, room, write);
            } else if (!values[i].empty()) {
                write(taken_here(parameters, m), values[i].data());
            }
        }
    });
    // Otherwise copies are rounded where masters are written.
    if (parameters.is_divided() || o.matching == name_matching::any) parameters.refresh();
}

}  // namespace detail

/// Reads the parameters of a store; see load_weights for a model.
inline void load_weights(store& parameters, const std::filesystem::path& path, const load_weights_options& o = {}) {
    detail::load_weights_of(parameters, tensor_files(path), path.string(), o);
}
/// Reads a model's parameters from a file, an index or a folder (tensor_files). All or nothing: throws io_error, or
/// safetensors_error with the names that are missing, unexpected, or of another shape or type, or that have a number which the
/// parameter's type does not hold, and the model is then as it was. Needs host memory for the parameters, unless one tensor is read at
/// a time. Optimizers keep their moments; construct them afterwards, or load a checkpoint (checkpoint.hpp) for all of a run. A model
/// that waits (ht::defer_parameters) has memory and values from then on; what the file lacks, its initial ones.
template <class Model>
    requires requires(Model& m) { m.parameters().refresh(); }
void load_weights(Model& model, const std::filesystem::path& path, const load_weights_options& o = {}) {
    load_weights(model.parameters(), path, o);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
