// Columns of every type that has a form in JSON, written as Parquet and as Arrow IPC and read as records; those that are refused; and a dataset
// that is written from Parquet with the bytes of the same records in JSON Lines.
//   convert_records FOLDER
#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <parquet/arrow/writer.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/data/arrow_records.hpp>
#include <xtrain/data/preprocess.hpp>
#include <xtrain/text/byte_tokenizer.hpp>

namespace {

int failures = 0;

void check(bool holds, const std::string& what) {
  if (holds) return;
  std::printf("FAILED: %s\n", what.c_str());
  ++failures;
}
void must(const arrow::Status& status) {
  if (status.ok()) return;
  std::printf("Arrow: %s\n", status.ToString().c_str());
  std::exit(1);
}
template <class T>
T must(arrow::Result<T> result) {
  must(result.status());
  return std::move(result).ValueUnsafe();
}

using columns = std::vector<std::pair<std::string, std::shared_ptr<arrow::Array>>>;

std::shared_ptr<arrow::Table> table_of(const columns& all) {
  std::vector<std::shared_ptr<arrow::Field>> fields;
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  for (const auto& [name, array] : all) {
    fields.push_back(arrow::field(name, array->type()));
    arrays.push_back(array);
  }
  return arrow::Table::Make(arrow::schema(fields), arrays);
}
std::shared_ptr<arrow::io::FileOutputStream> opened(const std::string& path) { return must(arrow::io::FileOutputStream::Open(path)); }
void write_parquet(const arrow::Table& table, const std::string& path) {
  const auto to = opened(path);
  const auto with_types = parquet::ArrowWriterProperties::Builder().store_schema()->build();  // as pyarrow writes
  must(parquet::arrow::WriteTable(table, arrow::default_memory_pool(), to, 2, parquet::default_writer_properties(), with_types));
  must(to->Close());
}
void write_ipc(const arrow::Table& table, const std::string& path, bool as_stream) {
  const auto to = opened(path);
  const auto writer = must(as_stream ? arrow::ipc::MakeStreamWriter(to, table.schema()) : arrow::ipc::MakeFileWriter(to, table.schema()));
  must(writer->WriteTable(table));
  must(writer->Close());
  must(to->Close());
}

xtrain::json records_of(const std::string& path) {
  xtrain::json all = xtrain::json::array();
  const auto formats = xtrain::arrow_record_formats();
  const xtrain::record_format* format = xtrain::find_format(formats, path);
  if (format == nullptr) std::exit(1);
  format->read(path, {}, [&](xtrain::source_record&& one) { all.push_back(std::move(one).parsed()); });
  return all;
}
std::string problem_of(const std::string& path) {
  try {
    (void)records_of(path);
  } catch (const xtrain::error& problem) {
    return problem.what();
  }
  return "nothing was refused";
}

template <class Builder, class Value>
std::shared_ptr<arrow::Array> array_of(Builder&& builder, const std::vector<Value>& values) {
  for (const Value& value : values) must(builder.Append(value));
  must(builder.AppendNull());
  return must(builder.Finish());
}
std::shared_ptr<arrow::Array> texts(const std::vector<std::string>& values) { return array_of(arrow::StringBuilder(), values); }
template <class Builder>
std::shared_ptr<arrow::Array> times(const std::shared_ptr<arrow::DataType>& type, std::int64_t value) {
  Builder builder(type, arrow::default_memory_pool());
  must(builder.Append(static_cast<typename Builder::value_type>(value)));
  must(builder.Append(0));
  must(builder.AppendNull());
  return must(builder.Finish());
}

/// Two values and a null per type.
columns every_column() {
  arrow::MemoryPool* const pool = arrow::default_memory_pool();
  columns all;
  all.emplace_back("text", texts({"one", "t\xC3\xBCr"}));
  all.emplace_back("large", array_of(arrow::LargeStringBuilder(), std::vector<std::string>{"a", ""}));
  all.emplace_back("truth", array_of(arrow::BooleanBuilder(), std::vector<bool>{true, false}));
  all.emplace_back("small", array_of(arrow::Int8Builder(), std::vector<std::int8_t>{-1, 2}));
  all.emplace_back("whole", array_of(arrow::UInt64Builder(), std::vector<std::uint64_t>{18446744073709551615U, 0}));
  all.emplace_back("real", array_of(arrow::DoubleBuilder(), std::vector<double>{0.5, -2}));
  all.emplace_back("half", array_of(arrow::HalfFloatBuilder(), std::vector<std::uint16_t>{0x3c00, 0xc100}));
  all.emplace_back("instant", times<arrow::TimestampBuilder>(arrow::timestamp(arrow::TimeUnit::MICRO), 1709209805000250));
  all.emplace_back("utc", times<arrow::TimestampBuilder>(arrow::timestamp(arrow::TimeUnit::MILLI, "Europe/Paris"), -1));
  all.emplace_back("day", times<arrow::Date32Builder>(arrow::date32(), 19782));
  all.emplace_back("hour", times<arrow::Time64Builder>(arrow::time64(arrow::TimeUnit::NANO), 45005000000001));
  {
    arrow::Decimal128Builder builder(arrow::decimal128(6, 2), pool);
    must(builder.Append(arrow::Decimal128(1234)));
    must(builder.Append(arrow::Decimal128(-5)));
    must(builder.AppendNull());
    all.emplace_back("price", must(builder.Finish()));
  }
  {
    const auto values = texts({"x", "y"})->Slice(0, 2);
    arrow::Int32Builder indices;
    for (const int i : {1, 0}) must(indices.Append(i));
    must(indices.AppendNull());
    all.emplace_back("kind", must(arrow::DictionaryArray::FromArrays(arrow::dictionary(arrow::int32(), arrow::utf8()), must(indices.Finish()), values)));
  }
  {  // a list of messages, each a struct
    const auto role = std::make_shared<arrow::StringBuilder>(), content = std::make_shared<arrow::StringBuilder>();
    const auto type = arrow::struct_({arrow::field("role", arrow::utf8()), arrow::field("content", arrow::utf8())});
    const auto message = std::make_shared<arrow::StructBuilder>(type, pool, std::vector<std::shared_ptr<arrow::ArrayBuilder>>{role, content});
    arrow::ListBuilder list(pool, message);
    for (const std::size_t count : {std::size_t{2}, std::size_t{0}}) {
      must(list.Append());
      for (std::size_t i = 0; i < count; ++i) {
        must(message->Append());
        must(role->Append(i == 0 ? "user" : "assistant"));
        if (i == 0) must(content->Append("hello"));
        else must(content->AppendNull());
      }
    }
    must(list.AppendNull());
    all.emplace_back("messages", must(list.Finish()));
  }
  {
    const auto key = std::make_shared<arrow::StringBuilder>();
    const auto item = std::make_shared<arrow::Int32Builder>();
    arrow::MapBuilder map(pool, key, item);
    must(map.Append());
    must(key->Append("b"));
    must(item->Append(1));
    must(key->Append("a"));
    must(item->AppendNull());
    must(map.Append());
    must(map.AppendNull());
    all.emplace_back("counts", must(map.Finish()));
  }
  return all;
}

const xtrain::json expected = xtrain::json::parse(R"([
  {"text": "one", "large": "a", "truth": true, "small": -1, "whole": 18446744073709551615, "real": 0.5, "half": 1.0,
   "instant": "2024-02-29T12:30:05.000250", "utc": "1969-12-31T23:59:59.999000+00:00", "day": "2024-02-29", "hour": "12:30:05.000000001",
   "price": "12.34", "kind": "y", "messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": null}],
   "counts": {"a": null, "b": 1}},
  {"text": "tür", "large": "", "truth": false, "small": 2, "whole": 0, "real": -2.0, "half": -2.5,
   "instant": "1970-01-01T00:00:00", "utc": "1970-01-01T00:00:00+00:00", "day": "1970-01-01", "hour": "00:00:00",
   "price": "-0.05", "kind": "x", "messages": [], "counts": {}},
  {"text": null, "large": null, "truth": null, "small": null, "whole": null, "real": null, "half": null, "instant": null, "utc": null, "day": null,
   "hour": null, "price": null, "kind": null, "messages": null, "counts": null}])");

