// A training run as data, to which front ends (torchtune's YAML, Megatron's and Hugging Face's flags, DeepSpeed's JSON) translate and which determines a recipe
// type. Printed, saved with checkpoints, read again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <xtrain/core/json.hpp>

namespace xtrain {

/// The model and its weights.
struct model_description {
  std::string folder{};                   ///< config.json and weights; empty: sizes from `config`, random weights
  std::vector<std::string> files{};       ///< weight files, if not the folder's default
  std::string family{};                   ///< model_type; empty: the folder's
  json config = json::object();           ///< members of a config.json; with a folder: required values
  json override_config = json::object();  ///< replaces the folder's members; unknown ones give a warning
  bool random_weights = false;            ///< initialized from `seed`, even if the folder has weights
  std::string adapter{};                  ///< folder of a PEFT adapter to continue
  std::size_t vocab_multiple = 1;         ///< the vocabulary is padded to a multiple

  template <class Self, class Each>
  static void members(Self& of, Each&& each) {
    each("folder", of.folder), each("files", of.files), each("family", of.family), each("config", of.config);
    each("override_config", of.override_config), each("random_weights", of.random_weights), each("adapter", of.adapter);
    each("vocab_multiple", of.vocab_multiple);
  }
  friend bool operator==(const model_description&, const model_description&) = default;
};

/// The tokenizer of a described run.
struct run_tokenizer_description {
  std::string path{};           ///< "byte", a folder or a file; empty: the model's folder
  std::string merges{};         ///< merges file, if `path` is only a vocabulary
  std::string chat_template{};  ///< name, Jinja file or text; empty: the model's
  std::size_t max_length = 0;   ///< tokens per sample (the last is no input); longer samples are cut, texts to one less; 0: sequence length
  std::vector<std::string> add_tokens{};
  json special_tokens = json::object();  ///< special tokens by name, e.g. pad_token, for the saved tokenizer
  json saved_settings = json::object();  ///< members for the saved tokenizer_config.json, e.g. padding_side

  template <class Self, class Each>
  static void members(Self& of, Each&& each) {
    each("path", of.path), each("merges", of.merges), each("chat_template", of.chat_template), each("max_length", of.max_length);
    each("add_tokens", of.add_tokens), each("special_tokens", of.special_tokens), each("saved_settings", of.saved_settings);
  }
  friend bool operator==(const run_tokenizer_description&, const run_tokenizer_description&) = default;
};

/// A dataset. Several are concatenated, or blended by weights.
struct data_description {
  /// text:          documents in files, or field `text_field` of JSON records
  /// alpaca:        records with instruction, input, output, in the prompt of `prompt_template`
  /// chat:          conversations of form `form`, in the tokenizer's chat template
  /// preference:    a chosen and a rejected answer of form `form`; for kto an answer and a label
  /// prompts:       to be answered, in field `text_field` of JSON records; without an end-of-text token
  /// indexed:       Megatron's .bin and .idx; `files` are prefixes
  /// indexed_instructions: AscendSpeed's three indexed datasets of a prefix
  std::string kind{};
  std::vector<std::string> files{};
  double weight = 0.0;              ///< in a blend; 0: no blend
  std::string form{};  ///< chat: messages, conversations, instruction, moss, auto; preference: text, messages, auto; text of records: separate, or a stream
  std::string text_field = "text";  ///< for text and prompts
  /// Field names by their standard names: {"instruction": "question", "output": "answer"}.
  json columns = json::object();
  /// alpaca: with {instruction} and {input}, for records with and without input; empty: Stanford Alpaca's. chat, form instruction: the user's text; empty:
  /// instruction and input.
  std::string prompt_template{}, prompt_template_without_input{};
  std::string system_prompt{};        ///< system message of every conversation, in place of the given
  std::string split{};                ///< as in datasets: train, train[:5%], train[95%:]
                                    ///< indexed_instructions: "train of 969,30,1", "validation of 969,30,1"
  bool train_on_input = false;        ///< loss on prompts too
  bool packed = false;                ///< several samples per sequence, isolated
  std::size_t pack_gap = 0;           ///< packed: positions after every sample without prediction
  bool add_eos = true;                ///< an end-of-text token per sample
  std::string end_token{};            ///< text records: end token, if the tokenizer has it; else end-of-text
  std::string when_too_long = "truncate";  ///< truncate, drop or refuse
  std::size_t max_prompt_tokens = 0, max_answer_tokens = 0;  ///< alpaca: limits in tokens; 0: none
  bool skips_empty = false;           ///< alpaca: omits records with an empty instruction or answer
  bool learns_prompt_ending = false;  ///< alpaca: the last token that the tokenizer adds after a prompt is a target (ChatGLM-6B's <sop>)
  /// text: concatenates groups of documents, cuts them into samples of `block_size` tokens and drops the rest, as transformers' language-modeling examples;
  /// 0: no
  std::size_t group_texts = 0;
  std::size_t block_size = 1024;
  std::size_t group_workers = 1;  ///< processes of datasets.map: groups lie within contiguous parts of the documents

