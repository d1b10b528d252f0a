#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/io.hpp>
#include <xtrain/io/special_token_ids.hpp>
#include <xtrain/models/bert.hpp>
#include <xtrain/models/families.hpp>
#include <xtrain/testing/isolated.hpp>
#include <xtrain/text/load_tokenizer.hpp>
#include "golden.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

struct plain : defaults {};
struct half : defaults {
  using precision = bf16_mixed;
};
struct walled : defaults {
  using device = testing::isolated<cpu>;
};
struct adapted_recipe : defaults {
  using adapter = lora;
};

/// A copy of a fixture that a test may damage.
struct damaged : scratch_folder {
  explicit damaged(const std::string& fixture) {
    for (const char* name : {"config.json", "model.safetensors"}) put_file(*this / name, get_file(golden::folder(fixture) + "/" + name));
  }
  void replace_in_config(const std::string& from, const std::string& to) {
    std::string text = get_file(*this / "config.json");
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    put_file(*this / "config.json", text.replace(at, from.size(), to));
  }
  template <class Error>
  void refused(const std::string& words) {
    CAPTURE(words);
    CHECK_THROWS_WITH_AS((void)llama<plain>::from_pretrained(path()), doctest::Contains(words.c_str()), Error);
  }
};

/// Tensors of a safetensors file, as bytes.
std::map<std::string, std::string> tensors_of(const std::string& path) {
  const safetensors_file file(path);
  std::map<std::string, std::string> all;
  for (const file_tensor& t : file.tensors()) all[t.name] = std::string(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
  return all;
}

}  // namespace

TEST_CASE("a folder that is loaded and saved holds identical bytes in every tensor") {
  for (const std::string name : {"llama_grouped_untied", "llama_tied"}) {
    const scratch_folder out;
    save_pretrained(llama<plain>::from_pretrained(golden::folder(name)), out.path());
    CHECK(tensors_of(out / "model.safetensors") == tensors_of(golden::folder(name) + "/model.safetensors"));
    CHECK(read_sizes<llama_family>(out.path()) == read_sizes<llama_family>(golden::folder(name)));
  }
  const scratch_folder out;
  const auto walled_model = gpt2<walled>::from_pretrained(golden::folder("gpt2"));
  save_pretrained(walled_model, out.path(), {.shard_bytes = 10000});
  CHECK(walled_model.context().waits().blocking_copies == 0);
  CHECK(file_exists(out / "model.safetensors.index.json"));
  const auto again = gpt2<plain>::from_pretrained(out.path()), original = gpt2<plain>::from_pretrained(golden::folder("gpt2"));
  for (const auto& entry : original.parameters().entries()) {
    const auto a = original.parameters().value(entry).host(),
               b = again.parameters().value(*again.parameters().find(entry.spec.name)).host();
    CHECK(std::equal(a.begin(), a.end(), b.begin()));
  }
}

TEST_CASE("a saved folder keeps the padding token, and says that there is none rather than nothing") {
  const auto kept = [](const char* name, auto family) {
    using chosen = decltype(family);
    const json before = read_config(golden::folder(name)).object();
    json_settings after;
    chosen::write(read_sizes<chosen>(golden::folder(name)), after);
    CAPTURE(name);
    for (const char* key : {"pad_token_id", "eos_token_id"}) CHECK(after.object().at(key) == (before.contains(key) ? before.at(key) : json()));
  };
  kept("llama_linear_scaled", llama_family{});   // -1
  kept("llama_grouped_untied", llama_family{});  // null
  kept("llama_tied", llama_family{});            // two end-of-text tokens
  kept("mistral", mistral_family{});
  kept("bloom", bloom_family{});
  kept("gpt2", gpt2_family{});
  kept("internlm", internlm_family{});
  kept("chatglm2", chatglm_family{});
  kept("chatglm1", chatglm1_family{});

  const auto padding = [](const char* fields) {
    return llama_family::
        read(json_settings(
                 parse_json(
                     concat(
                         R"({"vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 4)",
                         fields, "}"),
                     "config"),
                 "config"))
            .pad_token_id;
  };
  CHECK(padding("") == std::nullopt);
  CHECK(padding(R"(, "pad_token_id": null)") == std::nullopt);
  CHECK(padding(R"(, "pad_token_id": -1)") == -1);
  CHECK(padding(R"(, "pad_token_id": 3)") == 3);
  for (const char* wrong : {R"(, "pad_token_id": "3")", R"(, "pad_token_id": [3])", R"(, "pad_token_id": 3.5)", R"(, "pad_token_id": 99999999999)"})
    CHECK_THROWS_WITH_AS((void)padding(wrong), doctest::Contains("config: 'pad_token_id' must be a token; given "), config_error);
  // families whose published config class defaults to 0, and BERT
  const json_settings none(
      parse_json(R"({"vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 4})",
                 "none"),
      "none");
  CHECK(aquila_family::read(none).pad_token_id == 0);
  CHECK(internlm_family::read(none).pad_token_id == 0);
  CHECK(internlm2_family::read(none).pad_token_id == 0);
  CHECK(baichuan_family::read(none).pad_token_id == 0);
  CHECK(bert_family::read(none).pad_token_id == 0);
  CHECK(mistral_family::read(none).pad_token_id == std::nullopt);
  CHECK(qwen2_family::read(none).pad_token_id == std::nullopt);
}

