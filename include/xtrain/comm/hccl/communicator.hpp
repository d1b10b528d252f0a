// One HCCL communicator of one rank. A thread watches what it has queued, and tells who waits for it when another rank is lost.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <xtrain/comm/group.hpp>
#include <xtrain/comm/hccl/library.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/comm/waiting.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/npu/context.hpp>
#include <xtrain/device/npu/stream.hpp>

namespace xtrain {

/// How 16-bit values are summed.
enum class hccl_sums_of_16_bits : std::uint8_t {
  in_fp32,  ///< rounded once, in the order of the kernel column_sum: the network does not change it. As many bytes travel as in a ring
  by_hccl,  ///< rounded at every hop, in an order that is fixed only if HCCL_DETERMINISTIC is true
};

/// Settings of collectives by HCCL.
struct hccl_options {
  /// What is queued must be done so long after it was queued, or after what was queued before it was done. Includes the work of the stream before it.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  hccl_sums_of_16_bits sums = hccl_sums_of_16_bits::in_fp32;
  const hccl_library* library = nullptr;  ///< null: the context's, else CANN's
};

namespace detail {

/// A call of HCCL, for messages.
struct hccl_call {
  std::string_view what{}, dtype{};
  std::size_t elements = 0;
  [[nodiscard]] std::string text() const { return dtype.empty() ? std::string(what) : concat(what, " of ", elements, " ", dtype); }
};

/// Bytes of the device that one communicator has.
[[nodiscard]] inline std::size_t hccl_communicator_bytes() {
  const char* const said = std::getenv("HCCL_BUFFSIZE");
  const long megabytes = said == nullptr ? 0 : std::strtol(said, nullptr, 10);
  return 2 * (static_cast<std::size_t>(megabytes > 0 ? megabytes : 200) << 20);
}

class hccl_communicator {
 public:
  /// All members construct it at the same point; messages on `channel` of the transport exchange the identity of the communicator.
  ///   throws  comm_error, config_error
  hccl_communicator(const npu_context& device, std::shared_ptr<transport> network, std::vector<std::size_t> members, std::uint32_t channel,
                    const hccl_options& options, std::size_t bytes)
      : device_(device), network_(std::move(network)), members_(std::move(members)), options_(options),
        library_(options.library != nullptr ? options.library : device.state()->hccl() != nullptr ? device.state()->hccl() : &hccl_here()), bytes_(bytes) {
    group ranks(network_, members_, channel);
    rank_ = ranks.rank();
    hccl_root_info info;
    device_.state()->enter();
    std::array<std::int32_t, sizeof(info.bytes) / 4> words{};
    if (rank_ == 0) require_success(library_->get_root_info(&info), {.what = "HcclGetRootInfo"});
    std::memcpy(words.data(), info.bytes, sizeof info.bytes);
    ranks.broadcast(std::span<std::int32_t>(words), 0);
    std::memcpy(info.bytes, words.data(), sizeof info.bytes);
    ranks.barrier();  // a rank that has stopped is found here, and not by HCCL's timeout
    {
      const waiting_for_ranks waits;
      const int status = library_->comm_init(static_cast<std::uint32_t>(members_.size()), &info, static_cast<std::uint32_t>(rank_), &comm_);
      require_success(status, {.what = "HcclCommInitRootInfo"});
    }
    device_.state()->add_outside(bytes_);
    try {
      watch_ = std::thread([this] { watch(); });
    } catch (...) {
      destroy();
      throw;
    }
  }
  /// Returns soon, whatever the other ranks do.
  ~hccl_communicator() {
    {
      std::unique_lock lock(mutex_);
      const auto until = clock::now() + std::min<clock::duration>(options_.timeout, grace);
      if (std::uncaught_exceptions() == exceptions_) {
        for (look(); !in_flight_.empty() && clock::now() < until; look()) {
          lock.unlock();
          std::this_thread::sleep_for(std::chrono::microseconds(200));
          lock.lock();
        }
      }
      if (!in_flight_.empty()) give_up(concat("hccl: ", who(), " has left"));
      stopping_ = true;
    }
    changed_.notify_all();
    watch_.join();
    destroy();
  }
  hccl_communicator(const hccl_communicator&) = delete;
  hccl_communicator& operator=(const hccl_communicator&) = delete;

