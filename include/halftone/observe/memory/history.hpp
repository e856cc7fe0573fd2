// SPDX-License-Identifier: MIT
/// \file
/// A history of memory: every block that is allocated and released, with its kind, operation, pass, layer and step
/// (the counterpart of torch.cuda.memory._record_memory_history).
///
///     ht::memory_history history{device, {.out_of_memory = "memory.html"}};     // begins to record
///     ht::nn::gpt<ht::amp_bf16> model{device, config};
///     ht::trainer trainer{device, model, arguments, ht::watched};                // a watched tape knows layers
///     trainer.listen(&history);                                                  // operations, passes, steps
///     trainer.train(data);
///     history.dump("memory.html");                                               // or .json, for scripts and PyTorch's memory_viz
///     for (const auto& a : history.snapshot().outliving()) std::cout << a.text() << '\n';      // leaks
///
/// In a loop of your own: tape.listen(&history), and history.begin_step(n) at the beginning of each step. Without a
/// history nothing is recorded, at no cost. A history keeps the latest events, in memory that it allocates at the
/// beginning; the snapshot says how many events were dropped. On a device that captures steps, steps run uncaptured while
/// a history listens to them.
///
/// Blocks that were allocated before the recording are known as one sum for each kind, until they are released.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <halftone/error.hpp>
#include <halftone/exec/ranges.hpp>
#include <halftone/memory/resource.hpp>
#include <halftone/observe/memory/snapshot.hpp>
#include <halftone/observe/memory/snapshot_html.hpp>
#include <halftone/observe/memory/snapshot_json.hpp>
#include <halftone/observe/metrics/output_file.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Options of a history.
struct memory_history_options {
    std::size_t max_entries = 100'000;  ///< events that are kept; each takes about 100 bytes of the host's memory
    std::string out_of_memory{};  ///< the file that is written when memory runs out; its ending, .html or .json,
                                  ///< chooses the format; empty: no file
    std::string title = "Memory history";  ///< of HTML pages
    std::int64_t (*clock)() = nullptr;     ///< nanoseconds; nullptr: the system's monotonic clock
};

/// Records what a device's memory is used for. Give it as a listener to tapes or to a trainer, so that it knows operations
/// and steps. The device must outlive the history, and the history every use of those tapes; of several histories of one
/// device the one that began last must end first.
class memory_history final : public memory_listener, public range_listener {
  public:
    /// Begins to record. Throws argument_error if max_entries is 0, or for a file whose ending names no format.
    template <class Device>
        requires requires(Device& device) { device.memory(); }
    explicit memory_history(Device& device, memory_history_options options = {})
        : memory_history(device.memory(), std::move(options)) {
        if constexpr (requires { device.listener(); }) next_range_ = device.listener();
    }
    explicit memory_history(memory_resource& memory, memory_history_options options = {})
        : options_(std::move(options)), usage_(&memory.usage()) {
        if (options_.max_entries == 0) fail<argument_error>("memory_history: max_entries is 0; expected 1 or more");
        if (!options_.out_of_memory.empty()) static_cast<void>(is_page(options_.out_of_memory));
        if (options_.clock == nullptr) options_.clock = &steady_clock;
        start();
    }
    ~memory_history() override { stop(); }

    /// Begins a new recording; the old one is discarded.
    void start() {
        stop();
        ring_.clear();
        ring_.reserve(options_.max_entries);  // so that releasing memory never allocates
        live_.clear();
        segments_.clear();
        parts_.clear();
        running_.reserve(64);
        number_ = 0;
        first_step_ended_ = -1;
        step_ = 0;
        begin_ = options_.clock();
        for (int k = 0; k < memory_kinds; ++k)
            unrecorded_[static_cast<std::size_t>(k)] = usage_->live(static_cast<memory_kind>(k));
        next_ = usage_->listener();
        usage_->listen(this);
        is_recording_ = true;
    }
    /// Ends the recording and keeps it.
    void stop() {
        if (!is_recording_) return;
        if (usage_->listener() == this) usage_->listen(next_);
        is_recording_ = false;
    }
    bool is_recording() const { return is_recording_; }
    /// From now on passes the ranges and steps that it receives on to `listener`, for instance a profiler; nullptr: to none.
    void also_tell(range_listener* listener) { next_range_ = listener; }

    /// The recorded events that were not dropped.
    memory_snapshot snapshot() const;
    /// Writes the snapshot to a file. Its ending chooses the format: .html, a page with a timeline; .json, of which
    /// examples/memory_pickle.py makes the pickle that PyTorch's memory_viz reads. It is written completely or not at all. Throws
    /// argument_error for another ending, and output_error.
    void dump(const std::string& file) const {
        const bool page = is_page(file);
        output_file out(file);
        out.write(page ? memory_snapshot_html(snapshot(), options_.title) : memory_snapshot_json(snapshot()));
        out.commit();
    }