TEST_CASE("weights are converted to the recipe's precision, rounded to nearest") {
  const auto wide = llama<plain>::from_pretrained(golden::folder("llama_tied"));
  const auto narrow = llama<half>::from_pretrained(golden::folder("llama_tied"));
  for (const auto& entry : wide.parameters().entries()) {
    const auto a = wide.parameters().value(entry).host();
    const auto b = narrow.parameters().value(*narrow.parameters().find(entry.spec.name)).host();
    for (std::size_t i = 0; i < a.size(); ++i) REQUIRE(b[i].bits == bf16(a[i]).bits);
  }
}

TEST_CASE("names of older files are understood") {
  const scratch_folder old;
  put_file(old / "config.json", get_file(golden::folder("gpt2") + "/config.json"));
  const safetensors_file file(golden::folder("gpt2") + "/model.safetensors");
  std::vector<tensor_to_write> tensors;
  const auto put = [&](std::string name, std::string number, std::vector<std::size_t> shape, std::string bytes) {
    tensors.push_back(
        {.name = std::move(name),
         .dtype = std::move(number),
         .shape = std::move(shape),
         .bytes = bytes.size(),
         .produce = [bytes](const std::function<void(const void*, std::size_t)>& sink) { sink(bytes.data(), bytes.size()); }});
  };
  for (const file_tensor& t : file.tensors())
    put(t.name.substr(t.name.find('.') + 1), t.dtype, t.shape, std::string(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size()));
  put("h.0.attn.bias", "U8", {1, 1, 3, 3}, std::string(9, '\1'));
  put("h.0.attn.masked_bias", "F32", {}, std::string(4, '\0'));
  write_safetensors(old / "model.safetensors", std::move(tensors));
  CHECK_NOTHROW((void)gpt2<plain>::from_pretrained(old.path()));
}

TEST_CASE("a config that contradicts the weights is refused, and both are named") {
  {
    damaged d("llama_tied");
    d.replace_in_config("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4");
    d.refused<config_error>("must hold 'model.layers.3.input_layernorm.weight', because config.json asks for it; it is missing");
  }
  {
    damaged d("llama_tied");
    d.replace_in_config("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2");
    d.refused<config_error>("holds 'model.layers.2.input_layernorm.weight', which has no counterpart in the model");
  }
  {
    damaged d("llama_tied");
    d.replace_in_config("\"intermediate_size\": 36", "\"intermediate_size\": 40");
    d.refused<config_error>("'model.layers.0.mlp.gate_proj.weight' must have shape [40, 24] as config.json says; the file has [36, 24]");
  }
  {
    damaged d("llama_tied");
    d.replace_in_config("\"vocab_size\": 53", "\"vocab_size\": 54");
    d.refused<config_error>("'model.embed_tokens.weight' must have shape [54, 24]");
  }
  {
    damaged d("llama_tied");
    d.replace_in_config("\"model_type\": \"llama\"", "\"model_type\": \"gpt2\"");
    d.refused<config_error>("must describe a 'llama' model; its model_type is 'gpt2'");
  }
  {
    damaged d("llama_tied");
    d.replace_in_config("\"hidden_size\": 24,", "");
    d.refused<config_error>("'model.embed_tokens.weight' must have shape [53, 4096] as config.json says; the file has [53, 24]");
  }
  {
    damaged d("llama_tied");
    d.replace_in_config("\"hidden_size\": 24", "\"hidden_size\": \"24\"");
    d.refused<config_error>("'hidden_size' must be a positive whole number; given \"24\"");
  }
  {
    damaged d("llama_tied");
    d.replace_in_config("\"hidden_act\": \"silu\"", "\"hidden_act\": \"relu\"");
    d.refused<config_error>("hidden_act must be silu; given 'relu'");
  }
  {
    damaged d("llama_tied");
    d.replace_in_config("\"rope_type\": \"default\"", "\"rope_type\": \"yarn\"");
    d.refused<config_error>("rope scaling must be default, dynamic, linear or llama3; given 'yarn'");
  }
  {
    damaged d("llama_tied");
    d.replace_in_config("\"hidden_size\": 24", "\"hidden_size\": 99999999999999");
    d.refused<config_error>("every size must be below 2^31");
  }
}

