// Records of Parquet, Arrow IPC and Feather files by Apache Arrow. Component 'parquet'; no other header includes this one.
#pragma once

#if !__has_include(<arrow/api.h>)
#error "xtrain parquet: Apache Arrow's C++ library must be found; link xtrain::parquet"
#endif

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <parquet/arrow/reader.h>
#include <parquet/properties.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/data/record_source.hpp>

namespace xtrain {

namespace detail {

inline void add_digits(std::string& to, std::int64_t value) {
  to += static_cast<char>('0' + value / 10 % 10);
  to += static_cast<char>('0' + value % 10);
}
/// "2024-02-29" from days since 1970-01-01.
///   throws  data_error unless the year is 1 to 9999
[[nodiscard]] inline std::string iso_date(std::int64_t days) {
  require<data_error>(days >= -719162 && days <= 2932896, "a date must be in the years 1 to 9999; it is ", days, " days from 1970-01-01");
  const std::chrono::year_month_day date{std::chrono::sys_days{std::chrono::days{days}}};
  const int year = static_cast<int>(date.year());
  std::string text;
  add_digits(text, year / 100);
  add_digits(text, year);
  text += '-';
  add_digits(text, static_cast<unsigned>(date.month()));
  text += '-';
  add_digits(text, static_cast<unsigned>(date.day()));
  return text;
}
/// "12:30:05" with six or nine decimals if needed, as Python's isoformat().
[[nodiscard]] inline std::string iso_time(std::int64_t value, arrow::TimeUnit::type unit) {
  constexpr std::array<std::int64_t, 4> per_second{1, 1000, 1000000, 1000000000};
  const std::int64_t parts = per_second[static_cast<std::size_t>(unit)], seconds = value / parts, nanoseconds = value % parts * (1000000000 / parts);
  std::string text;
  add_digits(text, seconds / 3600);
  text += ':';
  add_digits(text, seconds / 60 % 60);
  text += ':';
  add_digits(text, seconds % 60);
  if (nanoseconds == 0) return text;
  const std::string digits = std::to_string(1000000000 + nanoseconds);
  return text + "." + digits.substr(1, nanoseconds % 1000 == 0 ? 6 : 9);
}
/// "2024-02-29T12:30:05", with "+00:00" if the column has a time zone (times are in UTC).
[[nodiscard]] inline std::string iso_timestamp(std::int64_t value, const arrow::TimestampType& type) {
  constexpr std::array<std::int64_t, 4> per_second{1, 1000, 1000000, 1000000000};
  const std::int64_t day = 86400 * per_second[static_cast<std::size_t>(type.unit())];
  const std::int64_t within = ((value % day) + day) % day;
  return concat(iso_date(value / day - (value % day < 0 ? 1 : 0)), "T", iso_time(within, type.unit()), type.timezone().empty() ? "" : "+00:00");
}

/// Arrow's extension type for JSON text, in which Hugging Face's datasets store values of several types.
[[nodiscard]] inline bool is_json_text(const arrow::DataType& type) {
  return type.id() == arrow::Type::EXTENSION && static_cast<const arrow::ExtensionType&>(type).extension_name() == "arrow.json";
}
/// An older Arrow, without the type, has text with the type's name in metadata.
[[nodiscard]] inline bool is_json_text(const arrow::Field& field) {
  if (is_json_text(*field.type())) return true;
  if (field.metadata() == nullptr) return false;
  const auto name = field.metadata()->Get("ARROW:extension:name");
  return name.ok() && *name == "arrow.json";
}

/// The type must have a JSON form.
///   throws  config_error with file, column and type
inline void require_json_type(const arrow::DataType& type, const std::string& path, const std::string& column) {
  const auto names_differ = [&] {
    std::set<std::string> names;
    for (int f = 0; f < type.num_fields(); ++f)
      require<config_error>(names.insert(type.field(f)->name()).second, path, ": column '", column, "' must have fields of different names; '",
                            type.field(f)->name(), "' is there twice, in ", type.ToString());
  };
  switch (type.id()) {
    case arrow::Type::NA:
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_BINARY:
#if ARROW_VERSION_MAJOR >= 16
    case arrow::Type::STRING_VIEW:
    case arrow::Type::BINARY_VIEW:
#endif
    case arrow::Type::BOOL:
    case arrow::Type::INT8:
    case arrow::Type::INT16:
    case arrow::Type::INT32:
    case arrow::Type::INT64:
    case arrow::Type::UINT8:
    case arrow::Type::UINT16:
    case arrow::Type::UINT32:
    case arrow::Type::UINT64:
    case arrow::Type::HALF_FLOAT:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
    case arrow::Type::DECIMAL128:
    case arrow::Type::DECIMAL256:
    case arrow::Type::DATE32:
    case arrow::Type::DATE64:
    case arrow::Type::TIME32:
    case arrow::Type::TIME64:
    case arrow::Type::TIMESTAMP:
      return;
    case arrow::Type::MAP:
      require<config_error>(static_cast<const arrow::MapType&>(type).key_type()->id() == arrow::Type::STRING, path, ": column '", column,
                            "' must have strings as keys of its map; it is ", type.ToString());
      return require_json_type(*static_cast<const arrow::MapType&>(type).item_type(), path, column);
    case arrow::Type::STRUCT:
      names_differ();
      [[fallthrough]];
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::FIXED_SIZE_LIST:
#if ARROW_VERSION_MAJOR >= 16
    case arrow::Type::LIST_VIEW:
    case arrow::Type::LARGE_LIST_VIEW:
#endif
      for (int f = 0; f < type.num_fields(); ++f) require_json_type(*type.field(f)->type(), path, column);
      return;
    case arrow::Type::DICTIONARY:
      return require_json_type(*static_cast<const arrow::DictionaryType&>(type).value_type(), path, column);
    case arrow::Type::EXTENSION:
      if (is_json_text(type)) return require_json_type(*static_cast<const arrow::ExtensionType&>(type).storage_type(), path, column);
      [[fallthrough]];
    default:
      fail<config_error>(path, ": column '", column,
                         "' must be of text, numbers, truth values, dates, times, lists, structs or maps, which have a form in JSON; it is ", type.ToString(),
                         ". Write the file again without it");
  }
}
/// For all columns, whose names must differ.
inline void require_json_columns(const arrow::Schema& schema, const std::string& path) {
  std::set<std::string> names;
  for (const auto& field : schema.fields()) {
    require<config_error>(names.insert(field->name()).second, path, ": columns must have different names; '", field->name(), "' is there twice");
    require_json_type(*field->type(), path, field->name());
  }
}

/// Members in file order, in which templates write them.
using ordered_json = nlohmann::ordered_json;

[[nodiscard]] inline ordered_json json_of_text(std::string_view text) {
  (void)parse_json<data_error>(text, "JSON in a column");
  return ordered_json::parse(text.begin(), text.end());
}

/// A column's value as JSON: maps become objects, dates and times ISO 8601, decimals text, JSON text its content, missing values null.
///   is_json  the text is JSON
///   throws   data_error for a map with a repeated key, and for invalid JSON text
inline ordered_json arrow_value(const arrow::Array& column, std::int64_t row, bool is_json = false) {
  if (column.IsNull(row)) return {};
  if (is_json && column.type_id() != arrow::Type::EXTENSION) {
    const ordered_json text = arrow_value(column, row);
    require<data_error>(text.is_string(), "JSON in a column must be text; it is ", column.type()->ToString());
    return json_of_text(text.get_ref<const std::string&>());
  }
  const auto texts = [&]<class Type>(std::type_identity<Type>) {
    const std::string_view text = static_cast<const typename arrow::TypeTraits<Type>::ArrayType&>(column).GetView(row);
    return ordered_json(std::string(text));
  };
  const auto value = [&]<class Type>(std::type_identity<Type>) {
    return static_cast<const typename arrow::TypeTraits<Type>::ArrayType&>(column).Value(row);
  };
  const auto number = [&]<class Type>(std::type_identity<Type> type) { return ordered_json(value(type)); };
  const auto items = [&]<class Type>(std::type_identity<Type>) {
    const auto& list = static_cast<const typename arrow::TypeTraits<Type>::ArrayType&>(column);
    ordered_json all = ordered_json::array();
    const std::int64_t first = list.value_offset(row), count = list.value_length(row);
    const bool holds_json = is_json_text(*column.type()->field(0));
    for (std::int64_t i = first; i < first + count; ++i) all.push_back(arrow_value(*list.values(), i, holds_json));
    return all;
  };
  switch (column.type_id()) {
    case arrow::Type::STRING:
      return texts(std::type_identity<arrow::StringType>{});
    case arrow::Type::LARGE_STRING:
      return texts(std::type_identity<arrow::LargeStringType>{});
    case arrow::Type::BINARY:
      return texts(std::type_identity<arrow::BinaryType>{});
    case arrow::Type::LARGE_BINARY:
      return texts(std::type_identity<arrow::LargeBinaryType>{});
#if ARROW_VERSION_MAJOR >= 16
    case arrow::Type::STRING_VIEW:
      return texts(std::type_identity<arrow::StringViewType>{});
    case arrow::Type::BINARY_VIEW:
      return texts(std::type_identity<arrow::BinaryViewType>{});
#endif
    case arrow::Type::BOOL:
      return number(std::type_identity<arrow::BooleanType>{});
    case arrow::Type::INT8:
      return number(std::type_identity<arrow::Int8Type>{});
    case arrow::Type::INT16:
      return number(std::type_identity<arrow::Int16Type>{});
    case arrow::Type::INT32:
      return number(std::type_identity<arrow::Int32Type>{});
    case arrow::Type::INT64:
      return number(std::type_identity<arrow::Int64Type>{});
    case arrow::Type::UINT8:
      return number(std::type_identity<arrow::UInt8Type>{});
    case arrow::Type::UINT16:
      return number(std::type_identity<arrow::UInt16Type>{});
    case arrow::Type::UINT32:
      return number(std::type_identity<arrow::UInt32Type>{});
    case arrow::Type::UINT64:
      return number(std::type_identity<arrow::UInt64Type>{});
    case arrow::Type::HALF_FLOAT:
      return static_cast<float>(fp16::from_bits(value(std::type_identity<arrow::HalfFloatType>{})));
    case arrow::Type::FLOAT:
      return number(std::type_identity<arrow::FloatType>{});
    case arrow::Type::DOUBLE:
      return number(std::type_identity<arrow::DoubleType>{});
    case arrow::Type::DECIMAL128:
      return static_cast<const arrow::Decimal128Array&>(column).FormatValue(row);
    case arrow::Type::DECIMAL256:
      return static_cast<const arrow::Decimal256Array&>(column).FormatValue(row);
    case arrow::Type::DATE32:
      return iso_date(value(std::type_identity<arrow::Date32Type>{}));
    case arrow::Type::DATE64: {
      const std::int64_t milliseconds = value(std::type_identity<arrow::Date64Type>{});
      return iso_date(milliseconds / 86400000 - (milliseconds % 86400000 < 0 ? 1 : 0));
    }
    case arrow::Type::TIME32:
      return iso_time(value(std::type_identity<arrow::Time32Type>{}), static_cast<const arrow::Time32Type&>(*column.type()).unit());
    case arrow::Type::TIME64:
      return iso_time(value(std::type_identity<arrow::Time64Type>{}), static_cast<const arrow::Time64Type&>(*column.type()).unit());
    case arrow::Type::TIMESTAMP:
      return iso_timestamp(value(std::type_identity<arrow::TimestampType>{}), static_cast<const arrow::TimestampType&>(*column.type()));
    case arrow::Type::LIST:
      return items(std::type_identity<arrow::ListType>{});
    case arrow::Type::LARGE_LIST:
      return items(std::type_identity<arrow::LargeListType>{});
    case arrow::Type::FIXED_SIZE_LIST:
      return items(std::type_identity<arrow::FixedSizeListType>{});
#if ARROW_VERSION_MAJOR >= 16
    case arrow::Type::LIST_VIEW:
      return items(std::type_identity<arrow::ListViewType>{});
    case arrow::Type::LARGE_LIST_VIEW:
      return items(std::type_identity<arrow::LargeListViewType>{});
#endif
    case arrow::Type::STRUCT: {
      const auto& fields = static_cast<const arrow::StructArray&>(column);
      ordered_json all = ordered_json::object();
      for (int f = 0; f < fields.num_fields(); ++f)
        all[fields.type()->field(f)->name()] = arrow_value(*fields.field(f), row, is_json_text(*fields.type()->field(f)));
      return all;
    }
    case arrow::Type::MAP: {
      const auto& map = static_cast<const arrow::MapArray&>(column);
      ordered_json all = ordered_json::object();
      const bool holds_json = is_json_text(*static_cast<const arrow::MapType&>(*map.type()).item_field());
      for (std::int64_t i = map.value_offset(row); i < map.value_offset(row) + map.value_length(row); ++i) {
        const std::string key(static_cast<const arrow::StringArray&>(*map.keys()).GetView(i));
        require<data_error>(!all.contains(key), "keys of a map must differ; '", key, "' is there twice");
        all[key] = arrow_value(*map.items(), i, holds_json);
      }
      return all;
    }
    case arrow::Type::DICTIONARY: {
      const auto& indices = static_cast<const arrow::DictionaryArray&>(column);
      return arrow_value(*indices.dictionary(), indices.GetValueIndex(row));
    }
    case arrow::Type::EXTENSION:
      if (is_json_text(*column.type())) return arrow_value(*static_cast<const arrow::ExtensionArray&>(column).storage(), row, true);
      [[fallthrough]];
    default:
      fail<data_error>("a value of ", column.type()->ToString(), " must have a form in JSON; it has none");
  }
}

inline void check_arrow(const arrow::Status& status, const std::string& path) {
  require<file_error>(status.ok(), path, ": must be readable; ", status.ToString());
}
template <class T>
T arrow_result(arrow::Result<T> result, const std::string& path) {
  check_arrow(result.status(), path);
  return std::move(result).ValueUnsafe();
}

/// All rows of a file; older Arrow returns them through a pointer.
template <class Reader>
std::unique_ptr<arrow::RecordBatchReader> batches_of(Reader& reader, const std::string& path) {
  if constexpr (requires { reader.GetRecordBatchReader().ok(); }) {
    return arrow_result(reader.GetRecordBatchReader(), path);
  } else {
    std::unique_ptr<arrow::RecordBatchReader> batches;
    check_arrow(reader.GetRecordBatchReader(&batches), path);
    return batches;
  }
}

/// Stores a field as text, unless it is not UTF-8.
inline void add_in_order(std::map<std::string, std::string>& to, const std::string& name, const ordered_json& value) {
  try {
    to[name] = value.dump();
  } catch (const ordered_json::exception&) {
    return;
  }
}

inline void visit_rows(const arrow::RecordBatch& batch, const std::string& path, std::size_t& row, const record_visitor& visit) {
  const arrow::Schema& schema = *batch.schema();
  for (std::int64_t i = 0; i < batch.num_rows(); ++i) {
    source_record one{.text = {}, .fields = json::object(), .place = {&path, ++row, true}};
    try {
      for (int c = 0; c < batch.num_columns(); ++c) {
        ordered_json value = arrow_value(*batch.column(c), i, is_json_text(*schema.field(c)));
        if (value.is_structured()) add_in_order(one.in_order, batch.column_name(c), value);
        one.fields[batch.column_name(c)] = std::move(value);
      }
    } catch (const data_error& problem) {
      fail<data_error>(path, ": row ", row, ": ", problem.what());
    }
    visit(std::move(one));
  }
}

}  // namespace detail

/// Rows of a Parquet file. Memory: some pages per column, a thousand rows.
///   throws  file_error if damaged; config_error for a repeated column or a type without JSON form
inline void read_parquet_records(const std::string& path, const record_visitor& visit) {
  using detail::check_arrow, detail::arrow_result;
  std::unique_ptr<parquet::arrow::FileReader> reader;
  std::size_t row = 0;
  try {
    auto file = arrow_result(arrow::io::ReadableFile::Open(path), path);
    parquet::ReaderProperties properties;
    properties.enable_buffered_stream();  // pages, not entire row groups
    parquet::ArrowReaderProperties rows;
    rows.set_batch_size(1024);
    rows.set_pre_buffer(false);
    rows.set_use_threads(false);
    const auto know_extensions = [](auto& one) {  // columns that the file marks as JSON; older Arrow lacks this
      if constexpr (requires { one.set_arrow_extensions_enabled(true); }) one.set_arrow_extensions_enabled(true);
    };
    know_extensions(rows);
    parquet::arrow::FileReaderBuilder builder;
    check_arrow(builder.Open(std::move(file), properties), path);
    builder.properties(rows);
    check_arrow(builder.Build(&reader), path);
    const auto batches = detail::batches_of(*reader, path);
    detail::require_json_columns(*batches->schema(), path);
    for (std::shared_ptr<arrow::RecordBatch> batch; check_arrow(batches->ReadNext(&batch), path), batch != nullptr;)
      detail::visit_rows(*batch, path, row, visit);
  } catch (const parquet::ParquetException& problem) {
    fail<file_error>(path, ": must be a whole Parquet file; ", problem.what());
  }
}

/// Rows of an Arrow file: IPC file format (Feather version 2), or the stream format of Hugging Face's caches.
///   throws  file_error if damaged or Feather version 1; config_error as read_parquet_records
inline void read_arrow_records(const std::string& path, const record_visitor& visit) {
  using detail::check_arrow, detail::arrow_result;
  const auto file = arrow_result(arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ), path);
  const auto magic = arrow_result(file->ReadAt(0, 6), path)->ToString();
  require<file_error>(!magic.starts_with("FEA1"), path,
                      ": must be an Arrow IPC file; this is Feather version 1: write it again as version 2");
  std::size_t row = 0;
  if (magic == "ARROW1") {
    const auto reader = arrow_result(arrow::ipc::RecordBatchFileReader::Open(file), path);
    detail::require_json_columns(*reader->schema(), path);
    for (int i = 0; i < reader->num_record_batches(); ++i)
      detail::visit_rows(*arrow_result(reader->ReadRecordBatch(i), path), path, row, visit);
    return;
  }
  const auto reader = arrow_result(arrow::ipc::RecordBatchStreamReader::Open(file), path);
  detail::require_json_columns(*reader->schema(), path);
  for (std::shared_ptr<arrow::RecordBatch> batch; check_arrow(reader->ReadNext(&batch), path), batch != nullptr;)
    detail::visit_rows(*batch, path, row, visit);
}

/// For preprocess_options.formats, after record_formats().
[[nodiscard]] inline std::vector<record_format> arrow_record_formats() {
  return {{"parquet",
           {".parquet"},
           [](const std::string& path, const record_options&, const record_visitor& visit) { read_parquet_records(path, visit); }},
          {"arrow", {".arrow", ".feather", ".ipc"}, [](const std::string& path, const record_options&, const record_visitor& visit) {
             read_arrow_records(path, visit);
           }}};
}

}  // namespace xtrain
