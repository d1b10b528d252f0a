// A training run as data: what every front end (torchtune's YAML, Megatron's and Hugging Face's flags, DeepSpeed's JSON) is translated into, and what a
// recipe type follows from. It is printed, saved beside checkpoints, and read again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <xtrain/core/json.hpp>

namespace xtrain {

/// Which model, and where its weights come from.
struct model_description {
  std::string folder{};                   ///< with config.json and weights; empty: sizes are `config`'s and weights are random
  std::vector<std::string> files{};       ///< weight files of the folder, when they are not those that it names itself
  std::string family{};                   ///< a config.json's model_type; empty: the folder's
  json config = json::object();           ///< members of a config.json. With a folder: what it must agree with (the sizes that a config names)
  json override_config = json::object();  ///< members that replace the folder's; unknown ones are warned of
  bool random_weights = false;            ///< initialized from `seed`, though the folder may have weights
  std::string adapter{};                  ///< folder of a PEFT adapter to go on with
  std::size_t vocab_multiple = 1;         ///< the vocabulary is padded to a multiple of it

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
  std::string merges{};         ///< the merges file, where `path` is a vocabulary alone
  std::string chat_template{};  ///< a name, a Jinja file or its text; empty: the model's
  std::size_t max_length = 0;   ///< tokens of a sample, the last of which is no input; longer ones are cut, and texts to one less; 0: the sequence length
  std::vector<std::string> add_tokens{};
  json special_tokens = json::object();  ///< names of special tokens and their texts, such as pad_token: what the saved tokenizer has them as
  json saved_settings = json::object();  ///< members that the saved tokenizer_config.json gets, such as padding_side

  template <class Self, class Each>
  static void members(Self& of, Each&& each) {
    each("path", of.path), each("merges", of.merges), each("chat_template", of.chat_template), each("max_length", of.max_length);
    each("add_tokens", of.add_tokens), each("special_tokens", of.special_tokens), each("saved_settings", of.saved_settings);
  }
  friend bool operator==(const run_tokenizer_description&, const run_tokenizer_description&) = default;
};

/// One dataset. Several are concatenated, or blended where they have weights.
struct data_description {
  /// text:          documents in files, or field `text_field` of JSON records
  /// alpaca:        records with instruction, input, output, in the prompt of `prompt_template`
  /// chat:          conversations of form `form`, in the tokenizer's chat template
  /// preference:    a chosen and a rejected answer of form `form`; for kto an answer and a label
  /// prompts:       what a model answers, in the field `text_field` of JSON records; without an end-of-text token
  /// indexed:       Megatron's .bin and .idx; `files` are prefixes
  /// indexed_instructions: AscendSpeed's three indexed datasets of a prefix
  std::string kind{};
  std::vector<std::string> files{};
  double weight = 0.0;              ///< of a blend; 0: none
  std::string form{};  ///< chat: messages, conversations, instruction, moss, auto; preference: text, messages, auto; text of records: separate, or a stream
  std::string text_field = "text";  ///< of text and prompts
  /// What a record's fields are called here, by the name they have in this format: {"instruction": "question", "output": "answer"}.
  json columns = json::object();
  /// Of alpaca: with {instruction} and {input}, for records with and without an input; empty: Stanford Alpaca's. Of chat in the form instruction: what the
  /// user says; empty: the instruction and the input as they are.
  std::string prompt_template{}, prompt_template_without_input{};
  std::string system_prompt{};        ///< a system message before every conversation, in place of its own
  std::string split{};                ///< a part of the records as datasets names it: train, train[:5%], train[95%:]
                                    ///< of indexed_instructions: "train of 969,30,1", "validation of 969,30,1"
  bool train_on_input = false;        ///< loss on prompts, too
  bool packed = false;                ///< several samples per sequence, without attention between them
  std::size_t pack_gap = 0;           ///< of packed: positions behind every sample of a sequence, from which nothing is predicted
  bool add_eos = true;                ///< an end-of-text token after every sample
  std::string end_token{};            ///< of records of text: the token that ends them, where the tokenizer has it; else its end-of-text token
  std::string when_too_long = "truncate";  ///< truncate, drop or refuse
  std::size_t max_prompt_tokens = 0, max_answer_tokens = 0;  ///< of alpaca: prompt and answer are cut at so many tokens each; 0: they are not
  bool skips_empty = false;           ///< of alpaca: records with an empty instruction or answer are left out
  bool learns_prompt_ending = false;  ///< of alpaca: the last token that the tokenizer puts behind a prompt is a target (ChatGLM-6B's <sop>)
  /// Of text: documents are concatenated in groups of so many, the group cut into samples of `block_size` tokens, and the rest of it left out, as transformers'
  /// examples for language modeling do; 0: they are not
  std::size_t group_texts = 0;
  std::size_t block_size = 1024;
  std::size_t group_workers = 1;  ///< processes of datasets.map: each has a contiguous part of the documents, within which groups are counted

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

/// Sizes of the mesh. The number of ranks is `ranks`, or the launcher's.
struct parallel_description {
  std::size_t ranks = 1;
  std::size_t zero = 0;        ///< stage; 0: data parallel
  std::size_t shards = 0;      ///< data-parallel ranks that share one copy of the sharded state; 0: all
  std::size_t tensor = 1, pipeline = 1, context = 1, expert = 1;
  bool sequence_parallel = false;    ///< shards norms and residuals over the tensor-parallel ranks
  bool ring = false;                 ///< context parallelism by ring attention
  std::size_t virtual_stages = 1;    ///< chunks of layers per pipeline rank
  std::string schedule = "1f1b";     ///< of a pipeline: 1f1b, interleaved, gpipe, aiao, zero_bubble
  std::vector<std::size_t> stage_layers{};
  std::vector<std::size_t> micro_batch_sizes{};  ///< of a step, when they differ

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
  json settings = json::object();    ///< of the kind, by the names of its config: beta1, beta2, epsilon, weight_decay, momentum, ...
  std::string decays = "matrices";   ///< what weight decay is applied to: matrices, all
  double max_grad_norm = 0.0;        ///< 0: no clipping
  bool keep_gradients = false;       ///< gradients are clipped before a step's own are added, and never cleared: training_config::keep_gradients

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
  double learning_rate = 1e-3;    ///< at the peak
  double min_learning_rate = 0.0;
  std::size_t warmup_steps = 0;
  double warmup_ratio = 0.0;             ///< of all steps; used when warmup_steps is 0
  bool from_zero = false;                ///< the first step's rate is that of 0 steps of warm-up (others: of 1), and the decay ends one step after the last
  std::size_t decay_steps = 0;           ///< steps until the end of the decay, warm-up included; 0: the run's
  std::string counts = "steps";          ///< what warmup_steps and decay_steps are numbers of: steps, or sequences (Megatron-LM's samples)
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
  json settings = json::object();   ///< of the kind, by the names of its config: beta, label_smoothing, ...
  std::string second_model{};       ///< folder of the reference model or the teacher; empty: the trained model as it is before training
  std::string average = "step";     ///< the loss is averaged over the targets of a step, or of each micro_batch, of which the mean is taken
  std::string balance = "targets";  ///< of a load-balancing loss of experts, averaged by step: targets, micro_batches or none: balance_average

