// No parallelism: one device trains the whole model.
#pragma once

#include <cstddef>
#include <span>

#include <xtrain/comm/self.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/parallel/concepts.hpp>

namespace xtrain {

struct single {
  static constexpr std::string_view name = "single";

  struct config {};

  template <class Device>
  class state {
   public:
    explicit state(const config&) {}

    [[nodiscard]] self& data() { return self_; }
    [[nodiscard]] self& tensor() { return self_; }
    [[nodiscard]] self& everyone() { return self_; }
    [[nodiscard]] shard_spec sharding() const { return {}; }

    template <class Stream, class Store>
    void block_begins(Stream&, Store&, std::size_t, block_visit) {}
    template <class Stream, class Store>
    void block_ends(Stream&, Store&, std::size_t, block_visit) {}
    template <class Stream, class Store>
    void gradients_ready(Stream&, Store&, std::size_t, bool) {}
    template <class Stream, class Store>
    void finish_gradients(Stream&, Store&) {}
    template <class Store, class Squares>
    [[nodiscard]] double gradient_squares(Store& store, Squares&& squares) {
      return squares(store.gradients());
    }
    template <class Stream, class Store>
    void weights_changed(Stream&, Store&) {}
    template <class Stream, class Store, class Entry, class Span, class T>
    void collect(Stream& stream, const Store&, const Entry& entry, Span array, std::span<T> whole) {
      copy_to_host(stream, whole, array.subspan(entry.offset, entry.size()));
      stream.synchronize();
    }

   private:
    self self_;
  };
};

static_assert(parallel_strategy<single>);

}  // namespace xtrain
