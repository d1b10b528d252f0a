// Questions left open by AscendCL's documentation, each answered by a few calls on a card. The device `npu` relies on those that must pass.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/device/npu/npu.hpp>

namespace xtrain::testing {

/// A question and the card's answer.
struct npu_answer {
  std::string question{};
  bool passed = false;
  std::string said{};  ///< why not, or a remark
};

namespace detail {

class npu_questions {
 public:
  explicit npu_questions(const npu_context& on) : on_(on), runtime_(on.state()->runtime()) {}

  [[nodiscard]] std::vector<npu_answer> ask_all() {
    ask("copies of pinned memory return at once, and are done in order", [&] { return copies(); });
    ask("a copy of pageable memory is complete when the call returns, or when the stream is waited for", [&] { return pageable(); });
    ask("an event that is recorded again marks its last record, and can be asked whether it is reached", [&] { return events(); });
    ask("functions of the host run in the order of their stream, and two streams' functions may wait for each other", [&] { return host_functions(); });
    ask("a function of the host may call AscendCL (the device does not rely on it)", [&] { return calls_in_functions(); });
    ask("a wait with a time limit returns 507046 when it is over", [&] { return timed_waits(); });
    ask("a stream that is aborted discards what is queued, and can be destroyed", [&] { return aborted(); });
    ask("32 bytes behind an allocation can be read", [&] { return tails(); });
    ask("there is a mode in which overflow is infinity, not the largest number (A2)", [&] { return saturation(); });
    return answers_;
  }

 private:
  static constexpr std::size_t n = 1 << 16;

  /// f() returns a remark when it passes, and throws what is wrong.
  template <class F>
  void ask(const char* question, F&& f) {
    npu_answer one{.question = question};
    try {
      one.said = f();
      one.passed = true;
    } catch (const std::exception& problem) {
      one.said = problem.what();
    }
    answers_.push_back(std::move(one));
  }
  static void must(bool holds, const char* otherwise) {
    if (!holds) fail<npu_error>(otherwise);
  }
  [[nodiscard]] buffer<npu> memory() const { return buffer<npu>(on_, n * sizeof(float), memory_role::other); }

