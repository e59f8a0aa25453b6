// Internal to this folder: JSON that is taken strictly, and one description per type that both writes and reads it.
//
//   template <class F> void fields(F& f, Resize& x) { f("process_id", x.process_id); f("cols", x.cols); f("rows", x.rows); }
//
// With that, `to_json(x)` makes the object and `from_json(value, x, where)` fills it; a key that is missing or unknown, or a value of
// another type or out of range, is an error that names where it stands.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <fmt/format.h>
#include <boost/json.hpp>

#include <array>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace openshell::boundary::internal {

namespace json = boost::json;

/// UTF-8 JSON text without duplicate keys, nested at most 32 deep. InvalidArgument otherwise.
absl::StatusOr<json::value> parse_strict(std::string_view text);

/// Keys sorted by bytes, compact, only what must be escaped is escaped. What payload digests are taken over.
std::string canonical(const json::value& value);

/// `text` with every byte that is not part of valid UTF-8 replaced by U+FFFD: paths of a file system may be anything, JSON may not.
std::string valid_utf8(std::string_view text);

inline absl::Status wrong(std::string_view where, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", where, what));
}

class Writer;
class Reader;

template <class T>
concept Described = requires(Writer& w, T& x) {
  fields(w, x);
};
template <class T>
concept Named = std::is_enum_v<T> && requires(T x) {
  names_of(x);
};

template <class T>
json::value to_json(const T& x);
template <class T>
absl::Status from_json(const json::value& value, T& x, const std::string& where);

/// Fields that the reader may lack (ours, with a default). A missing one leaves the member as it is.
template <class T>
struct Optional {
  T& member;
};
template <class T>
Optional<T> optional_key(T& member) {
  return {member};
}

class Writer {
 public:
  explicit Writer(json::object& object) : object_{object} {}
  template <class T>
  void operator()(std::string_view key, T& x) {
    object_[key] = to_json(x);
  }
  template <class T>
  void operator()(std::string_view key, Optional<T> x) {
    object_[key] = to_json(x.member);
  }

 private:
  json::object& object_;
};

class Reader {
 public:
  Reader(const json::object& object, std::string where) : object_{object}, where_{std::move(where)} {}
  template <class T>
  void operator()(std::string_view key, T& x) {
    read(key, x, true);
  }
  template <class T>
  void operator()(std::string_view key, Optional<T> x) {
    read(key, x.member, false);
  }
  /// A key that the caller handles itself.
  void expect(std::string_view key) { known_.emplace_back(key); }
  absl::Status finish() const;

 private:
  template <class T>
  void read(std::string_view key, T& x, bool required) {
    known_.emplace_back(key);
    if (!status_.ok()) return;
    const json::value* value = object_.if_contains(key);
    const std::string place = fmt::format("{}.{}", where_, key);
    if (value == nullptr) {
      if (required) status_ = wrong(place, "missing");
      return;
    }
    status_ = from_json(*value, x, place);
  }

  const json::object& object_;
  std::string where_;
  std::vector<std::string_view> known_;
  absl::Status status_;
};

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsMap : std::false_type {};
template <class T>
struct IsMap<std::map<std::string, T>> : std::true_type {};
using StringPair = std::pair<std::string, std::string>;

template <class T>
json::value to_json(const T& x) {
  if constexpr (std::is_same_v<T, std::string>) {
    return json::value(valid_utf8(x));
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, double>) {
    return json::value(x);
  } else if constexpr (Named<T>) {
    return json::value(names_of(x)[static_cast<std::size_t>(x)]);
  } else if constexpr (std::is_unsigned_v<T>) {
    return json::value(static_cast<std::uint64_t>(x));
  } else if constexpr (std::is_integral_v<T>) {
    return json::value(static_cast<std::int64_t>(x));
  } else if constexpr (IsOptional<T>::value) {
    return x ? to_json(*x) : json::value(nullptr);
  } else if constexpr (IsVector<T>::value) {
    json::array array;
    array.reserve(x.size());
    for (const auto& item : x) array.push_back(to_json(item));
    return array;
  } else if constexpr (IsMap<T>::value) {
    json::object object;
    for (const auto& [key, item] : x) object[valid_utf8(key)] = to_json(item);
    return object;
  } else if constexpr (std::is_same_v<T, StringPair>) {
    return json::array{valid_utf8(x.first), valid_utf8(x.second)};
  } else if constexpr (requires { encode_json(x); }) {
    return encode_json(x);
  } else {
    static_assert(Described<T>);
    json::object object;
    Writer writer{object};
    fields(writer, const_cast<T&>(x));  // one description serves both directions; the writer only reads
    return object;
  }
}