  [[nodiscard]] std::size_t rank() const { return rank_; }
  [[nodiscard]] std::size_t size() const { return members_.size(); }
  [[nodiscard]] const npu_context& device() const { return device_; }
  [[nodiscard]] const hccl_library& library() const { return *library_; }

  /// Queues call(communicator, stream), which returns a status of HCCL. Calls of one communicator are done in the order in which they are queued, also on
  /// several streams.
  ///   throws  comm_error
  template <class Call>
  void queue(npu_stream& stream, const hccl_call& what, Call&& call) {
    require<comm_error>(stream.device().state() == device_.state() || stream.device().ordinal() == device_.ordinal(), "hccl: collectives of ", who(),
                        " must be queued on streams of its NPU, device ", device_.ordinal(), "; given one of device ", stream.device().ordinal());
    const std::unique_lock lock(mutex_);
    if (problem_) std::rethrow_exception(problem_);
    if (last_ && last_queue_ != stream.queue()) stream.wait(*last_);
    if (!stream.begin_outside_work()) return;
    ++calls_;
    const int status = call(comm_, stream.queue());
    if (status != hccl_status::success) {
      give_up(text_of_failure(status, what));
      std::rethrow_exception(problem_);
    }
    try {
      last_ = stream.record_outside_work();
      last_queue_ = stream.queue();
      in_flight_.push_back({*last_, what, calls_, clock::now()});
    } catch (...) {  // nobody would know when it is done
      give_up(concat("hccl: ", who(), " has failed to record the end of ", what.text()));
      throw;
    }
    changed_.notify_all();
  }

 private:
  using clock = std::chrono::steady_clock;
  struct queued_call {
    npu_stream::event end;
    hccl_call what;
    std::size_t number = 0;
    clock::time_point since{};
  };
  static constexpr std::chrono::seconds grace{10};  // of the end

