// SPDX-License-Identifier: MIT
/// \file
/// A trace in the format of Chrome traces, which https://ui.perfetto.dev and chrome://tracing open: complete events ("X")
/// in microseconds with three decimals, names of rows ("M"), counters of memory ("C").
///
///     std::cout << ht::chrome_trace(trace);                // or trace.write("trace.json")
///
/// Source: the Trace Event Format, Google 2016.
#pragma once

#include <cstdio>

#include <halftone/observe/metrics/output_file.hpp>
#include <halftone/observe/trace/recorder.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// Text as a JSON string.
inline std::string json_string(const std::string& text) {
    std::string safe = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') (safe += '\\') += c;
        else if (static_cast<unsigned char>(c) < 0x20) safe += ' ';
        else safe += c;
    }
    return safe += '"';
}

/// Writes the events of a trace, and what names their rows.
class chrome_trace_text {
  public:
    explicit chrome_trace_text(std::int64_t zero) : zero_(zero) {}

    void name_row(int row, const std::string& title) {
        const std::string id = ",\"pid\":1,\"tid\":" + std::to_string(row) + ",\"args\":{";
        line("{\"ph\":\"M\",\"name\":\"thread_name\"" + id + "\"name\":" + json_string(title) + "}}");
        line("{\"ph\":\"M\",\"name\":\"thread_sort_index\"" + id + "\"sort_index\":" + std::to_string(row) + "}}");
    }
    void add(int row, const trace_event& e) {
        std::string text = "{\"ph\":\"X\",\"pid\":1,\"tid\":" + std::to_string(row) + ",\"ts\":" + time(e.begin - zero_) +
                           ",\"dur\":" + time(e.duration()) + ",\"name\":" + json_string(e.name) + ",\"cat\":\"" +
                           (e.is_operation ? "operation" : "part") + "\",\"args\":{\"step\":" + std::to_string(e.step);
        if (*e.layer != 0) text += ",\"layer\":" + json_string(e.layer);
        line(text + "}}");
    }
    void add(const trace_memory& m) {
        std::string text = "{\"ph\":\"C\",\"pid\":1,\"tid\":0,\"ts\":" + time(m.at - zero_) + ",\"name\":\"bytes in use\",\"args\":{";
        for (int k = 0; k < memory_kinds; ++k) {
            text += std::string(k == 0 ? "\"" : ",\"") + halftone::name(static_cast<memory_kind>(k)) +
                    "\":" + std::to_string(m.live[k]);
        }
        line(text + "}}");
    }
    void name_process(const std::string& title) {
        line("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"tid\":0,\"args\":{\"name\":" + json_string(title) + "}}");
    }
    std::string take(std::uint64_t dropped) {
        return "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_events\":" + std::to_string(dropped) +
               "},\"traceEvents\":[\n" + text_ + "\n]}\n";
    }

  private:
    /// Nanoseconds as microseconds, exactly.
    static std::string time(std::int64_t nanoseconds) {
        char text[40];
        std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(nanoseconds / 1000),
                      static_cast<long long>(nanoseconds % 1000));
        return text;
    }
    void line(const std::string& event) { text_ += (text_.empty() ? "" : ",\n") + event; }

    std::int64_t zero_;
    std::string text_;
};

}  // namespace detail

/// The events of a recorder as a Chrome trace.
inline std::string chrome_trace(const trace_recorder& trace, const std::string& process = "halftone") {
    const std::vector<trace_row> rows = trace.rows();
    const std::vector<trace_memory> memory = trace.memory();
    std::int64_t zero = trace.began();
    for (const trace_row& row : rows) zero = std::min(zero, row.events.front().begin);
    detail::chrome_trace_text text(zero);
    text.name_process(process);
    for (std::size_t i = 0; i < rows.size(); ++i) text.name_row(static_cast<int>(i) + 1, rows[i].title);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        for (const trace_event& e : rows[i].events) text.add(static_cast<int>(i) + 1, e);
    }
    if (trace.parts() != trace_parts::kernels) {
        for (const trace_memory& m : memory) text.add(m);
    }
    return text.take(trace.dropped());
}

inline void trace_recorder::write(const std::filesystem::path& file) const {
    output_file out(file);
    out.write(chrome_trace(*this));
    out.commit();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
