// SPDX-License-Identifier: MIT
/// \file
/// The parts of a checkpoint, whatever they are parts of: a state as JSON, tensors, and how both are restored. part_of()
/// makes one of a model, an optimizer, a scaler, a tape, an outlier guard, an accumulator, a data loader, and of anything that has state()
/// and load() of a struct that names its fields (io/fields.hpp).
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <halftone/io/checkpoint/numbers.hpp>
#include <halftone/io/checkpoint/optimizer_terms.hpp>
#include <halftone/io/checkpoint/policy_stamp.hpp>
#include <halftone/io/fields.hpp>
#include <halftone/io/weights.hpp>
#include <halftone/optim/optimizer.hpp>
#include <halftone/scale/grad_scaler.hpp>
#include <halftone/scale/outlier_guard.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Whether a checkpoint may be loaded under another policy than it was saved under.
enum class policy_change {
    refuse,   ///< a difference is an error, which names the roles
    convert,  ///< numbers are converted to this policy's types, each rounded once; the run's bits change
};

namespace detail {

/// A tensor of a part.
struct part_tensor {
    std::string name;
    dtype type = dtype::f32;
    std::vector<extent> shape;
    std::size_t bytes = 0;
    std::function<void(std::byte* to, std::size_t first, std::size_t count)> read{};
    std::function<void(const std::byte* from)> write{};  ///< the whole tensor
    /// Whether the tensor changes only where the store's readers are awaited, so that it can be copied beside a forward
    /// and a backward pass; a layer's state is not steady.
    bool is_steady = true;
    std::string own{};  ///< the name of a number type of a user's own

    stored_numbers numbers() const { return {type, shape, own}; }
};

/// What a load may do, and what it has done in addition.
struct load_request {
    policy_change policy = policy_change::refuse;
    resume_arguments arguments = resume_arguments::saved;
    std::vector<std::string> notes{};  ///< what was converted, in words
    own_number_list own_numbers{};     ///< types of a user's own: those of the parts, and those that the program names
    bool converts() const { return policy == policy_change::convert; }
};

/// A change that can be taken back.
struct undoable {
    std::function<void()> apply, undo;
};

struct checkpoint_part {
    std::string name;
    std::function<nlohmann::json()> state;
    std::vector<part_tensor> tensors;
    /// Checks a saved state; returns what applies it. Throws checkpoint_error.
    std::function<undoable(const nlohmann::json& saved, load_request&)> prepare;
    std::function<void()> finish = [] {};  ///< after the tensors have been written
    read_latch* latch = nullptr;           ///< of the store whose slabs the tensors are in
    bool is_in_host_memory = true;         ///< otherwise only the thread that uses the device reads it
    bool is_of_first_rank = false;         ///< of several ranks: what differs does not matter, and rank 0's state is for all
};

/// The dtype of elements whose number type has this name: bytes for a user's own type.
inline void set_type(part_tensor& t, const char* type, std::size_t each) {
    const int known = std::string_view(type) == "byte" ? static_cast<int>(dtype::u8) : dtype_of_number(type);
    t.type = known < 0 ? dtype::u8 : static_cast<dtype>(known);
    if (known < 0) {
        t.shape.push_back(static_cast<extent>(each));
        t.own = type;
    }
    t.bytes = size_of(t.type);
    for (const extent e : t.shape) t.bytes *= static_cast<std::size_t>(e);
}

inline bool is_host(const memory_resource& memory) { return dynamic_cast<const host_memory*>(&memory) != nullptr; }

/// Whether a checkpoint has a parameter: not the base of adapters, which is as it was when it was loaded, and not adapters that are
/// a part of it since they were merged.
inline bool is_in_checkpoint(const store& parameters, const store_entry& e) {
    return parameters.adapters().are_merged() ? !e.is_adapter : !e.is_base;
}

/// The codes of a weight in blocks (role `copy`), as bytes: made again from the numbers they stand for they would be others.
inline part_tensor codes_of(store& parameters, std::size_t index) {
    const store_entry& e = parameters.entries()[index];
    const store_group& g = parameters.groups()[e.group];
    const std::size_t bytes = g.bytes_of_copy(e);
    part_tensor t{.name = e.path, .shape = {static_cast<extent>(bytes)}};
    set_type(t, "byte", 1);
    const auto place = [&g, &e] { return g.copy.data() + e.copy; };
    t.read = [&parameters, place](std::byte* to, std::size_t first, std::size_t count) {
        parameters.memory().read(to, place() + first, count);
    };
    t.write = [&parameters, place, bytes](const std::byte* from) { parameters.memory().write(place(), from, bytes); };
    t.is_steady = true;
    return t;
}

inline std::vector<part_tensor> tensors_of(store& parameters) {
    std::vector<part_tensor> tensors;
    for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
        const store_entry& e = parameters.entries()[i];
        if (!is_in_checkpoint(parameters, e)) continue;
        const store_group& g = parameters.groups()[e.group];
        const bool is_copy = e.master == store_entry::nowhere;
        part_tensor t{.name = e.path, .shape = e.shape};
        if (is_in_codes(g, e)) {
            tensors.push_back(codes_of(parameters, i));
            continue;
        }
        // A split master is joined: its parts have other types.
        set_type(t, (is_copy ? g.copy_type : g.param_type)->name,
                 is_copy ? g.copy_bytes : g.split != nullptr ? sizeof(float) : g.param_bytes);
        const std::size_t each = e.count == 0 ? 1 : t.bytes / e.count;
        t.read = [&parameters, &e, each](std::byte* to, std::size_t first, std::size_t count) {
            read_values(parameters, e, first / each, count / each, to);
        };
        t.write = [&parameters, i](const std::byte* from) {
            write_values(parameters, i, 0, parameters.entries()[i].count, from);
        };
        t.is_steady = !e.is_state;
        tensors.push_back(std::move(t));
    }
    return tensors;
}

