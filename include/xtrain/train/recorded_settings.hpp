// The settings of a run as checkpoints and records of metrics have them: a resumed run says which of them have changed. Component 'io'.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <xtrain/data/global_batch_sizes.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/optim/schedule.hpp>
#include <xtrain/train/config.hpp>
#include <xtrain/train/kind_names.hpp>

namespace xtrain::detail {

/// A kind by its name, or by its number if it has none.
template <class Kind>
void record_kind(json_settings& all, const char* key, Kind kind) {
  if constexpr (kind_with_names<Kind>) all.set(key, std::string(name_of_kind(kind)));
  else all.set(key, static_cast<std::size_t>(kind));
}

/// `c`: a training_config; the learning rate of every step, but for the number of all steps.
template <class Config>
void record_schedule(json_settings& all, const Config& c) {
  all.set("learning_rate", c.learning_rate);
  all.set("warmup_ratio", c.warmup_ratio);
  all.set("warmup_steps", c.warmup_steps);
  all.set("lr_schedule", std::string(name_of(c.lr_schedule)));
  all.set("min_lr_ratio", c.min_lr_ratio);
  all.set("min_lr", c.min_lr);
  all.set("lr_from_zero", c.lr_from_zero);
  all.set("lr_counts_sequences", c.lr_counts_sequences);
  all.set("lr_counts_updates", c.lr_counts_updates);
  all.set("lr_warmup_init", c.lr_warmup_init);
  all.set("round_warmup", c.round_warmup);
  all.set("lr_decay_steps", c.lr_decay_steps);
  all.set("lr_decay_epochs", c.lr_decay_epochs);
  all.set("lr_as_deepspeed", c.lr_as_deepspeed);
  all.set("lr_log_warmup", c.lr_log_warmup);
  all.set("lr_continues", c.lr_continues);
  all.set("lr_num_cycles", c.lr_num_cycles);
  all.set("lr_power", c.lr_power);
  all.set("lr_timescale", c.lr_timescale);
  all.set("lr_warmup_shape", std::string(name_of_kind(c.lr_warmup_shape)));
  all.set("lr_decay_shape", std::string(name_of_kind(c.lr_decay_shape)));
  all.set("lr_final_steps", c.lr_final_steps);
  all.set("lr_stable_steps", c.lr_stable_steps);
}

/// `c`: a training_config; what a step computes from the losses and gradients of its micro-batches.
template <class Config>
void record_step(json_settings& all, const Config& c) {
  all.set("max_grad_norm", c.max_grad_norm);
  record_kind(all, "weight_decay_of", c.weight_decay_of);
  record_kind(all, "average_loss", c.average_loss);
  record_kind(all, "average_balance", c.average_balance);
  all.set("keep_gradients", c.keep_gradients);
}

/// `c`: the config of any objective; settings that xtrain's objectives have are recorded under their names.
template <class Config>
void record_objective(json_settings& all, const Config& c) {
  if constexpr (requires { c.kind; }) record_kind(all, "loss_type", c.kind);
  if constexpr (requires { all.set("beta", c.beta); }) all.set("beta", c.beta);
  if constexpr (requires { all.set("label_smoothing", c.label_smoothing); }) all.set("label_smoothing", c.label_smoothing);
  if constexpr (requires { all.set("z_loss", c.z_loss); }) all.set("z_loss", c.z_loss);
  if constexpr (requires { all.set("ratio", c.ratio); }) all.set("ratio", c.ratio);
  if constexpr (requires { all.set("temperature", c.temperature); }) all.set("temperature", c.temperature);
  if constexpr (requires { all.set("renormalize", c.renormalize); }) all.set("renormalize", c.renormalize);
  if constexpr (requires { all.set("top_k", c.top_k); }) all.set("top_k", c.top_k);
  if constexpr (requires { all.set("reference_free", c.reference_free); }) all.set("reference_free", c.reference_free);
  if constexpr (requires { all.set("gamma", c.gamma); }) all.set("gamma", c.gamma);
  if constexpr (requires { all.set("nll_weight", c.nll_weight); }) all.set("nll_weight", c.nll_weight);
  if constexpr (requires { all.set("desirable_weight", c.desirable_weight); }) all.set("desirable_weight", c.desirable_weight);
  if constexpr (requires { all.set("undesirable_weight", c.undesirable_weight); }) all.set("undesirable_weight", c.undesirable_weight);
  if constexpr (requires { all.set("margin", c.margin); }) all.set("margin", c.margin);
  if constexpr (requires { all.set("center_rewards_coefficient", c.center_rewards_coefficient); })
    all.set("center_rewards_coefficient", c.center_rewards_coefficient);
  if constexpr (requires { all.set("epsilon_low", c.epsilon_low); }) all.set("epsilon_low", c.epsilon_low);
  if constexpr (requires { all.set("epsilon_high", c.epsilon_high); }) all.set("epsilon_high", c.epsilon_high);
  if constexpr (requires { all.set("clip_range", c.clip_range); }) all.set("clip_range", c.clip_range);
  if constexpr (requires { all.set("coefficient", c.coefficient); }) all.set("coefficient", c.coefficient);
  if constexpr (requires { all.set("sequence_ratio", c.sequence_ratio); }) all.set("sequence_ratio", c.sequence_ratio);
  if constexpr (requires { all.set("max_completion_length", c.max_completion_length); }) all.set("max_completion_length", c.max_completion_length);
}

/// `c`: the config of any optimizer.
template <class Config>
void record_optimizer(json_settings& all, const Config& c) {
  if constexpr (requires {
                  c.beta1;
                  c.beta2;
                })
    all.set("betas", std::vector<double>{c.beta1, c.beta2});
  else if constexpr (requires { all.set("beta1", c.beta1); }) all.set("beta1", c.beta1);
  if constexpr (requires { all.set("weight_decay", c.weight_decay); }) all.set("weight_decay", c.weight_decay);
  if constexpr (requires { all.set("momentum", c.momentum); }) all.set("momentum", c.momentum);
  if constexpr (requires { all.set("nesterov", c.nesterov); }) all.set("nesterov", c.nesterov);
  if constexpr (requires { all.set("epsilon", c.epsilon); }) all.set("epsilon", c.epsilon);
  if constexpr (requires { all.set("min_8bit_size", c.min_8bit_size); }) all.set("min_8bit_size", c.min_8bit_size);
  if constexpr (requires { all.set("newton_schulz_steps", c.steps); }) all.set("newton_schulz_steps", c.steps);
  if constexpr (requires { all.set("learning_rate_ratio", c.learning_rate_ratio); }) all.set("learning_rate_ratio", c.learning_rate_ratio);
  if constexpr (requires { all.set("scale_parameter", c.scale_parameter); }) all.set("scale_parameter", c.scale_parameter);
  if constexpr (requires { all.set("relative_step", c.relative_step); }) all.set("relative_step", c.relative_step);
  if constexpr (requires { all.set("warmup_init", c.warmup_init); }) all.set("warmup_init", c.warmup_init);
  if constexpr (requires { all.set("at_most_learning_rate", c.at_most_learning_rate); }) all.set("at_most_learning_rate", c.at_most_learning_rate);
  if constexpr (requires { all.set("clip_threshold", c.clip_threshold); }) all.set("clip_threshold", c.clip_threshold);
  if constexpr (requires { all.set("decay_rate", c.decay_rate); }) all.set("decay_rate", c.decay_rate);
  if constexpr (requires { all.set("epsilon1", c.epsilon1); }) all.set("epsilon1", c.epsilon1);
  if constexpr (requires { all.set("epsilon2", c.epsilon2); }) all.set("epsilon2", c.epsilon2);
  if constexpr (requires { c.coefficients; }) all.set("newton_schulz_coefficients", std::vector<double>(c.coefficients.begin(), c.coefficients.end()));
  if constexpr (requires { c.adjust_learning_rate; }) record_kind(all, "adjust_learning_rate", c.adjust_learning_rate);
  if constexpr (requires { c.adamw.weight_decay; }) {  // muon: of everything but matrices of hidden layers
    all.set("adamw_weight_decay", c.adamw.weight_decay);
    all.set("adamw_betas", std::vector<double>{c.adamw.beta1, c.adamw.beta2});
    all.set("adamw_epsilon", c.adamw.epsilon);
  }
}

/// The family of a model and its settings, under the names that a config.json has; nothing of models that have no such file.
template <class Model>
void record_model(json_settings& all, const Model& model) {
  if constexpr (requires { model.family_info().write(model.config(), *json_settings().new_object()); }) {
    all.set("model_type", std::string(model.family_info().model_type));
    model.family_info().write(model.config(), all);
  }
}

/// `c`: the config of any adapter; what of it is neither a tensor nor in the adapter's own files.
template <class Config>
void record_adapter(json_settings& all, const Config& c) {
  if constexpr (requires { all.set("lora_dropout", c.dropout); }) all.set("lora_dropout", c.dropout);
  if constexpr (requires { all.set("group_size", c.group_size); }) all.set("group_size", c.group_size);
  if constexpr (requires { all.set("quantizes_activations", c.quantizes_activations); }) all.set("quantizes_activations", c.quantizes_activations);
  if constexpr (requires { all.set("float_zero_points", c.float_zero_points); }) all.set("float_zero_points", c.float_zero_points);
  if constexpr (requires { all.set("fake_quant_after_n_steps", c.fake_quant_after_n_steps); })
    all.set("fake_quant_after_n_steps", c.fake_quant_after_n_steps);
}

/// `c`: a training_config; all that decides the results of a run on given data, but for the sizes of its steps and its seed.
///   scales_loss  the precision has loss scaling
template <bool scales_loss, class Config>
void record_settings(json_settings& all, const Config& c) {
  all.set("max_steps", c.max_steps);
  all.set("max_steps_per_epoch", c.max_steps_per_epoch);
  all.set("epochs", c.epochs);
  const batch_size_rampup& rampup = c.rampup_batch_size;
  all.set("rampup_batch_size", rampup ? std::vector<std::size_t>{rampup.start, rampup.increment, rampup.samples} : std::vector<std::size_t>{});
  all.set("shuffle", c.shuffle);
  all.set("drop_last", c.drop_last);
  record_schedule(all, c);
  record_step(all, c);
  all.set("loraplus_lr_ratio", c.loraplus_lr_ratio);
  all.set("loraplus_lr_embedding", c.loraplus_lr_embedding);
  all.set("neftune_noise_alpha", c.neftune_noise_alpha);
  record_optimizer(all, c.optimizer);
  record_objective(all, c.objective);
  if constexpr (scales_loss) {
    all.set("loss_scale_growth_window", c.loss_scale.growth_window);
    all.set("loss_scale_hysteresis", c.loss_scale.hysteresis);
    all.set("min_loss_scale", c.loss_scale.min_scale);
  }
}

}  // namespace xtrain::detail
