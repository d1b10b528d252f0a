// One NCCL communicator of one rank. Calls never wait for other ranks; a thread watches queued calls, and aborts them when another rank is lost.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <xtrain/comm/group.hpp>
#include <xtrain/comm/nccl/library.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/comm/waiting.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/cuda/context.hpp>
#include <xtrain/device/cuda/stream.hpp>

namespace xtrain {

/// How 16-bit values are summed.
enum class sums_of_16_bits : std::uint8_t {
  in_fp32,  ///< in rank order, rounded once: the same bits on every machine. As many bytes as NCCL's ring
  by_nccl,  ///< rounded at every hop
};

/// Settings of collectives by NCCL.
struct nccl_options {
  /// For each call, from its queueing or the end of the previous call. Includes earlier work of the stream.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  sums_of_16_bits sums = sums_of_16_bits::in_fp32;
  const nccl_library* library = nullptr;  ///< null: nccl_here()
};

namespace detail {

/// A call of NCCL, for messages.
struct nccl_call {
  std::string_view what{}, dtype{};
  std::size_t elements = 0;
  [[nodiscard]] std::string text() const { return dtype.empty() ? std::string(what) : concat(what, " of ", elements, " ", dtype); }
};

class nccl_communicator {
 public:
  /// All members construct it at the same point; messages on `channel` of the transport exchange the identity of the communicator.
  ///   throws  comm_error, config_error
  nccl_communicator(const cuda_context& device, std::shared_ptr<transport> network, std::vector<std::size_t> members, std::uint32_t channel,
                    const nccl_options& options)
      : device_(device), network_(std::move(network)), members_(std::move(members)), options_(options),
        library_(options.library == nullptr ? &nccl_here() : options.library) {
    group ranks(network_, members_, channel);
    rank_ = ranks.rank();
    nccl_unique_id id;
    const std::unique_lock lock(mutex_);
    const bool waits = library_->comm_init_rank_config == nullptr;  // for the other ranks
    const nccl_call get{.what = "ncclGetUniqueId"}, begin{.what = waits ? "ncclCommInitRank" : "ncclCommInitRankConfig"};
    if (rank_ == 0) settle(library_->get_unique_id(&id), get);
    std::array<std::int32_t, sizeof(id.bytes) / 4> words{};
    std::memcpy(words.data(), id.bytes, sizeof id.bytes);
    ranks.broadcast(std::span<std::int32_t>(words), 0);
    std::memcpy(id.bytes, words.data(), sizeof id.bytes);
    if (waits) ranks.barrier();  // detects stopped ranks: the call has no timeout
    device_.state()->enter();
    nccl_config config;
    const int size = static_cast<int>(members_.size()), rank = static_cast<int>(rank_);
    settle(waits ? library_->comm_init_rank(&comm_, size, id, rank) : library_->comm_init_rank_config(&comm_, size, id, rank, &config), begin);
    try {
      watch_ = std::thread([this] { watch(); });
    } catch (...) {
      abort("the system cannot start a thread");
      throw;
    }
  }
  /// Returns soon, whatever the other ranks do.
  ~nccl_communicator() {
    {
      std::unique_lock lock(mutex_);
      if (std::uncaught_exceptions() == exceptions_) close(lock);
      if (comm_ != nullptr) abort(concat(who(), " has left"));
      stopping_ = true;
    }
    changed_.notify_all();
    watch_.join();
  }
  nccl_communicator(const nccl_communicator&) = delete;
  nccl_communicator& operator=(const nccl_communicator&) = delete;

  [[nodiscard]] std::size_t rank() const { return rank_; }
  [[nodiscard]] std::size_t size() const { return members_.size(); }
  [[nodiscard]] const cuda_context& device() const { return device_; }
  [[nodiscard]] const nccl_library& library() const { return *library_; }

  /// Queues call(communicator, stream), which returns a status of NCCL.
  ///   throws  comm_error
  template <class Call>
  void queue(cuda_stream& stream, const nccl_call& what, Call&& call) {
    require<comm_error>(stream.device().state() == device_.state() || stream.device().ordinal() == device_.ordinal(), "nccl: collectives of ", who(),
                        " must be queued on streams of its GPU, device ", device_.ordinal(), "; given one of device ", stream.device().ordinal());
    const std::unique_lock lock(mutex_);
    if (problem_) std::rethrow_exception(problem_);
    if (!stream.begin_outside_work()) return;
    ++calls_;
    settle(call(comm_, stream.raw()), what);
    try {
      in_flight_.push_back({stream.record_outside_work(), what, calls_, clock::now()});
    } catch (...) {  // its end would be unknown
      abort(concat(library_->name, ": ", who(), " has failed to record the end of ", text_of(what)));
      throw;
    }
    changed_.notify_all();
  }

 private:
  using clock = std::chrono::steady_clock;
  struct queued_call {
    cuda_stream::event end;
    nccl_call what;
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
  [[nodiscard]] std::string text_of(const nccl_call& what) const { return library_->named(what.text()); }
  [[nodiscard]] std::string text_of(int status) const {
    const char* const last = comm_ == nullptr || library_->get_last_error == nullptr ? nullptr : library_->get_last_error(comm_);
    return concat(library_->get_error_string(status), last == nullptr || *last == '\0' ? "" : concat(" (", last, ")"),
                  status == nccl_status::invalid_usage ? "; each rank must have a GPU of its own" : "");
  }
  [[nodiscard]] std::string seconds() const { return concat(std::chrono::duration<double>(options_.timeout).count(), " s"); }

