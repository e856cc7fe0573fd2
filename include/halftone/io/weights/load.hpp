// SPDX-License-Identifier: MIT
/// \file
/// How the tensors of files come into a model's parameters: matched by their names, then read, converted and written in pieces, by several
/// threads where the parameters are in the memory of the CPU.
///
///     detail::load_weights_of(parameters, tensor_files(path), path.string(), options);
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <halftone/io/weights/code_gatherer.hpp>
#include <halftone/io/weights/stored.hpp>
#include <halftone/io/worker_threads.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

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
    /// Reads a piece of a tensor at a time, a few MB of host memory a thread, or on a GPU at most the largest tensor, rather than all
    /// before the first is written to the model. Files that are of another model, or have numbers that a parameter's type does not
    /// hold, are found before that, too; but if reading fails on the way the model has a part of the weights.
    bool one_at_a_time = false;
    weights_of which = weights_of::all;
};

namespace detail {

/// A tensor of a file and what it holds of a model.
struct matched_tensor {
    std::size_t entry;
    const value_traits* own;  ///< the type of the parameter's values
    const tensor_info* from;
    stored_piece piece;
    const weight_coding* coding;  ///< of codes that are made of the values; or nullptr
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
                const store_group& g = parameters.groups()[e.group];
                matches.push_back({i, &own, t, piece, is_in_codes(g, e) ? g.coding : nullptr});
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
/// So many elements of a tensor as values of its parameter's type, each rounded once. `lost`, if it is given, is told the first number
/// that this type does not hold.
template <class Files>
const std::byte* converted_elements(const Files& files, const matched_tensor& m, const element_range& part,
                                    std::optional<double>* lost, loading_room& room) {
    const value_traits& own = *m.own;
    const std::size_t each = size_of(m.from->type);
    std::byte* const values = room.of(room.values, part.count * own.bytes);
    if (m.from->type == saved_dtype(own)) {
        files.read(*m.from, part.first * each, part.count * each, values);
    } else {
        std::byte* const stored = room.of(room.stored, part.count * each);
        files.read(*m.from, part.first * each, part.count * each, stored);
        convert_to(own, m.from->type, stored, values, part.count);
        if (lost != nullptr) *lost = first_lost(traits_of(m.from->type), stored, own, values, part.count);
    }
    if (m.coding != nullptr && lost != nullptr && !lost->has_value()) {
        const float most = m.coding->largest;
        const auto* const x = reinterpret_cast<const float*>(values);
        const auto* const beyond =
            std::find_if_not(x, x + part.count, [most](float v) { return std::fabs(v) <= most; });
        if (beyond != x + part.count) *lost = static_cast<double>(*beyond);
    }
    return values;
}

/// Elements of a tensor, in the order of the file, that a thread loads.
struct loading_piece {
    std::size_t match = 0;
    element_range part{};
};
/// How the tensors are divided among threads.
struct loading_plan {
    std::size_t threads = 1;
    std::size_t piece = static_cast<std::size_t>(-1);  ///< the most elements that a thread takes at a time
    std::size_t rows = static_cast<std::size_t>(-1);   ///< the most rows that it takes of a transposed tensor
    std::size_t chunk = std::size_t{1} << 18;          ///< the most elements that are read at a time: they stay in L2
};
/// The plan for parameters that take so many bytes. Memory of a GPU is written by one thread. Pieces are larger than chunks, since two threads
/// that touch a huge page for the first time would both clear it.
inline loading_plan plan_loading(const store& parameters, std::size_t bytes) {
    if (!parameters.memory().is_thread_safe()) return {};
    return {.threads = reading_threads(bytes, 16), .piece = std::size_t{1} << 22, .rows = 128};
}

/// Divides the elements that this rank takes of each tensor into pieces. If they are read: of a transposed one all, as these are spread
/// over it. Otherwise they have been read, and are numbered in the parameter's order.
inline std::vector<loading_piece> loading_pieces(const store& parameters, const std::vector<matched_tensor>& matches,
                                                 const loading_plan& plan, bool are_read) {
    std::vector<loading_piece> pieces;
    for (std::size_t i = 0; i < matches.size(); ++i) {
        const matched_tensor& m = matches[i];
        const element_range taken = taken_here(parameters, m);
        if (taken.count == 0) continue;
        element_range all{taken.first - m.piece.first, taken.count};
        std::size_t most = plan.piece;
        if (are_read && m.piece.is_transposed) {
            all = {0, m.piece.count};
            most = std::min(plan.rows, static_cast<std::size_t>(m.piece.shape[0])) *
                   static_cast<std::size_t>(m.piece.shape[1]);
        }
        for (std::size_t done = 0; done < all.count; done += std::min(most, all.count - done))
            pieces.push_back({i, {all.first + done, std::min(most, all.count - done)}});
    }
    return pieces;
}

/// Calls f(part, values) for the parts of a parameter that this rank takes from rows of a tensor that is stored transposed: of each
/// column what is in these rows, or all at once if these are all.
template <class F>
void visit_transposed(const store& parameters, const matched_tensor& m, const element_range& rows_of_it,
                      const std::byte* values, const F& f) {
    const auto rows = static_cast<std::size_t>(m.piece.shape[0]), columns = static_cast<std::size_t>(m.piece.shape[1]);
    const std::size_t first = rows_of_it.first / columns, some = rows_of_it.count / columns, each = m.own->bytes;
    const element_range taken = taken_here(parameters, m);
    const std::vector<std::byte> all = transposed_bytes(values, some, columns, each);
    if (some == rows) return f(taken, all.data() + taken.first * each);
    for (std::size_t column = 0; column < columns; ++column) {
        const std::size_t at = column * rows + first, begin = std::max(at, taken.first),
                          end = std::min(at + some, taken.first + taken.count);
        if (begin < end) f(element_range{begin, end - begin}, all.data() + (column * some + begin - at) * each);
    }
}

/// Calls f(part, values) for the parts of a parameter that this rank takes from a piece of a tensor, up to a number that is lost.
template <class Files, class F>
void visit_values(const store& parameters, const Files& files, const matched_tensor& m, const loading_piece& piece,
                  std::size_t chunk, std::optional<double>* lost, loading_room& room, const F& f) {
    const element_range& all = piece.part;
    if (m.piece.is_transposed)
        return visit_transposed(parameters, m, all, converted_elements(files, m, all, lost, room), f);
    for (std::size_t done = 0; done < all.count && (lost == nullptr || !lost->has_value()); done += chunk) {
        const element_range some{all.first + done, std::min(chunk, all.count - done)};
        f(element_range{m.piece.first + some.first, some.count}, converted_elements(files, m, some, lost, room));
    }
}

/// Ends the waiting of parameters (defer_parameters): those that these tensors do not have as a whole get their initial values.
inline void end_waiting_for(store& parameters, const std::vector<matched_tensor>& matches) {
    std::vector<std::size_t> loaded(parameters.entries().size());
    for (const matched_tensor& m : matches) loaded[m.entry] += m.piece.count;
    parameters.end_waiting([&](std::size_t i) { return loaded[i] < parameters.entries()[i].count; });
}

/// Whether some parameter has both a master and codes.
inline bool has_codes_of_masters(const store& parameters) {
    for (const store_entry& e : parameters.entries()) {
        if (parameters.groups()[e.group].coding != nullptr && e.master != store_entry::nowhere) return true;
    }
    return false;
}

/// Loads weights by a plan: first reads and checks, then writes.
template <class Files>
class weight_loader {
  public:
    weight_loader(store& parameters, const Files& files, const std::string& where, const load_weights_options& o)
        : parameters_(parameters), files_(files), where_(where), options_(o) {}