TEST_CASE("a misspelt setting and quantized weights are refused; settings of others are not") {
  const auto with = [](const std::string& fields) {
    json config = read_config(golden::folder("llama_grouped_untied")).object();
    const json changes = parse_json(fields, "fields");
    for (const auto& [key, value] : changes.items()) {
      if (value.is_null()) config.erase(key);
      else config[key] = value;
    }
    return (void)sizes_of<llama_family>(json_settings(config, "config.json"));
  };
  CHECK_NOTHROW(with(R"({"use_cache": true, "pretraining_tp": 1, "my_own_setting": [1, 2], "vocab_sizes": 7})"));  // vocab_size is present
  const auto refused = [&](const char* fields, const char* why) { CHECK_THROWS_WITH_AS(with(fields), why, config_error); };
  refused(R"({"rope_parameters": null, "rope_pazameters": {}})", "config.json: 'rope_pazameters' is not a setting; did you mean 'rope_parameters'?");
  refused(R"({"rope_parameters": null, "rope_scalin": {}})", "config.json: 'rope_scalin' is not a setting; did you mean 'rope_scaling'?");
  refused(R"({"num_key_value_heads": null, "num_key_value_headss": 2})",
          "config.json: 'num_key_value_headss' is not a setting; did you mean 'num_key_value_heads'?");
  refused(R"({"rope_parameters": null, "rope_scaling": {"rope_type": "linear", "factr": 2.0}})",
          "config.json, 'rope_scaling': 'factr' is not a setting; did you mean 'factor'?");
  refused(R"({"rope_parameters": {"rope_thet": 5000.0}})", "config.json, 'rope_parameters': 'rope_thet' is not a setting; did you mean 'rope_theta'?");
  refused(R"({"rms_norm_eps": null, "rms_nomr_eps": 1e-3})", "config.json: 'rms_nomr_eps' is not a setting; did you mean 'rms_norm_eps'?");
  refused(R"({"is_causal": false})", "config.json: is_causal must be true, because each token attends to those before it only; given false");
  CHECK_NOTHROW(with(R"({"is_causal": true})"));
  refused(R"({"quantization_config": {"bits": 4}})", "config.json: weights must not be quantized; a quantization_config is given");
}

TEST_CASE("weights of another model are refused before any of them is read") {
  decoder_config sizes = read_sizes<llama_family>(golden::folder("llama_tied"));
  sizes.num_layers = 2;
  llama<plain> model(sizes);
  const auto values = [&] {
    const auto all = model.parameters().trained_values().host();
    return std::vector<float>(all.begin(), all.end());
  };
  const std::vector<float> before = values();
  CHECK_THROWS_WITH_AS(load_weights(model, golden::folder("llama_tied")), doctest::Contains("has no counterpart in the model"), config_error);
  CHECK(values() == before);
}

