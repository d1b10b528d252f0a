// Ranks that are processes, on one host or several. MPI carries their messages; the launcher (mpirun, srun) starts them.
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

/// This process as a rank of a run. Every process of the run creates one, in its main thread.
///
///     xtrain::mpi_session session;
///     session.run([](const std::shared_ptr<xtrain::transport>& network) { ... });
///
/// MPI is initialized here, and finalized with the last user of the session's transport. If the program has initialized MPI itself, the
/// program must finalize it, after that.
class mpi_session {
 public:
  ///   throws  config_error when MPI has been finalized, or does not support communication from several threads
  explicit mpi_session(const mpi_options& options = {})
      : mpi_(std::make_shared<detail::mpi_network>(options)), network_(std::make_shared<detail::mpi_transport>(mpi_)) {}

  ~mpi_session() {
    if (!has_run_ && std::uncaught_exceptions() > exceptions_) leave("it had a problem before its work began");
  }
  mpi_session(const mpi_session&) = delete;
  mpi_session& operator=(const mpi_session&) = delete;

  [[nodiscard]] std::size_t rank() const { return world().rank(); }
  [[nodiscard]] std::size_t size() const { return world().size(); }
  /// For programs that do not use run(). When a rank throws there, the others learn that it has stopped, but not why.
  [[nodiscard]] const std::shared_ptr<transport>& network() const { return network_; }

  /// Calls `work(network())`, and returns when it has returned on every rank. When it throws, the other ranks stop at their next wait and
  /// report the reason; its exception is rethrown here.
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