/// Makes the number types of a store's parameters, copies and moments known.
inline void add_types(const store& parameters, own_number_list& known) {
    for (const store_group& g : parameters.groups()) {
        for (const value_traits* t : {g.param_type, g.copy_type, g.state_type}) known.add(t);
    }
}

/// Restores the amaxes of delayed scaling; under another policy those of other layers are left out.
inline undoable prepare_amaxes(amax_histories& amaxes, const nlohmann::json& saved, load_request& request) {
    std::vector<amax_state> states;
    from_json(saved, states, "checkpoint: amaxes of the model");
    const std::vector<amax_state> before = amaxes.read();
    bool fits = states.size() == before.size();
    for (std::size_t i = 0; fits && i < states.size(); ++i)
        fits = states[i].path == before[i].path && states[i].history.size() == before[i].history.size();
    if (!fits && request.converts()) {
        request.notes.push_back("the scales of 8-bit operands begin anew");
        return {[] {}, [] {}};
    }
    return {[&amaxes, states] { amaxes.load(states); }, [&amaxes, before] { amaxes.load(before); }};
}

/// Checks that adapters are multiplied by what they were trained with.
inline void check_scales(const adapter_list& adapters, const nlohmann::json& saved, load_request& request) {
    std::map<std::string, std::string> there;
    try {
        there = saved.value("adapter_scales", there);
    } catch (const nlohmann::json::exception&) {
        fail<checkpoint_error>("checkpoint: the model's adapter_scales are no texts by paths");
    }
    const std::string differs = scale_difference(adapters, there);
    if (differs.empty()) return;
    if (request.arguments == resume_arguments::saved)
        fail<checkpoint_error>("checkpoint: it has adapters of another scale: ", differs,
                               "; load it with .resume_with = ht::program_arguments to go on with this");
    request.notes.push_back("the program's arguments: " + differs);
}

/// A model: anything with parameters() that is a store.
template <class Model>
checkpoint_part model_part(Model& model) {
    store& parameters = model.parameters();
    parameters.check_committed();
    checkpoint_part p;
    p.name = "model";
    p.tensors = tensors_of(parameters);
    p.state = [&parameters] {
        nlohmann::json state{{"policy", stamp_json(stamp_of<Model>(parameters))},
                             {"amaxes", to_json(parameters.amaxes().read())}};
        if (const auto scales = scales_of(parameters.adapters()); !scales.empty()) state["adapter_scales"] = scales;
        return state;
    };
    p.prepare = [&parameters](const nlohmann::json& saved, load_request& request) {
        add_types(parameters, request.own_numbers);
        if (!saved.contains("policy") || !saved.contains("amaxes"))
            fail<checkpoint_error>("checkpoint: the model's state has no policy, or no amaxes");
        const policy_stamp there = read_stamp(saved["policy"], "checkpoint: its policy"),
                           here = stamp_of<Model>(parameters);
        const std::string differs = stamp_difference(there, here);
        if (!differs.empty() && !request.converts()) {
            fail<checkpoint_error>("checkpoint: it was saved under another policy: ", differs,
                                   "; load it under the same, or with .policy = ht::policy_change::convert");
        }
        if (!differs.empty()) request.notes.push_back("another policy: " + differs);
        for (const std::string& note : stream_notes(there, here, paths_of_stream(layers_of<Model>{})))
            request.notes.push_back(note);
        check_scales(parameters.adapters(), saved, request);
        return prepare_amaxes(parameters.amaxes(), saved["amaxes"], request);
    };
    p.finish = [&parameters] { parameters.refresh(); };
    p.latch = &parameters.readers();
    p.is_in_host_memory = is_host(parameters.memory());
    return p;
}