  template <class Self, class Each>
  static void members(Self& of, Each&& each) {
    each("kind", of.kind), each("files", of.files), each("weight", of.weight), each("form", of.form), each("text_field", of.text_field);
    each("columns", of.columns), each("prompt_template", of.prompt_template), each("prompt_template_without_input", of.prompt_template_without_input);
    each("system_prompt", of.system_prompt), each("split", of.split), each("train_on_input", of.train_on_input), each("packed", of.packed);
    each("pack_gap", of.pack_gap), each("add_eos", of.add_eos), each("end_token", of.end_token);
    each("when_too_long", of.when_too_long), each("max_prompt_tokens", of.max_prompt_tokens);
    each("max_answer_tokens", of.max_answer_tokens), each("skips_empty", of.skips_empty);
    each("learns_prompt_ending", of.learns_prompt_ending), each("group_texts", of.group_texts);
    each("block_size", of.block_size);
    each("group_workers", of.group_workers);
  }
  friend bool operator==(const data_description&, const data_description&) = default;
};

/// Mesh sizes. Ranks: `ranks`, or the launcher's.
struct parallel_description {
  std::size_t ranks = 1;
  std::size_t zero = 0;        ///< stage; 0: data parallel
  std::size_t shards = 0;      ///< data-parallel ranks per sharded copy; 0: all
  std::size_t tensor = 1, pipeline = 1, context = 1, expert = 1;
  bool sequence_parallel = false;    ///< shards norms and residuals over tensor-parallel ranks
  bool ring = false;                 ///< ring attention
  std::size_t virtual_stages = 1;    ///< chunks of layers per pipeline rank
  std::string schedule = "1f1b";     ///< 1f1b, interleaved, gpipe, aiao, zero_bubble
  std::vector<std::size_t> stage_layers{};
  std::vector<std::size_t> micro_batch_sizes{};  ///< per step, if they differ

  template <class Self, class Each>
  static void members(Self& of, Each&& each) {
    each("ranks", of.ranks), each("zero", of.zero), each("shards", of.shards), each("tensor", of.tensor), each("pipeline", of.pipeline);
    each("context", of.context), each("expert", of.expert), each("sequence_parallel", of.sequence_parallel), each("ring", of.ring);
    each("virtual_stages", of.virtual_stages), each("schedule", of.schedule), each("stage_layers", of.stage_layers);
    each("micro_batch_sizes", of.micro_batch_sizes);
  }
  friend bool operator==(const parallel_description&, const parallel_description&) = default;
};

/// The optimizer of a described run.
struct optimizer_description {
  std::string kind = "adamw";        ///< adamw, adamw_8bit, sgd, lion, muon, adafactor
  json settings = json::object();    ///< by the kind's config: beta1, beta2, epsilon, weight_decay, momentum, ...
  std::string decays = "matrices";   ///< weight decay of: matrices, all
  double max_grad_norm = 0.0;        ///< 0: no clipping
  bool keep_gradients = false;       ///< clips gradients before adding a step's, never clears them: training_config::keep_gradients