  /// "rank 1 (of ranks 0, 1 and 2 of the run)"
  [[nodiscard]] std::string who() const {
    std::string all;
    for (std::size_t i = 0; i < members_.size(); ++i) all += concat(i == 0 ? "" : i + 1 == members_.size() ? " and " : ", ", members_[i]);
    return concat("rank ", members_[rank_], " (of ranks ", all, ")");
  }
  [[nodiscard]] std::string text_of(int status) const {
    const char* const said = library_->error_string == nullptr ? nullptr : library_->error_string(status);
    const npu_runtime& runtime = device_.state()->runtime();
    const char* const message = runtime.recent_message == nullptr ? nullptr : runtime.recent_message();
    return concat(said == nullptr || *said == '\0' ? hccl_status::text_of(status) : said, " (", status, ")",
                  message == nullptr || *message == '\0' ? "" : concat(": ", message));
  }
  /// What can be done about it.
  [[nodiscard]] static std::string advice(int status, bool is_connecting) {
    if (status == hccl_status::out_of_memory || status == hccl_status::memory)
      return concat("; each communicator has ", bytes_text(hccl_communicator_bytes()), " of the NPU: HCCL_BUFFSIZE, in MiB, makes it smaller");
    if (is_connecting)
      return "; each rank must have an NPU of its own, and reach the others: HCCL_SOCKET_IFNAME or HCCL_IF_IP names the network interface, "
             "HCCL_WHITELIST_DISABLE=1 admits all hosts, HCCL_CONNECT_TIMEOUT (120 s) is how long ranks wait for each other";
    return "; HCCL_EXEC_TIMEOUT (1836 s) is how long HCCL waits for another rank";
  }
  [[nodiscard]] std::string text_of_failure(int status, const hccl_call& what) const {
    const std::string stopped = network_->stopped();
    return concat("hccl: ", what.text(), calls_ == 0 ? std::string() : concat(", call ", calls_), " of ", who(), ", failed: ", text_of(status),
                  advice(status, calls_ == 0), stopped.empty() ? "" : concat("; ", stopped));
  }
  void require_success(int status, const hccl_call& what) const {
    if (status != hccl_status::success) fail<comm_error>(text_of_failure(status, what));
  }
  /// With the lock held, as all that follow. Who waits for what is queued gets the problem, and discards the rest of the stream.
  void give_up(const std::string& problem) {
    if (!problem_) problem_ = std::make_exception_ptr(comm_error(problem));
    for (const queued_call& one : in_flight_) one.end.fail(problem_);
    in_flight_.clear();
  }
  /// What is done is forgotten. Gives up if the rest will not be done.
  void look() {
    try {
      while (!in_flight_.empty() && in_flight_.front().end.is_done()) {
        in_flight_.pop_front();
        progress_ = clock::now();
      }
    } catch (const error& problem) {  // nobody knows whether it is done
      return give_up(concat("hccl: ", who(), " waits for ", in_flight_.front().what.text(), ", its call ", in_flight_.front().number,
                            ", and the NPU does not say whether it is done: ", problem.what()));
    }
    if (in_flight_.empty() || problem_) return;
    const queued_call& oldest = in_flight_.front();
    const std::string what = concat(oldest.what.text(), ", its call ", oldest.number);
    std::int32_t state = hccl_status::success;
    if (library_->comm_async_error != nullptr)
      if (const int asked = library_->comm_async_error(comm_, &state); asked != hccl_status::success) state = asked;
    if (state != hccl_status::success)
      return give_up(concat("hccl: ", who(), " waits for ", what, ", which has failed: ", text_of(state), advice(state, false)));
    if (const std::string stopped = network_->stopped(); !stopped.empty()) return give_up(concat("hccl: ", who(), " waits for ", what, ", but ", stopped));
    if (clock::now() - std::max(oldest.since, progress_) > options_.timeout)
      give_up(concat("hccl: ", who(), " has waited ", std::chrono::duration<double>(options_.timeout).count(), " s for ", what,
                     "; another of these ranks is lost, hangs, or makes other calls", advice(hccl_status::timeout, false)));
  }
  void watch() {
    (void)device_.state()->runtime().set_device(device_.ordinal());
    const auto pause = std::clamp<std::chrono::milliseconds>(options_.timeout / 20, std::chrono::milliseconds(1), std::chrono::milliseconds(20));
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !in_flight_.empty(); });
      if (stopping_) return;
      look();
      changed_.wait_for(lock, pause, [&] { return stopping_; });
    }
  }
  void destroy() noexcept {
    last_.reset();
    if (comm_ == nullptr) return;
    (void)device_.state()->runtime().set_device(device_.ordinal());
    const auto until = clock::now() + grace;
    while (library_->comm_destroy(comm_) == hccl_status::again && clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    comm_ = nullptr;
    device_.state()->remove_outside(bytes_);
  }

  npu_context device_;
  std::shared_ptr<transport> network_;
  std::vector<std::size_t> members_;
  hccl_options options_;
  const hccl_library* library_;
  std::size_t bytes_;
  std::size_t rank_ = 0;
  int exceptions_ = std::uncaught_exceptions();
  std::mutex mutex_{};
  std::condition_variable changed_{};
  void* comm_ = nullptr;
  std::exception_ptr problem_{};
  std::deque<queued_call> in_flight_{};
  std::optional<npu_stream::event> last_{};
  void* last_queue_ = nullptr;
  clock::time_point progress_{};
  std::size_t calls_ = 0;
  bool stopping_ = false;
  std::thread watch_{};
};

}  // namespace detail

}  // namespace xtrain