/// Something with state() and load(state).
template <class T>
checkpoint_part state_part(T& value, std::string name) {
    using state = std::remove_cvref_t<decltype(value.state())>;
    static_assert(state_with_fields<state>,
                  "halftone: checkpoint: this part's state() does not name its fields: static void visit_fields(auto& "
                  "self, auto&& f) { f(\"row\", self.row); }");
    checkpoint_part p;
    p.name = name;
    p.state = [&value] { return to_json(value.state()); };
    if constexpr (requires { T::is_of_first_rank; }) p.is_of_first_rank = T::is_of_first_rank;
    p.prepare = [&value, name](const nlohmann::json& saved, load_request& request) -> undoable {
        state s{};
        from_json(saved, s, "checkpoint: the state of the " + name);
        if constexpr (requires { s.take_programs_order(); }) {
            if (request.arguments == resume_arguments::program) s.take_programs_order();
        }
        return {[&value, s] { value.load(s); }, [&value, before = value.state()] { value.load(before); }};
    };
    return p;
}

/// A scaler: under another policy its scale may begin anew.
template <class Scaler>
checkpoint_part scaler_part(Scaler& scaler) {
    checkpoint_part p = state_part(scaler, "scaler");
    p.prepare = [&scaler, plain = p.prepare](const nlohmann::json& saved, load_request& request) -> undoable {
        scaler_state there{};
        from_json(saved, there, "checkpoint: the state of the scaler");
        if (there.enabled == scaler.state().enabled) return plain(saved, request);
        if (!request.converts()) {
            fail<checkpoint_error>("checkpoint: the loss was ", there.enabled ? "scaled" : "not scaled",
                                   " there, and here it is the other way round; load it with .policy = "
                                   "ht::policy_change::convert");
        }
        request.notes.push_back(there.enabled ? "the loss is no longer scaled" : "the loss scale begins anew");
        return {[] {}, [] {}};
    };
    return p;
}

/// Something whose state has other names, as an object that has state() and load().
template <class Owner>
checkpoint_part adapted_part(Owner owner, const char* name) {
    const auto shared = std::make_shared<Owner>(owner);
    checkpoint_part p = state_part(*shared, name);
    p.state = [shared, inner = p.state] { return inner(); };
    return p;
}
template <class Tape>
struct random_of {
    Tape* tape;
    halftone::random_state state() const { return tape->random_state(); }
    void load(const halftone::random_state& s) const { tape->restore(s); }
};
template <class Loader>
struct position_of {
    Loader* loader;
    auto state() const { return loader->position(); }
    template <class Position>
    void load(const Position& p) const {
        loader->resume(p);
    }
};

/// Throws checkpoint_error for a schedule of fewer steps than are done: its rate would be that behind its end.
inline void check_total_steps(const schedule_options& s, std::int64_t done) {
    if (s.shape == schedule::constant || s.total_steps <= 0 || s.total_steps >= done) return;
    fail<checkpoint_error>("checkpoint: ", done, " steps are done there, and the schedule here has total_steps of ", s.total_steps);
}

/// Compares what the optimizer was made with; under program_arguments also makes the rate of the saved state the program's.
template <class Optimizer, class State>
void settle_terms(const Optimizer& optimizer, const nlohmann::json& saved, State& state, load_request& request) {
    check_total_steps(optimizer.schedule(), state.steps);
    if (!saved.contains("made_with")) fail<checkpoint_error>("checkpoint: the state of the optimizer has no made_with");
    const name_list differing = differing_terms(saved["made_with"], terms_of(optimizer));
    if (request.arguments == resume_arguments::saved) {
        if (differing.count == 0) return;
        fail<checkpoint_error>("checkpoint: the optimizer was made with other arguments: ", differing.all(),
                               "; give the program the checkpoint's, or load it with .resume_with = ht::program_arguments");
    }
    if (differing.count != 0) request.notes.push_back("the program's arguments: " + differing.all());
    if constexpr (requires { state.lr; }) state.lr = optimizer.state().lr;
}

