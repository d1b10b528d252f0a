// Definitions of search.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/host_threads.hpp>
#include <xtrain/parallel/pipeline/schedule_cache.hpp>
#include <xtrain/parallel/traffic.hpp>
#include <xtrain/plan/layout_bounds.hpp>
#include <xtrain/plan/machine.hpp>
#include <xtrain/plan/mesh_plan.hpp>
#include <xtrain/plan/run_layout.hpp>
#include <xtrain/plan/search.hpp>
#include <xtrain/plan/search_progress.hpp>

namespace xtrain {

struct layout_search::caches_of_threads {
  explicit caches_of_threads(std::size_t threads) {
    for (std::size_t i = 0; i < threads; ++i) all_.push_back(std::make_shared<schedule_cache>());
  }
  [[nodiscard]] const std::shared_ptr<schedule_cache>& of(std::size_t worker) const { return all_[worker]; }

 private:
  std::vector<std::shared_ptr<schedule_cache>> all_;
};

/// Results and progress of all threads.
class layout_search::progress {
 public:
  progress(search_observer* watcher, std::size_t layouts, std::size_t samples) : watcher_(watcher) {
    so_far_.layouts = layouts;
    so_far_.all = layouts + samples;
  }

  void did_sample() {
    const std::lock_guard lock(guard_);
    step();
  }
  void left_out() { did_sample(); }
  /// A layout was planned: `place` in the order of layouts; the plan if it fits.
  void planned(std::size_t place, std::optional<found_plan> found, std::size_t most) {
    const std::lock_guard lock(guard_);
    ++so_far_.planned;
    if (found) {
      if (so_far_.fastest == 0 || found->time.seconds < so_far_.fastest) so_far_.fastest = found->time.seconds;
      const auto after = std::upper_bound(found_.begin(), found_.end(), std::pair(found->time.seconds, place), [](const auto& a, const auto& b) {
        return a < std::pair(b.second.time.seconds, b.first);
      });
      found_.insert(after, {place, std::move(*found)});
      if (most > 0 && found_.size() > most) found_.pop_back();
    }
    step();
  }
  /// `most` layouts are faster.
  [[nodiscard]] bool is_beaten(double seconds, std::size_t most) {
    const std::lock_guard lock(guard_);
    return most > 0 && found_.size() == most && seconds > found_.back().second.time.seconds;
  }
  [[nodiscard]] std::vector<found_plan> take() {
    std::vector<found_plan> all;
    for (auto& [place, found] : found_) all.push_back(std::move(found));
    return all;
  }

 private:
  void step() {
    ++so_far_.done;
    if (watcher_ != nullptr) watcher_->on(so_far_);
  }

