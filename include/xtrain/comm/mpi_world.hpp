// State of other processes, and notices besides messages: that a process has stopped, and why. The only header that includes MPI's.
#pragma once

#if !__has_include(<mpi.h>)
#error "xtrain mpi: an MPI must be found; link xtrain::mpi (Debian and Ubuntu: libopenmpi-dev)"
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <xtrain/comm/transport.hpp>
#include <xtrain/core/error.hpp>

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1  // C++ bindings, removed from MPI
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

namespace xtrain {

/// Settings of process ranks.
struct mpi_options {
  /// A rank that waits longer for another stops and names it.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// How long a stopped rank waits for others to stop before it leaves them to the launcher.
  std::chrono::milliseconds grace = std::chrono::seconds(10);
  /// Maximum bytes per MPI call (MPI counts in int); equal on every rank.
  std::size_t piece = std::size_t{1} << 30;
};

namespace detail {

/// MPI and the library's communicator; thread-safe.
class mpi_world {
 public:
  using clock = std::chrono::steady_clock;

  explicit mpi_world(const mpi_options& options) : options_(options) {
    require<config_error>(options.piece > 0 && options.piece <= INT_MAX, "mpi_session: a piece must have 1 to ", INT_MAX, " bytes; given ",
                          options.piece);
    begin();
    if (ours_) must("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    must("MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
    must("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    int rank = 0, size = 0, is_set = 0;
    int* tags = nullptr;
    must("MPI_Comm_rank", MPI_Comm_rank(comm_, &rank));
    must("MPI_Comm_size", MPI_Comm_size(comm_, &size));
    must("MPI_Comm_get_attr", MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tags, &is_set));
    notice_tag_ = is_set != 0 ? *tags : 32767;  // guaranteed by every MPI
    rank_ = static_cast<std::size_t>(rank);
    others_.resize(static_cast<std::size_t>(size));
  }
  ~mpi_world() {
    int ended = 0;
    MPI_Finalized(&ended);
    if (ended != 0 || adrift_) return;  // MPI_Finalize would wait for ranks that never call it; the launcher ends them
    MPI_Comm_free(&comm_);
    if (ours_) MPI_Finalize();
  }
  mpi_world(const mpi_world&) = delete;
  mpi_world& operator=(const mpi_world&) = delete;

  [[nodiscard]] std::size_t rank() const { return rank_; }
  [[nodiscard]] std::size_t size() const { return others_.size(); }
  [[nodiscard]] const mpi_options& options() const { return options_; }
  [[nodiscard]] MPI_Comm comm() const { return comm_; }
  /// A channel uses two tags; the largest tag is for notices.
  [[nodiscard]] std::uint32_t channels() const { return static_cast<std::uint32_t>(notice_tag_ / 2); }

  /// Held around MPI calls when MPI allows one thread at a time.
  [[nodiscard]] std::unique_lock<std::mutex> turn() {
    return serialised_ ? std::unique_lock(turn_) : std::unique_lock<std::mutex>();
  }
  static void must(std::string_view call, int code) {
    if (code != MPI_SUCCESS) fail<comm_error>("mpi: ", call, " must succeed; MPI says: ", words(code));
  }
  [[nodiscard]] static std::string words(int code) {
    std::string text(MPI_MAX_ERROR_STRING, '\0');
    int length = 0;
    if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
    text.resize(static_cast<std::size_t>(length));
    return text;
  }
  /// Between polls, `waited` after the first: short waits stay responsive, long ones free the processor.
  static void pause(clock::duration waited) {
    if (waited < std::chrono::milliseconds(1))
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::clamp<clock::duration>(waited / 10'000, std::chrono::microseconds(50), std::chrono::milliseconds(1)));
  }

  // ---- notices between ranks ----

  /// Why waiting for `other` is pointless; empty: it is not. After a second, asks whether the rank still runs.
  [[nodiscard]] std::string gone(std::size_t other, clock::duration waited) {
    const std::lock_guard lock(mutex_);
    read_notices();
    if (!others_[other].gone.empty()) return concat("that rank ", others_[other].gone);
    if (waited > std::chrono::seconds(1) && !std::exchange(others_[other].was_asked, true)) tell(other, notice::asks, {});
    return stopped_here();
  }
  /// Tells other ranks that this rank has stopped, unless one announced it before.
  void stop(std::string_view reason) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      read_notices();
      if (stopped_ != nobody) return;
      stopped_ = rank_;
      others_[rank_].gone = concat("has stopped: ", reason);
      for (std::size_t i = 1; i < size(); ++i) tell((rank_ + i) % size(), notice::stopped, reason);
    } catch (...) {  // ranks without notice stop at their timeout
    }
  }
  /// stopped() after reading pending notices.
  [[nodiscard]] std::string look() noexcept {
    try {
      const std::lock_guard lock(mutex_);
      read_notices();
      return stopped_here();
    } catch (...) {
      return {};
    }
  }
  /// The stopped rank, and why; empty: none.
  [[nodiscard]] std::string stopped() {
    const std::lock_guard lock(mutex_);
    return stopped_here();
  }