    /// Everything that can be refused is before anything is written to the model.
    void read(const std::optional<loading_plan>& plan) {
        matches_ = match_tensors(parameters_, files_, where_, options_);
        std::size_t bytes = 0;
        for (const matched_tensor& m : matches_) bytes += taken_here(parameters_, m).count * m.own->bytes;
        plan_ = plan.value_or(plan_loading(parameters_, bytes));
        rooms_.resize(plan_.threads);
        if (!options_.one_at_a_time) {
            for (const matched_tensor& m : matches_)
                values_.emplace_back(new std::byte[taken_here(parameters_, m).count * m.own->bytes]);  // not cleared
        }
        auto pieces = loading_pieces(parameters_, matches_, plan_, true);
        if (options_.one_at_a_time) std::erase_if(pieces, [&](const loading_piece& p) { return !may_be_refused(p); });
        std::vector<std::optional<double>> lost(pieces.size());
        on_worker_threads(pieces.size(), plan_.threads, [&](std::size_t worker, std::size_t i) {
            const matched_tensor& m = matches_[pieces[i].match];
            const std::size_t each = m.own->bytes, begin = taken_here(parameters_, m).first;
            visit(pieces[i], &lost[i], worker, [&](const element_range& part, const std::byte* from) {
                if (!options_.one_at_a_time)
                    std::memcpy(values_[pieces[i].match].get() + (part.first - begin) * each, from, part.count * each);
            });
        });
        check(pieces, lost);
    }
    /// Writes what read() has read, or is to be read a piece at a time.
    void write() {
        const auto pieces = loading_pieces(parameters_, matches_, plan_, options_.one_at_a_time);
        code_gatherer codes(parameters_, elements_of_entries());
        on_worker_threads(pieces.size(), plan_.threads, [&](std::size_t worker, std::size_t i) {
            const loading_piece& p = pieces[i];
            const matched_tensor& m = matches_[p.match];
            const auto to_model = [&](const element_range& part, const std::byte* from) {
                if (m.coding != nullptr) return codes.take(m.entry, part, reinterpret_cast<const float*>(from));
                write_loaded(parameters_, m.entry, part, from);
            };
            if (options_.one_at_a_time) return visit(p, nullptr, worker, to_model);
            const std::size_t before = p.part.first + m.piece.first - taken_here(parameters_, m).first;
            to_model({m.piece.first + p.part.first, p.part.count}, values_[p.match].get() + before * m.own->bytes);
        });
    }
    const std::vector<matched_tensor>& matches() const { return matches_; }

