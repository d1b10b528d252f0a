// PyTorch files: .bin, .pt, .pth of torch.save (a ZIP archive; before 1.6: legacy).
//
//   archive   <top>/data.pkl describes tensors; <top>/data/<key>: a storage; <top>/byteorder, if present: "little"
//   legacy    five pickles (magic number, protocol version, system information, tensors, storage keys), then per key the number of elements in 8 bytes and
//             the elements
//
// A tensor is a view of a storage: offset, shape, strides. No code is executed: pickle.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/io/file_tensor.hpp>
#include <xtrain/io/pickle.hpp>
#include <xtrain/io/zip.hpp>

namespace xtrain {

namespace detail {

/// PyTorch's name and the file's.
struct torch_dtype {
  std::string_view torch, file;
};
inline constexpr std::array<torch_dtype, 13> torch_storages{{{"torch.FloatStorage", "F32"},
                                                              {"torch.DoubleStorage", "F64"},
                                                              {"torch.HalfStorage", "F16"},
                                                              {"torch.BFloat16Storage", "BF16"},
                                                              {"torch.LongStorage", "I64"},
                                                              {"torch.IntStorage", "I32"},
                                                              {"torch.ShortStorage", "I16"},
                                                              {"torch.CharStorage", "I8"},
                                                              {"torch.ByteStorage", "U8"},
                                                              {"torch.BoolStorage", "BOOL"},
                                                              {"torch.ComplexFloatStorage", "C64"},
                                                              {"torch.UntypedStorage", "U8"},
                                                              {"torch.storage.UntypedStorage", "U8"}}};
/// Dtypes of untyped storages, and others that a file may mention.
inline constexpr std::array<torch_dtype, 19> torch_types{{{"torch.float32", "F32"},
                                                           {"torch.float64", "F64"},
                                                           {"torch.float16", "F16"},
                                                           {"torch.bfloat16", "BF16"},
                                                           {"torch.int64", "I64"},
                                                           {"torch.int32", "I32"},
                                                           {"torch.int16", "I16"},
                                                           {"torch.int8", "I8"},
                                                           {"torch.uint8", "U8"},
                                                           {"torch.uint16", "U16"},
                                                           {"torch.uint32", "U32"},
                                                           {"torch.uint64", "U64"},
                                                           {"torch.bool", "BOOL"},
                                                           {"torch.complex64", "C64"},
                                                           {"torch.float8_e4m3fn", "F8_E4M3"},
                                                           {"torch.float8_e5m2", "F8_E5M2"},
                                                           {"torch.float8_e8m0fnu", "F8_E8M0"},
                                                           {"torch.float8_e4m3fnuz", "F8_E4M3FNUZ"},
                                                           {"torch.float8_e5m2fnuz", "F8_E5M2FNUZ"}}};
/// Rebuild tensors stored in the file.
inline constexpr std::array<std::string_view, 7> torch_rebuilds{
    "torch._utils._rebuild_tensor",         "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",      "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state", "torch._utils._rebuild_device_tensor_from_cpu_tensor",
    "torch._tensor._rebuild_from_type_v2"};
/// Rebuild other tensors; why they cannot be read.
struct torch_other_tensor {
  std::string_view function, why;
};
inline constexpr std::array<torch_other_tensor, 5> torch_other_tensors{
    {{"torch._utils._rebuild_meta_tensor_no_storage", "it is on the meta device, which holds no numbers"},
     {"torch._utils._rebuild_sparse_tensor", "it is sparse"},
     {"torch._utils._rebuild_qtensor", "it is quantized"},
     {"torch._utils._rebuild_wrapper_subclass", "it is of a subclass of torch.Tensor"},
     {"torch._utils._rebuild_device_tensor_from_numpy", "its numbers are numpy's"}}};
/// Allowed with tensors: as torch.load(weights_only=True), and an empty bytes object. Python 2's names of builtins are protocol 2's.
inline constexpr std::array<std::string_view, 15> torch_values{
    "collections.OrderedDict", "collections.Counter",  "torch.Size",         "torch.device",     "torch.serialization._get_layout",
    "torch.Tensor",            "torch.nn.parameter.Parameter", "_codecs.encode",     "__builtin__.bytes", "__builtin__.bytearray",
    "__builtin__.set",         "__builtin__.complex",  "builtins.bytearray", "builtins.set",     "builtins.complex"};
/// Of tensors that cannot be read.
inline constexpr std::array<std::string_view, 40> torch_unread_types{"torch.complex32",
                                                                      "torch.complex128",
                                                                      "torch.bcomplex32",
                                                                      "torch.float4_e2m1fn_x2",
                                                                      "torch.int1",
                                                                      "torch.int2",
                                                                      "torch.int3",
                                                                      "torch.int4",
                                                                      "torch.int5",
                                                                      "torch.int6",
                                                                      "torch.int7",
                                                                      "torch.uint1",
                                                                      "torch.uint2",
                                                                      "torch.uint3",
                                                                      "torch.uint4",
                                                                      "torch.uint5",
                                                                      "torch.uint6",
                                                                      "torch.uint7",
                                                                      "torch.bits1x8",
                                                                      "torch.bits2x4",
                                                                      "torch.bits4x2",
                                                                      "torch.bits8",
                                                                      "torch.bits16",
                                                                      "torch.qint8",
                                                                      "torch.qint32",
                                                                      "torch.quint8",
                                                                      "torch.quint4x2",
                                                                      "torch.quint2x4",
                                                                      "torch.per_tensor_affine",
                                                                      "torch.per_tensor_symmetric",
                                                                      "torch.per_channel_affine",
                                                                      "torch.per_channel_symmetric",
                                                                      "torch.per_channel_affine_float_qparams",
                                                                      "torch.ComplexDoubleStorage",
                                                                      "torch.QInt8Storage",
                                                                      "torch.QInt32Storage",
                                                                      "torch.QUInt8Storage",
                                                                      "torch.QUInt4x2Storage",
                                                                      "torch.QUInt2x4Storage",
                                                                      "torch.storage.TypedStorage"};

/// Allowed names.
inline constexpr auto torch_names = [] {
  std::array<std::string_view, torch_rebuilds.size() + torch_other_tensors.size() + torch_values.size() + torch_unread_types.size() +
                                   torch_storages.size() + torch_types.size()>
      names{};
  std::size_t next = 0;
  for (const std::string_view name : torch_rebuilds) names[next++] = name;
  for (const torch_other_tensor& other : torch_other_tensors) names[next++] = other.function;
  for (const std::string_view name : torch_values) names[next++] = name;
  for (const std::string_view name : torch_unread_types) names[next++] = name;
  for (const torch_dtype& known : torch_storages) names[next++] = known.torch;
  for (const torch_dtype& known : torch_types) names[next++] = known.torch;
  return names;
}();

}  // namespace detail

/// Tensors of a PyTorch file, inside their storages, which are inside the file.
///
/// A name is the path of keys or indices, joined by dots. The first member 'state_dict', 'model_state_dict', 'model' or 'module' of the outermost dictionary
/// that is a dictionary with tensors replaces the file; the rest (optimizer state) is ignored. A single tensor is 'tensor'.
class torch_file {
 public:
  static constexpr std::size_t deepest = 64, longest_name = 1000, max_tensors = std::size_t{1} << 20;