TEST_CASE("a head that is stored beside the embedding it is tied to, and differs, is a head of its own") {
  // a separate head and a config.json that ties it: transformers 5 does not tie it either
  damaged untied("llama_grouped_untied");
  untied.replace_in_config("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  const auto apart = llama<plain>::from_pretrained(untied.path());
  CHECK_FALSE(apart.config().tie_word_embeddings);
  const scratch_folder again;
  save_pretrained(apart, again.path());
  CHECK(tensors_of(again / "model.safetensors") == tensors_of(golden::folder("llama_grouped_untied") + "/model.safetensors"));
  // a program's sizes are not changed
  llama<plain> tied([&] {
    decoder_config c = read_sizes<llama_family>(untied.path());
    c.tie_word_embeddings = true;
    return c;
  }());
  CHECK_THROWS_WITH_AS(load_weights(tied, untied.path()),
                       doctest::Contains("'lm_head.weight' must be equal to 'model.embed_tokens.weight', because they are one parameter with "
                                         "tie_word_embeddings true, as given or by default; they differ. A head of its own needs tie_word_embeddings false"),
                       config_error);

  const auto stored_twice = [&](auto family, const char* name, const std::string& embedding, const std::string& head) {
    CAPTURE(std::string(name));
    damaged d(name);
    const auto file = std::make_unique<safetensors_file>(golden::folder(name) + "/model.safetensors");
    for (const bool is_copy : {true, false})
      for (const char* dtype : {"F32", "F64"}) {  // equal values of different dtypes are equal
        std::vector<tensor_to_write> tensors;
        const file_tensor* table = nullptr;
        for (const file_tensor& t : file->tensors()) {
          if (t.name == embedding) table = &t;
          tensors.push_back(rewritten(t, t.dtype));
        }
        REQUIRE(table != nullptr);
        std::vector<double> numbers(table->size());
        read_numbers<double>(*table, 0, numbers);
        if (!is_copy) numbers.back() += 1.0;
        const file_tensor copy{.name = head, .dtype = "F64", .shape = table->shape, .bytes = std::as_bytes(std::span(numbers))};
        tensors.push_back(rewritten(copy, dtype));
        write_safetensors(d / "model.safetensors", std::move(tensors));
        using model = decoder<plain, decltype(family)>;
        CHECK(model::from_pretrained(d.path()).config().tie_word_embeddings == is_copy);
      }
  };
  stored_twice(llama_family{}, "llama_tied", "model.embed_tokens.weight", "lm_head.weight");
  stored_twice(gpt2_family{}, "gpt2", "transformer.wte.weight", "lm_head.weight");
  stored_twice(gemma_family{}, "gemma", "model.embed_tokens.weight", "lm_head.weight");
}

TEST_CASE("a file may have the head in place of the embedding tied to it, and the names of the base model alone") {
  const auto loads = [](auto family, const char* name, const std::string& base, const std::string& embedding) {
    CAPTURE(std::string(name));
    using model = decoder<plain, decltype(family)>;
    const safetensors_file file(golden::folder(name) + "/model.safetensors");
    const scratch_folder expected;
    save_pretrained(model::from_pretrained(golden::folder(name)), expected.path());
    for (const bool head : {false, true})
      for (const bool alone : {false, true}) {
        damaged d(name);
        std::vector<tensor_to_write> tensors;
        for (const file_tensor& t : file.tensors()) {
          tensors.push_back(rewritten(t, t.dtype));
          std::string& given = tensors.back().name;
          if (head && given == embedding) given = "lm_head.weight";
          else if (alone && given.starts_with(base)) given = given.substr(base.size());
        }
        write_safetensors(d / "model.safetensors", std::move(tensors));
        const scratch_folder saved;
        save_pretrained(model::from_pretrained(d.path()), saved.path());
        CHECK(tensors_of(saved / "model.safetensors") == tensors_of(expected / "model.safetensors"));
      }
  };
  loads(llama_family{}, "llama_tied", "model.", "model.embed_tokens.weight");
  loads(gpt2_family{}, "gpt2", "transformer.", "transformer.wte.weight");
  loads(gemma_family{}, "gemma", "model.", "model.embed_tokens.weight");
}

TEST_CASE("damaged folders are refused and say what is wrong") {
  CHECK_THROWS_WITH_AS((void)llama<plain>::from_pretrained("/no/such/folder"), doctest::Contains("must be a folder with a model"),
                       file_error);
  {
    const scratch_folder adapter, run;
    put_file(adapter / "adapter_config.json", "{}");
    CHECK_THROWS_WITH_AS((void)llama<plain>::from_pretrained(adapter.path()), doctest::Contains("it holds an adapter (adapter_config.json): give the folder"),
                         file_error);
    for (const char* name : {"checkpoint-90", "checkpoint-100"}) std::filesystem::create_directories(run / name);
    CHECK_THROWS_WITH_AS((void)llama<plain>::from_pretrained(run.path()),
                         doctest::Contains(("resume the run, or give " + run.path() + "/checkpoint-100").c_str()), file_error);
  }
  {
    damaged d("llama_tied");
    put_file(d / "config.json", "{\n\"a\": ,\n}");
    d.refused<file_error>("config.json: must be JSON; line 2");
  }
  {
    damaged d("llama_tied");
    put_file(d / "model.safetensors", get_file(d / "model.safetensors").substr(0, 30000));
    d.refused<file_error>("Is the file cut short?");
  }
  {
    damaged d("llama_tied");
    std::filesystem::remove(d / "model.safetensors");
    d.refused<file_error>("it holds none");
  }
}

TEST_CASE("a save that fails leaves the folder as it was") {
  const scratch_folder out;
  auto model = llama<plain>::from_pretrained(golden::folder("llama_tied"));
  save_pretrained(model, out.path());
  const auto before = tensors_of(out / "model.safetensors");
  for (float& x : model.parameters().trained_values().host()) x += 1.0f;
  {
    const limited_file_size full(20000);
    CHECK_THROWS_AS(save_pretrained(model, out.path()), file_error);
  }
  CHECK(tensors_of(out / "model.safetensors") == before);
  CHECK(out.files() == std::vector<std::string>{"README.md", "config.json", "generation_config.json", "model.safetensors"});
}

TEST_CASE("how texts are sampled stays as in the folder that a model comes from") {
  const damaged from("llama_tied");
  put_file(from / "generation_config.json", R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "eos_token_id": 7, "bos_token_id": 1})");
  const auto model = llama<plain>::from_pretrained(from.path());
  const auto saved = [&](const std::string& tokenizer_from) {
    const scratch_folder out;
    save_pretrained(model, out.path(), {.tokenizer_from = tokenizer_from});
    return parse_json(get_file(out / "generation_config.json"), "saved");
  };
  const json kept = saved(from.path());
  CHECK(kept.at("do_sample") == true);
  CHECK(kept.at("temperature") == 0.6);
  CHECK(kept.at("top_p") == 0.9);
  CHECK(kept.at("eos_token_id") == 7);  // the model's ids remain config.json's
  CHECK(generation_stop_tokens(from.path()) == std::vector<token>{7});
  CHECK_FALSE(saved("").contains("do_sample"));
  json changed = read_json(from / "config.json");
  changed["eos_token_id"] = 9;
  put_file(from / "config.json", changed.dump());
  CHECK(saved(from.path()).at("eos_token_id") == json(model.config().eos));  // unlike the folder's
  // an unreadable file is reported when loading, and does not prevent saving
  for (const std::string& bad : {std::string("{ no json"), std::string(60000, '['), std::string("[1]")}) {
    put_file(from / "generation_config.json", bad);
    CHECK(saved(from.path()).at("bos_token_id") == 1);
    CHECK_THROWS_WITH_AS((void)llama<plain>::from_pretrained(from.path()), doctest::Contains("generation_config.json: must be "), error);
  }
  put_file(from / "generation_config.json", R"({"eos_token_id": [1, "2"]})");
  CHECK_THROWS_WITH_AS((void)read_config(from.path()), doctest::Contains("'eos_token_id' must be a token or a list of tokens; given [1,\"2\"]"), config_error);
  CHECK(generation_stop_tokens("/no/such/folder").empty());
  const scratch_folder base;
  put_file(base / "config.json", std::string(60000, '['));
  const scratch_folder out;
  CHECK_NOTHROW(save_pretrained(model, out.path(), {.base_model = base.path()}));
}