  [[nodiscard]] std::string copies() const {
    npu_stream stream(on_);
    const buffer<npu> x = memory();
    pinned_memory<npu> there(on_, n * sizeof(float)), back(on_, n * sizeof(float));
    for (std::size_t i = 0; i < n; ++i) there.as<float>()[i] = static_cast<float>(i);
    stream.copy_from_host(x.as<float>().raw(), there.as<float>().data(), n * sizeof(float));
    stream.copy_to_host(back.as<float>().data(), x.as<float>().raw(), n * sizeof(float));
    stream.synchronize();
    must(std::equal(there.as<float>().begin(), there.as<float>().end(), back.as<float>().begin()), "what came back is not what went there");
    return {};
  }
  [[nodiscard]] std::string pageable() const {
    npu_stream stream(on_);
    const buffer<npu> x = memory();
    std::vector<float> there(n, 3), back(n);
    stream.copy_from_host(x.as<float>().raw(), there.data(), n * sizeof(float));
    there.assign(n, 4);
    stream.copy_to_host(back.data(), x.as<float>().raw(), n * sizeof(float));
    stream.synchronize();
    must(back[0] == 3 && back[n - 1] == 3, "memory that changed after the call was copied: stage it in pinned memory");
    return {};
  }
  [[nodiscard]] std::string events() const {
    npu_stream one(on_), other(on_);
    const buffer<npu> x = memory();
    pinned_memory<npu> back(on_, n * sizeof(float));
    const auto reached = one.record();
    one.fill_zero(x.as<float>().raw(), n * sizeof(float));
    const auto again = xtrain::detail::shared_npu_event(on_.state());
    on_.state()->check(runtime_.record_event(again.get(), other.queue()), "aclrtRecordEvent");
    on_.state()->check(runtime_.record_event(again.get(), one.queue()), "aclrtRecordEvent");
    on_.state()->check(runtime_.wait_event(other.queue(), again.get()), "aclrtStreamWaitEvent");
    other.copy_to_host(back.as<float>().data(), x.as<float>().raw(), n * sizeof(float));
    const auto end = other.record();
    end.synchronize();
    must(back.as<float>()[n - 1] == 0, "the other stream did not wait for the last record of the event");
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    std::int32_t is_reached = 0;
    int status = npu_status::success;
    do {
      status = runtime_.query_event(again.get(), &is_reached);
    } while (status == npu_status::success && is_reached == 0 && std::chrono::steady_clock::now() < until);
    std::string said = concat("aclrtQueryEventStatus of an event of aclrtCreateEventExWithFlag returns ", status, ", status ", is_reached);
    if (npu_status::is_refusal(status)) {  // then the device waits for 1 ms instead
      const int waited = runtime_.synchronize_event_for == nullptr ? npu_status::not_supported : runtime_.synchronize_event_for(again.get(), 1);
      said += concat("; aclrtSynchronizeEventWithTimeout, which is used instead, returns ", waited);
      must(waited == npu_status::success, said.c_str());
    } else {
      must(status == npu_status::success && is_reached != 0, said.c_str());
    }
    must(reached.is_done(), said.c_str());
    return said;
  }
  [[nodiscard]] std::string host_functions() const {
    if (!runtime_.has_callbacks()) return "there is no aclrtLaunchCallback: the host waits for each function";
    npu_stream one(on_), other(on_);
    std::promise<int> answer;
    std::atomic<int> got{0};
    one.queue_host_function([&got, question = answer.get_future().share()] {
      if (question.wait_for(std::chrono::seconds(10)) == std::future_status::ready) got = question.get();
    });
    std::atomic<bool> is_told{false};
    other.queue_host_function([&answer, &is_told] {
      answer.set_value(1);
      is_told = true;
    });
    other.synchronize();
    one.synchronize();
    must(is_told && got == 1, "the function of one stream held up the function of another");
    return {};
  }
  [[nodiscard]] std::string calls_in_functions() const {
    npu_stream stream(on_);
    std::atomic<int> status{-1};
    stream.queue_host_function([this, &status] { status = runtime_.set_device(on_.ordinal()); });
    stream.synchronize();
    return status == npu_status::success ? "it may" : concat("it may not: ", npu_status::text_of(status), " (", status.load(), ")");
  }
  [[nodiscard]] std::string timed_waits() const {
    must(runtime_.synchronize_stream_for != nullptr, "there is no aclrtSynchronizeStreamWithTimeout: a lost rank is noticed after HCCL_EXEC_TIMEOUT");
    npu_stream stream(on_);
    std::promise<void> go_on;
    stream.queue_host_function([wait = go_on.get_future().share()] { wait.wait(); });
    on_.state()->enter();
    const int status = runtime_.has_callbacks() ? runtime_.synchronize_stream_for(stream.queue(), 50) : npu_status::stream_timeout;
    go_on.set_value();
    stream.synchronize();
    if (status != npu_status::stream_timeout) fail<npu_error>("it returns ", status);
    return {};
  }
  [[nodiscard]] std::string aborted() const {
    must(runtime_.abort_stream != nullptr, "there is no aclrtStreamAbort: a lost rank is noticed after HCCL_EXEC_TIMEOUT");
    on_.state()->enter();
    void* stream = nullptr;
    on_.state()->check(runtime_.create_stream(&stream), "aclrtCreateStream");
    const buffer<npu> x = memory();
    for (int i = 0; i < 8; ++i) (void)runtime_.fill(x.as<float>().raw(), n * 4, i, n * 4, stream);
    const int status = runtime_.abort_stream(stream), destroyed = runtime_.destroy_stream(stream);
    on_.state()->check(status, "aclrtStreamAbort");
    on_.state()->check(destroyed, "aclrtDestroyStream");
    return {};
  }
  [[nodiscard]] std::string tails() const {
    npu_stream stream(on_);
    const buffer<npu> x(on_, 100, memory_role::other);
    pinned_memory<npu> back(on_, 160);
    stream.copy_to_host(back.as<std::byte>().data(), x.as<std::byte>().raw(), 132);
    stream.synchronize();
    return {};
  }
  [[nodiscard]] std::string saturation() const {
    if (on_.properties().generation == npu_generation::first) return "the first generation saturates: watch the loss scale";
    must(runtime_.set_saturation != nullptr, "there is no aclrtSetDeviceSatMode: losses that are not finite may be hidden");
    return {};
  }

  npu_context on_;
  const npu_runtime& runtime_;
  std::vector<npu_answer> answers_{};
};

}  // namespace detail

/// Asks all questions, independently.
[[nodiscard]] inline std::vector<npu_answer> probe_npu(const npu_context& on) { return detail::npu_questions(on).ask_all(); }

/// "unverified  operator: what kernels expect of it (library)", a line each: a comparison of kernels that fails may be because of these.
[[nodiscard]] inline std::string unverified_operators(const npu_context& on) {
  std::string all;
  for (const npu_op::expectation& one : npu_op::unverified) {
    const auto index = static_cast<std::size_t>(one.of);
    const bool is_there = on.state()->operators() != nullptr && on.state()->operators()->has(index);
    all += concat("unverified  ", npu_op::names[index], ": ", one.what, " (", is_there ? on.state()->operators()->entries[index].library : "missing", ")\n");
  }
  return all;
}

/// "pass  question", or "FAIL  question: why", a line each.
[[nodiscard]] inline std::string text_of(const std::vector<npu_answer>& answers) {
  std::string all;
  for (const npu_answer& one : answers) all += concat(one.passed ? "pass  " : "FAIL  ", one.question, one.said.empty() ? "" : ": ", one.said, "\n");
  return all;
}

}  // namespace xtrain::testing
