// Pickles and ZIP archives byte by byte: torch.save's files, and malformed ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace pickled {

using namespace std::string_literals;

template <class Number>
std::string bytes_of(Number value) {
  std::string bytes(sizeof(Number), '\0');
  std::memcpy(bytes.data(), &value, sizeof(Number));
  return bytes;
}
template <class Number>
std::string bytes_of(const std::vector<Number>& values) {
  std::string bytes;
  for (const Number value : values) bytes += bytes_of(value);
  return bytes;
}

// Values, as pickle operations that push them.

inline std::string program(const std::string& operations) { return "\x80\x02" + operations + "."; }
inline std::string whole(std::int32_t value) { return "J" + bytes_of(value); }
inline std::string text(const std::string& value) { return "X" + bytes_of(static_cast<std::uint32_t>(value.size())) + value; }
inline std::string global(const std::string& module, const std::string& name) { return "c" + module + "\n" + name + "\n"; }
inline std::string joined(const std::vector<std::string>& items) {
  std::string all;
  for (const std::string& item : items) all += item;
  return all;
}
inline std::string tuple(const std::vector<std::string>& items) { return "(" + joined(items) + "t"; }
inline std::string tuple_of(const std::vector<std::int32_t>& values) {
  std::vector<std::string> items;
  for (const std::int32_t value : values) items.push_back(whole(value));
  return tuple(items);
}
inline std::string list(const std::vector<std::string>& items) { return "](" + joined(items) + "e"; }
inline std::string dictionary(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string all = "}(";
  for (const auto& [key, value] : members) all += text(key) + value;
  return all + "u";
}

// Tensors.

inline std::string storage(const std::string& type, const std::string& key, std::int32_t count, const std::string& view = "") {
  std::vector<std::string> items = {text("storage"), global("torch", type), text(key), text("cpu"), whole(count)};
  if (!view.empty()) items.push_back(view);
  return tuple(items) + "Q";
}
inline std::string tensor(const std::string& storage, std::int32_t offset, const std::vector<std::int32_t>& shape,
                          const std::vector<std::int32_t>& strides) {
  return global("torch._utils", "_rebuild_tensor_v2") +
         tuple({storage, whole(offset), tuple_of(shape), tuple_of(strides), "\x89", global("collections", "OrderedDict") + ")R"}) + "R";
}

// Archives.

struct zip_entry {
  std::string name{}, contents{};
  std::uint16_t method = 0, flags = 0;
  bool wide = false;  // sizes in a zip64 field
};

/// A central directory record, or a local header, which lacks the extra fields.
inline std::string zip_record(const zip_entry& e, const std::uint32_t* offset) {
  const auto size = static_cast<std::uint32_t>(e.contents.size());
  constexpr std::uint32_t elsewhere = 0xffffffffU;
  const bool wide = e.wide && offset != nullptr;
  const std::string extra = wide ? bytes_of<std::uint16_t>(1) + bytes_of<std::uint16_t>(24) + bytes_of<std::uint64_t>(size) +
                                       bytes_of<std::uint64_t>(size) + bytes_of<std::uint64_t>(*offset)
                                 : "";
  std::string record = offset != nullptr ? "PK\1\2" + bytes_of<std::uint16_t>(45) : "PK\3\4"s;
  record += bytes_of<std::uint16_t>(45) + bytes_of(e.flags) + bytes_of(e.method) + std::string(8, '\0');
  record += bytes_of(wide ? elsewhere : size) + bytes_of(wide ? elsewhere : size);
  record += bytes_of(static_cast<std::uint16_t>(e.name.size())) + bytes_of(static_cast<std::uint16_t>(extra.size()));
  if (offset != nullptr) record += std::string(10, '\0') + bytes_of(wide ? elsewhere : *offset);
  return record + e.name + extra;
}

/// An archive; `wide`: with a zip64 end record.
inline std::string zip(const std::vector<zip_entry>& entries, bool wide = false, const std::string& comment = "") {
  std::string file, directory;
  for (const zip_entry& e : entries) {
    const auto offset = static_cast<std::uint32_t>(file.size());
    file += zip_record(e, nullptr) + e.contents;
    directory += zip_record(e, &offset);
  }
  const std::uint64_t begin = file.size(), count = entries.size();
  file += directory;
  if (wide) {
    const std::uint64_t end = file.size();
    file += "PK\6\6" + bytes_of<std::uint64_t>(44) + std::string(12, '\0') + bytes_of(count) + bytes_of(count) +
            bytes_of<std::uint64_t>(directory.size()) + bytes_of(begin);
    file += "PK\6\7"s + std::string(4, '\0') + bytes_of(end) + bytes_of<std::uint32_t>(1);
  }
  const auto in_16 = [&](std::uint64_t value) { return bytes_of(wide ? std::uint16_t{0xffff} : static_cast<std::uint16_t>(value)); };
  const auto in_32 = [&](std::uint64_t value) { return bytes_of(wide ? 0xffffffffU : static_cast<std::uint32_t>(value)); };
  return file + "PK\5\6"s + std::string(4, '\0') + in_16(count) + in_16(count) + in_32(directory.size()) + in_32(begin) +
         bytes_of(static_cast<std::uint16_t>(comment.size())) + comment;
}

/// torch.save's file: pickle operations that push its value, and storages by key.
inline std::string archive(const std::string& value, const std::vector<std::pair<std::string, std::string>>& storages) {
  std::vector<zip_entry> entries = {{.name = "x/data.pkl", .contents = program(value)}, {.name = "x/byteorder", .contents = "little"}};
  for (const auto& [key, contents] : storages) entries.push_back({.name = "x/data/" + key, .contents = contents});
  return zip(entries);
}
/// torch.save's format before 1.6; each storage is preceded by its number of elements.
inline std::string legacy(const std::string& value, const std::vector<std::pair<std::string, std::string>>& storages,
                          const std::string& machine = "}(" + text("little_endian") + "\x88u") {
  std::vector<std::string> keys;
  std::string contents;
  for (const auto& [key, numbers] : storages) {
    keys.push_back(text(key));
    contents += numbers;
  }
  const std::string magic = program("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"), protocol = program("M\xe9\x03");
  return magic + protocol + program(machine) + program(value) + program(list(keys)) + contents;
}

}  // namespace pickled
