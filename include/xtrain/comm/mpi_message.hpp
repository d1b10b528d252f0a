// Messages between processes over MPI.
//
// A message begins with an envelope: length and, if short, bytes. Bytes of a long message follow in pieces. MPI gets a receive buffer only after lengths have
// been compared: Open MPI 4.1 reports a message that is too long, but writes all of it, past the buffer's end.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/comm/mpi_world.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/comm/waiting.hpp>
#include <xtrain/core/error.hpp>

namespace xtrain::detail {

struct mpi_envelope {
  static constexpr std::size_t most = 4096;  // of a short message

  std::uint64_t length = 0, piece = 0;
  std::array<std::byte, most> bytes;
};

class mpi_receive;

/// Posted receives without envelope, by sender and channel, in order. Any waiting thread makes progress on all.
class mpi_arrivals {
 public:
  void expect(mpi_receive& one);
  [[nodiscard]] bool has_come(const mpi_receive& one);
  void move_on();
  void forget(mpi_receive& one) noexcept;

 private:
  using queue = std::deque<mpi_receive*>;
  void move_on_all();
  static void move_on(queue& of);

  std::mutex mutex_;
  std::map<std::pair<std::size_t, std::uint32_t>, queue> queues_;
};

struct mpi_network {
  explicit mpi_network(const mpi_options& options) : world(options) {}

  mpi_world world;
  mpi_arrivals arrivals;
};

/// Common to sends and receives: envelope, pieces, waiting.
class mpi_message : public message {
 public:
  mpi_message(std::shared_ptr<mpi_network> network, std::size_t other, std::uint32_t channel, std::size_t length)
      : network_(std::move(network)), other_(other), channel_(channel), length_(length), envelope_(new mpi_envelope) {
    require<config_error>(other < world().size(), "mpi: ranks must be below the ", world().size(), " ranks there are; given ", other);
    require<config_error>(channel < world().channels(), "mpi: channels must be below ", world().channels(), " with this MPI; given ", channel);
  }
  mpi_message(const mpi_message&) = delete;
  mpi_message& operator=(const mpi_message&) = delete;

  void wait() final {
    if (std::exchange(waited_, true)) return;
    const waiting_for_ranks waits;
    auto began = mpi_world::clock::now();
    for (std::size_t seen = 0; !done();) {
      const auto now = mpi_world::clock::now();
      if (std::exchange(seen, arrived_) != arrived_) began = now;  // every piece restarts the timeout
      const auto waited = now - began;
      mpi_world::pause(waited);
      if (waited < std::chrono::milliseconds(1)) continue;
      const std::string gone = world().gone(other_, waited);
      if (done()) return;  // messages sent before a stop still arrive
      if (!gone.empty()) stop(concat("mpi: rank ", world().rank(), " waits for rank ", other_, what(), ", but ", gone));
      const auto timeout = world().options().timeout;
      if (waited > timeout)
        stop(concat("mpi: rank ", world().rank(), " has waited ", std::chrono::duration<double>(timeout).count(), " s for rank ", other_, what(),
                    " on channel ", channel_, "; it hangs, or is in another operation"));
    }
  }

 protected:
  [[nodiscard]] virtual bool done() = 0;
  [[nodiscard]] virtual const char* what() const = 0;

  [[nodiscard]] mpi_world& world() const { return network_->world; }
  [[nodiscard]] bool is_short() const { return length_ <= mpi_envelope::most; }
  [[nodiscard]] int other() const { return static_cast<int>(other_); }
  [[nodiscard]] int envelope_tag() const { return static_cast<int>(2 * channel_); }
  [[nodiscard]] int piece_tag() const { return static_cast<int>(2 * channel_ + 1); }

  /// begin(offset, bytes, request) per piece of a long message
  template <class Begin>
  void begin_pieces(Begin&& begin) {
    const std::size_t most = world().options().piece;
    pieces_.resize((length_ + most - 1) / most, MPI_REQUEST_NULL);
    for (std::size_t i = 0; i < pieces_.size(); ++i) begin(i * most, static_cast<int>(std::min(most, length_ - i * most)), &pieces_[i]);
  }
  [[nodiscard]] bool pieces_are_done() {
    while (arrived_ < pieces_.size() && is_done(pieces_[arrived_])) ++arrived_;
    return arrived_ == pieces_.size();
  }
  [[nodiscard]] bool is_done(MPI_Request& request) {
    int done = 0;
    auto turn = world().turn();
    const int code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    turn = {};
    if (code != MPI_SUCCESS) {
      request = MPI_REQUEST_NULL;  // nothing to wait for
      stop(concat("mpi: messages must arrive; MPI says: ", mpi_world::words(code)));
    }
    return done != 0;
  }
  /// Tells other ranks before pending operations are destroyed.
  [[noreturn]] void stop(const std::string& reason) {
    world().stop(reason);
    throw comm_error(reason);
  }
  /// For destruction; leaks the envelope if MPI may still use it.
  void let_go() noexcept {
    if (!world().settle(announced_)) (void)envelope_.release();
    for (MPI_Request& piece : pieces_) (void)world().settle(piece);
  }

  std::shared_ptr<mpi_network> network_;
  std::size_t other_;
  std::uint32_t channel_;
  std::size_t length_;
  std::unique_ptr<mpi_envelope> envelope_;
  MPI_Request announced_ = MPI_REQUEST_NULL;
  std::vector<MPI_Request> pieces_;
  std::size_t arrived_ = 0;  // pieces