  /// Waits until every rank calls it: without limit, but only for the grace period once a rank has stopped. Then every rank knows whether one has stopped.
  void farewell() noexcept {
    try {
      says_ = stopped().empty() ? 0 : 1;
      MPI_Request all = MPI_REQUEST_NULL;
      if (!adrift_) {
        const auto mine = turn();
        must("MPI_Iallreduce", MPI_Iallreduce(&says_, &any_says_, 1, MPI_INT, MPI_MAX, comm_, &all));
      }
      const auto came = clock::now();
      auto heard = clock::time_point::max();  // when this rank learned of a stop
      while (true) {
        const bool has_stopped = !look().empty();
        if (!has_stopped) answer();
        if (completed(all) && nothing_is_under_way() && (any_says_ == 0 || has_stopped)) return;
        const auto now = clock::now();
        if (has_stopped || adrift_) heard = std::min(heard, now);
        if (heard < now && now - heard > options_.grace) break;
        pause(now - came);
      }
    } catch (...) {  // MPI itself failed
    }
    adrift_ = true;
  }

  // ---- messages that are not waited for ----

  [[nodiscard]] bool completed(MPI_Request& request, MPI_Status* status = MPI_STATUS_IGNORE) noexcept {
    int done = 0;
    const auto mine = turn();
    return MPI_Test(&request, &done, status) != MPI_SUCCESS || done != 0;
  }
  /// Waits briefly until MPI has completed a message (sends cannot be canceled). False: not completed; MPI must not be called any more.
  [[nodiscard]] bool settle(MPI_Request& request, MPI_Status* status = MPI_STATUS_IGNORE) noexcept {
    const auto began = clock::now();
    while (request != MPI_REQUEST_NULL && !completed(request, status)) {
      const auto waited = clock::now() - began;
      // ranks that know of a stop accept messages; they may not know of this one
      if (adrift_ || waited > (look().empty() ? std::chrono::milliseconds(1000) : options_.grace)) {
        adrift_ = true;
        return false;
      }
      pause(waited);
    }
    return true;
  }
  /// Cancels a receive; false: a message has arrived.
  [[nodiscard]] bool take_back(MPI_Request& request) noexcept {
    {
      const auto mine = turn();
      MPI_Cancel(&request);
    }
    int is_cancelled = 0;
    MPI_Status status;
    if (!settle(request, &status)) return true;
    MPI_Test_cancelled(&status, &is_cancelled);
    return is_cancelled != 0;
  }
  /// MPI may still deliver an abandoned message.
  [[nodiscard]] bool adrift() const { return adrift_; }

 private:
  enum class notice : char { stopped = 's', returned = 'r', asks = 'a' };
  /// Must live until the request has completed.
  struct pending_text {
    std::string text;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  struct rank_state {
    std::string gone{};      // why it no longer communicates
    bool was_asked = false;  // asked by this rank whether it runs
    bool asks = false;       // has asked this rank
  };
  static constexpr std::size_t nobody = ~std::size_t{0};
  static constexpr std::size_t longest = 1000;  // characters of a notice, for eager sending