    // ---- called by tapes and trainers

    bool wants_origins() const override { return true; }
    void begin(const char* operation, pass p) override {
        running_.push_back({operation, p, nullptr});
        if (next_range_ != nullptr) next_range_->begin(operation, p);
    }
    void end() override {
        running_.pop_back();
        if (next_range_ != nullptr) next_range_->end();
    }
    void layer(const char* path) override {
        if (!running_.empty()) running_.back().layer = known(path);
        if (next_range_ != nullptr && next_range_->wants_origins()) next_range_->layer(path);
    }
    /// A step begins; one that has not ended ends. Number it from 1.
    void begin_step(std::int64_t step) override {
        end_of_step();
        step_ = step;
        if (is_recording_) note({.type = event_type::step_began});
        if (next_range_ != nullptr) next_range_->begin_step(step);
    }
    /// The step ends: what it has allocated and not released outlives it.
    void end_step() override {
        end_of_step();
        if (next_range_ != nullptr) next_range_->end_step();
    }
    void begin_scope(const char* name, track on) override {
        if (next_range_ != nullptr) next_range_->begin_scope(name, on);
    }
    void end_scope() override {
        if (next_range_ != nullptr) next_range_->end_scope();
    }
    bool wants_work() const override { return next_range_ != nullptr && next_range_->wants_work(); }
    void work(const operation_work& w) override {
        if (next_range_ != nullptr) next_range_->work(w);
    }

    // ---- called by the device's memory

    void on_allocate(const void* block, std::size_t bytes, memory_kind kind) override {
        live_.insert_or_assign(block, note(with_origin(event_type::allocated, block, bytes, kind)));
        if (next_ != nullptr) next_->on_allocate(block, bytes, kind);
    }
    void on_free(const void* block, std::size_t bytes, memory_kind kind) override {
        if (block != nullptr) free_block(block, bytes, kind);
        if (next_ != nullptr) next_->on_free(block, bytes, kind);
    }
    void on_peak(const memory_usage& usage) override {
        if (next_ != nullptr) next_->on_peak(usage);
    }
    void on_parameter(memory_kind kind, const char* path, std::ptrdiff_t bytes, const void* at) override {
        if (at != nullptr) note_part(path, bytes, at);
        if (next_ != nullptr) next_->on_parameter(kind, path, bytes, at);
    }
    void on_reserve(const void* block, std::size_t bytes) override {
        segments_.insert_or_assign(block,
                                   note({.type = event_type::reserved, .block = {.address = block, .bytes = bytes}}));
        if (next_ != nullptr) next_->on_reserve(block, bytes);
    }
    void on_unreserve(const void* block, std::size_t bytes) override {
        // An arena that is destroyed in the middle of a step returns its segments together with the blocks in them.
        for (auto b = live_.begin(); b != live_.end();) {
            const auto each = b++;
            const auto* const at = static_cast<const std::byte*>(each->first);
            const auto* const first = static_cast<const std::byte*>(block);
            if (!std::less<>{}(at, first) && std::less<>{}(at, first + bytes))
                free_block(at, each->second.block.bytes, each->second.block.kind);
        }
        const auto found = segments_.find(block);
        event e{.type = event_type::unreserved, .block = {.address = block, .bytes = bytes}};
        if (found != segments_.end()) {
            e.block = found->second.block;
            segments_.erase(found);
        }
        note(e);
        if (next_ != nullptr) next_->on_unreserve(block, bytes);
    }
    std::string on_out_of_memory(std::size_t bytes, memory_kind kind) override {
        note(with_origin(event_type::refused, nullptr, bytes, kind));
        std::string more = next_ == nullptr ? std::string() : next_->on_out_of_memory(bytes, kind);
        if (options_.out_of_memory.empty()) return more;
        try {
            dump(options_.out_of_memory);
            return "; the history of memory is in " + options_.out_of_memory + more;
        } catch (const std::exception& e) {  // out of host memory or disk space: the caller's error must still be thrown
            return std::string("; the history of memory could not be written: ") + e.what() + more;
        }
    }

  private:
    /// Whether the file's ending is that of a page. Throws argument_error for any other ending than .html and .json.
    static bool is_page(std::string_view file) {
        if (file.ends_with(".html")) return true;
        if (file.ends_with(".json")) return false;
        fail<argument_error>("memory history: the file is '", file, "'; expected an ending .html or .json");
    }
    enum class event_type : unsigned char {
        allocated,
        released,
        reserved,
        unreserved,
        step_began,
        step_ended,
        refused
    };
    /// A block as stored in the ring: memory_allocation without its parts.
    struct block_record {
        const void* address = nullptr;
        std::size_t bytes = 0;
        memory_kind kind = memory_kind::other;
        pass of_pass = pass::forward;
        const char* operation = "";
        const char* layer = "";
        std::int64_t step = 0, began = -1, began_at = 0;
    };
    struct event {
        event_type type = event_type::allocated;
        block_record block{};
        std::int64_t number = 0, at = 0;
    };
    struct running {
        const char* operation;
        pass of_pass;
        const char* layer;
    };

