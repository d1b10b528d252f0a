// What a process knows of the other processes of its run, and what it tells them besides messages: that it has stopped, and
// why. The only header that names MPI's.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <xtrain/comm/transport.hpp>
#include <xtrain/core/error.hpp>

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1  // bindings for C++ that MPI itself has given up
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

namespace xtrain {

struct mpi_options {
  /// A rank that waits for another longer than this stops, and says for whom it waited.
  std::chrono::milliseconds patience = std::chrono::minutes(10);
  /// A rank that has stopped gives the others this long to stop as well; then it leaves it to the launcher to end them.
  std::chrono::milliseconds grace = std::chrono::seconds(10);
  /// Bytes of a message that MPI is given at once, since it counts them in int. The same on every rank.
  std::size_t piece = std::size_t{1} << 30;
};

namespace detail {

/// MPI, and a communicator of this library's own. Safe to use from several threads.
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
    notice_tag_ = is_set != 0 ? *tags : 32767;  // what every MPI has at least
    rank_ = static_cast<std::size_t>(rank);
    others_.resize(static_cast<std::size_t>(size));
  }
  ~mpi_world() {
    int ended = 0;
    MPI_Finalized(&ended);
    if (ended != 0 || adrift_) return;  // ending MPI would wait for ranks that do not come; the launcher sees to them
    MPI_Comm_free(&comm_);
    if (ours_) MPI_Finalize();
  }
  mpi_world(const mpi_world&) = delete;
  mpi_world& operator=(const mpi_world&) = delete;

  [[nodiscard]] std::size_t rank() const { return rank_; }
  [[nodiscard]] std::size_t size() const { return others_.size(); }
  [[nodiscard]] const mpi_options& options() const { return options_; }
  [[nodiscard]] MPI_Comm comm() const { return comm_; }
  /// throws config_error when MPI has no tag for the channel
  [[nodiscard]] int tag_of(std::uint32_t channel) const {
    require<config_error>(channel < static_cast<std::uint32_t>(notice_tag_), "mpi: channels must be below ", notice_tag_,
                          ", the largest tag of this MPI; given ", channel);
    return static_cast<int>(channel);
  }