  void begin() {
    int begun = 0, ended = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    require<config_error>(ended == 0, "mpi_session: MPI must not have been finalized; it can be initialized once in a process");
    if (begun != 0) {
      must("MPI_Query_thread", MPI_Query_thread(&level));
    } else {
      must("MPI_Init_thread", MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
      ours_ = true;
    }
    if (level < MPI_THREAD_SERIALIZED && ours_) MPI_Finalize();
    require<config_error>(level >= MPI_THREAD_SERIALIZED,
                          "mpi_session: MPI must let several threads communicate (MPI_THREAD_MULTIPLE or MPI_THREAD_SERIALIZED); ",
                          ours_ ? "this MPI cannot" : "the program has initialized it with less");
    serialised_ = level < MPI_THREAD_MULTIPLE;
  }

  // with mutex_ held

  [[nodiscard]] std::string stopped_here() const {
    return stopped_ == nobody ? std::string() : concat("rank ", stopped_, " ", others_[stopped_].gone);
  }
  void tell(std::size_t other, notice what, std::string_view text) {
    pending_text& fresh = notices_.emplace_back();
    fresh.text = concat(static_cast<char>(what), text.substr(0, longest));
    const auto mine = turn();
    must("MPI_Isend", MPI_Isend(fresh.text.data(), static_cast<int>(fresh.text.size()), MPI_CHAR, static_cast<int>(other), notice_tag_, comm_,
                                &fresh.request));
  }
  struct arrival {
    MPI_Message message = MPI_MESSAGE_NULL;
    std::size_t from = 0;
    int tag = 0, length = 0;
  };
  [[nodiscard]] std::optional<arrival> next(int tag) {
    arrival found;
    int there = 0;
    MPI_Status status;
    const auto mine = turn();
    must("MPI_Improbe", MPI_Improbe(MPI_ANY_SOURCE, tag, comm_, &there, &found.message, &status));
    if (there == 0) return std::nullopt;
    found.from = static_cast<std::size_t>(status.MPI_SOURCE);
    found.tag = status.MPI_TAG;
    must("MPI_Get_count", MPI_Get_count(&status, MPI_CHAR, &found.length));
    return found;
  }
  /// Reads notices. After a stop, also discards all messages: their senders cannot exit before.
  void read_notices() {
    while (std::optional<arrival> found = next(stopped_ != nobody && completed(unwanted_.request) ? MPI_ANY_TAG : notice_tag_)) {
      std::string text(static_cast<std::size_t>(found->length), '\0');
      const auto mine = turn();
      if (found->tag == notice_tag_) {
        must("MPI_Mrecv", MPI_Mrecv(text.data(), found->length, MPI_CHAR, &found->message, MPI_STATUS_IGNORE));
        hear(found->from, text);
      } else {
        unwanted_.text = std::move(text);
        must("MPI_Imrecv", MPI_Imrecv(unwanted_.text.data(), found->length, MPI_CHAR, &found->message, &unwanted_.request));
      }
    }
  }
  void hear(std::size_t from, std::string_view text) {
    rank_state& rank = others_[from];
    const auto what = text.empty() ? notice{} : static_cast<notice>(text[0]);
    if (what == notice::asks) rank.asks = true;
    if (what == notice::returned) rank.gone = "has returned";
    if (what == notice::stopped) {
      rank.gone = concat("has stopped: ", text.substr(1));
      if (stopped_ == nobody) stopped_ = from;
    }
  }
  /// Tells the ranks that asked that this rank has returned.
  void answer() {
    const std::lock_guard lock(mutex_);
    for (std::size_t other = 0; other < size(); ++other)
      if (std::exchange(others_[other].asks, false)) tell(other, notice::returned, {});
  }
  [[nodiscard]] bool nothing_is_under_way() {
    const std::lock_guard lock(mutex_);
    while (!notices_.empty() && completed(notices_.front().request)) notices_.pop_front();
    return notices_.empty() && completed(unwanted_.request);
  }

  mpi_options options_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  bool ours_ = false, serialised_ = false;
  int notice_tag_ = 0;
  std::size_t rank_ = 0;
  std::mutex turn_, mutex_;
  std::deque<pending_text> notices_;  // perhaps not sent yet
  pending_text unwanted_;             // a message to discard
  std::vector<rank_state> others_;
  std::size_t stopped_ = nobody;  // the first
  int says_ = 0, any_says_ = 0;   // in farewell: a rank has stopped
  std::atomic<bool> adrift_ = false;
};

}  // namespace detail

}  // namespace xtrain
