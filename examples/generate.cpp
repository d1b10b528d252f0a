// Continues a text. The text goes to standard output, everything else to standard error.
//
//   generate --model DIR --prompt "Once upon a time" --max-new-tokens 100
//   generate --model DIR --chat --system "You are terse." --prompt "Why is the sky blue?"
//
// Policies (device, precision, ...) are chosen at compile time: see xtrain_add_trainer.
#include "command_line.hpp"
#include "recipe.hpp"

namespace {

/// Passes on generated text up to a given end. What may be the beginning of the end is held back.
class text_until {
 public:
  explicit text_until(std::string end) : end_(std::move(end)) {}

  /// returns  the text that can be shown
  [[nodiscard]] std::string push(const std::string& text) {
    held_ += text;
    const std::size_t at = end_.empty() ? std::string::npos : held_.find(end_);
    ended_ = ended_ || at != std::string::npos;
    std::size_t kept = end_.empty() ? 0 : std::min(held_.size(), end_.size() - 1);
    while (!end_.starts_with(std::string_view(held_).substr(held_.size() - kept))) --kept;
    std::string shown = held_.substr(0, std::min(at, held_.size() - kept));
    held_.erase(0, shown.size());
    return shown;
  }
  /// returns  the rest, if the end has not come
  [[nodiscard]] std::string finish() const { return ended_ ? std::string() : held_; }
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  std::string end_, held_{};
  bool ended_ = false;
};

struct generate_flags {
  std::string model{}, adapter{}, tokenizer{}, prompt{}, system{}, format = "text";
  xtrain::generate_config how{.max_new_tokens = 128};
  bool ids = false, echo = false, is_chat = false;
  command_line::chat_flags chat{};
  command_line::config_flags config{};
  command_line::vocabulary_flags vocabulary{};
  command_line::device_flags device{};

