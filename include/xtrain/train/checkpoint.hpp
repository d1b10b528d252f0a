// Checkpoints of a training run: the model as a Hugging Face (or PEFT) folder, with optimizer state. A checkpoint gets its final name only when it is
// completely on disk.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <unistd.h>

#include <xtrain/adapt/peft.hpp>
#include <xtrain/comm/concepts.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/lifetime.hpp>
#include <xtrain/core/thread_use.hpp>
#include <xtrain/io/file_writers.hpp>
#include <xtrain/io/folder.hpp>
#include <xtrain/io/folder_lock.hpp>
#include <xtrain/io/pretrained.hpp>
#include <xtrain/train/checkpoint_state.hpp>
#include <xtrain/train/events.hpp>
#include <xtrain/train/optimizer_file.hpp>
#include <xtrain/train/recorded_settings.hpp>
#include <xtrain/train/replace_folder.hpp>
#include <xtrain/train/trainer.hpp>

namespace xtrain {

/// What a run does with a folder's checkpoints of later steps than its own: they are of another run, and resume() would take them.
enum class later_checkpoints : std::uint8_t {
  refused,  ///< config_error when the run begins, or saves
  kept,     ///< they stay, and resume() takes the last step
  removed   ///< they are removed when fit() begins; in a custom loop, after the first save
};

/// Settings of a checkpoint_folder.
struct checkpoint_options {
  std::size_t save_steps = 0;        ///< steps between checkpoints; 0: only when the run is stopped
  std::size_t save_total_limit = 0;  ///< number of checkpoints that are kept, newest first; 0: all
  later_checkpoints later = later_checkpoints::refused;  ///< what is done with checkpoints of later steps than the run's
  std::string tokenizer_from{};      ///< folder or file whose tokenizer files are copied
  std::string base_model{};          ///< name or path of the model that training starts from
  std::string data{};                ///< dataset::identity(); a resumed run reports a change; empty: not recorded
  /// Training continues once a checkpoint is in the page cache; the checkpoint gets its final name when it is on disk.
  bool asynchronous = false;
  /// With several ranks, the first rank writes everything. Otherwise every rank writes its shard if all share a file system.
  bool one_writer = false;
  /// Called by the first rank before a checkpoint gets its final name: writes more files into it, such as a chat template.
  std::function<void(const std::string& folder)> write_more{};
};

/// Saves checkpoints during training, and resumes from them. fit() refuses an unattached folder with save_steps.
template <class Trainer>
class checkpoint_folder final : public observer {
 public:
  using model_type = typename Trainer::model_type;

  /// throws file_error when the folder cannot be created, or another process writes checkpoints there; config_error for a tokenizer with tokens that the
  ///        model's vocabulary lacks
  checkpoint_folder(Trainer& trainer, std::string folder, checkpoint_options options = {})
      : trainer_(&trainer), trainer_life_(trainer), folder_(std::move(folder)), options_(std::move(options)) {
    detail::require_tokenizer_fits(folder_, options_.tokenizer_from, trainer.model().config().vocab_size);  // before training, not at the first save
    if (writes()) {
      make_folder(folder_);
      lock_ = folder_lock(folder_, "another run writes checkpoints there");
      remove_unfinished();
      if constexpr (model_type::recipe::adapter::freezes_weights) base_weights_ = detail::base_weights_fingerprint(options_.base_model);
    }
    if (options_.save_steps > 0) trainer.expect_attached(*this, concat("the checkpoint_folder '", folder_, "' with save_steps ", options_.save_steps));
    world().barrier();
  }

  ~checkpoint_folder() override {
    if (!behind_.valid()) return;
    behind_.wait();  // finish() and save() report errors
  }
  checkpoint_folder(const checkpoint_folder&) = delete;
  checkpoint_folder& operator=(const checkpoint_folder&) = delete;

  using observer::on;
  [[nodiscard]] bool reads_weights_after(std::size_t step) const override { return options_.save_steps > 0 && step % options_.save_steps == 0; }
  void on(const run_began& began) override {
    finish();  // a checkpoint of an earlier fit() may still be written
    require_no_later(began.first_step);
    if (writes()) remove_later(began.first_step);
  }
  void on(const step_done& done) override {
    if (reads_weights_after(done.step)) save();
  }
  void on(const run_ended& ended) override {
    if (ended.stopped && (!saved_ || *saved_ != ended.step)) save();
    finish();
  }

  /// Waits for a checkpoint that is being written, then tells observers.
  ///   throws  file_error when it is not durable; it does not appear
  void finish() {
    if (!behind_.valid()) return;
    trainer_life_.require_there("checkpoint_folder", "its trainer");
    behind_.get();
    trainer_->tell(written_);
  }

