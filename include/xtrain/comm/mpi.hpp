// Ranks that are processes, on one host or on many: MPI carries their messages. The launcher (mpirun, srun) starts them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/comm/mpi_world.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/core/error.hpp>

namespace xtrain {

namespace detail {

/// Goes in pieces, of which the last is shorter than a whole one, if need be empty: so no message is the beginning of another,
/// and one that is too long or too short is always noticed.
class mpi_message final : public message {
 public:
  /// `bytes` are written only by a receive
  mpi_message(std::shared_ptr<mpi_world> world, bool is_send, std::size_t other, std::uint32_t channel, std::span<std::byte> bytes)
      : world_(std::move(world)), is_send_(is_send), other_(other), channel_(channel), bytes_(bytes) {
    require<config_error>(other < world_->size(), "mpi: ranks must be below the ", world_->size(), " ranks there are; given ", other);
    const int tag = world_->tag_of(channel), rank = static_cast<int>(other);
    pieces_.resize(bytes.size() / world_->options().piece + 1, MPI_REQUEST_NULL);
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const std::span<std::byte> part = piece(i);
      const int count = static_cast<int>(part.size());
      const auto turn = world_->turn();
      if (is_send)
        mpi_world::must("MPI_Isend", MPI_Isend(part.data(), count, MPI_BYTE, rank, tag, world_->comm(), &pieces_[i]));
      else
        mpi_world::must("MPI_Irecv", MPI_Irecv(part.data(), count, MPI_BYTE, rank, tag, world_->comm(), &pieces_[i]));
    }
  }
  ~mpi_message() override {
    for (MPI_Request& piece : pieces_)
      if (piece != MPI_REQUEST_NULL) world_->recall(piece);
  }
  mpi_message(const mpi_message&) = delete;
  mpi_message& operator=(const mpi_message&) = delete;

  void wait() override {
    if (std::exchange(waited_, true)) return;
    for (std::size_t i = 0; i < pieces_.size(); ++i) wait(i);
  }

 private:
  [[nodiscard]] std::span<std::byte> piece(std::size_t i) const {
    const std::size_t whole = world_->options().piece, begin = i * whole;
    return bytes_.subspan(begin, std::min(whole, bytes_.size() - begin));
  }

  void wait(std::size_t i) {
    const auto began = mpi_world::clock::now();
    const char* what = is_send_ ? " to take a message" : " for a message";
    while (!done(i)) {
      const auto waited = mpi_world::clock::now() - began;
      mpi_world::pause(waited);
      if (waited < std::chrono::milliseconds(1)) continue;
      const std::string gone = world_->gone(other_, waited);
      if (done(i)) return;  // what a rank has sent before it went still arrives
      if (!gone.empty()) stop(concat("mpi: rank ", world_->rank(), " waits for rank ", other_, what, ", but ", gone));
      if (waited > world_->options().patience)
        stop(concat("mpi: rank ", world_->rank(), " has waited ", std::chrono::duration<double>(world_->options().patience).count(),
                    " s for rank ", other_, what, " on channel ", channel_, "; it hangs, or has come to another operation"));
    }
  }
  /// The others must hear of it before what this rank has begun is taken down.
  [[noreturn]] void stop(const std::string& reason) {
    world_->stop(reason);
    throw comm_error(reason);
  }

  [[nodiscard]] bool done(std::size_t i) {
    int is_done = 0, count = 0, kind = MPI_SUCCESS;
    MPI_Status status;
    auto turn = world_->turn();
    const int code = MPI_Test(&pieces_[i], &is_done, &status);
    if (code != MPI_SUCCESS) {
      pieces_[i] = MPI_REQUEST_NULL;  // there is nothing left to wait for
      MPI_Error_class(code, &kind);
    } else if (is_done != 0 && !is_send_) {
      MPI_Get_count(&status, MPI_BYTE, &count);
    }
    turn = {};
    if (kind == MPI_ERR_TRUNCATE) stop_at_length(concat("more than ", bytes_.size()));
    if (code != MPI_SUCCESS) stop(concat("mpi: messages must arrive; MPI says: ", mpi_world::words(code)));
    if (is_done == 0) return false;
    const auto came = static_cast<std::size_t>(count);
    if (!is_send_ && came != piece(i).size()) stop_at_length(concat(i * world_->options().piece + came));
    return true;
  }
  [[noreturn]] void stop_at_length(const std::string& came) {
    stop(concat("mpi: messages must be as long as they are expected; rank ", other_, " sends ", came, " bytes, and rank ", world_->rank(),
                " asks for ", bytes_.size(), ": ranks must come to the same operations in the same order"));
  }

