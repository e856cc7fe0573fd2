// SPDX-License-Identifier: MIT
/// \file
/// Streams, events and graphs.
#include <algorithm>
#include <utility>

#include "ptx/runtime.hpp"

namespace halftone::ptx {

gpu& all() {
    static gpu* const it = new gpu;  // outlives the objects that programs destroy at exit
    return *it;
}

cudaError_t result(cudaError_t code) {
    if (code != cudaSuccess) all().last = code;
    return code != cudaSuccess ? code : all().broken;
}

// There is no per-thread default stream: programs that use it are compiled with another option.
stream& of(cudaStream_t s) {
    return s == nullptr || s == cudaStreamLegacy ? all().plain : *reinterpret_cast<stream*>(s);
}
void run_until(stream& s, std::uint64_t ticket) {
    while (s.done < ticket && !s.work.empty()) {
        const auto next = std::move(s.work.front());
        s.work.pop_front();
        ++s.done;
        if (all().broken == cudaSuccess) next();
    }
}
void run_all() {
    for (stream* const s : all().streams) run_until(*s, s->given);
    run_until(all().plain, all().plain.given);
}
cudaError_t give(stream& s, std::function<void()> work) {
    if (s.noting != nullptr) {
        s.noting->nodes.push_back(std::move(work));
        return result(cudaSuccess);
    }
    if (&s == &all().plain) {
        if (is_any_blocking_stream_noting()) return result(cudaErrorStreamCaptureImplicit);
        std::vector<std::pair<stream*, std::uint64_t>> before;
        for (stream* const each : all().streams)
            if (each->is_blocking && each->done < each->given) before.emplace_back(each, each->given);
        work = [before, work = std::move(work)] {
            for (const auto& [each, ticket] : before) run_until(*each, ticket);
            work();
        };
    } else if (s.is_blocking && all().plain.done < all().plain.given) {
        work = [ticket = all().plain.given, work = std::move(work)] {
            run_until(all().plain, ticket);
            work();
        };
    }
    s.work.push_back(std::move(work));
    ++s.given;
    return result(cudaSuccess);
}
bool is_any_blocking_stream_noting() {
    return std::any_of(all().streams.begin(), all().streams.end(),
                       [](const stream* each) { return each->is_blocking && each->noting != nullptr; });
}
void trim_pools() {
    const auto trim = [](pool& p) { p.reserved = std::max(p.used, std::min(p.reserved, p.threshold)); };
    trim(all().own);
    for (pool* const p : all().pools) trim(*p);
}

namespace {
thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;
}
bool is_refused(stream& s) {
    if (s.noting == nullptr) return false;
    s.is_spoilt = true;
    return true;
}
bool any_refuses() {
    bool refuses = false;
    if (mode_of_thread == cudaStreamCaptureModeRelaxed) return false;
    for (stream* const s : all().streams) refuses = is_refused(*s) || refuses;
    return refuses;
}

}  // namespace halftone::ptx

using namespace halftone::ptx;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
    const lock l(all().mutex);
    auto* const made = new stream;
    made->is_blocking = (flags & cudaStreamNonBlocking) == 0;
    all().streams.insert(made);
    *s = reinterpret_cast<cudaStream_t>(made);
    return result(cudaSuccess);
}
cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithFlags(s, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    const lock l(all().mutex);
    stream& gone = of(s);
    run_until(gone, gone.given);  // CUDA completes its work asynchronously
    return result(cudaSuccess);   // events may still refer to it
}
cudaError_t cudaStreamGetDevice(cudaStream_t s, int* d) {
    const lock l(all().mutex);
    if (is_refused(of(s))) return result(cudaErrorStreamCaptureUnsupported);
    return *d = 0, result(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    const lock l(all().mutex);
    if (is_refused(of(s))) return result(cudaErrorStreamCaptureUnsupported);
    run_until(of(s), of(s).given);
    if (&of(s) == &all().plain) {
        for (stream* const each : all().streams)
            if (each->is_blocking) run_until(*each, each->given);
    }
    trim_pools();
    return result(cudaSuccess);
}
cudaError_t cudaDeviceSynchronize() {
    const lock l(all().mutex);
    if (any_refuses()) return result(cudaErrorStreamCaptureUnsupported);
    run_all();
    trim_pools();
    return result(cudaSuccess);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
    *e = reinterpret_cast<cudaEvent_t>(new event);
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete reinterpret_cast<event*>(e);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    const lock l(all().mutex);
    if (is_refused(of(s))) return result(cudaErrorStreamCaptureUnsupported);
    auto time = std::make_shared<std::chrono::steady_clock::time_point>();
    give(of(s), [time] { *time = std::chrono::steady_clock::now(); });
    *reinterpret_cast<event*>(e) = {&of(s), of(s).given, std::move(time)};
    return result(cudaSuccess);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    const lock l(all().mutex);
    const event at = *reinterpret_cast<event*>(e);
    if (at.of != nullptr) run_until(*at.of, at.at);
    trim_pools();
    return result(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    const lock l(all().mutex);
    const event at = *reinterpret_cast<event*>(e);
    return at.of == nullptr || at.of->done >= at.at ? result(cudaSuccess) : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
    const lock l(all().mutex);
    const event &first = *reinterpret_cast<event*>(begin), &last = *reinterpret_cast<event*>(end);
    for (const event* const e : {&first, &last}) {
        if (e->of == nullptr) return result(cudaErrorInvalidResourceHandle);
        if (e->of->done < e->at) return result(cudaErrorNotReady);
    }
    *ms = std::chrono::duration<float, std::milli>(*last.time - *first.time).count();
    return result(cudaSuccess);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
    const lock l(all().mutex);
    const event at = *reinterpret_cast<event*>(e);
    if (at.of == nullptr || at.of == &of(s)) return result(cudaSuccess);
    return give(of(s), [at] { run_until(*at.of, at.at); });
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
    const lock l(all().mutex);
    if (&of(s) == &all().plain) return result(cudaErrorStreamCaptureUnsupported);
    if (of(s).noting != nullptr) return result(cudaErrorIllegalState);
    of(s).noting = new graph;
    of(s).is_spoilt = false;
    return result(cudaSuccess);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* status) {
    const lock l(all().mutex);
    if (&of(s) == &all().plain && is_any_blocking_stream_noting()) return result(cudaErrorStreamCaptureImplicit);
    *status = of(s).noting == nullptr ? cudaStreamCaptureStatusNone
              : of(s).is_spoilt       ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
    return result(cudaSuccess);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    std::swap(*mode, mode_of_thread);
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* g) {
    const lock l(all().mutex);
    graph* const made = std::exchange(of(s).noting, nullptr);
    *g = nullptr;
    if (made == nullptr) return result(cudaErrorIllegalState);
    if (of(s).is_spoilt) {
        delete made;
        return result(cudaErrorStreamCaptureInvalidated);
    }
    *g = reinterpret_cast<cudaGraph_t>(made);
    return result(cudaSuccess);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t*, std::size_t* n) {
    return *n = reinterpret_cast<graph*>(g)->nodes.size(), cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* e, cudaGraph_t g, unsigned long long) {
    *e = reinterpret_cast<cudaGraphExec_t>(new graph(*reinterpret_cast<graph*>(g)));
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) {
    const lock l(all().mutex);
    for (const auto& node : reinterpret_cast<graph*>(e)->nodes) give(of(s), node);
    return result(cudaSuccess);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) {
    const lock l(all().mutex);
    delete reinterpret_cast<graph*>(e);
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
    delete reinterpret_cast<graph*>(g);
    return cudaSuccess;
}

}  // extern "C"