  template <class Self, class Each>
  static void members(Self& of, Each&& each) {
    each("kind", of.kind), each("settings", of.settings), each("second_model", of.second_model), each("average", of.average);
    each("balance", of.balance);
  }
  friend bool operator==(const objective_description&, const objective_description&) = default;
};

/// Reinforcement learning, of the objective ppo: the models beside the policy, how answers are generated, and what they are worth. The reference is
/// objective.second_model. micro_batch_size and gradient_accumulation_steps are those of the optimizer steps.
struct rollouts_description {
  std::string reward_model{}, value_model{};  ///< folders of models with a score head; the second is what the value model begins with
  std::vector<std::string> reward_files{}, value_files{};  ///< their weight files, as model.files
  json score_config = json::object();  ///< members of a config.json that both folders must agree with
  std::string value_output{};          ///< folder that the value model is saved in, as the policy in output.folder
  std::size_t steps = 0;               ///< answers are generated so many times
  std::size_t batch_size = 0;          ///< prompts, each with one answer, of one of these steps
  std::size_t generation_batch_size = 0;  ///< answers that are generated, and rewarded, at the same time; 0: micro_batch_size
  std::size_t max_completion_length = 256;
  std::size_t top_k = 0;               ///< of the sampling, whose temperature is objective.settings.temperature; 0: all tokens
  std::vector<std::size_t> stop{};     ///< tokens that end an answer
  std::size_t num_ppo_epochs = 4;
  double kl_coef = 0.05, gamma = 1.0, lambda = 0.95, value_clip_range = 0.2, value_coefficient = 1.0;
  /// The reward is `penalty` in place of the score for an answer of the longest length (penalize_longest), and for one whose last token has a lower index
  /// than min_completion_length.
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
  /// Of lora and qlora: parts of fused modules that have an adapter each, as lora_config has them: {"qkv_proj": ["q_proj", "v_proj"]}
  json parts = json::object();
  json settings = json::object();  ///< of prefix (length, ...), qat and qat_lora (groups, ...)