  std::shared_ptr<mpi_world> world_;
  bool is_send_ = false, waited_ = false;
  std::size_t other_;
  std::uint32_t channel_;
  std::span<std::byte> bytes_;
  std::vector<MPI_Request> pieces_;
};

class mpi_transport final : public transport {
 public:
  explicit mpi_transport(std::shared_ptr<mpi_world> world) : world_(std::move(world)) {}

  [[nodiscard]] std::string_view name() const override { return "mpi"; }
  [[nodiscard]] std::size_t rank() const override { return world_->rank(); }
  [[nodiscard]] std::size_t size() const override { return world_->size(); }
  [[nodiscard]] pending_message send(std::size_t to, std::uint32_t channel, std::span<const std::byte> bytes) override {
    const std::span<std::byte> untouched(const_cast<std::byte*>(bytes.data()), bytes.size());
    return std::make_unique<mpi_message>(world_, true, to, channel, untouched);
  }
  [[nodiscard]] pending_message receive(std::size_t from, std::uint32_t channel, std::span<std::byte> bytes) override {
    return std::make_unique<mpi_message>(world_, false, from, channel, bytes);
  }

 private:
  std::shared_ptr<mpi_world> world_;
};

}  // namespace detail

/// This process as a rank of a run. All processes of the run make one, in their main thread.
///
///     xtrain::mpi_session session;
///     session.run([](const std::shared_ptr<xtrain::transport>& wires) { ... });
///
/// MPI is begun, and ended with the last user of the session's wires, unless the program has begun it: then it is the program's
/// to end, after them.
class mpi_session {
 public:
  /// throws  config_error when MPI has been ended, or does not let several threads communicate
  explicit mpi_session(const mpi_options& options = {})
      : world_(std::make_shared<detail::mpi_world>(options)), wires_(std::make_shared<detail::mpi_transport>(world_)) {}

  [[nodiscard]] std::size_t rank() const { return world_->rank(); }
  [[nodiscard]] std::size_t size() const { return world_->size(); }
  /// For programs that do without run(): what such a rank throws, the others learn from their patience.
  [[nodiscard]] const std::shared_ptr<transport>& wires() const { return wires_; }

  /// Calls `work(wires())`, and returns when it has returned on every rank. When it throws, the other ranks stop where they
  /// wait, with the reason, and its exception is thrown here.
  ///   throws  comm_error when another rank has stopped, config_error when called twice
  void run(const std::function<void(std::shared_ptr<transport>)>& work) {
    require<config_error>(!std::exchange(has_run_, true), "mpi_session: run must be called once; what comes later belongs into the same work");
    try {
      work(wires_);
      require<comm_error>(!world_->adrift(), "mpi: messages must be waited for; rank ", rank(), " has given one up that was not taken");
    } catch (const std::exception& problem) {
      leave(problem.what());
      throw;
    } catch (...) {
      leave("its exception has no words");
      throw;
    }
    world_->farewell();
    const std::string cause = world_->stopped();
    if (!cause.empty()) fail<comm_error>("mpi: rank ", rank(), " has returned, but ", cause);
  }

 private:
  void leave(std::string_view reason) noexcept {
    world_->stop(reason);
    world_->farewell();
  }

  std::shared_ptr<detail::mpi_world> world_;
  std::shared_ptr<transport> wires_;
  bool has_run_ = false;
};

}  // namespace xtrain