/// Checks every column's values, in order.
void check_values(const std::string& path) {
  const xtrain::json found = records_of(path);
  check(found.size() == expected.size(), path + ": must have 3 records; it has " + std::to_string(found.size()));
  for (std::size_t row = 0; row < expected.size() && row < found.size(); ++row)
    for (const auto& [name, value] : expected[row].items())
      check(found[row].contains(name) && found[row][name] == value, path + ": row " + std::to_string(row + 1) + ": '" + name + "' must be " + value.dump() +
                                                                        "; it is " + found[row].value(name, xtrain::json("missing")).dump());
}

void check_refused(const std::string& path, const std::string& words) {
  const std::string problem = problem_of(path);
  check(problem.find(path) != std::string::npos && problem.find(words) != std::string::npos, "must be refused with '" + words + "': " + problem);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  std::filesystem::create_directories(folder);
  const auto in = [&](const char* name) { return folder + "/" + name; };

  const columns all = every_column();
  write_parquet(*table_of(all), in("all.parquet"));
  write_ipc(*table_of(all), in("all.arrow"), false);
  write_ipc(*table_of(all), in("all.ipc"), true);
  for (const char* name : {"all.parquet", "all.arrow", "all.ipc"}) check_values(in(name));

  // a view holds no copy of its text; Parquet lacks this type
#if ARROW_VERSION_MAJOR >= 16
  write_ipc(*table_of({{"text", array_of(arrow::StringViewBuilder(), std::vector<std::string>{"short", "longer than the twelve bytes that lie in the view"})}}),
            in("view.arrow"), false);
  check(records_of(in("view.arrow"))[1]["text"] == "longer than the twelve bytes that lie in the view", "a view must be text");
#endif

  write_ipc(*table_of({{"text", texts({"a"})}, {"text", texts({"b"})}}), in("twice.arrow"), false);
  check_refused(in("twice.arrow"), "columns must have different names; 'text' is there twice");
  write_ipc(*table_of({{"text", texts({"a"})}, {"wait", times<arrow::DurationBuilder>(arrow::duration(arrow::TimeUnit::SECOND), 3)->Slice(1)}}),
            in("duration.arrow"), true);
  check_refused(in("duration.arrow"), "column 'wait' must be of text, numbers");
  check_refused(in("duration.arrow"), "it is duration[s]");
  const std::vector<std::shared_ptr<arrow::Array>> two{texts({"a"}), texts({"b"})};
  const std::vector<std::shared_ptr<arrow::Field>> same{arrow::field("x", arrow::utf8()), arrow::field("x", arrow::utf8())};
  write_ipc(*table_of({{"pair", must(arrow::StructArray::Make(two, same))}}), in("struct.arrow"), false);
  check_refused(in("struct.arrow"), "column 'pair' must have fields of different names; 'x' is there twice");
  std::FILE* const cut = std::fopen(in("cut.parquet").c_str(), "w");
  std::fputs("PAR1 and nothing", cut);
  std::fclose(cut);
  check_refused(in("cut.parquet"), "must be readable");

  // Arrow's type for JSON text, alone and in a list, as datasets writes messages with differing members; members stay in order
  {
    const auto is_json = arrow::key_value_metadata({"ARROW:extension:name", "ARROW:extension:metadata"}, {"arrow.json", ""});
    const std::shared_ptr<arrow::Array> values = texts({R"({"role": "user", "content": "hi"})", R"({"role": "assistant", "calls": [{"b": 1, "a": null}]})"});
    const auto element = arrow::field("element", arrow::utf8(), true, is_json);
    const auto offsets = array_of(arrow::Int32Builder(), std::vector<std::int32_t>{0, 2})->Slice(0, 2);
    const std::shared_ptr<arrow::Array> messages = must(arrow::ListArray::FromArrays(arrow::list(element), *offsets, *values));
    const auto schema = arrow::schema({arrow::field("messages", arrow::list(element)), arrow::field("more", arrow::utf8(), true, is_json)});
    for (const char* name : {"json.parquet", "json.arrow", "json.ipc"}) {
      const auto table = arrow::Table::Make(schema, {messages, texts({R"("text")"})->Slice(0, 1)});
      if (std::string_view(name).ends_with(".parquet")) write_parquet(*table, in(name));
      else write_ipc(*table, in(name), std::string_view(name).ends_with(".ipc"));
      const auto formats = xtrain::arrow_record_formats();
      std::string found;
      xtrain::find_format(formats, in(name))->read(in(name), {}, [&](xtrain::source_record&& one) { found += one.json_text(); });
      const std::string right =
          R"({"messages": [{"role":"user","content":"hi"},{"role":"assistant","calls":[{"b":1,"a":null}]}], "more": "text"})";
      check(found == right, std::string(name) + ": must be " + right + "; it is " + found);
    }
    const auto broken = arrow::Table::Make(arrow::schema({arrow::field("more", arrow::utf8(), true, is_json)}), {texts({"{"})->Slice(0, 1)});
    write_parquet(*broken, in("broken_json.parquet"));
    check_refused(in("broken_json.parquet"), "row 1: JSON in a column: must be JSON");
  }

  // equal datasets from Parquet and from JSON Lines
  std::vector<std::string> values;
  std::string lines;
  for (int i = 0; i < 500; ++i) {
    values.push_back("text number " + std::to_string(i * 7919) + (i % 5 == 0 ? "\nwith a line\t\xE2\x82\xAC" : ""));
    lines += xtrain::json{{"text", values.back()}}.dump() + "\n";
  }
  arrow::StringBuilder builder;
  for (const std::string& value : values) must(builder.Append(value));
  write_parquet(*table_of({{"text", must(builder.Finish())}}), in("texts.parquet"));
  xtrain::write_file(in("texts.jsonl"), lines);
  const xtrain::tokenizer with = xtrain::byte_tokenizer();
  const auto handler = xtrain::make_record_handler("GeneralPretrain", with, {.append_eod = true});
  xtrain::preprocess_options options{.batch_bytes = 1000};
  options.formats = xtrain::record_formats();
  for (xtrain::record_format& one : xtrain::arrow_record_formats()) options.formats.push_back(std::move(one));
  for (const char* name : {"texts.parquet", "texts.jsonl"}) {
    options.output_prefix = in(name);
    (void)xtrain::preprocess_data({in(name)}, with, *handler, options);
  }
  for (const char* extension : {".bin", ".idx"}) {
    const xtrain::mapped_file a(in("texts.parquet_text_document") + extension), b(in("texts.jsonl_text_document") + extension);
    check(a.text() == b.text() && a.size() > 0, std::string("texts.parquet and texts.jsonl must become the same ") + extension);
  }
  if (failures == 0) std::printf("all records are right\n");
  return failures == 0 ? 0 : 1;
}