  template <class Self, class Each>
  static void members(Self& of, Each&& each) {
    each("kind", of.kind), each("settings", of.settings), each("decays", of.decays), each("max_grad_norm", of.max_grad_norm);
    each("keep_gradients", of.keep_gradients);
  }
  friend bool operator==(const optimizer_description&, const optimizer_description&) = default;
};

/// The lr schedule of a described run.
struct schedule_description {
  /// constant, linear, cosine, cosine_with_restarts, polynomial, inverse_sqrt, inverse_square_root, warmup_stable_decay, cosine_warmup_with_min_lr
  std::string kind = "constant";
  double learning_rate = 1e-3;    ///< peak
  double min_learning_rate = 0.0;
  std::size_t warmup_steps = 0;
  double warmup_ratio = 0.0;             ///< of all steps, if warmup_steps is 0
  bool from_zero = false;                ///< warm-up begins at step 0 (others: at 1), and the decay ends one step after the last
  std::size_t decay_steps = 0;           ///< until the end of the decay, with warm-up; 0: the run's
  std::string counts = "steps";          ///< unit of warmup_steps and decay_steps: steps, or sequences (Megatron-LM's samples)
  json settings = json::object();        ///< num_cycles, power, final_steps, ...

  template <class Self, class Each>
  static void members(Self& of, Each&& each) {
    each("kind", of.kind), each("learning_rate", of.learning_rate), each("min_learning_rate", of.min_learning_rate), each("warmup_steps", of.warmup_steps);
    each("warmup_ratio", of.warmup_ratio), each("from_zero", of.from_zero, "starts_at_zero"), each("decay_steps", of.decay_steps), each("counts", of.counts);
    each("settings", of.settings);
  }
  friend bool operator==(const schedule_description&, const schedule_description&) = default;
};

/// The objective of a described run.
struct objective_description {
  std::string kind = "next_token";  ///< next_token, dpo, kto, orpo, simpo, distillation, ppo
  json settings = json::object();   ///< by the kind's config: beta, label_smoothing, ...
  std::string second_model{};       ///< folder of reference model or teacher; empty: the model before training
  std::string average = "step";     ///< mean over a step's targets, or mean of each micro_batch's mean
  std::string balance = "targets";  ///< load-balancing loss of experts, averaged by step: targets, micro_batches or none: balance_average

  template <class Self, class Each>
  static void members(Self& of, Each&& each) {
    each("kind", of.kind), each("settings", of.settings), each("second_model", of.second_model), each("average", of.average);
    each("balance", of.balance);
  }
  friend bool operator==(const objective_description&, const objective_description&) = default;
};

/// Reinforcement learning with objective ppo: further models, generation and rewards. The reference is objective.second_model; micro_batch_size and
/// gradient_accumulation_steps apply to optimizer steps.
struct rollouts_description {
  std::string reward_model{}, value_model{};  ///< folders of models with a score head; value_model: initial value model
  std::vector<std::string> reward_files{}, value_files{};  ///< weight files, as model.files
  json score_config = json::object();  ///< config.json members required in both folders
  std::string value_output{};          ///< folder for the value model (policy: output.folder)
  std::size_t steps = 0;               ///< rounds of generation
  std::size_t batch_size = 0;          ///< prompts per round, one answer each
  std::size_t generation_batch_size = 0;  ///< answers generated and rewarded together; 0: micro_batch_size
  std::size_t max_completion_length = 256;
  std::size_t top_k = 0;               ///< for sampling at objective.settings.temperature; 0: all tokens
  std::vector<std::size_t> stop{};     ///< tokens that end an answer
  std::size_t num_ppo_epochs = 4;
  double kl_coef = 0.05, gamma = 1.0, lambda = 0.95, value_clip_range = 0.2, value_coefficient = 1.0;
  /// `penalty` replaces the score of answers of maximum length (penalize_longest) and of answers whose last token's index is below min_completion_length.
  bool penalize_longest = false;
  std::size_t min_completion_length = 0;
  double penalty = 0.0;

  template <class Self, class Each>
  static void members(Self& of, Each&& each) {
    each("reward_model", of.reward_model), each("value_model", of.value_model), each("reward_files", of.reward_files), each("value_files", of.value_files);
    each("score_config", of.score_config), each("value_output", of.value_output), each("steps", of.steps), each("batch_size", of.batch_size);
    each("generation_batch_size", of.generation_batch_size), each("max_completion_length", of.max_completion_length), each("top_k", of.top_k);
    each("stop", of.stop), each("num_ppo_epochs", of.num_ppo_epochs), each("kl_coef", of.kl_coef), each("gamma", of.gamma), each("lambda", of.lambda);
    each("value_clip_range", of.value_clip_range), each("value_coefficient", of.value_coefficient), each("penalize_longest", of.penalize_longest);
    each("min_completion_length", of.min_completion_length), each("penalty", of.penalty);
  }
  friend bool operator==(const rollouts_description&, const rollouts_description&) = default;
};

/// The adapter of a described run.
struct adapter_description {
  std::string kind = "none";  ///< none, lora, dora, qlora, qdora, qat, qat_lora, prefix
  std::size_t rank = 8;
  double alpha = 16.0, dropout = 0.0;
  std::vector<std::string> targets{};          ///< module names; empty: the family's
  std::vector<std::string> modules_to_save{};  ///< trained entirely
  bool rank_stabilised = false;
  /// lora, qlora: parts of fused modules with an adapter each, as in lora_config: {"qkv_proj": ["q_proj", "v_proj"]}
  json parts = json::object();
  json settings = json::object();  ///< prefix (length, ...), qat and qat_lora (groups, ...)