  /// Needs the lock, as all functions below. Why waiting is pointless; empty: it is not.
  [[nodiscard]] std::string pointless(clock::time_point since, const std::string& what) const {
    if (const std::string stopped = network_->stopped(); !stopped.empty()) return concat(library_->name, ": ", who(), " waits for ", what, ", but ", stopped);
    if (clock::now() - since > options_.timeout)
      return concat(library_->name, ": ", who(), " has waited ", seconds(), " for ", what, "; another of these ranks is lost, hangs, or makes other calls");
    return {};
  }
  /// Waits until the call has been queued: it may connect to other ranks first.
  ///   throws  comm_error; the communicator is aborted
  void settle(int status, const nccl_call& what) {
    const clock::time_point since = clock::now();
    std::string problem;
    if (status == nccl_status::in_progress) {
      const waiting_for_ranks waits;
      for (auto pause = std::chrono::microseconds(1);; pause = std::min(2 * pause, std::chrono::microseconds(1000))) {
        int state = nccl_status::success;
        const int asked = library_->comm_get_async_error(comm_, &state);
        status = asked == nccl_status::success ? state : asked;
        if (status != nccl_status::in_progress) break;
        if (problem = pointless(since, text_of(what)); !problem.empty()) break;
        std::this_thread::sleep_for(pause);
      }
    }
    if (problem.empty() && status == nccl_status::success) return;
    if (problem.empty()) {
      const std::string stopped = network_->stopped();
      problem = concat(library_->name, ": ", text_of(what), calls_ == 0 ? std::string() : concat(", call ", calls_), " of ", who(), ", failed: ",
                       text_of(status),
                       stopped.empty() ? "" : concat("; ", stopped));
    }
    abort(problem);
    std::rethrow_exception(problem_);
  }
  /// Queued calls end without a result; waiters get the problem.
  void abort(const std::string& problem) {
    if (!problem_) problem_ = std::make_exception_ptr(comm_error(problem));
    for (const queued_call& one : in_flight_) one.end.fail(problem_);  // before the GPU continues
    in_flight_.clear();
    if (comm_ != nullptr) (void)library_->comm_abort(std::exchange(comm_, nullptr));
  }
  /// Removes finished calls. Aborts if the rest cannot finish.
  void look() {
    while (!in_flight_.empty() && in_flight_.front().end.is_done()) {
      in_flight_.pop_front();
      progress_ = clock::now();
    }
    if (in_flight_.empty() || comm_ == nullptr) return;
    const queued_call& oldest = in_flight_.front();
    const auto what = [&] { return concat(text_of(oldest.what), ", its call ", oldest.number); };
    int state = nccl_status::success;
    const int asked = library_->comm_get_async_error(comm_, &state);
    if (asked != nccl_status::success) state = asked;
    if (state != nccl_status::success && state != nccl_status::in_progress)
      return abort(concat(library_->name, ": ", who(), " waits for ", what(), ", which has failed: ", text_of(state)));
    if (const std::string problem = pointless(std::max(oldest.since, progress_), what()); !problem.empty()) abort(problem);
  }
  void watch() {
    const auto pause = std::clamp<std::chrono::milliseconds>(options_.timeout / 20, std::chrono::milliseconds(1), std::chrono::milliseconds(20));
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !in_flight_.empty(); });
      if (stopping_) return;
      look();
      changed_.wait_for(lock, pause, [&] { return stopping_; });
    }
  }
  /// Waits for queued calls, then for the other ranks, and destroys the communicator; leaves it after a timeout.
  void close(std::unique_lock<std::mutex>& lock) {
    const auto until = clock::now() + std::min<clock::duration>(options_.timeout, grace);
    const auto pause = [&] {
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      lock.lock();
    };
    for (look(); !in_flight_.empty() && clock::now() < until; look()) pause();
    if (comm_ == nullptr || !in_flight_.empty()) return;
    int status = library_->comm_finalize == nullptr ? nccl_status::success : library_->comm_finalize(comm_);
    while (status == nccl_status::in_progress && clock::now() < until && network_->stopped().empty()) {
      pause();
      int state = nccl_status::success;
      const int asked = library_->comm_get_async_error(comm_, &state);
      status = asked == nccl_status::success ? state : asked;
    }
    if (status == nccl_status::success) (void)library_->comm_destroy(std::exchange(comm_, nullptr));
  }

  cuda_context device_;
  std::shared_ptr<transport> network_;
  std::vector<std::size_t> members_;
  nccl_options options_;
  const nccl_library* library_;
  std::size_t rank_ = 0;
  int exceptions_ = std::uncaught_exceptions();
  std::mutex mutex_{};
  std::condition_variable changed_{};
  nccl_handle comm_ = nullptr;
  std::exception_ptr problem_{};
  std::deque<queued_call> in_flight_{};
  clock::time_point progress_{};
  std::size_t calls_ = 0;
  bool stopping_ = false;
  std::thread watch_{};
};

}  // namespace detail

}  // namespace xtrain