  private:
    /// How many elements of each parameter this rank takes.
    std::vector<std::size_t> elements_of_entries() const {
        std::vector<std::size_t> counts(parameters_.entries().size());
        for (const matched_tensor& m : matches_) counts[m.entry] += taken_here(parameters_, m).count;
        return counts;
    }
    bool may_be_refused(const loading_piece& p) const {
        const matched_tensor& m = matches_[p.match];
        return m.coding != nullptr ||
               (m.from->type != saved_dtype(*m.own) && may_lose(traits_of(m.from->type), *m.own));
    }
    template <class F>
    void visit(const loading_piece& p, std::optional<double>* lost, std::size_t worker, const F& f) {
        visit_values(parameters_, files_, matches_[p.match], p, plan_.chunk, lost, rooms_[worker], f);
    }
    /// Throws if a number of a piece was lost. The first one of each tensor is told.
    void check(const std::vector<loading_piece>& pieces, const std::vector<std::optional<double>>& lost) const {
        name_list told;
        std::size_t last = matches_.size();
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            if (!lost[i] || pieces[i].match == last) continue;
            last = pieces[i].match;
            const matched_tensor& m = matches_[last];
            told.add(
                sentence(m.from->name, ", ", *lost[i], " for a ", m.coding != nullptr ? m.coding->name : m.own->name));
        }
        if (told.count != 0)
            fail<typename Files::error>("load_weights: ", where_,
                                        " has numbers that the types of parameters do not hold: ", told.all());
    }

    store& parameters_;
    const Files& files_;
    const std::string& where_;
    const load_weights_options& options_;
    loading_plan plan_{};
    std::vector<matched_tensor> matches_{};
    std::vector<std::unique_ptr<std::byte[]>> values_{};  ///< of each tensor, unless one is read at a time
    std::vector<loading_room> rooms_{};
};

/// load_weights from files that are open; `where` begins the messages. On all ranks, all is read before anything is written.
template <class Files>
void load_weights_of(store& parameters, const Files& files, const std::string& where, const load_weights_options& o,
                     const std::optional<loading_plan>& plan = std::nullopt) {
    if (!parameters.is_waiting()) parameters.check_committed();
    weight_loader loader(parameters, files, where, o);
    on_ranks_of(parameters, "load_weights.read", [&] { loader.read(plan); });
    if (parameters.is_waiting()) end_waiting_for(parameters, loader.matches());
    on_ranks_of(parameters, "load_weights.write", [&] { loader.write(); });
    // Otherwise copies are rounded where masters are written, unless these are codes of whole weights.
    if (parameters.is_divided() || o.matching == name_matching::any || has_codes_of_masters(parameters))
        parameters.refresh();
}
}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
