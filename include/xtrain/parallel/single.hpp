#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include <xtrain/comm/self.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/pinned_pipe.hpp>
#include <xtrain/parallel/concepts.hpp>

namespace xtrain {

/// One rank: nothing is distributed.
struct single {
  static constexpr std::string_view name = "single";
  using hooks = xtrain::hooks<hook::collects_with_index, hook::collect_state, hook::combines_matrices>;

  struct config {};

  template <class Device>
  class state {
   public:
    explicit state(const config&) {}

    [[nodiscard]] self& data() { return self_; }
    [[nodiscard]] self& tensor() { return self_; }
    [[nodiscard]] self& world() { return self_; }
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
    void gradient_squares(Stream&, Store& store, Squares&& squares, Sum sum_1) {
      const auto all = store.gradients();
      squares(std::span(&all, 1), sum_1);
    }
    template <class Stream, class Store>
    void weights_changed(Stream&, Store&) {}
    template <class Stream, class Store, class Entry, class Span, class T>
    void collect(Stream& stream, const Store& store, const Entry& entry, Span array, std::span<T> whole, std::optional<std::size_t> at = std::nullopt) {
      copy_in_pieces<Device>(store.device(), stream, whole, array.subspan(at.value_or(entry.offset), entry.size()));
    }

    // one rank has whole matrices
    template <class Stream, class Store, class Entry, class Span>
    void gather_pieces(Stream&, const Store&, const Entry&, Span) {}
    template <class Stream, class Store, class Entry, class Span>
    void sum_pieces(Stream&, const Store&, const Entry&, Span) {}
    template <class Stream, class Entry, class Span>
    void sum_tensor_shards(Stream&, const Entry&, Span) {}
    template <class Stream, class Store, class Entry, class Span, class T>
    void collect_state(Stream& stream, const Store& store, const Entry&, std::size_t, Span own, std::span<T> whole) {
      copy_in_pieces<Device>(store.device(), stream, whole, own);
    }
    template <class Entry>
    [[nodiscard]] bool writes_state(const Entry& entry, bool) const {
      return entry.is_here;
    }

   private:
    self self_;
  };
};

static_assert(parallel_strategy<single>);

}  // namespace xtrain