    static std::int64_t steady_clock() {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }
    const char* known(const char* name) { return names_->insert(name).first->c_str(); }

    /// Appends an event, and drops the oldest one if there are too many. It allocates nothing, since the ring is reserved:
    /// code that releases memory must not throw.
    const event& note(event e) {
        e.number = number_;
        e.at = options_.clock() - begin_;
        if (e.type == event_type::step_began || e.type == event_type::step_ended) e.block.step = step_;
        if (e.type == event_type::allocated || e.type == event_type::reserved || e.type == event_type::refused)
            e.block.began = number_, e.block.began_at = e.at;
        const std::size_t place = static_cast<std::size_t>(number_++) % options_.max_entries;
        if (place == ring_.size()) return ring_.emplace_back(e);
        if (ring_[place].type == event_type::released) parts_.erase(ring_[place].block.began);
        return ring_[place] = e;
    }
    event with_origin(event_type type, const void* block, std::size_t bytes, memory_kind kind) const {
        event e{.type = type, .block = {.address = block, .bytes = bytes, .kind = kind, .step = step_}};
        if (running_.empty()) return e;
        e.block.operation = running_.back().operation;
        e.block.of_pass = running_.back().of_pass;
        for (auto r = running_.rbegin(); r != running_.rend(); ++r) {
            if (r->layer == nullptr) continue;
            e.block.layer = r->layer;
            break;
        }
        return e;
    }
    void free_block(const void* block, std::size_t bytes, memory_kind kind) {
        event e{.type = event_type::released, .block = {.address = block, .bytes = bytes, .kind = kind}};
        if (const auto found = live_.find(block); found != live_.end()) {
            e.block = found->second.block;
            live_.erase(found);
        } else {
            unrecorded_[static_cast<std::size_t>(kind)] -= bytes;  // a block from before the recording
        }
        note(e);
    }
    void end_of_step() {
        if (step_ != 0 && is_recording_) {
            const std::int64_t number = note({.type = event_type::step_ended}).number;
            if (first_step_ended_ < 0) first_step_ended_ = number;
        }
        step_ = 0;
    }
    /// Adds the parameter's part to the block that contains it, or removes it.
    void note_part(const char* path, std::ptrdiff_t bytes, const void* at) {
        const auto* const first = static_cast<const std::byte*>(at);
        for (const auto& [address, allocated] : live_) {
            const auto* const block = static_cast<const std::byte*>(address);
            if (std::less<>{}(first, block) || !std::less<>{}(first, block + allocated.block.bytes)) continue;
            std::vector<memory_part>& all = parts_[allocated.block.began];
            std::erase_if(all, [&](const memory_part& p) { return p.parameter == path; });
            if (bytes > 0)
                all.push_back({path, static_cast<std::size_t>(first - block), static_cast<std::size_t>(bytes)});
            return;
        }
    }

    // ---- the snapshot

    const event& event_at(std::int64_t number) const {
        return ring_[static_cast<std::size_t>(number) % options_.max_entries];
    }
    memory_allocation allocation_of(const event& e) const;
    /// Adds the blocks from before the window: those released in it, and those still in use.
    void add_earlier(memory_snapshot& s) const;
    /// Adds the window's events, in order.
    void add_window(memory_snapshot& s) const;

    memory_history_options options_;
    memory_usage* usage_;
    memory_listener* next_ = nullptr;  ///< the previous listener of the memory, which is still told of everything
    range_listener* next_range_ = nullptr;
    bool is_recording_ = false;

    std::vector<event> ring_;  ///< event n is at n % max_entries
    std::int64_t number_ = 0;  ///< number of the next event
    std::int64_t begin_ = 0;   ///< the clock at the recording's beginning
    std::unordered_map<const void*, event> live_, segments_;
    std::unordered_map<std::int64_t, std::vector<memory_part>> parts_;  ///< by the number of the block's first event
    memory_snapshot::by_kind unrecorded_{};
    std::vector<running> running_;
    std::int64_t step_ = 0;  ///< 0: outside of steps
    std::int64_t first_step_ended_ = -1;
    std::shared_ptr<std::set<std::string>> names_ = std::make_shared<std::set<std::string>>();
};