  void add(CLI::App& app) {
    app.add_option("--model", model, "folder with config.json and safetensors")->required()->type_name("DIR");
    app.add_option("--adapter", adapter, "folder with a LoRA adapter for the model")->type_name("DIR");
    app.add_option("--tokenizer", tokenizer, "byte, a folder or a file; default: the model's folder")->type_name("byte|DIR|FILE");
    app.add_option("--prompt", prompt, "text to continue; empty: start from the begin-of-text token")->required()->type_name("TEXT");
    auto* as_format = app.add_option("--format", format, "text: the prompt as it is; alpaca: the prompt is an instruction")
                          ->check(command_line::one_of({"text", "alpaca"}))
                          ->capture_default_str();
    auto* as_chat = app.add_flag("--chat", is_chat, "the prompt is what the user says in a chat; the answer ends with its turn")->excludes(as_format);
    app.add_option("--system", system, "system message of the chat")->needs(as_chat)->type_name("TEXT");
    chat.add(app)->needs(as_chat);
    app.add_option("--max-new-tokens", how.max_new_tokens, "maximum number of tokens to generate")
        ->check(command_line::whole_number())
        ->type_name("N")
        ->capture_default_str();
    app.add_option("--temperature", how.sampling.temperature, "sampling temperature; 0: greedy")
        ->check(command_line::not_negative())
        ->type_name("X")
        ->capture_default_str();
    app.add_option("--top-k", how.sampling.top_k, "sample from the k most likely tokens; 0: all")
        ->check(command_line::whole_number())
        ->type_name("N");
    app.add_option("--top-p", how.sampling.top_p, "sample from the most likely tokens that together have this probability")
        ->check(command_line::positive_share())
        ->type_name("X");
    app.add_option("--repetition-penalty", how.sampling.repetition_penalty, "above 1: tokens that occurred before become less likely")
        ->check(command_line::positive())
        ->type_name("X");
    app.add_option("--seed", how.sampling.seed, "random seed of the sampling")
        ->check(command_line::whole_number())
        ->type_name("N")
        ->capture_default_str();
    app.add_flag("--ids", ids, "print token ids instead of text");
    app.add_flag("--echo", echo, "print the prompt before the generated text");
    config.add(app);
    vocabulary.add_size(app);
    device.add(app);
  }
  /// What the user says to a chat model, after the system message.
  [[nodiscard]] std::vector<xtrain::chat_message> messages() const {
    std::vector<xtrain::chat_message> all;
    if (!system.empty()) all.push_back({"system", system});
    all.push_back({"user", prompt});
    return all;
  }
};

template <class Model>
void generate(generate_flags& flags, const xtrain::json_settings& settings) {
  const auto& family = command_line::for_flag("--model", flags.model, [&]() -> const auto& { return Model::family_of(settings); });
  if (flags.is_chat) flags.chat.find({flags.adapter, flags.tokenizer, flags.model});
  const std::string tokenizer_from = flags.tokenizer.empty() ? flags.model : flags.tokenizer;
  const auto tokenizer = command_line::for_flag(flags.tokenizer.empty() ? "--model" : "--tokenizer", tokenizer_from,
                                                [&] { return xtrain::load_tokenizer(tokenizer_from); });
  const auto on = flags.device.open<typename Model::device>();
  const auto config = flags.config.apply(settings, family, true);
  auto sizes = command_line::for_flag("--model", flags.model, [&] { return xtrain::sizes_of(config, family); });
  sizes.vocab_size = flags.vocabulary.size(sizes.vocab_size, tokenizer);
  auto model = command_line::for_flag("--model", flags.model, [&] {
    return xtrain::load_as<Model>(flags.model, sizes, on, {}, {.resize_vocabulary = flags.vocabulary.resizes()});
  });
  if (!flags.adapter.empty()) command_line::for_flag("--adapter", flags.adapter, [&] { merge_adapter(model, flags.adapter); });
  std::string text = flags.format == "alpaca" ? xtrain::alpaca_template().text(flags.prompt, "") : flags.prompt, end_of_turn;
  std::vector<xtrain::token> prompt;
  flags.how.stop = model.config().eos;
  if (tokenizer.special().eos >= 0) flags.how.stop.push_back(tokenizer.special().eos);
  if (flags.is_chat) {
    const xtrain::chat_template form = flags.chat.with(tokenizer);
    text = command_line::for_flag("--chat-template", flags.chat.given, [&] { return form.apply(flags.messages(), {.add_generation_prompt = true}); });
    prompt = xtrain::encode_chat(text, tokenizer, form);
    end_of_turn = form.end_of_turn();
    if (const auto ends = tokenizer.encode(end_of_turn); ends.size() == 1) flags.how.stop.push_back(ends.front());
  } else {
    prompt = command_line::for_flag("--prompt", "", [&] { return tokenizer.encode_prompt(text); });
  }
  xtrain::streaming_decoder decoder(tokenizer, prompt);
  text_until answer(end_of_turn);  // where the end is not a token of the vocabulary
  const auto show = [](const std::string& piece) {
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  };
  bool first = true;
  flags.how.on_token = [&](std::size_t, xtrain::token next) {
    const std::string words = answer.push(decoder.push(next));
    show(flags.ids ? xtrain::concat(first ? "" : " ", next) : words);
    first = false;
    return !answer.ended();
  };
  if (flags.echo && !flags.ids) show(text);
  xtrain::generator generator(model, 1, std::min(model.config().max_position_embeddings, prompt.size() + flags.how.max_new_tokens));
  (void)generator.generate(prompt, flags.how);
  const std::string last = answer.push(decoder.finish());
  if (!flags.ids) show(last + answer.finish());
  if (::isatty(1) == 1) std::fputc('\n', stdout);

  const auto& took = generator.statistics();
  std::fprintf(stderr,
               "prompt: %zu tokens in %.3f s; generated: %zu tokens, %.1f tokens/s\nBandwidth achieved: %.2f GB/s\nMemory used: %.2f GB\n",
               took.prompt_tokens, took.prompt_seconds, took.new_tokens, took.tokens_per_second(), took.bandwidth() * 1e-9,
               static_cast<double>(model.context().memory().total_peak) * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Continues a text. The text goes to standard output, everything else to standard error.", "generate");
  generate_flags flags;
  flags.add(app);
  return command_line::run(app, argc, argv, [&] {
    const xtrain::json_settings config = command_line::for_flag("--model", flags.model, [&] { return xtrain::read_config(flags.model); });
    generate<model_of<recipe>>(flags, config);
  });
}