 private:
  bool waited_ = false;
};

class mpi_send final : public mpi_message {
 public:
  mpi_send(std::shared_ptr<mpi_network> network, std::size_t to, std::uint32_t channel, std::span<const std::byte> bytes)
      : mpi_message(std::move(network), to, channel, bytes.size()) {
    envelope_->length = bytes.size();
    envelope_->piece = world().options().piece;
    std::size_t enclosed = 0;
    if (is_short() && !bytes.empty()) std::memcpy(envelope_->bytes.data(), bytes.data(), enclosed = bytes.size());
    const auto turn = world().turn();
    const int size = static_cast<int>(offsetof(mpi_envelope, bytes) + enclosed);
    mpi_world::must("MPI_Isend", MPI_Isend(envelope_.get(), size, MPI_BYTE, other(), envelope_tag(), world().comm(), &announced_));
    if (is_short()) return;
    begin_pieces([&](std::size_t begin, int count, MPI_Request* piece) {
      mpi_world::must("MPI_Isend", MPI_Isend(bytes.data() + begin, count, MPI_BYTE, other(), piece_tag(), world().comm(), piece));
    });
  }
  ~mpi_send() override { let_go(); }

 private:
  [[nodiscard]] bool done() override {
    if (is_done(announced_) && pieces_are_done()) return true;
    network_->arrivals.move_on();  // the other rank may wait for us to receive
    return false;
  }
  [[nodiscard]] const char* what() const override { return " to receive a message"; }
};

class mpi_receive final : public mpi_message {
 public:
  mpi_receive(std::shared_ptr<mpi_network> network, std::size_t from, std::uint32_t channel, std::span<std::byte> bytes)
      : mpi_message(std::move(network), from, channel, bytes.size()), bytes_(bytes) {
    network_->arrivals.expect(*this);
  }
  ~mpi_receive() override {
    network_->arrivals.forget(*this);
    let_go();
  }

 private:
  friend class mpi_arrivals;

  [[nodiscard]] bool done() override {
    if (!network_->arrivals.has_come(*this)) return false;
    if (!problem_.empty()) stop(problem_);
    return pieces_are_done();
  }
  [[nodiscard]] const char* what() const override { return " for a message"; }

  // called by mpi_arrivals, on any thread

  void expect() {
    const auto turn = world().turn();
    mpi_world::must("MPI_Irecv", MPI_Irecv(envelope_.get(), sizeof(mpi_envelope), MPI_BYTE, other(), envelope_tag(), world().comm(), &announced_));
  }
  /// Reads the envelope if it has arrived; returns whether it has.
  [[nodiscard]] bool look() noexcept {
    try {
      if (!has_come_ && is_done(announced_)) {
        has_come_ = true;
        open();
      }
    } catch (const std::exception& problem) {  // rethrown in wait()
      problem_ = problem.what();
      has_come_ = true;
    }
    return has_come_;
  }
  void open() {
    if (envelope_->length != length_)
      problem_ = concat("mpi: messages must have the expected length; rank ", other_, " sends ", envelope_->length, " bytes, and rank ",
                        world().rank(), " asks for ", length_, ": ranks must call the same operations in the same order");
    else if (envelope_->piece != world().options().piece)
      problem_ = concat("mpi: all ranks must send in pieces of the same size; rank ", other_, " sends ", envelope_->piece, " bytes at once, and rank ",
                        world().rank(), " asks for ", world().options().piece);
    else if (is_short())
      std::copy_n(envelope_->bytes.begin(), length_, bytes_.begin());
    else
      begin_pieces([&](std::size_t begin, int count, MPI_Request* piece) {
        const auto turn = world().turn();
        mpi_world::must("MPI_Irecv", MPI_Irecv(bytes_.data() + begin, count, MPI_BYTE, other(), piece_tag(), world().comm(), piece));
      });
  }

  std::span<std::byte> bytes_;
  bool has_come_ = false;
  std::string problem_;
};

inline void mpi_arrivals::expect(mpi_receive& one) {
  const std::lock_guard lock(mutex_);
  one.expect();
  queues_[{one.other_, one.channel_}].push_back(&one);
}

inline bool mpi_arrivals::has_come(const mpi_receive& one) {
  const std::lock_guard lock(mutex_);
  if (!one.has_come_) move_on_all();
  return one.has_come_;
}

inline void mpi_arrivals::move_on() {
  const std::lock_guard lock(mutex_);
  move_on_all();
}

inline void mpi_arrivals::move_on_all() {
  for (auto& [from, receives] : queues_) move_on(receives);
}

inline void mpi_arrivals::move_on(queue& of) {
  while (!of.empty() && of.front()->look()) of.pop_front();
}

/// Cancels a receive without message; the message goes to the next receive.
inline void mpi_arrivals::forget(mpi_receive& one) noexcept {
  const std::lock_guard lock(mutex_);
  queue& with_others = queues_.find({one.other_, one.channel_})->second;
  move_on(with_others);
  if (one.has_come_) return;
  if (!one.world().take_back(one.announced_)) move_on(with_others);  // it has just arrived
  std::erase(with_others, &one);
}

}  // namespace xtrain::detail