namespace detail {

/// A history that records from now on and is written to `file` where memory runs out; nullptr for an empty name. Throws
/// output_error at once if the file cannot be made, and argument_error for an ending that says no format.
template <class Device>
std::unique_ptr<memory_history> memory_history_in(Device& device, const std::string& file) {
    if (file.empty()) return nullptr;
    static_cast<void>(output_file(file));
    return std::make_unique<memory_history>(device, memory_history_options{.out_of_memory = file});
}

/// Replays the changes of a snapshot to find its peak.
inline void find_peak(memory_snapshot& s) {
    s.peak_event = s.first_event - 1;
    memory_snapshot::by_kind live = s.live_at(s.peak_event);
    std::size_t total = 0;
    for (const std::size_t each : live) total += each;
    s.peak_bytes = total, s.bytes_at_peak = live;
    for (const memory_change& c : s.changes) {
        const memory_allocation& a = s.allocations[c.allocation];
        std::size_t& of_kind = live[static_cast<std::size_t>(a.kind)];
        if (c.is_end) {
            of_kind -= a.bytes, total -= a.bytes;
            continue;
        }
        of_kind += a.bytes, total += a.bytes;
        if (total > s.peak_bytes) s.peak_bytes = total, s.peak_event = c.event, s.bytes_at_peak = live;
    }
}

}  // namespace detail

inline memory_snapshot memory_history::snapshot() const {
    memory_snapshot s;
    s.names = names_;
    s.events = number_;
    s.first_event = s.dropped = number_ - static_cast<std::int64_t>(ring_.size());
    s.unrecorded = unrecorded_;
    s.first_step_ended = first_step_ended_;
    add_earlier(s);
    add_window(s);
    if (s.steps.empty() && step_ != 0) s.steps.push_back({step_, -1, -1});
    detail::find_peak(s);
    return s;
}

inline memory_allocation memory_history::allocation_of(const event& e) const {
    const block_record& b = e.block;
    memory_allocation a{.address = b.address,
                        .bytes = b.bytes,
                        .kind = b.kind,
                        .operation = b.operation,
                        .of_pass = b.of_pass,
                        .layer = b.layer,
                        .step = b.step,
                        .began = b.began,
                        .began_at = b.began_at};
    if (e.type == event_type::released) a.ended = e.number, a.ended_at = e.at;
    if (const auto parts = parts_.find(b.began); parts != parts_.end()) {
        a.parts = parts->second;
        std::sort(a.parts.begin(), a.parts.end(),
                  [](const memory_part& x, const memory_part& y) { return x.offset < y.offset; });
    }
    return a;
}

inline void memory_history::add_earlier(memory_snapshot& s) const {
    for (std::int64_t n = s.first_event; n < number_; ++n) {
        const event& e = event_at(n);
        if (e.block.began >= s.first_event) continue;
        if (e.type == event_type::released) s.allocations.push_back(allocation_of(e));
        if (e.type == event_type::unreserved) s.segments.push_back({e.block.address, e.block.bytes, e.block.began, n});
    }
    for (const auto& [address, e] : live_) {
        if (e.number < s.first_event) s.allocations.push_back(allocation_of(e));
    }
    for (const auto& [address, e] : segments_) {
        if (e.number < s.first_event) s.segments.push_back({address, e.block.bytes, e.number, -1});
    }
    const auto by_begin = [](const auto& a, const auto& b) { return a.began < b.began; };
    std::stable_sort(s.allocations.begin(), s.allocations.end(), by_begin);
    std::stable_sort(s.segments.begin(), s.segments.end(), by_begin);
}

inline void memory_history::add_window(memory_snapshot& s) const {
    std::unordered_map<std::int64_t, std::size_t> ending, begun, segment_begun;  // indices by event
    for (std::size_t i = 0; i < s.allocations.size(); ++i) ending[s.allocations[i].ended] = i;
    for (std::int64_t n = s.first_event; n < number_; ++n) {
        const event& e = event_at(n);
        switch (e.type) {
            case event_type::allocated:
                begun[n] = s.allocations.size();
                s.changes.push_back({n, s.allocations.size(), false});
                s.allocations.push_back(allocation_of(e));
                break;
            case event_type::released: {
                const std::size_t which = e.block.began < s.first_event ? ending[n] : begun[e.block.began];
                s.allocations[which].ended = n, s.allocations[which].ended_at = e.at;
                s.changes.push_back({n, which, true});
                break;
            }
            case event_type::reserved:
                segment_begun[n] = s.segments.size();
                s.segments.push_back({e.block.address, e.block.bytes, n, -1});
                break;
            case event_type::unreserved:
                if (e.block.began >= s.first_event) s.segments[segment_begun[e.block.began]].ended = n;
                break;
            case event_type::step_began:
                s.steps.push_back({e.block.step, n, -1});
                break;
            case event_type::step_ended:
                if (s.steps.empty()) s.steps.push_back({e.block.step, -1, -1});
                s.steps.back().ended = n;
                break;
            case event_type::refused:
                s.refused.push_back(allocation_of(e));
                break;
        }
    }
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