template <class T>
absl::Status read_integer(const json::value& value, T& x, const std::string& where) {
  // A double is refused even where it is whole: a u64 that once was one has lost digits.
  if (value.is_uint64() || (value.is_int64() && value.get_int64() >= 0)) {
    const std::uint64_t n = value.is_uint64() ? value.get_uint64() : static_cast<std::uint64_t>(value.get_int64());
    if (n > static_cast<std::uint64_t>(std::numeric_limits<T>::max())) return wrong(where, "number out of range");
    x = static_cast<T>(n);
    return absl::OkStatus();
  }
  if (value.is_int64() && std::is_signed_v<T>) {
    const std::int64_t n = value.get_int64();
    if (n < static_cast<std::int64_t>(std::numeric_limits<T>::min())) return wrong(where, "number out of range");
    x = static_cast<T>(n);
    return absl::OkStatus();
  }
  return wrong(where, "not a whole number in range");
}

template <class T>
absl::Status from_json(const json::value& value, T& x, const std::string& where) {
  if constexpr (std::is_same_v<T, std::string>) {
    if (!value.is_string()) return wrong(where, "not a string");
    x.assign(value.get_string().data(), value.get_string().size());
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!value.is_bool()) return wrong(where, "not a boolean");
    x = value.get_bool();
  } else if constexpr (std::is_same_v<T, double>) {
    if (!value.is_number()) return wrong(where, "not a number");
    x = value.to_number<double>();
  } else if constexpr (Named<T>) {
    if (!value.is_string()) return wrong(where, "not a string");
    const auto& names = names_of(x);
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == std::string_view{value.get_string().data(), value.get_string().size()}) {
        x = static_cast<T>(i);
        return absl::OkStatus();
      }
    }
    return wrong(where, "unknown value");
  } else if constexpr (std::is_integral_v<T>) {
    return read_integer(value, x, where);
  } else if constexpr (IsOptional<T>::value) {
    if (value.is_null()) {
      x.reset();
      return absl::OkStatus();
    }
    return from_json(value, x.emplace(), where);
  } else if constexpr (IsVector<T>::value) {
    if (!value.is_array()) return wrong(where, "not an array");
    x.clear();
    x.reserve(value.get_array().size());
    for (const auto& item : value.get_array()) {
      if (auto s = from_json(item, x.emplace_back(), where); !s.ok()) return s;
    }
  } else if constexpr (IsMap<T>::value) {
    if (!value.is_object()) return wrong(where, "not an object");
    x.clear();
    for (const auto& member : value.get_object()) {
      if (auto s = from_json(member.value(), x[std::string(member.key())], where); !s.ok()) return s;
    }
  } else if constexpr (std::is_same_v<T, StringPair>) {
    if (!value.is_array() || value.get_array().size() != 2 || !value.get_array()[0].is_string() || !value.get_array()[1].is_string()) {
      return wrong(where, "not a pair of strings");
    }
    x = {std::string(value.get_array()[0].get_string()), std::string(value.get_array()[1].get_string())};
  } else if constexpr (requires { decode_json(value, x, where); }) {
    return decode_json(value, x, where);
  } else {
    static_assert(Described<T>);
    if (!value.is_object()) return wrong(where, "not an object");
    Reader reader{value.get_object(), where};
    fields(reader, x);
    return reader.finish();
  }
  return absl::OkStatus();
}

}  // namespace openshell::boundary::internal
