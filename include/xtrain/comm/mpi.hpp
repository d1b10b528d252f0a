// Ranks as processes on one or more hosts, with messages by MPI, started by mpirun or srun.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <xtrain/comm/mpi_message.hpp>
#include <xtrain/comm/mpi_world.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/core/error.hpp>

namespace xtrain {

namespace detail {

class mpi_transport final : public transport {
 public:
  explicit mpi_transport(std::shared_ptr<mpi_network> network) : network_(std::move(network)) {}

  [[nodiscard]] std::string_view name() const override { return "mpi"; }
  [[nodiscard]] std::size_t rank() const override { return network_->world.rank(); }
  [[nodiscard]] std::size_t size() const override { return network_->world.size(); }
  [[nodiscard]] pending_message send(std::size_t to, std::uint32_t channel, std::span<const std::byte> bytes) override {
    return std::make_unique<mpi_send>(network_, to, channel, bytes);
  }
  [[nodiscard]] pending_message receive(std::size_t from, std::uint32_t channel, std::span<std::byte> bytes) override {
    return std::make_unique<mpi_receive>(network_, from, channel, bytes);
  }

  [[nodiscard]] std::string stopped() const override { return network_->world.look(); }

 private:
  std::shared_ptr<mpi_network> network_;
};

}  // namespace detail

/// This process as a rank. Every process creates one in its main thread.
///
///     xtrain::mpi_session session;
///     session.run([](const std::shared_ptr<xtrain::transport>& network) { ... });
///
/// Initializes MPI, and finalizes it with the last user of the session's transport. A program that initialized MPI must finalize it, after that.
class mpi_session {
 public:
  ///   throws  config_error when MPI has been finalized, or does not support several threads
  explicit mpi_session(const mpi_options& options = {})
      : mpi_(std::make_shared<detail::mpi_network>(options)), network_(std::make_shared<detail::mpi_transport>(mpi_)) {}

  ~mpi_session() {
    if (!has_run_ && std::uncaught_exceptions() > exceptions_) leave("it had a problem before its work began");
  }
  mpi_session(const mpi_session&) = delete;
  mpi_session& operator=(const mpi_session&) = delete;

  [[nodiscard]] std::size_t rank() const { return world().rank(); }
  [[nodiscard]] std::size_t size() const { return world().size(); }
  /// For programs without run(). If a rank throws there, others learn that it stopped, but not why.
  [[nodiscard]] const std::shared_ptr<transport>& network() const { return network_; }

  /// Calls `work(network())`; returns when all ranks have returned. When it throws, other ranks stop at their next wait and report the reason; the exception
  /// is rethrown.
  ///   throws  comm_error when another rank has stopped, config_error when called twice
  void run(const std::function<void(std::shared_ptr<transport>)>& work) {
    require<config_error>(!std::exchange(has_run_, true), "mpi_session: run must be called once; do later work in the same call");
    try {
      work(network_);
      require<comm_error>(!world().adrift(), "mpi: messages must be waited for; rank ", rank(), " has dropped one that was not received");
    } catch (const std::exception& problem) {
      leave(problem.what());
      throw;
    } catch (...) {
      leave("its exception has no message");
      throw;
    }
    world().farewell();
    const std::string cause = world().stopped();
    if (!cause.empty()) fail<comm_error>("mpi: rank ", rank(), " has returned, but ", cause);
  }

 private:
  void leave(std::string_view reason) noexcept {
    world().stop(reason);
    world().farewell();
  }

  [[nodiscard]] detail::mpi_world& world() const { return mpi_->world; }

  std::shared_ptr<detail::mpi_network> mpi_;
  std::shared_ptr<transport> network_;
  bool has_run_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace xtrain