  /// Writes "checkpoint-<step>" and removes checkpoints beyond `save_total_limit`. Asynchronous: waits for the previous checkpoint; finish() waits for
  /// this one.
  ///   throws  file_error, non_finite_error when a weight is not finite: earlier checkpoints remain; config_error when the folder has checkpoints of later
  ///           steps, unless options allow it. If one rank fails, all throw
  std::string save() {
    trainer_life_.require_there("checkpoint_folder", "its trainer");
    trainer_->require_no_queued_steps("checkpoint_folder: save()");
    const auto use = detail::use_of(trainer_->model(), "checkpoint_folder");
    finish();
    trainer_->require_finite_weights();
    const std::size_t step = trainer_->progress().step;
    require_no_later(step);
    const std::string whole = concat(folder_, "/checkpoint-", step);
    const std::string part = concat(folder_, "/.checkpoint-", step, ".", ::getpid(), ".part");
    const auto began = std::chrono::steady_clock::now();
    if (writes()) remove(part);
    try {
      deferred_sync later;  // the order of syncs is free until the folder is renamed
      write_model(part);
      const detail::saving_ranks ranks(trainer_->model(), options_.one_writer);
      const std::size_t writers = write_optimizer(*trainer_, part + "/optimizer.safetensors", ranks.together());
      world().barrier();  // all checksummed files are written
      publish(later.take(), part, whole, state_now());
      ranks.wait_for_all();
      written_ = {step, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(), writers};
    } catch (...) {
      if (writes()) remove(part);
      throw;
    }
    saved_ = step;
    if (!behind_.valid()) trainer_->tell(written_);
    world().barrier();
    return whole;
  }

  /// Resumes from the newest checkpoint. Call it before fit().
  ///   returns whether there was one
  ///   throws  file_error, config_error when the checkpoint is damaged (checksums) or from a different run
  bool resume() {
    trainer_life_.require_there("checkpoint_folder", "its trainer");
    finish();
    const auto found = checkpoints_in(folder_);
    if (found.empty()) return false;
    resume_from(found.back().second);
    return true;
  }
  void resume_from(const std::string& checkpoint) {
    trainer_life_.require_there("checkpoint_folder", "its trainer");
    trainer_->require_outside_observers("checkpoint_folder: resume()");
    const auto use = detail::use_of(trainer_->model(), "checkpoint_folder");
    finish();
    const json_settings state = detail::read_checkpoint_state(checkpoint + "/trainer_state.json");
    const checkpoint_state now = state_now();
    const training_progress progress = detail::resumed_progress(state, now);
    all_ranks(world()).run(checkpoint, [&](bool first) {
      if (!first) return;
      if constexpr (model_type::recipe::adapter::freezes_weights) detail::require_same_base(state, now, options_.base_model);
      detail::require_undamaged(checkpoint, state);
    });
    auto& model = trainer_->model();
    if constexpr (model_type::recipe::adapter::freezes_weights) load_adapter(model, checkpoint);
    else load_weights(model, checkpoint);
    read_optimizer(*trainer_, checkpoint + "/optimizer.safetensors");
    trainer_->note_restored_optimizer();
    trainer_->restore(progress);
    saved_ = progress.step;
    changes_ = detail::changed_settings(state, now);
  }
  /// Settings that differ from the checkpoint's: "learning_rate is 0.01, it was 0.001".
  [[nodiscard]] const std::vector<std::string>& changes() const { return changes_; }

 private:
  void write_model(const std::string& to) {
    if constexpr (model_type::recipe::adapter::freezes_weights)
      save_pretrained(trainer_->model(), to,
                      save_adapter_options{.base_model = options_.base_model, .tokenizer_from = options_.tokenizer_from, .one_writer = options_.one_writer});
    else
      save_pretrained(
          trainer_->model(), to,
          save_options{.tokenizer_from = options_.tokenizer_from, .base_model = options_.base_model, .one_writer = options_.one_writer});
    if (writes() && options_.write_more) options_.write_more(to);
  }

  [[nodiscard]] auto& world() const { return trainer_->model().parallel().world(); }
  [[nodiscard]] bool writes() const { return world().rank() == 0; }
  static void remove(const std::string& path) {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }

  [[nodiscard]] checkpoint_state state_now() const {
    const auto& c = trainer_->settings();
    checkpoint_state state{.progress = trainer_->progress(),
                           .seed = c.seed,
                           .micro_batch_size = c.micro_batch_size,
                           .gradient_accumulation_steps = c.gradient_accumulation_steps,
                           .ranks = trainer_->model().parallel().data().size(),
                           .seq_length = c.seq_length,
                           .rampup = c.rampup_batch_size,
                           .precision = std::string(model_type::precision::name),
                           .optimizer = std::string(model_type::recipe::optimizer::name),
                           .objective = std::string(model_type::recipe::objective::name)};
    json_settings& all = state.settings;
    if (!options_.data.empty()) all.set("data", options_.data);
    detail::record_settings<model_type::precision::scales_loss>(all, c);
    const auto& model = trainer_->model();
    detail::record_model(state.model, model);
    if constexpr (requires { model.settings().adapter.weight_bits; })  // different bits are a different model next to the prefix
      if (const std::size_t bits = model.settings().adapter.weight_bits; bits > 0) state.model.set("weight_bits", bits);
    if constexpr (requires { model.settings().adapter; }) detail::record_adapter(all, model.settings().adapter);
    if constexpr (model_type::recipe::adapter::freezes_weights) {
      state.base_weights = base_weights_;
    }
    return state;
  }