  std::mutex guard_;
  search_observer* watcher_;
  search_progress so_far_;
  std::vector<std::pair<std::size_t, found_plan>> found_;  // by time, then place
};

XTRAIN_INLINE layout_search::layout_search(machine on, std::shared_ptr<executor> threads)
    : on_(std::move(on)), threads_(threads ? std::move(threads) : thread_pool::shared()) {
  require_machine(on_);
}

XTRAIN_INLINE void layout_search::require_settings(const search_settings& settings) {
  require<config_error>(settings.devices > 0 && settings.global_batch_size > 0,
                        "search: devices and global_batch_size must be at least 1; given ", settings.devices, " and ", settings.global_batch_size);
}

XTRAIN_INLINE void layout_search::add_layouts(const search_settings& given, std::size_t first, std::vector<detail::searched_layout>& unwanted) {
  detail::require_mesh({.mesh = {.data_parallel_size = given.devices}, .global_batch_size = given.devices}, on_);
  search_settings settings = given;
  if (settings.seq_length == 0) settings.seq_length = models_.back().max_position_embeddings;
  std::sort(settings.micro_batch_sizes.begin(), settings.micro_batch_sizes.end());
  const detail::strategy_axes& axes = strategies_.back()->axes;
  const std::vector<std::size_t> one{1};
  const auto is_tried = [&](std::size_t pipeline) {
    const auto& wanted = settings.pipeline_parallel_sizes;
    return !axes.has_stages || wanted.empty() || std::find(wanted.begin(), wanted.end(), pipeline) != wanted.end();
  };
  for (const std::size_t tensor : settings.tensor_parallel_sizes) {
    if (tensor > 1 ? tensor > on_.devices_per_node : axes.has_sequence_parallel) continue;
    for (const std::size_t context : axes.has_sequence_parallel ? one : settings.context_parallel_sizes)
      for (const std::size_t expert : axes.has_expert_parallel ? settings.expert_parallel_sizes : one)
        for (std::size_t pipeline = 1; pipeline <= (axes.has_stages ? std::min(settings.devices, models_.back().layers) : 1); ++pipeline) {
          const std::size_t beside = tensor * context * expert * pipeline;
          if (beside == 0 || settings.devices % beside != 0 || !is_tried(pipeline)) continue;
          const mesh_sizes mesh{.data_parallel_size = settings.devices / beside,
                                .tensor_parallel_size = tensor,
                                .pipeline_parallel_size = pipeline,
                                .context_parallel_size = context,
                                .expert_parallel_size = expert};
          const std::size_t others = mesh.data_parallel_size * expert;
          if (settings.global_batch_size % others != 0) continue;
          for (const std::size_t chunks : settings.chunks)
            for (const std::size_t batch : settings.micro_batch_sizes)
              if (batch > 0 && chunks > 0 && settings.global_batch_size / others % batch == 0 && (chunks == 1 || pipeline > 1))
                add_layout({.mesh = mesh,
                            .shards = axes.shards,
                            .chunks = chunks,
                            .global_batch_size = settings.global_batch_size,
                            .micro_batch_size = batch,
                            .seq_length = settings.seq_length},
                           settings, first, unwanted);
        }
  }
}

XTRAIN_INLINE void layout_search::add_layout(const mesh_settings& s, const search_settings& settings, std::size_t first,
                                            std::vector<detail::searched_layout>& unwanted) {
  const detail::strategy_to_search& strategy = *strategies_.back();
  detail::searched_layout one{.model = models_.size() - 1, .strategy = strategies_.size() - 1, .settings = s};
  try {
    detail::require_mesh(s, on_);
    one.layout = strategy.layout(s);
  } catch (const config_error&) {
    return;  // too many micro-batches
  }
  // if no other rank has equal weights, strategies that differ only in sharding over such ranks are the same
  const auto is_same = [&](const detail::searched_layout& other) {
    const run_layout& at = other.layout;
    return at.mesh == s.mesh && at.chunks == one.layout.chunks && other.settings.micro_batch_size == s.micro_batch_size &&
           at.has_sequence_parallel == one.layout.has_sequence_parallel && (s.mesh.pipeline_parallel_size == 1 || at.schedule == one.layout.schedule);
  };
  if (s.mesh.data_parallel_size * s.mesh.context_parallel_size == 1 &&
      (std::any_of(layouts_.begin() + static_cast<std::ptrdiff_t>(first), layouts_.end(), is_same) || std::any_of(unwanted.begin(), unwanted.end(), is_same)))
    return;
  if (settings.wanted && !settings.wanted(one.layout)) return unwanted.push_back(one);
  const samples_key key{one.model,
                        s.mesh.tensor_parallel_size,
                        s.mesh.context_parallel_size,
                        s.mesh.expert_parallel_size,
                        s.micro_batch_size,
                        s.seq_length,
                        strategy.axes.has_sequence_parallel,
                        strategy.axes.ring};
  auto samples = std::find_if(samples_.begin(), samples_.end(), [&](const shared_samples& other) { return other.key == key; });
  if (samples == samples_.end()) {
    mesh_settings alone = s;
    alone.mesh.data_parallel_size = alone.mesh.pipeline_parallel_size = alone.chunks = alone.shards = 1;
    alone.global_batch_size = s.mesh.expert_parallel_size * s.micro_batch_size;
    samples = samples_.insert(samples_.end(), {.key = key, .settings = alone});
  }
  std::size_t& maker = s.mesh.pipeline_parallel_size == 1 ? samples->whole : samples->stages;
  if (maker == 0) maker = one.strategy + 1;
  one.sample = static_cast<std::size_t>(samples - samples_.begin());
  layouts_.push_back(one);
  has_bounds_ = false;
}

XTRAIN_INLINE bool layout_search::weights_fit(const detail::searched_layout& one) const {
  const mesh_sizes& mesh = one.settings.mesh;
  const detail::model_needs& needs = models_[one.model].needs;
  const auto alike = static_cast<double>(mesh.data_parallel_size * mesh.context_parallel_size),
             held = static_cast<double>(mesh.tensor_parallel_size * mesh.pipeline_parallel_size * mesh.expert_parallel_size);
  const std::size_t stage = one.layout.zero_stage;
  const double bytes = needs.weights / (stage >= 3 ? alike : 1) + needs.gradients / (stage >= 2 ? alike : 1) + needs.optimizer / (stage >= 1 ? alike : 1);
  return bytes / held <= static_cast<double>(on_.memory);
}

XTRAIN_INLINE search_columns layout_search::columns() const {
  search_columns all;
  for (const detail::searched_layout& one : layouts_) {
    if (one.bound.bytes > on_.memory || !weights_fit(one) || (has_bounds_ && one.bound.seconds == 0 && models_[one.model].has_like_layers)) continue;
    all.context = all.context || one.layout.mesh.context_parallel_size > 1;
    all.expert = all.expert || one.layout.mesh.expert_parallel_size > 1;
  }
  return all;
}

XTRAIN_INLINE void layout_search::count_samples(progress* told) {
  if (has_bounds_) return;
  std::vector<std::optional<detail::layer_samples>> counted(samples_.size());  // none: unknown
  const auto count = [&](std::size_t i, std::size_t) {
    const shared_samples& of = samples_[i];
    const detail::model_to_search& model = models_[std::get<0>(of.key)];
    try {
      detail::layer_samples all;
      if (model.has_like_layers && of.whole > 0) {
        const detail::strategy_to_search& strategy = *strategies_[of.whole - 1];
        all.whole = strategy.sample(of.settings, 1, 0);
        if (model.layers > 1) all.whole_two = strategy.sample(of.settings, 2, 0);
      }
      if (model.has_like_layers && of.stages > 0) {
        const detail::strategy_to_search& strategy = *strategies_[of.stages - 1];
        mesh_settings two = of.settings;
        two.mesh.pipeline_parallel_size = 2;
        all.first = strategy.sample(two, 2, 0);
        if (model.layers > 2) all.first_two = strategy.sample(two, 3, 0);
        all.last = strategy.sample(two, 2, 1);
      }
      if (model.has_like_layers) counted[i] = std::move(all);
    } catch (const config_error&) {
      // heads are not divisible, or one micro-batch has no schedule
    }
    if (told != nullptr) told->did_sample();
  };
  threads_->run(samples_.size(), threads_->threads(), count);
  for (detail::searched_layout& one : layouts_)
    if (const auto& samples = counted[one.sample]; samples)
      one.bound = detail::bound_of(*samples, one.layout, models_[one.model].layers, on_, models_[one.model].dtype);
  has_bounds_ = true;
}

XTRAIN_INLINE std::optional<found_plan> layout_search::plan(const detail::searched_layout& one, std::size_t limit,
                                                            const std::shared_ptr<schedule_cache>& cache) const {
  try {
    return strategies_[one.strategy]->plan(limit, one.settings, cache);
  } catch (const config_error&) {
    return std::nullopt;  // heads, layers or micro-batches are not divisible
  }
}

XTRAIN_INLINE std::vector<found_plan> layout_search::run(std::size_t most, search_observer* watcher) {
  const bool has_bounds = most > 0 && most < layouts_.size();
  progress so_far(watcher, layouts_.size(), has_bounds && !has_bounds_ ? samples_.size() : 0);
  if (has_bounds) count_samples(&so_far);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < layouts_.size(); ++i)
    if (weights_fit(layouts_[i]) && (!has_bounds || layouts_[i].bound.bytes <= on_.memory)) order.push_back(i);
    else so_far.left_out();
  if (has_bounds)
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return layouts_[a].bound.seconds < layouts_[b].bound.seconds; });
  const caches_of_threads caches(threads_->threads());
  const auto plan_in_order = [&](std::size_t part, std::size_t worker) {
    const detail::searched_layout& one = layouts_[order[part]];
    if (has_bounds && so_far.is_beaten(one.bound.seconds, most)) return so_far.left_out();
    std::optional<found_plan> found = plan(one, on_.memory, caches.of(worker));
    if (found && found->bytes > on_.memory) found.reset();
    so_far.planned(order[part], std::move(found), most);
  };
  threads_->run(order.size(), threads_->threads(), plan_in_order);
  return so_far.take();
}

