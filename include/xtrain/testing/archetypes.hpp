// A minimal type for each concept. Code that takes a concept is instantiated with these: it requires no more than the concept.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <xtrain/device/concepts.hpp>
#include <xtrain/device/host.hpp>
#include <xtrain/optim/concepts.hpp>
#include <xtrain/parallel/concepts.hpp>
#include <xtrain/precision/concepts.hpp>

namespace xtrain::testing {

/// Memory that the host cannot reach.
struct bare_memory {
  static constexpr std::string_view name = "bare";
  static constexpr bool host_addressable = false;
};

/// A device without kernels.
struct bare_device {
  static constexpr std::string_view name = "bare";
  using memory = bare_memory;
  struct properties {};
  struct context : host_context {
    [[nodiscard]] bare_device::properties properties() const { return {}; }
  };
  struct stream : host_stream {
    explicit stream(const context&) {}
  };
};

/// Only dtypes.
struct bare_precision {
  static constexpr std::string_view name = "bare";
  using parameter = float;
  using compute = float;
  using gradient = float;
  using master = float;
  using state = float;
  static constexpr rounding update = rounding::nearest;
  static constexpr bool scales_loss = false;
};

/// A communicator with a single rank.
struct bare_communicator {
  [[nodiscard]] std::size_t rank() const { return 0; }
  [[nodiscard]] std::size_t size() const { return 1; }
  void all_reduce(std::span<double>, reduction) {}
  void barrier() {}
  template <class Stream, class Span>
  void all_reduce(Stream&, Span, reduction) {}
  template <class Stream, class From, class To>
  void all_gather(Stream&, From, To) {}
  template <class Stream, class From, class To>
  void reduce_scatter(Stream&, From, To, reduction) {}
  template <class Stream, class Span>
  void broadcast(Stream&, Span, std::size_t) {}
};

/// A strategy whose hooks do nothing.
struct bare_strategy {
  static constexpr std::string_view name = "bare";
  using hooks = xtrain::hooks<>;
  struct config {};
  template <class Device>
  struct state {
    explicit state(const config&) {}
    bare_communicator& data() { return communicator_; }
    bare_communicator& tensor() { return communicator_; }
    bare_communicator& world() { return communicator_; }
    [[nodiscard]] shard_spec sharding() const { return {}; }
    template <class Stream, class Store>
    void block_begins(Stream&, Store&, std::size_t, block_visit) {}
    template <class Stream, class Store>
    void block_ends(Stream&, Store&, std::size_t, block_visit) {}
    template <class Stream, class Store>
    void gradients_ready(Stream&, Store&, std::size_t, bool) {}
    template <class Stream, class Store>
    void finish_gradients(Stream&, Store&) {}
    template <class Stream, class Sums>
    void reduce_losses(Stream&, Sums) {}
    template <class Stream, class Store, class Squares, class Sum>
    void gradient_squares(Stream&, Store& store, Squares squares, Sum sum) {
      const auto all = store.gradients();
      squares(std::span(&all, 1), sum);
    }
    template <class Stream, class Store>
    void weights_changed(Stream&, Store&) {}
    template <class Stream, class Store, class Entry, class Span, class T>
    void collect(Stream& stream, const Store&, const Entry& entry, Span array, std::span<T> whole) {
      copy_to_host(stream, whole, array.subspan(entry.offset, entry.size()));
      stream.synchronize();
    }

   private:
    bare_communicator communicator_;
  };
};

/// An optimizer that changes nothing.
struct bare_optimizer {
  static constexpr std::string_view name = "bare";
  using hooks = xtrain::hooks<>;
  struct config {};
  template <class Device, class Precision>
  struct state {
    state(const config&, execution<Device>&, const parameter_store<Device, Precision>&) {}
    void step(execution<Device>&, const parameter_store<Device, Precision>&, const optimizer_step<Device>&) {}
    template <class Visit>
    void visit(Visit&&) const {}
  };
};

static_assert(device<bare_device> && precision<bare_precision> && communicator<bare_communicator> && parallel_strategy<bare_strategy> &&
              optimizer<bare_optimizer>);

}  // namespace xtrain::testing