  template <class Self, class Each>
  static void members(Self& of, Each&& each) {
    each("kind", of.kind), each("rank", of.rank), each("alpha", of.alpha), each("dropout", of.dropout), each("targets", of.targets);
    each("modules_to_save", of.modules_to_save), each("rank_stabilised", of.rank_stabilised), each("parts", of.parts);
    each("settings", of.settings);
  }
  friend bool operator==(const adapter_description&, const adapter_description&) = default;
};

/// Outputs of a run.
struct output_description {
  std::string folder{};
  std::string resume{};              ///< "": new run; "latest": newest checkpoint in `folder`; else a checkpoint's folder
  bool overwrite = false;            ///< removes checkpoints in `folder`; otherwise a new run is refused there
  std::size_t save_steps = 0;        ///< 0: only at the end
  bool save_epochs = false;          ///< after every epoch
  std::size_t save_total_limit = 0;  ///< 0: all
  std::size_t eval_steps = 0;        ///< 0: only at the end
  bool eval_epochs = false;
  bool adapter_only = true;          ///< with an adapter: without the merged model
  std::size_t log_steps = 1;
  bool log_epochs = false;           ///< log_style hugging_face: a line per epoch
  /// Steps between checkpoints, evaluations and lines as a fraction of all, rounded up; 0: save_steps, eval_steps, log_steps.
  double save_ratio = 0.0, eval_ratio = 0.0, log_ratio = 0.0;
  bool log_first_step = false;       ///< log_style hugging_face: a line for the first step
  std::string log_style = "xtrain";  ///< xtrain, torchtune, megatron, hugging_face, musa_demo
  std::string metrics{};             ///< JSON lines
  std::string tensorboard{};         ///< folder
  std::string log_file{};            ///< torchtune's DiskLogger
  /// xtrain (checkpoint-N), torchtune (epoch_N), hugging_face (checkpoint-N), megatron (iter_N)
  std::string checkpoint_style = "xtrain";

  template <class Self, class Each>
  static void members(Self& of, Each&& each) {
    each("folder", of.folder), each("resume", of.resume), each("overwrite", of.overwrite);
    each("save_steps", of.save_steps), each("save_epochs", of.save_epochs);
    each("save_total_limit", of.save_total_limit), each("eval_steps", of.eval_steps), each("eval_epochs", of.eval_epochs);
    each("adapter_only", of.adapter_only), each("log_steps", of.log_steps), each("log_first_step", of.log_first_step);
    each("log_epochs", of.log_epochs), each("save_ratio", of.save_ratio), each("eval_ratio", of.eval_ratio), each("log_ratio", of.log_ratio);
    each("log_style", of.log_style), each("metrics", of.metrics);
    each("tensorboard", of.tensorboard), each("log_file", of.log_file), each("checkpoint_style", of.checkpoint_style);
  }
  friend bool operator==(const output_description&, const output_description&) = default;
};

/// A training run. Defaults: a plain run on one device; front ends set what their system defines otherwise.
struct run_description {
  std::string made_from{};        ///< config or command line, for people
  std::string follows{};          ///< releases of other systems that the run follows, for people
  std::vector<std::string> notes{};  ///< settings without effect here, with reasons; for people
  std::string device = "cpu";     ///< cpu, cuda, npu, musa
  std::string precision = "fp32"; ///< fp32, bf16_mixed, bf16_gradients, bf16_pure, fp16_mixed
  std::string recompute = "none"; ///< none, full, selective
  std::string offload = "none";   ///< none, optimizer, optimizer+weights: to files
  std::string offload_folder{};
  std::string memory_limit{};     ///< as --memory-limit; empty: the device's
  model_description model{};
  run_tokenizer_description tokenizer{};
  std::vector<data_description> data{}, eval_data{};
  std::string split{};            ///< indexed data: weights of training, validation and test, e.g. 969,30,1
  std::size_t eval_iters = 0;     ///< batches of an indexed validation part
  std::size_t seq_length = 0;     ///< in tokens; 0: the longest sample's, or the model's
  std::size_t micro_batch_size = 1, gradient_accumulation_steps = 1;
  std::vector<std::size_t> rampup_batch_size{};  ///< indexed data: start, increment, samples: batch_size_rampup; empty: none
  std::size_t samples = 0;        ///< indexed data: number of ordered samples, which decides the order; 0: max_steps
  std::size_t epochs = 1, max_steps = 0;  ///< max_steps 0: the epochs'
  double partial_epochs = 0.0;            ///< cuts the run after so many epochs, rounded up to steps; 0: `epochs`
  std::size_t max_steps_per_epoch = 0;    ///< ends epochs early; 0: off
  bool drop_last = true;          ///< omits a smaller last step of an epoch
  bool shuffle = true;
  std::uint64_t seed = 42;
  double neftune_noise_alpha = 0.0;
  json loss_scale = json::object();  ///< fp16_mixed: initial, window, min, hysteresis
  parallel_description parallel{};
  optimizer_description optimizer{};
  schedule_description schedule{};
  objective_description objective{};
  rollouts_description rollouts{};
  adapter_description adapter{};
  output_description output{};