TEST_CASE("how texts are sampled, and which special tokens nothing is said of, comes from the base model, whatever the tokenizer") {
  const damaged base("llama_tied");
  put_file(base / "generation_config.json", R"({"do_sample": true, "temperature": 0.6})");
  const scratch_folder tokenizer;
  put_file(tokenizer / "tokenizer.json", R"({"model": {"vocab": {"a": 0}}})");
  put_file(tokenizer / "generation_config.json", R"({"temperature": 0.1})");
  json config = read_json(base / "config.json");
  const auto saved = [&](const char* file) {
    put_file(base / "config.json", config.dump());
    const scratch_folder out;
    save_pretrained(llama<plain>::from_pretrained(base.path()), out.path(), {.tokenizer_from = tokenizer.path(), .base_model = base.path()});
    return read_json(out / file);
  };
  config["eos_token_id"] = nullptr;
  CHECK(saved("config.json").at("eos_token_id").is_null());
  CHECK(saved("generation_config.json").at("temperature") == 0.6);
  config["eos_token_id"] = 3;
  CHECK(saved("config.json").at("eos_token_id") == 3);
  // null differs from missing, which means the class default, as transformers writes
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    CAPTURE(key);
    config[key] = nullptr;
    CHECK(saved("config.json").at(key).is_null());
    config.erase(key);
    const json of_config = saved("config.json"), of_generation = saved("generation_config.json");
    if (std::string(key) == "pad_token_id") {  // LlamaConfig has none
      CHECK_FALSE(of_config.contains(key));
      CHECK_FALSE(of_generation.contains(key));
    } else {
      CHECK(of_config.at(key) == (std::string(key) == "bos_token_id" ? 1 : 2));
      CHECK(of_generation.at(key) == of_config.at(key));
    }
  }
}

TEST_CASE("a saved folder has the special tokens of the tokenizer that it is saved with") {
  // transformers 5.24: its Trainer's config.json and generation_config.json, with the tokenizer's eos 82 and pad 80
  const auto aligned = [](json config, json generation, const special_token_ids& of = {.bos = {}, .eos = 82, .pad = 80}) {
    align_special_tokens(of, config, &generation);
    return std::pair(config, generation);
  };
  const auto pair_of = [](const char* config, const char* generation) { return std::pair(json::parse(config), json::parse(generation)); };
  CHECK(aligned(json::parse(R"({"eos_token_id": 81, "pad_token_id": null})"), json::parse(R"({"eos_token_id": 81, "use_cache": true})")) ==
        pair_of(R"({"eos_token_id": 82, "pad_token_id": 80})", R"({"eos_token_id": [82, 81], "pad_token_id": 80, "use_cache": true})"));
  CHECK(aligned(json::parse(R"({"eos_token_id": [81, 5]})"), json::parse(R"({"eos_token_id": 81})")) ==
        pair_of(R"({"eos_token_id": [82, 81, 5], "pad_token_id": 80})", R"({"eos_token_id": [82, 81], "pad_token_id": 80})"));
  CHECK(aligned(json::parse(R"({"eos_token_id": 82, "pad_token_id": 80})"), json::parse(R"({"eos_token_id": 81, "pad_token_id": 80})")) ==
        pair_of(R"({"eos_token_id": 82, "pad_token_id": 80})", R"({"eos_token_id": [82, 81], "pad_token_id": 80})"));
  const auto there = pair_of(R"({"eos_token_id": [81, 82], "pad_token_id": 80, "bos_token_id": 1})", R"({"eos_token_id": [81, 82], "pad_token_id": 80})");
  CHECK(aligned(there.first, there.second) == there);
  CHECK(aligned(json::parse(R"({"bos_token_id": 1})"), json::object(), {.bos = 2, .eos = {}, .pad = {}}) ==
        pair_of(R"({"bos_token_id": 2})", R"({"bos_token_id": 2})"));
  // a token without an embedding row is left out
  CHECK(aligned(json::parse(R"({"vocab_size": 80, "pad_token_id": 3})"), json::object()) == pair_of(R"({"vocab_size": 80, "pad_token_id": 3})", "{}"));

  // every form of the files
  const scratch_folder f;
  const auto ids = [&] {
    const special_token_ids all = special_token_ids_of(f.path());
    return std::array{all.bos.value_or(-1), all.eos.value_or(-1), all.pad.value_or(-1)};
  };
  using three = std::array<token, 3>;
  CHECK(ids() == three{-1, -1, -1});
  put_file(f / "tokenizer.json", R"({"added_tokens": [{"id": 7, "content": "<e>"}], "model": {"vocab": {"<b>": 3, "<s>": 4, "</s>": 5}}})");
  put_file(f / "tokenizer_config.json", R"({"bos_token": "<b>", "eos_token": {"content": "<e>"}, "pad_token": "<none>"})");
  CHECK(ids() == three{3, 7, -1});
  put_file(f / "special_tokens_map.json", R"({"eos_token": "<s>", "pad_token": "<e>"})");
  CHECK(ids() == three{3, 4, 7});
  put_file(f / "tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizerFast", "pad_token": "<p>", "added_tokens_decoder": {"9": {"content": "<p>"}}})");
  CHECK(ids() == three{4, 5, 9});  // default of the class; the map is not read
  put_file(f / "tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizerFast", "eos_token": null, "added_tokens_decoder": {}})");
  CHECK(ids() == three{4, -1, -1});
  put_file(f / "tokenizer.json", R"({"added_tokens": [], "model": {"type": "Unigram", "vocab": [["<unk>", 0], ["<s>", 0], ["</s>", 0]]}})");
  CHECK(ids() == three{1, -1, -1});
  std::filesystem::remove(f / "tokenizer.json");
  put_file(f / "tokenizer_config.json", R"({"bos_token": "b", "eos_token": "e", "pad_token": "p"})");
  std::filesystem::remove(f / "special_tokens_map.json");
  put_file(f / "vocab.json", R"({"b": 2})");
  put_file(f / "added_tokens.json", R"({"p": 30})");
  put_file(f / "vocab.txt", "x\r\ne\r\n");
  CHECK(ids() == three{2, 1, 30});
  put_file(f / "tokenizer_config.json", "{ no json");
  CHECK(ids() == three{-1, -1, -1});

  // saving: the tokenizer's eos is 40, config.json's is 2
  const damaged base("llama_tied");
  json config = read_json(base / "config.json");
  config["eos_token_id"] = 2;
  config["pad_token_id"] = nullptr;
  put_file(base / "config.json", config.dump());
  const scratch_folder tokenizer, out;
  put_file(tokenizer / "tokenizer.json", R"({"added_tokens": [{"id": 40, "content": "<|im_end|>"}, {"id": 41, "content": "[PAD]"}]})");
  put_file(tokenizer / "tokenizer_config.json", R"({"eos_token": "<|im_end|>", "pad_token": "[PAD]"})");
  save_pretrained(llama<plain>::from_pretrained(base.path()), out.path(), {.tokenizer_from = tokenizer.path(), .base_model = base.path()});
  CHECK(read_json(out / "config.json").at("eos_token_id") == 40);
  CHECK(read_json(out / "config.json").at("pad_token_id") == 41);
  CHECK(read_json(out / "generation_config.json").at("eos_token_id") == json::parse("[40, 2]"));
  CHECK(read_json(out / "generation_config.json").at("pad_token_id") == 41);
  CHECK(generation_stop_tokens(out.path()) == std::vector<token>{40, 2});
  // saving again from the saved folder changes nothing
  const std::string before = get_file(out / "config.json") + get_file(out / "generation_config.json");
  align_special_tokens(out.path());
  CHECK(get_file(out / "config.json") + get_file(out / "generation_config.json") == before);
  save_pretrained(llama<plain>::from_pretrained(out.path()), base.path(), {.tokenizer_from = out.path(), .base_model = out.path()});
  CHECK(read_json(base / "config.json").at("eos_token_id") == 40);
  CHECK(generation_stop_tokens(base.path()) == std::vector<token>{40, 2});
}