template <class Optimizer>
checkpoint_part optimizer_part(Optimizer& optimizer, store& parameters) {
    checkpoint_part p = state_part(optimizer, "optimizer");
    p.state = [&optimizer, inner = p.state] {
        nlohmann::json j = inner();
        j["kind"] = optimizer.name();
        j["made_with"] = terms_of(optimizer);
        return j;
    };
    p.prepare = [&optimizer, &parameters](const nlohmann::json& saved, load_request& request) -> undoable {
        add_types(parameters, request.own_numbers);
        const std::string there = saved.is_object() ? saved.value("kind", std::string()) : std::string();
        if (there != optimizer.name())
            fail<checkpoint_error>("checkpoint: the optimizer was ", shown(there), " there, and is ", optimizer.name(), " here");
        auto s = decltype(optimizer.state()){};
        from_json(saved, s, "checkpoint: the state of the optimizer");
        settle_terms(optimizer, saved, s, request);
        return {[&optimizer, s] { optimizer.load(s); }, [&optimizer, before = optimizer.state()] { optimizer.load(before); }};
    };
    optimizer.visit_slabs([&](const optimizer_slab& s) {
        part_tensor t{.name = s.name + "." + parameters.entries()[s.entry].path, .shape = s.shape};
        set_type(t, s.type, s.each);
        memory_resource& memory = parameters.memory();
        t.read = [&memory, data = s.data](std::byte* to, std::size_t first, std::size_t count) { memory.read(to, data + first, count); };
        t.write = [&memory, data = s.data, bytes = t.bytes](const std::byte* from) { memory.write(data, from, bytes); };
        p.tensors.push_back(std::move(t));
    });
    p.latch = &parameters.readers();
    p.is_in_host_memory = is_host(parameters.memory());
    return p;
}

template <class T>
concept part_model = requires(T& t) { t.parameters().amaxes(); };
template <class T>
concept part_optimizer = requires(T& t) { t.visit_slabs(no_fields{}); };
template <class T>
concept part_scaler = requires(T& t) { { t.state() } -> std::same_as<scaler_state>; };
template <class T>
concept part_tape = requires(T& t) { t.restore(t.random_state()); };
/// A data loader.
template <class T>
concept part_loader = requires(T& t) { t.resume(t.position()); };
template <class T>
concept part_accumulator = requires(T& t) { t.received(); t.take(); };
template <class T>
concept part_guard = requires(T& t) { { t.state() } -> std::same_as<outlier_state>; };
/// Gives its parts itself, as a trainer does.
template <class T>
concept part_list = requires(T& t) { t.visit_checkpoint_parts(no_fields{}); };

template <class T>
void add_part(std::vector<checkpoint_part>& parts, T& value);

struct part_adder {
    std::vector<checkpoint_part>* parts;
    template <class T>
    void operator()(const char*, T& value) const {
        add_part(*parts, value);
    }
};

/// Averages would be saved as the parameters, and what is loaded would be replaced by the parameters at the scope's end.
inline void expect_own_parameters(const store& parameters) {
    if (parameters.is_averaged())
        fail<state_error>("checkpoint: saved or loaded while average_parameters() has put averages in place; do it before or behind "
                          "that scope, or save the averages by save_weights");
}

template <class T>
void add_part(std::vector<checkpoint_part>& parts, T& value) {
    if constexpr (part_list<T>) {
        value.visit_checkpoint_parts(part_adder{&parts});
        return;
    } else if constexpr (part_model<T>) {
        expect_own_parameters(value.parameters());
        parts.push_back(model_part(value));
    } else if constexpr (part_optimizer<T>) {
        expect_own_parameters(value.parameter_store());
        parts.push_back(optimizer_part(value, value.parameter_store()));
    } else if constexpr (part_scaler<T>) {
        parts.push_back(scaler_part(value));
    } else if constexpr (part_guard<T>) {
        parts.push_back(state_part(value, "outlier_guard"));
    } else if constexpr (part_tape<T>) {
        parts.push_back(adapted_part(random_of<T>{&value}, "random"));
    } else if constexpr (part_loader<T>) {
        parts.push_back(adapted_part(position_of<T>{&value}, "loader"));
    } else if constexpr (part_accumulator<T>) {
        if (value.received() != 0)
            fail<state_error>("checkpoint: saved or loaded within a window of ", value.received(),
                              " micro-batches; do it between a step and the next backward pass");
        return;
    } else if constexpr (requires { value.state(); value.load(value.state()); }) {
        const char* named = "state";
        if constexpr (requires { T::checkpoint_name; }) named = T::checkpoint_name;
        parts.push_back(state_part(value, named));
    } else {
        static_assert(sizeof(T) == 0, "halftone: checkpoint: this is no part of a run: expected a model, an optimizer, a "
                                      "scaler, a tape, an outlier guard, an accumulator, a data loader, a trainer, or an object with "
                                      "state() and load(state)");
    }
    // Of several models, say, the second one is "model_2".
    std::size_t same = 0;
    const std::string kind = parts.back().name;
    for (const checkpoint_part& p : parts) same += p.name == kind || p.name.rfind(kind + "_", 0) == 0 ? 1 : 0;
    if (same > 1) parts.back().name = kind + "_" + std::to_string(same);
}

template <class... Parts>
std::vector<checkpoint_part> parts_of(Parts&... values) {
    std::vector<checkpoint_part> parts;
    (add_part(parts, values), ...);
    return parts;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