  template <class Self, class Each>
  static void members(Self& of, Each&& each) {
    each("made_from", of.made_from), each("follows", of.follows), each("notes", of.notes), each("device", of.device), each("precision", of.precision);
    each("recompute", of.recompute);
    each("offload", of.offload), each("offload_folder", of.offload_folder), each("memory_limit", of.memory_limit);
    each("model", of.model), each("tokenizer", of.tokenizer), each("data", of.data), each("eval_data", of.eval_data);
    each("split", of.split), each("eval_iters", of.eval_iters), each("seq_length", of.seq_length), each("micro_batch_size", of.micro_batch_size);
    each("gradient_accumulation_steps", of.gradient_accumulation_steps), each("epochs", of.epochs), each("max_steps", of.max_steps);
    each("partial_epochs", of.partial_epochs);
    each("rampup_batch_size", of.rampup_batch_size), each("samples", of.samples);
    each("max_steps_per_epoch", of.max_steps_per_epoch), each("drop_last", of.drop_last), each("shuffle", of.shuffle), each("seed", of.seed);
    each("neftune_noise_alpha", of.neftune_noise_alpha), each("loss_scale", of.loss_scale), each("parallel", of.parallel);
    each("optimizer", of.optimizer), each("schedule", of.schedule), each("objective", of.objective), each("rollouts", of.rollouts), each("adapter", of.adapter);
    each("output", of.output);
  }
  friend bool operator==(const run_description&, const run_description&) = default;

  /// From JSON; missing members have defaults.
  ///   who     names the text in errors
  ///   throws  config_error with the path of a member that is unknown or has the wrong type
  [[nodiscard]] static run_description from_json(const json& all, const std::string& who);
  [[nodiscard]] static run_description load(const std::string& path);
  /// A torchtune config with overrides (key=value) for a recipe: front_ends/torchtune.hpp
  [[nodiscard]] static run_description from_torchtune(const std::string& file, const std::vector<std::string>& overrides = {},
                                                      const std::string& recipe = {});
  /// Flags of Megatron-LM and AscendSpeed: front_ends/megatron.hpp
  [[nodiscard]] static run_description from_megatron(const std::string& program, const std::vector<std::string>& flags);
  /// Hugging Face TrainingArguments, Stanford Alpaca's flags, a DeepSpeed config: front_ends/hugging_face.hpp
  [[nodiscard]] static run_description from_hugging_face(const std::vector<std::string>& flags);

  /// All members, or changes from defaults.
  [[nodiscard]] json to_json(bool all = true) const;
  /// Written atomically.
  void save(const std::string& path) const;

  /// Refuses contradictory, unsupported or ineffective values.
  ///   throws  config_error: the member, what must hold, its value
  void check() const;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/recipes/run_description_impl.hpp>
#endif