TEST_CASE("a folder gets a model card, and keeps the one that it has") {
  const scratch_folder out, adapter;
  const auto model = llama<plain>::from_pretrained(golden::folder("llama_tied"));
  save_pretrained(model, out.path(), {.base_model = "some/\"base\""});
  CHECK(get_file(out / "README.md") == "---\n"
                                       "base_model: \"some/\\\"base\\\"\"\n"
                                       "library_name: transformers\n"
                                       "pipeline_tag: text-generation\n"
                                       "tags:\n"
                                       "- \"llama\"\n"
                                       "- xtrain\n"
                                       "---\n"
                                       "\n"
                                       "# Model Card for Model ID\n"
                                       "\n"
                                       "This model is a fine-tuned version of some/\"base\".\n"
                                       "\n## Model Details\n\n[More Information Needed]\n"
                                       "\n## Uses\n\n[More Information Needed]\n"
                                       "\n## Bias, Risks, and Limitations\n\n[More Information Needed]\n"
                                       "\n## Training Details\n\n[More Information Needed]\n"
                                       "\n## Evaluation\n\n[More Information Needed]\n");
  put_file(out / "README.md", "mine");
  save_pretrained(model, out.path());
  CHECK(get_file(out / "README.md") == "mine");

  const auto adapted = llama<adapted_recipe>::from_pretrained(golden::folder("llama_tied"), {}, {.adapter = {.rank = 2}});
  save_pretrained(adapted, adapter.path(), {.base_model = "some/base"});
  CHECK(get_file(adapter / "README.md").starts_with("---\n"
                                                    "base_model: \"some/base\"\n"
                                                    "library_name: peft\n"
                                                    "pipeline_tag: text-generation\n"
                                                    "tags:\n"
                                                    "- \"base_model:adapter:some/base\"\n"
                                                    "- \"lora\"\n"
                                                    "- \"transformers\"\n"
                                                    "- xtrain\n"
                                                    "---\n"));
  put_file(adapter / "README.md", "mine");
  save_pretrained(adapted, adapter.path(), {.base_model = "some/base"});
  CHECK(get_file(adapter / "README.md") == "mine");
}

TEST_CASE("tokenizer files travel with the model") {
  const scratch_folder out, from;
  byte_tokenizer().save(from.path());
  auto sizes = read_sizes<llama_family>(golden::folder("llama_tied"));
  sizes.vocab_size = byte_tokenizer().vocab_size();
  const auto model = load_as<llama<plain>>(golden::folder("llama_tied"), sizes, {}, {}, {.resize_vocabulary = true});
  save_pretrained(model, out.path(), {.tokenizer_from = from.path()});
  CHECK(get_file(out / "tokenizer.json") == get_file(from / "tokenizer.json"));
  CHECK(file_exists(out / "tokenizer_config.json"));
  save_pretrained(model, out.path(), {.tokenizer_from = out.path()});  // into the same folder
  CHECK(get_file(out / "tokenizer.json") == get_file(from / "tokenizer.json"));
  put_file(from / "some.model", "pieces");
  save_pretrained(model, out.path(), {.tokenizer_from = from / "some.model"});
  CHECK(get_file(out / "tokenizer.model") == "pieces");
}