  /// Adds checksums, makes the checkpoint durable and renames it, now or in the background.
  void publish(unsynced_files files, const std::string& part, const std::string& whole, checkpoint_state state) {
    // the trainer and its model may be destroyed before this ends
    auto work = [this, ranks = all_ranks(world()), files = std::move(files), part, whole, state = std::move(state)]() mutable {
      try {
        ranks.run(whole, [&](bool first) {
          if (first) detail::write_checkpoint_state(part, state);  // reads every file once
          files.sync();
        });
        ranks.run(whole, [&](bool first) {
          if (first) detail::replace_folder(part, whole);
        });
      } catch (...) {
        if (ranks.is_first()) remove(part);
        throw;
      }
      if (!ranks.is_first()) return;
      remove_later(state.progress.step);
      remove_old(state.progress.step);
    };
    if (options_.asynchronous) behind_ = std::async(std::launch::async, std::move(work));
    else work();
  }
  /// The ranks of the model, without the model, on a separate channel: they may run concurrently with training.
  class all_ranks {
    using group = std::remove_cvref_t<decltype(std::declval<Trainer&>().model().parallel().world())>;
    static constexpr bool has_network = requires(group& all) { all.network(); };

   public:
    explicit all_ranks(const group& all) : is_first_(all.rank() == 0) {
      if constexpr (has_network) network_ = all.network();
    }
    [[nodiscard]] bool is_first() const { return is_first_; }
    template <class Work>
    void run(const std::string& path, Work&& work) const {
      if constexpr (has_network) {
        constexpr std::uint32_t channel = 32;  // lower channels belong to parallel strategies
        group beside(network_, channel);
        writers_of(beside).all_do(path, [&] { work(is_first_); });
      } else {
        work(is_first_);
      }
    }

   private:
    bool is_first_;
    std::shared_ptr<transport> network_{};
  };

  /// All ranks call it.
  ///   throws  config_error when the folder has checkpoints of later steps than `step`
  void require_no_later(std::size_t step) const {
    if (options_.later != later_checkpoints::refused) return;
    std::array<double, 1> last{0.0};
    if (const auto found = writes() ? checkpoints_in(folder_) : decltype(checkpoints_in(folder_))(); !found.empty())
      last[0] = static_cast<double>(found.back().first);
    if (world().size() > 1) world().all_reduce(last, reduction::largest);
    const auto newest = static_cast<std::size_t>(last[0]);
    require<config_error>(newest <= step, "checkpoint_folder '", folder_, "': must have no checkpoints of later steps than the run's ", step,
                          ", which an earlier run has left; it has checkpoint-", newest, ". Call resume() to go on with that run, choose another folder, or give "
                          "{.later = later_checkpoints::removed}; see train/README.md");
  }
  void remove_later(std::size_t step) const {
    if (options_.later != later_checkpoints::removed) return;
    for (const auto& [each, path] : checkpoints_in(folder_))
      if (each > step) remove_checkpoint(each, path);
  }
  /// Renames first: a partly removed checkpoint must not look complete.
  void remove_checkpoint(std::size_t step, const std::string& path) const {
    std::error_code ignored;
    const std::string hidden = concat(folder_, "/.removed-", step, ".", ::getpid(), ".part");
    std::filesystem::rename(path, hidden, ignored);
    std::filesystem::remove_all(hidden, ignored);
  }
  /// The checkpoint just written stays: a folder may have kept checkpoints of later steps, by an earlier run.
  void remove_old(std::size_t written) const {
    if (options_.save_total_limit == 0) return;
    const auto found = checkpoints_in(folder_);
    std::size_t excess = found.size() - std::min(found.size(), options_.save_total_limit);
    for (const auto& [step, path] : found) {
      if (excess == 0) break;
      if (step == written) continue;
      remove_checkpoint(step, path);
      --excess;
    }
  }
  /// Removes what a killed run left.
  void remove_unfinished() const {
    detail::find_replaced_folders(folder_);
    std::error_code ignored;
    for (const std::string& name : try_names_in(folder_).value_or(std::vector<std::string>{}))
      if (name.starts_with(".") && name.ends_with(".part")) std::filesystem::remove_all(folder_ + "/" + name, ignored);
    detail::remove_unfinished_files(folder_);
  }

  Trainer* trainer_;
  detail::watched trainer_life_;
  folder_lock lock_;
  std::string folder_;
  checkpoint_options options_;
  std::optional<std::size_t> saved_;
  std::string base_weights_;  // fingerprint of the initial frozen weights, on the rank that writes
  checkpoint_written written_{};
  std::vector<std::string> changes_;
  std::future<void> behind_;
};

}  // namespace xtrain