XTRAIN_INLINE std::optional<found_plan> layout_search::least_memory(search_observer* watcher) {
  progress so_far(watcher, layouts_.size(), has_bounds_ ? 0 : samples_.size());
  count_samples(&so_far);
  std::vector<std::size_t> order(layouts_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return layouts_[a].bound.bytes < layouts_[b].bound.bytes; });
  std::mutex guard;
  std::optional<found_plan> least;
  std::size_t least_place = 0;
  const caches_of_threads caches(threads_->threads());
  const auto plan_in_order = [&](std::size_t part, std::size_t worker) {
    const std::size_t place = order[part];
    std::size_t limit = ~std::size_t{0};
    {
      const std::lock_guard lock(guard);
      if (least) limit = least->bytes;
    }
    if (layouts_[place].bound.bytes > limit) return so_far.left_out();
    const std::optional<found_plan> found = plan(layouts_[place], limit, caches.of(worker));
    {
      const std::lock_guard lock(guard);
      const auto rank = [](const found_plan& one, std::size_t at) { return std::tuple(one.bytes, one.time.seconds, at); };
      if (found && (!least || rank(*found, place) < rank(*least, least_place))) {
        least = found;
        least_place = place;
      }
    }
    so_far.planned(place, std::nullopt, 0);
  };
  threads_->run(order.size(), threads_->threads(), plan_in_order);
  return least;
}