TEST_CASE("a tokenizer of every kind is loaded from a saved folder as it was from its own files") {
  const std::string data = test_data("tokenizers");
  if (data.empty()) return;
  const auto model = llama<plain>::from_pretrained(golden::folder("llama_tied"));
  const scratch_folder named;
  put_file(named / "pieces.bin", get_file(data + "/spm_fixtures/test_sentencepiece.model"));
  put_file(named / "fast.json", get_file(data + "/gpt2/tokenizer.json"));
  put_file(named / "gpt2-vocab.json", get_file(data + "/gpt2/vocab.json"));
  put_file(named / "gpt2-merges.txt", get_file(data + "/gpt2/merges.txt"));
  put_file(named / "ranks.txt", get_file(data + "/tiktoken/cl100k_base.tiktoken"));
  for (const std::string& from : {data + "/chatglm", data + "/chatglm/ice_text.model", data + "/chatglm2", data + "/llama2", data + "/llama2/tokenizer.model",
                                  data + "/llama3", data + "/llama3/tokenizer.model", data + "/bert/bert_base_uncased_vocab.txt",
                                  data + "/bert/bert_base_cased_vocab.txt", data + "/gpt2", data + "/gpt2/merges.txt", data + "/qwen", data + "/qwen2",
                                  data + "/tiktoken/cl100k_base.tiktoken", data + "/t5/t5_tokenizer_base.model", data + "/mistral/tokenizer.model.v1",
                                  named / "pieces.bin", named / "fast.json", named / "gpt2-vocab.json", named / "gpt2-merges.txt", named / "ranks.txt"}) {
    CAPTURE(from);
    if (!file_exists(from)) continue;
    const scratch_folder out;
    const tokenizer before = load_tokenizer(from);
    CHECK_THROWS_WITH_AS(save_pretrained(model, out.path(), {.tokenizer_from = from}),
                         doctest::Contains("must fit the model's vocabulary of 53 tokens; it has "), config_error);
    CHECK_NOTHROW(detail::require_tokenizer_fits(out.path(), from, before.vocab_size()));
    CHECK(out.files().empty());
    copy_tokenizer(from, out.path());
    save_pretrained(model, out.path());
    const tokenizer after = load_tokenizer(out.path());
    CHECK(before.vocab_size() == after.vocab_size());
    const std::string text = "Hello World, it's 2024: \u4f60\u597d\n  two spaces";
    CHECK(before.encode(text) == after.encode(text));
    CHECK(before.special().bos == after.special().bos);
    CHECK(before.special().eos == after.special().eos);
  }
}

TEST_CASE("added tokens may be beyond the vocabulary, as the padding token of LLaMA 2") {
  const auto model = llama<plain>::from_pretrained(golden::folder("llama_tied"));
  const std::size_t rows = model.config().vocab_size;
  const auto vocabulary = [](std::size_t count) {
    json all = json::object();
    for (std::size_t i = 0; i < count; ++i) all["t" + std::to_string(i)] = i;
    return all;
  };
  const json pad{{"id", rows}, {"content", "<pad>"}};
  const auto saved = [&](std::size_t count, bool fast) {
    const scratch_folder from, to;
    if (fast) {
      put_file(from / "tokenizer.json", json{{"added_tokens", json::array({pad})}, {"model", {{"vocab", vocabulary(count)}}}}.dump());
    } else {
      put_file(from / "vocab.json", vocabulary(count).dump());
      put_file(from / "added_tokens.json", json{{"<pad>", rows}}.dump());
    }
    save_pretrained(model, to.path(), {.tokenizer_from = from.path()});
    return file_exists(to / (fast ? "tokenizer.json" : "added_tokens.json"));
  };
  for (const bool fast : {true, false}) {
    CHECK(saved(rows, fast));
    const std::string it_has = concat("vocabulary of ", rows, " tokens; it has ", rows + 2);
    CHECK_THROWS_WITH_AS((void)saved(rows + 2, fast), doctest::Contains(it_has.c_str()), config_error);
  }
}