  /// Has a signature of torch.save.
  [[nodiscard]] static bool begins_as_one(std::string_view file) {
    return stored_zip::begins_as_one(file) || file.starts_with(legacy_magic);
  }

  /// throws file_error when the file is damaged, or contains anything except tensors, numbers and strings
  explicit torch_file(const std::string& path) : file_(path) {
    if (stored_zip::begins_as_one(file_.text())) read_archive();
    else read_legacy();
  }

  [[nodiscard]] const std::vector<file_tensor>& tensors() const { return tensors_; }
  [[nodiscard]] const file_tensor* find(std::string_view name) const {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : &tensors_[at->second];
  }
  [[nodiscard]] const std::string& path() const { return file_.path(); }

 private:
  using index = pickle::index;
  using kind = pickle::kind;

  /// PROTO 2, LONG1 of ten bytes: 0x1950a86a20f9469cfc6c, STOP.
  static constexpr std::string_view legacy_magic{"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15};

  /// As a pickle's reference describes it.
  struct storage {
    std::string_view key, dtype;
    std::uint64_t count = 0;       ///< elements
    std::string_view view_of{};    ///< legacy: key of the viewed storage
    std::uint64_t view_begin = 0;  ///< legacy: first element in it
  };

  template <class... Parts>
  void check(bool holds, const Parts&... parts) const {
    require<file_error>(holds, file_.path(), ": not a PyTorch file of tensors: ", parts...);
  }

  void read_archive() {
    const stored_zip archive(file_);
    constexpr std::string_view last = "/data.pkl";
    std::string_view top, description;
    for (const auto& [name, bytes] : archive.entries()) {
      if (!name.ends_with(last) || name.find('/') != name.size() - last.size()) continue;
      check(description.empty(), "it must hold one data.pkl; it holds several");
      top = name.substr(0, name.size() - last.size());
      description = bytes;
    }
    check(!description.empty(), "it must hold <name>/data.pkl; there is none");
    check(archive.find(concat(top, "/constants.pkl")) == nullptr, "it must hold tensors; it is a TorchScript program");
    if (const std::string_view* order = archive.find(concat(top, "/byteorder")))
      check(*order == "little", "its numbers must be little-endian; they are '", order->substr(0, 16), "'");
    const pickle values = read_pickle(description);
    collect(values, [&](const storage& from) {
      const std::string_view* bytes = archive.find(concat(top, "/data/", from.key));
      check(bytes != nullptr, "storage '", from.key, "' must be in the archive; it is missing");
      return *bytes;
    });
  }

  void read_legacy() {
    check(!file_.text().starts_with(git_lfs_pointer), "it is a pointer of Git LFS; the file itself comes with 'git lfs pull'");
    check(file_.text().starts_with(legacy_magic), "it must begin as torch.save begins files; it does not");
    std::size_t at = legacy_magic.size();
    const auto next = [&] {
      pickle values = read_pickle(file_.text().substr(at));
      at += values.bytes_read();
      return values;
    };
    const pickle protocol = next();
    check(protocol[protocol.root()].is == kind::whole && protocol[protocol.root()].number == 1001,
          "its protocol must be 1001; it is another");
    const pickle machine = next();
    check_machine(machine);
    const pickle values = next(), keys = next();

    std::map<std::string_view, storage> described;
    for (index i = 0; i < values.size(); ++i) {
      if (values[i].is != kind::reference) continue;
      const storage one = storage_of(values, i);
      const std::string_view owner = one.view_of.empty() ? one.key : one.view_of;
      described.emplace(owner, storage{.key = owner, .dtype = one.dtype, .count = one.count});
    }
    const pickle_value& list = keys[keys.root()];
    check(list.is == kind::list, "the storages' keys must be a list");
    std::map<std::string_view, std::string_view> storages;
    for (const index key : list.items) {
      const auto known = described.find(keys[key].text);
      check(known != described.end(), "storage '", keys[key].text, "' must belong to a tensor; it belongs to none");
      check(file_.size() - at >= 8, "storage '", keys[key].text, "' must lie inside the file. Is the file cut short?");
      std::uint64_t count = 0;
      std::memcpy(&count, file_.data() + at, 8);
      at += 8;
      const std::size_t width = bits_of(known->second.dtype) / 8;
      check(count <= (file_.size() - at) / width, "storage '", keys[key].text, "' must lie inside the file; it claims ", count,
            " numbers, ", file_.size() - at, " bytes are left. Is the file cut short?");
      storages.emplace(known->first, file_.text().substr(at, static_cast<std::size_t>(count) * width));
      at += static_cast<std::size_t>(count) * width;
    }
    check(at == file_.size(), "storages must fill the file; they end at ", at, " of ", file_.size(), " bytes");
    collect(values, [&](const storage& from) {
      const auto found = storages.find(from.view_of.empty() ? from.key : from.view_of);
      check(found != storages.end(), "storage '", from.key, "' must be in the file; it is missing");
      return found->second;
    });
  }

  [[nodiscard]] pickle read_pickle(std::string_view bytes) const {
    return {bytes, file_.path(), static_cast<std::size_t>(bytes.data() - file_.data()), detail::torch_names};
  }

  void check_machine(const pickle& machine) const {
    const pickle_value& members = machine[machine.root()];
    check(members.is == kind::dictionary, "the description of the machine must be a dictionary");
    for (std::size_t i = 0; i < members.items.size(); i += 2)
      if (machine[members.items[i]].text == "little_endian")
        check(machine[members.items[i + 1]].number == 1, "its numbers must be little-endian; they are not");
  }

  /// ('storage', type, key, device, count); legacy also None or (key of the viewed storage, begin, count).
  [[nodiscard]] storage storage_of(const pickle& values, index at) const {
    const pickle_value& name = values[values[at].items.front()];
    const auto item = [&](std::size_t i) -> const pickle_value& { return values[name.items[i]]; };
    check(values[at].is == kind::reference && name.is == kind::tuple && name.items.size() >= 5 && item(0).text == "storage" &&
              item(1).is == kind::global && item(2).is == kind::text && item(4).is == kind::whole && item(4).number >= 0,
          "a reference must be to a storage; one is to something else");
    storage one{.key = item(2).text, .dtype = {}, .count = static_cast<std::uint64_t>(item(4).number)};
    for (const detail::torch_dtype& known : detail::torch_storages)
      if (known.torch == item(1).text) one.dtype = known.file;
    check(!one.dtype.empty(), "storage '", one.key, "' must have a type of storage; it has '", item(1).text, "'");
    if (name.items.size() < 6 || item(5).is == kind::none) return one;
    const pickle_value& view = item(5);
    check(view.is == kind::tuple && view.items.size() == 3 && values[view.items[0]].is == kind::text &&
              values[view.items[1]].is == kind::whole && values[view.items[2]].is == kind::whole && values[view.items[1]].number >= 0 &&
              values[view.items[2]].number >= 0,
          "storage '", one.key, "' must be a whole one or a part of another; it is something else");
    one.view_of = values[view.items[0]].text;
    one.view_begin = static_cast<std::uint64_t>(values[view.items[1]].number);
    one.count = static_cast<std::uint64_t>(values[view.items[2]].number);
    return one;
  }

  /// A call that rebuilds a tensor; else null.
  [[nodiscard]] static const pickle_value* tensor_call(const pickle& values, index at) {
    const pickle_value& value = values[at];
    if (value.is != kind::call) return nullptr;
    const std::string_view function = values[value.items[0]].text;
    const bool rebuilds = function.starts_with("torch._utils._rebuild_") || function == "torch._tensor._rebuild_from_type_v2";
    return rebuilds ? &value : nullptr;
  }

  /// Wrappers: a parameter, a tensor with Python attributes, one moved from its device.
  template <class BytesOf>
  [[nodiscard]] file_tensor make_tensor(const pickle& values, const pickle_value& call, const std::string& name, const BytesOf& bytes_of,
                                        std::size_t depth = 0) const {
    const std::string_view function = values[call.items[0]].text;
    const std::vector<index>& arguments = values[call.items[1]].items;
    check(depth < deepest, "'", name, "': a tensor must be wrapped at most ", deepest, " times; it is more often");
    for (const detail::torch_other_tensor& other : detail::torch_other_tensors)
      check(function != other.function, "'", name, "': a tensor must have its numbers in the file, one behind the other; ", other.why);
    if (function == "torch._tensor._rebuild_from_type_v2") {  // (function, type, its arguments, attributes)
      const bool is_plain = arguments.size() == 4 && values[arguments[0]].is == kind::global && values[arguments[2]].is == kind::tuple &&
                            (values[arguments[1]].text == "torch.Tensor" || values[arguments[1]].text == "torch.nn.parameter.Parameter");
      check(is_plain, "'", name, "': a tensor with attributes must be of torch.Tensor or torch.nn.Parameter; it is of '",
            arguments.size() > 1 ? values[arguments[1]].text : "", "'");
      return make_tensor(values, {.is = kind::call, .items = {arguments[0], arguments[2]}}, name, bytes_of, depth + 1);
    }
    if (function.starts_with("torch._utils._rebuild_parameter") || function == "torch._utils._rebuild_device_tensor_from_cpu_tensor") {
      const pickle_value* inner = arguments.empty() ? nullptr : tensor_call(values, arguments[0]);
      check(inner != nullptr && !values[inner->items[0]].text.starts_with("torch._utils._rebuild_parameter"), "'", name,
            "': a parameter must be made of a tensor");
      file_tensor tensor = make_tensor(values, *inner, name, bytes_of, depth + 1);
      if (function == "torch._utils._rebuild_device_tensor_from_cpu_tensor") {
        const std::string_view type = arguments.size() > 1 ? values[arguments[1]].text : "";
        check(dtype_named(type) == tensor.dtype, "'", name, "': must have the dtype of its numbers, ", tensor.dtype, "; it has '", type, "'");
      }
      return tensor;
    }
    return make_plain_tensor(values, function, arguments, name, bytes_of);
  }

  /// The file's name of "torch.float32"; empty if unreadable.
  [[nodiscard]] static std::string_view dtype_named(std::string_view type) {
    for (const detail::torch_dtype& known : detail::torch_types)
      if (known.torch == type) return known.file;
    return {};
  }

  /// _rebuild_tensor_v2(storage, offset, shape, strides, …); v3: dtype as seventh argument.
  template <class BytesOf>
  [[nodiscard]] file_tensor make_plain_tensor(const pickle& values, std::string_view function, const std::vector<index>& arguments,
                                              const std::string& name, const BytesOf& bytes_of) const {
    const bool typed_apart = function == "torch._utils._rebuild_tensor_v3";
    check((typed_apart || function == "torch._utils._rebuild_tensor_v2" || function == "torch._utils._rebuild_tensor") &&
              arguments.size() >= (typed_apart ? 7U : 4U) &&
              values[arguments[0]].is == kind::reference && values[arguments[1]].is == kind::whole && values[arguments[1]].number >= 0,
          "'", name, "': a tensor must have a storage, an offset, a shape and strides");
    const storage from = storage_of(values, arguments[0]);
    file_tensor tensor{.name = name, .dtype = std::string(from.dtype)};
    if (typed_apart) {
      const std::string_view type = values[arguments[6]].text;
      tensor.dtype = dtype_named(type);
      check(!tensor.dtype.empty(), "'", name, "': must have a numeric dtype; it has '", type, "'");
    }
    if (const std::size_t last = typed_apart ? 7 : 6; arguments.size() > last)
      for (const char* view : {"neg", "conj"})
        check(!is_true(values, arguments[last], view), "'", name, "': must not be a negated or conjugated view, because its storage holds other numbers; '",
              view, "' is set. Save a copy: tensor.resolve_neg().resolve_conj()");
    const std::string_view bytes = bytes_of(from);
    place(tensor, numbers_of(values, arguments[2], name), numbers_of(values, arguments[3], name),
          static_cast<std::uint64_t>(values[arguments[1]].number), part_of(from, bytes));
    return tensor;
  }

  /// A shape or strides.
  [[nodiscard]] std::vector<std::size_t> numbers_of(const pickle& values, index at, const std::string& name) const {
    check(values[at].is == kind::tuple, "'", name, "': shape and strides must be tuples");
    std::vector<std::size_t> numbers;
    for (const index i : values[at].items) {
      check(values[i].is == kind::whole && values[i].number >= 0, "'", name, "': shape and strides must be whole numbers");
      numbers.push_back(static_cast<std::size_t>(values[i].number));
    }
    return numbers;
  }

  /// All bytes under its key, or a part.
  [[nodiscard]] std::span<const std::byte> part_of(const storage& from, std::string_view bytes) const {
    const std::uint64_t width = bits_of(from.dtype) / 8, all = bytes.size() / width;
    check(from.view_begin <= all && from.count <= all - from.view_begin, "storage '", from.key, "' must have ", from.count, " numbers of ",
          width, " bytes from number ", from.view_begin, " on; the file has ", bytes.size(), " bytes of it");
    return {reinterpret_cast<const std::byte*>(bytes.data()) + from.view_begin * width, static_cast<std::size_t>(from.count * width)};
  }

  /// Sets shape, bytes and layout in a storage.
  void place(file_tensor& tensor, std::vector<std::size_t> shape, const std::vector<std::size_t>& strides, std::uint64_t offset,
             std::span<const std::byte> storage_bytes) const {
    tensor.shape = std::move(shape);
    const std::span<const std::size_t> given(tensor.shape), steps(strides);
    check(given.size() == steps.size() && given.size() <= deepest, "'", tensor.name, "': must have a stride for every dim, and at most ",
          deepest, " dims; it has ", given.size(), " dims and ", steps.size(), " strides");
    const std::size_t width = bits_of(tensor.dtype) / 8, room = storage_bytes.size() / width;
    std::size_t count = 1, last = 0;  // number of elements, index of the last
    bool in_order = true, overflow = false, empty = false;
    for (std::size_t d = given.size(); d-- > 0;) {
      in_order = in_order && (given[d] == 1 || steps[d] == count);
      empty = empty || given[d] == 0;
      const std::size_t dim = std::max<std::size_t>(given[d], 1);  // an empty tensor's other dims must be valid
      std::size_t reach = 0;
      overflow = overflow || __builtin_mul_overflow(dim - 1, steps[d], &reach) || __builtin_add_overflow(last, reach, &last) ||
                 __builtin_mul_overflow(count, dim, &count);
    }
    check(!overflow, "'", tensor.name, "': shape ", given, " is larger than any file");
    if (empty) return;
    check(offset < room && last < room - offset, "'", tensor.name, "': must lie inside its storage of ", room, " numbers; shape ", given,
          " with strides ", steps, " from number ", offset, " on ends beyond it");
    check(count <= room, "'", tensor.name, "': must not hold numbers more than once; shape ", given, " is expanded from ", room,
          " numbers. Save a copy that is contiguous");
    tensor.bytes = storage_bytes.subspan(static_cast<std::size_t>(offset) * width, (last + 1) * width);
    if (in_order) return;
    for (std::size_t d = 0; d < given.size(); ++d)
      if (given[d] != 1) tensor.layout.push_back({given[d], steps[d]});
  }

  // Names.

  template <class BytesOf>
  void collect(const pickle& values, const BytesOf& bytes_of) {
    contents_.assign(values.size(), contents::unknown);
    index root = values.root();
    if (values[root].is == kind::dictionary) {
      for (const std::string_view wrapper : {"state_dict", "model_state_dict", "model", "module"}) {
        const std::optional<index> inner = member(values, root, wrapper);
        if (!inner || values[*inner].is != kind::dictionary || !holds_tensors(values, *inner, 0)) continue;
        root = *inner;
        break;
      }
    }
    std::string name;
    if (holds_tensors(values, root, 0)) collect_below(values, root, name, bytes_of);
    contents_ = {};
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      check(by_name_.emplace(tensors_[i].name, i).second, "tensor '", tensors_[i].name, "' must be there once; it is there twice");
  }

  [[nodiscard]] static std::optional<index> member(const pickle& values, index dictionary, std::string_view key) {
    const std::vector<index>& items = values[dictionary].items;
    for (std::size_t i = 0; i < items.size(); i += 2)
      if (values[items[i]].is == kind::text && values[items[i]].text == key) return items[i + 1];
    return {};
  }

  /// A dictionary with a value other than False for the key.
  [[nodiscard]] static bool is_true(const pickle& values, index at, std::string_view key) {
    const std::optional<index> found = values[at].is == kind::dictionary ? member(values, at, key) : std::nullopt;
    return found && !(values[*found].is == kind::truth && values[*found].number == 0);
  }

  [[nodiscard]] static bool is_container(const pickle_value& value) {
    return value.is == kind::dictionary || value.is == kind::list || value.is == kind::tuple;
  }

  /// Contains tensors at any depth; visits values once.
  bool holds_tensors(const pickle& values, index at, std::size_t depth) {
    const pickle_value& value = values[at];
    if (!is_container(value)) return tensor_call(values, at) != nullptr;
    check(contents_[at] != contents::being_looked_into, "its values must form a tree; one is a part of itself");
    if (contents_[at] != contents::unknown) return contents_[at] != contents::no_tensors;
    check(depth < deepest, "its values must be nested at most ", deepest, " deep; they are deeper");
    contents_[at] = contents::being_looked_into;
    bool any = false;
    for (std::size_t i = value.is == kind::dictionary ? 1 : 0; i < value.items.size(); i += value.is == kind::dictionary ? 2 : 1)
      any = holds_tensors(values, value.items[i], depth + 1) || any;
    contents_[at] = any ? contents::tensors : contents::no_tensors;
    return any;
  }

  /// Adds tensors below a value; `name`: its path, unchanged on return.
  template <class BytesOf>
  void collect_below(const pickle& values, index at, std::string& name, const BytesOf& bytes_of) {
    const pickle_value& value = values[at];
    if (const pickle_value* call = tensor_call(values, at)) {
      check(tensors_.size() < max_tensors, "it must hold at most ", max_tensors, " tensors; it holds more");
      tensors_.push_back(make_tensor(values, *call, name.empty() ? "tensor" : name, bytes_of));
      return;
    }
    check(contents_[at] != contents::collected, "'", name, "': tensors must be in one place; these are in two");
    contents_[at] = contents::collected;
    const bool keyed = value.is == kind::dictionary;
    const std::size_t length = name.size();
    for (std::size_t i = 0; i < value.items.size(); i += keyed ? 2 : 1) {
      const index inner = value.items[keyed ? i + 1 : i];
      if (!holds_tensors(values, inner, 0)) continue;
      if (length != 0) name += '.';
      name += keyed ? key_text(values[value.items[i]], name) : concat(i);
      check(name.size() <= longest_name, "a tensor's name must have at most ", longest_name, " bytes; it has more");
      collect_below(values, inner, name, bytes_of);
      name.resize(length);
    }
  }

  [[nodiscard]] std::string key_text(const pickle_value& key, const std::string& within) const {
    check(key.is == kind::text || key.is == kind::whole, "'", within, "': keys that lead to tensors must be texts or whole numbers");
    return key.is == kind::text ? std::string(key.text) : concat(key.number);
  }

  enum class contents : std::uint8_t { unknown, being_looked_into, no_tensors, tensors, collected };

  mapped_file file_;
  std::vector<file_tensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::vector<contents> contents_;  ///< per value, while names are assigned
};

}  // namespace xtrain