  /// Held around each call of an MPI that several threads may use, but not at the same time.
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
  /// Between two looks at something that is not there yet, `waited` after the first: short waits answer quickly, long ones
  /// leave the processor to others.
  static void pause(clock::duration waited) {
    if (waited < std::chrono::milliseconds(1))
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

  // ---- what ranks tell one another ----

  /// Why there is nothing to wait for from `other`; empty when there is. Asks it, when it has been waited for long enough.
  [[nodiscard]] std::string gone(std::size_t other, clock::duration waited) {
    const std::lock_guard lock(mutex_);
    read_notices();
    if (!others_[other].gone.empty()) return concat("that rank ", others_[other].gone);
    if (waited > std::chrono::seconds(1) && !std::exchange(others_[other].was_asked, true)) tell(other, notice::asks, {});
    return stopped_here();
  }
  /// Tells all others that this rank has stopped, unless one of them has said so before: then they know, and why.
  void stop(std::string_view reason) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      read_notices();
      if (stopped_ != nobody) return;
      stopped_ = rank_;
      others_[rank_].gone = concat("has stopped: ", reason);
      for (std::size_t i = 1; i < size(); ++i) tell((rank_ + i) % size(), notice::stopped, reason);
    } catch (...) {  // those who are not told run out of patience
    }
  }
  /// Which rank has stopped, and why; empty when none has.
  [[nodiscard]] std::string stopped() {
    const std::lock_guard lock(mutex_);
    return stopped_here();
  }

  /// Waits until all ranks are here: forever, since others may have work left, but only for the time of grace when one has
  /// stopped.
  void farewell() noexcept {
    try {
      MPI_Request all = MPI_REQUEST_NULL;
      if (!adrift_) {
        const auto mine = turn();
        must("MPI_Ibarrier", MPI_Ibarrier(comm_, &all));
      }
      const auto came = clock::now();
      auto heard = clock::time_point::max();  // when this rank learned that one has stopped
      while (!completed(all) || !notices_are_sent()) {
        const auto now = clock::now();
        if (!answer().empty() || adrift_) heard = std::min(heard, now);
        if (heard < now && now - heard > options_.grace) {
          adrift_ = true;
          return;
        }
        pause(now - came);
      }
    } catch (...) {
      adrift_ = true;
    }
  }

  /// Takes back what MPI has been given. A receive that nothing has come for is gone at once. A send may be out of reach:
  /// then its receiver has a second to take it, while the memory is still there; later MPI must not be called any more.
  void recall(MPI_Request& piece) noexcept {
    {
      const auto mine = turn();
      MPI_Cancel(&piece);
    }
    const auto began = clock::now();
    while (!completed(piece)) {
      const auto waited = clock::now() - began;
      if (adrift_ || waited > std::chrono::seconds(1)) {
        adrift_ = true;
        return;
      }
      pause(waited);
    }
  }
  /// A message has been given up that MPI may still deliver.
  [[nodiscard]] bool adrift() const { return adrift_; }

 private:
  enum class notice : char { stopped = 's', returned = 'r', asks = 'a' };
  struct letter {
    std::string text;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  struct rank_state {
    std::string gone{};      // why it neither sends nor receives any more
    bool was_asked = false;  // by this rank, whether it still works
    bool asks = false;
  };
  static constexpr std::size_t nobody = ~std::size_t{0};
  static constexpr std::size_t longest = 1000;  // characters of a notice: short enough that MPI sends it without being asked for it

  void begin() {
    int begun = 0, ended = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    require<config_error>(ended == 0, "mpi_session: MPI must not have been ended; it can be begun once in a process");
    if (begun != 0) {
      must("MPI_Query_thread", MPI_Query_thread(&level));
    } else {
      must("MPI_Init_thread", MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
      ours_ = true;
    }
    if (level < MPI_THREAD_SERIALIZED && ours_) MPI_Finalize();
    require<config_error>(level >= MPI_THREAD_SERIALIZED,
                          "mpi_session: MPI must let several threads communicate (MPI_THREAD_MULTIPLE or MPI_THREAD_SERIALIZED); ",
                          ours_ ? "this MPI cannot" : "the program has begun it with less");
    serialised_ = level < MPI_THREAD_MULTIPLE;
  }

  [[nodiscard]] bool completed(MPI_Request& request) {
    int done = 0;
    const auto mine = turn();
    return MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  }

  // with mutex_ held

  [[nodiscard]] std::string stopped_here() const {
    return stopped_ == nobody ? std::string() : concat("rank ", stopped_, " ", others_[stopped_].gone);
  }
  void tell(std::size_t other, notice what, std::string_view text) {
    letter& fresh = letters_.emplace_back();
    fresh.text = concat(static_cast<char>(what), text.substr(0, longest));
    const auto mine = turn();
    must("MPI_Isend", MPI_Isend(fresh.text.data(), static_cast<int>(fresh.text.size()), MPI_CHAR, static_cast<int>(other), notice_tag_, comm_,
                                &fresh.request));
  }
  void read_notices() {
    while (true) {
      int there = 0, length = 0;
      MPI_Message found = MPI_MESSAGE_NULL;
      MPI_Status status;
      const auto mine = turn();
      must("MPI_Improbe", MPI_Improbe(MPI_ANY_SOURCE, notice_tag_, comm_, &there, &found, &status));
      if (there == 0) return;
      std::string text(longest + 1, '\0');
      const std::size_t from = static_cast<std::size_t>(status.MPI_SOURCE);
      must("MPI_Mrecv", MPI_Mrecv(text.data(), static_cast<int>(text.size()), MPI_CHAR, &found, &status));
      must("MPI_Get_count", MPI_Get_count(&status, MPI_CHAR, &length));
      text.resize(static_cast<std::size_t>(length));
      if (text.empty() || from >= size()) continue;
      const auto what = static_cast<notice>(text[0]);
      if (what == notice::asks) others_[from].asks = true;
      if (what == notice::returned) others_[from].gone = "has returned";
      if (what == notice::stopped) others_[from].gone = concat("has stopped: ", std::string_view(text).substr(1));
      if (what == notice::stopped && stopped_ == nobody) stopped_ = from;
    }
  }
  [[nodiscard]] bool notices_are_sent() {
    const std::lock_guard lock(mutex_);
    while (!letters_.empty() && completed(letters_.front().request)) letters_.pop_front();
    return letters_.empty();
  }
  /// Tells those who have asked for this rank that it has returned. What stopped() says.
  [[nodiscard]] std::string answer() {
    {
      const std::lock_guard lock(mutex_);
      read_notices();
      for (std::size_t other = 0; other < size() && stopped_ != rank_; ++other)
        if (std::exchange(others_[other].asks, false)) tell(other, notice::returned, {});
    }
    return stopped();
  }

  mpi_options options_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  bool ours_ = false, serialised_ = false;
  int notice_tag_ = 0;
  std::size_t rank_ = 0;
  std::mutex turn_, mutex_;
  std::deque<letter> letters_;
  std::vector<rank_state> others_;
  std::size_t stopped_ = nobody;  // the first rank that has
  std::atomic<bool> adrift_ = false;
};

}  // namespace detail

}  // namespace xtrain