TEST_CASE("an adapter is loaded as it was saved, and refused by another model") {
  const scratch_folder out;
  auto model = llama<adapted_recipe>::from_pretrained(
      golden::folder("llama_grouped_untied"), {},
      {.adapter = {.rank = 3, .alpha = 6, .targets = {"q_proj", "down_proj"}, .modules_to_save = {"norm"}}});
  std::size_t i = 0;
  for (float& x : model.parameters().trained_values().host()) x = 0.01f * static_cast<float>(++i % 50);
  save_pretrained(model, out.path(), {.base_model = "base"});
  CHECK(out.files() == std::vector<std::string>{"README.md", "adapter_config.json", "adapter_model.safetensors"});
  const lora::config saved = adapter_config_of(out.path());
  CHECK(saved.rank == 3);
  CHECK(saved.alpha == 6);
  CHECK(saved.targets == std::vector<std::string>{"q_proj", "down_proj"});
  CHECK(saved.modules_to_save == std::vector<std::string>{"norm"});
  auto again = llama<adapted_recipe>::from_pretrained(golden::folder("llama_grouped_untied"), {}, {.adapter = saved});
  load_adapter(again, out.path());
  for (const auto& entry : model.parameters().entries()) {
    const auto a = model.parameters().value(entry).host(), b = again.parameters().value(*again.parameters().find(entry.spec.name)).host();
    CHECK(std::equal(a.begin(), a.end(), b.begin()));
  }
  auto other = llama<plain>::from_pretrained(golden::folder("llama_tied"));
  const auto weights = other.parameters().trained_values().host();
  const std::vector<float> before(weights.begin(), weights.end());
  CHECK_THROWS_AS(merge_adapter(other, out.path()), config_error);
  CHECK(std::equal(before.begin(), before.end(), weights.begin()));  // a rejected adapter changes nothing

  // adapts a vector, which has no second dim
  const std::string header = R"({"base_model.model.model.norm.lora_A.weight":{"dtype":"F32","shape":[3,1],"data_offsets":[0,12]},)"
                             R"("base_model.model.model.norm.lora_B.weight":{"dtype":"F32","shape":[1,3],"data_offsets":[12,24]}} )";
  const scratch_folder lying;
  put_file(lying / "adapter_config.json", get_file(out / "adapter_config.json"));
  put_file(lying / "adapter_model.safetensors",
           std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header + std::string(24, '\0'));
  CHECK_THROWS_WITH_AS(merge_adapter(other, lying.path()), doctest::Contains("holds 2 tensors; the model uses 0"), config_error);
  put_file(out / "adapter_config.json", R"({"peft_type": "IA3", "r": 3})");
  CHECK_THROWS_WITH_AS((void)adapter_config_of(out.path()), doctest::Contains("peft_type must be LORA; given 'IA3'"), config_error);
}

TEST_CASE("adapter settings that name nothing are refused with the nearest name") {
  const auto make = [](lora::config adapter) {
    (void)llama<adapted_recipe>::from_pretrained(golden::folder("llama_tied"), {}, {.adapter = std::move(adapter)});
  };
  CHECK_THROWS_WITH_AS(make({.targets = {"q_prj"}}), "lora: 'q_prj' must name a linear module or an embedding of the model; did you mean 'q_proj'?",
                       config_error);
  CHECK_THROWS_WITH_AS(make({.targets = {"norm"}}), doctest::Contains("must name a linear module"), config_error);
  CHECK_THROWS_WITH_AS(make({.modules_to_save = {"q_proj"}}), doctest::Contains("train both or none"), config_error);
  CHECK_THROWS_WITH_AS(make({.rank = 0}), "lora: rank must be positive; given 0", config_error);
  CHECK_NOTHROW(make({}));
}

TEST_CASE("the adapter config of a real model is read") {
  const std::string path = test_data("formats/peft/qwen2_adapter_config.json");
  if (path.empty()) {
    MESSAGE("skipped: no test data");
    return;
  }
  const scratch_folder folder;
  put_file(folder / "adapter_config.json", get_file(path));
  const lora::config c = adapter_config_of(folder.path());
  CHECK(c.rank == 8);
  CHECK(c.alpha == 16);
  CHECK(c.targets.size() == 8);
}

TEST_CASE("chat templates beside chat_template.jinja go where the tokenizer goes") {
  const scratch_folder from, to;
  std::filesystem::create_directory(from / "additional_chat_templates");
  put_file(from / "chat_template.jinja", "plain");
  put_file(from / "additional_chat_templates/tool_use.jinja", "tools");
  put_file(from / "additional_chat_templates/notes.txt", "");
  copy_tokenizer(from.path(), to.path());
  CHECK(get_file(to / "chat_template.jinja") == "plain");
  CHECK(get_file(to / "additional_chat_templates/tool_use.jinja") == "tools");
  CHECK_FALSE(file_exists(to / "additional_chat_templates/notes.txt"));
}

TEST_CASE("a copied tokenizer keeps its class, whatever model's config.json lies beside the copy") {
  const std::string bytes = R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true})", plain = R"({"type": "WhitespaceSplit"})";
  const auto copied = [](const std::string& cut, const std::string& config, const std::string& settings) {
    const scratch_folder from, to;
    put_file(from / "tokenizer.json", R"({"pre_tokenizer": )" + cut + R"(, "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0}}})");
    if (!config.empty()) put_file(from / "config.json", config);
    if (!settings.empty()) put_file(from / "tokenizer_config.json", settings);
    copy_tokenizer(from.path(), to.path());
    return file_exists(to / "tokenizer_config.json") ? read_json(to / "tokenizer_config.json") : json();
  };
  CHECK(copied(bytes, "", "") == json{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"add_prefix_space", true}});
  CHECK(copied(bytes, R"({"model_type": "gpt2"})", R"({"eos_token": "?"})") == json{{"tokenizer_class", "GPT2Tokenizer"}, {"eos_token", "?"}});
  CHECK(copied(bytes, R"({"model_type": "gpt2"})", R"({"tokenizer_class": "X"})") == json{{"tokenizer_class", "X"}});
  CHECK(copied(plain, R"({"model_type": "gpt2"})", "").is_null());
}