XTRAIN_INLINE std::string search_text(const std::vector<found_plan>& found, std::size_t most, const search_columns& columns) {
  if (found.empty()) return "no layout fits\n";
  const auto cell = [](std::string text, std::size_t width) {
    text.insert(0, width - std::min(width, text.size()), ' ');
    return text;
  };
  const auto any = [&](auto&& is) { return std::any_of(found.begin(), found.end(), [&](const found_plan& one) { return is(one.layout); }); };
  const bool context = columns.context || any([](const run_layout& at) { return at.mesh.context_parallel_size > 1; }),
             expert = columns.expert || any([](const run_layout& at) { return at.mesh.expert_parallel_size > 1; });
  std::string text = concat("  data tensor", context ? " context" : "", expert ? " expert" : "",
                            " stages chunks  zero recompute batch     x      memory      step  bubble        sent messages  tokens/s  of peak\n");
  for (std::size_t i = 0; i < std::min(most, found.size()); ++i) {
    const found_plan& one = found[i];
    const run_layout& at = one.layout;
    const traffic sent = one.sent.total();
    text += concat(
        cell(concat(at.mesh.data_parallel_size), 6), cell(concat(at.mesh.tensor_parallel_size, at.has_sequence_parallel ? "+s" : ""), 7),
        context ? cell(concat(at.mesh.context_parallel_size, at.ring ? "+r" : ""), 8) : std::string(),
        expert ? cell(concat(at.mesh.expert_parallel_size), 7) : std::string(), cell(concat(at.mesh.pipeline_parallel_size), 7),
        cell(concat(at.chunks), 7), cell(concat(at.zero_stage), 6), cell(std::string(one.recompute), 10),
        cell(concat(one.micro_batch_size), 6), cell(concat(at.micro_batches), 6), cell(bytes_text(one.bytes), 12),
        cell(concat(fixed(one.time.seconds, 2), " s"), 10), cell(concat(fixed(100 * one.time.bubble / one.time.seconds, 1), " %"), 8),
        cell(bytes_text(sent.bytes), 12), cell(concat(sent.messages), 9), cell(fixed(one.tokens_per_second, 0), 10),
        cell(concat(fixed(100 * one.share_of_peak, 1), " %"), 9), "\n");
  }
  return text;
}

}  // namespace xtrain