  template <class Self, class Each>
  static void members(Self& of, Each&& each) {
    each("kind", of.kind), each("rank", of.rank), each("alpha", of.alpha), each("dropout", of.dropout), each("targets", of.targets);
    each("modules_to_save", of.modules_to_save), each("rank_stabilised", of.rank_stabilised), each("parts", of.parts);
    each("settings", of.settings);
  }
  friend bool operator==(const adapter_description&, const adapter_description&) = default;
};

/// What is kept of a run, and where.
struct output_description {
  std::string folder{};
  std::string resume{};              ///< "": a new run; "latest": the newest checkpoint in `folder`; else a checkpoint's folder
  bool overwrite = false;            ///< a new run removes the checkpoints that are in `folder`; otherwise it is refused there
  std::size_t save_steps = 0;        ///< 0: none between
  bool save_epochs = false;          ///< after every epoch
  std::size_t save_total_limit = 0;  ///< 0: all
  std::size_t eval_steps = 0;        ///< 0: at the end only
  bool eval_epochs = false;
  bool adapter_only = true;          ///< with an adapter: it alone is saved, not also the merged model
  std::size_t log_steps = 1;
  bool log_epochs = false;           ///< of log_style hugging_face: a line after every epoch
  /// Steps between checkpoints, evaluations and lines as a fraction of all steps, rounded up; 0: save_steps, eval_steps, log_steps.
  double save_ratio = 0.0, eval_ratio = 0.0, log_ratio = 0.0;
  bool log_first_step = false;       ///< of log_style hugging_face: the first step has a line, too
  std::string log_style = "xtrain";  ///< xtrain, torchtune, megatron, hugging_face, musa_demo
  std::string metrics{};             ///< JSON lines
  std::string tensorboard{};         ///< folder
  std::string log_file{};            ///< torchtune's DiskLogger
  /// How checkpoints are named: xtrain (checkpoint-N), torchtune (epoch_N), hugging_face (checkpoint-N), megatron (iter_N)
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

/// Everything about a training run. Defaults are those of a plain run on one device; a front end sets every member that its system defines otherwise.
struct run_description {
  std::string made_from{};        ///< the config or command line, for people
  std::string follows{};          ///< the releases of other systems whose defaults and arithmetic the run has, for people
  std::vector<std::string> notes{};  ///< what was given and has no effect here, each with the reason; for people
  std::string device = "cpu";     ///< cpu, cuda, npu, musa
  std::string precision = "fp32"; ///< fp32, bf16_mixed, bf16_gradients, bf16_pure, fp16_mixed
  std::string recompute = "none"; ///< none, full, selective
  std::string offload = "none";   ///< none, optimizer, optimizer+weights: to files
  std::string offload_folder{};
  std::string memory_limit{};     ///< as --memory-limit takes it; empty: the device's
  model_description model{};
  run_tokenizer_description tokenizer{};
  std::vector<data_description> data{}, eval_data{};
  std::string split{};            ///< of indexed data: weights of the training, validation and test part, as 969,30,1
  std::size_t eval_iters = 0;     ///< batches of an indexed dataset's validation part
  std::size_t seq_length = 0;     ///< in tokens; 0: the longest sample's, or the model's
  std::size_t micro_batch_size = 1, gradient_accumulation_steps = 1;
  std::vector<std::size_t> rampup_batch_size{};  ///< of indexed data: start, increment, samples: batch_size_rampup; empty: all steps are equal
  std::size_t samples = 0;        ///< of indexed data: how many samples are put in order, which depends on the number; 0: those of max_steps
  std::size_t epochs = 1, max_steps = 0;  ///< max_steps 0: as many as the epochs have
  double partial_epochs = 0.0;            ///< the run ends after so many epochs, in steps rounded up; the last one is cut; 0: `epochs` whole ones
  std::size_t max_steps_per_epoch = 0;    ///< every epoch ends after so many steps; 0: it is not cut
  bool drop_last = true;          ///< a step that would be smaller than the others at the end of an epoch is left out
  bool shuffle = true;
  std::uint64_t seed = 42;
  double neftune_noise_alpha = 0.0;
  json loss_scale = json::object();  ///< of fp16_mixed: initial, window, min, hysteresis
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

  /// Reads a description from a JSON text: members that are missing have their defaults.
  ///   who     names the text in errors
  ///   throws  config_error when a member is unknown or has the wrong type, with its path
  [[nodiscard]] static run_description from_json(const json& all, const std::string& who);
  [[nodiscard]] static run_description load(const std::string& path);
  /// torchtune: a config file with overrides (key=value), for one of its recipes. front_ends/torchtune.hpp
  [[nodiscard]] static run_description from_torchtune(const std::string& file, const std::vector<std::string>& overrides = {},
                                                      const std::string& recipe = {});
  /// Megatron-LM's and AscendSpeed's flags. front_ends/megatron.hpp
  [[nodiscard]] static run_description from_megatron(const std::string& program, const std::vector<std::string>& flags);
  /// Hugging Face TrainingArguments, with Stanford Alpaca's flags and a DeepSpeed config. front_ends/hugging_face.hpp
  [[nodiscard]] static run_description from_hugging_face(const std::vector<std::string>& flags);

  /// All members, or those that differ from a default run.
  [[nodiscard]] json to_json(bool all = true) const;
  /// Written atomically.
  void save(const std::string& path) const;

  /// Refuses values that contradict each other, that no part of the library has, or that would have no effect beside the others.
  ///   throws  config_error: the member, what must hold, its value
  void check() const;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/recipes/run_description_impl.hpp>
#endif
