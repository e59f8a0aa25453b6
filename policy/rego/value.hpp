// The values of the Rego language: JSON and sets, with the total order that the language gives them.
//
// A Value has 16 bytes. Null, booleans, integers of 64 bits and strings of up to 14 bytes live in it; the rest is a counted reference to a
// part that never changes once it is shared. The count is not atomic: a Value and all that can be reached from it belong to one thread at a
// time. Sets and objects are kept sorted, so visiting them in the language's order costs nothing and a look-up is a binary search.
#pragma once

#include <absl/status/statusor.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace openshell::policy::rego {

/// In the order in which values of different kinds sort. `undefined` is no value of the language: it stands for the absence of one.
enum class Kind : std::uint8_t { undefined, null, boolean, number, string, array, object, set };

/// The name `type_name` gives a kind: "null", "boolean", "number", "string", "array", "object", "set".
std::string_view kind_name(Kind kind);

/// Levels of nesting that JSON text may have.
inline constexpr int kMaxJsonNesting = 1000;

struct Member;
class Number;

class Value {
 public:
  Value() noexcept : raw_{} {}  ///< Undefined.
  Value(const Value& other) noexcept : raw_{other.raw_[0], other.raw_[1]} {
    if (on_heap()) ++heap()->references;
  }
  Value(Value&& other) noexcept : raw_{other.raw_[0], other.raw_[1]} { other.raw_[0] = other.raw_[1] = 0; }
  Value& operator=(const Value& other) noexcept {
    if (other.on_heap()) ++other.heap()->references;
    drop();
    raw_[0] = other.raw_[0];
    raw_[1] = other.raw_[1];
    return *this;
  }
  Value& operator=(Value&& other) noexcept {
    if (this != &other) {
      drop();
      raw_[0] = std::exchange(other.raw_[0], 0);
      raw_[1] = std::exchange(other.raw_[1], 0);
    }
    return *this;
  }
  ~Value() { drop(); }

  static Value null() noexcept { return Value(Tag::null, Word{0}); }
  static Value boolean(bool value) noexcept { return Value(Tag::boolean, Word{value ? 1ULL : 0ULL}); }
  static Value integer(std::int64_t value) noexcept { return Value(Tag::integer, Word{static_cast<std::uint64_t>(value)}); }
  /// A number from its JSON text, which is kept for output. Undefined where the text is no JSON number. See number.hpp for arithmetic.
  static Value number(std::string_view json_text);
  static Value string(std::string_view bytes);
  static Value array(std::vector<Value> items);
  /// Sorts and drops what is equal.
  static Value set(std::vector<Value> items);
  /// The items are known to be sorted and different.
  static Value sorted_set(std::vector<Value> items);
  /// Sorts by key; of equal keys the last one stays.
  static Value object(std::vector<Member> members);
  /// The members are known to be sorted by key, with different keys.
  static Value sorted_object(std::vector<Member> members);

  [[nodiscard]] Kind kind() const noexcept { return kKinds[static_cast<std::size_t>(tag())]; }
  [[nodiscard]] bool is_defined() const noexcept { return tag() != Tag::undefined; }
  [[nodiscard]] bool is_null() const noexcept { return tag() == Tag::null; }
  [[nodiscard]] bool is_boolean() const noexcept { return tag() == Tag::boolean; }
  [[nodiscard]] bool is_true() const noexcept { return tag() == Tag::boolean && raw_[0] != 0; }
  [[nodiscard]] bool is_false() const noexcept { return tag() == Tag::boolean && raw_[0] == 0; }
  [[nodiscard]] bool is_number() const noexcept { return tag() == Tag::integer || tag() == Tag::number; }
  [[nodiscard]] bool is_string() const noexcept { return tag() == Tag::short_string || tag() == Tag::string; }
  [[nodiscard]] bool is_array() const noexcept { return tag() == Tag::array; }
  [[nodiscard]] bool is_object() const noexcept { return tag() == Tag::object; }
  [[nodiscard]] bool is_set() const noexcept { return tag() == Tag::set; }
  [[nodiscard]] bool is_collection() const noexcept { return tag() >= Tag::array; }

  /// The integer, where the number is one of 64 bits in whatever spelling (`1.0` and `1e2` too).
  [[nodiscard]] std::optional<std::int64_t> as_integer() const noexcept;
  /// True where the number is held as an integer of 64 bits: the fast way.
  [[nodiscard]] bool is_small_integer() const noexcept { return tag() == Tag::integer; }
  [[nodiscard]] std::int64_t small_integer() const noexcept { return static_cast<std::int64_t>(raw_[0]); }
  /// A number that is no small integer. Precondition: is_number() and not is_small_integer().
  [[nodiscard]] const Number& large_number() const noexcept;
  /// The bytes of a string; valid while this very Value lives and is not assigned.
  [[nodiscard]] std::string_view text() const noexcept;
  /// Elements of an array or a set, in order. Empty for everything else.
  [[nodiscard]] std::span<const Value> items() const noexcept;
  /// Members of an object in order of their keys. Empty for everything else.
  [[nodiscard]] std::span<const Member> members() const noexcept;
  /// Number of elements or members; 0 for what is no collection. (Of a string: see text().)
  [[nodiscard]] std::size_t size() const noexcept;

  /// Member of an object, element of an array by integer, element of a set by itself. Null where there is none.
  [[nodiscard]] const Value* find(const Value& key) const noexcept;
  [[nodiscard]] const Value* find(std::string_view key) const noexcept;

  friend std::strong_ordering operator<=>(const Value& a, const Value& b) noexcept {
    const int order = compare(a, b);
    return order < 0 ? std::strong_ordering::less : order > 0 ? std::strong_ordering::greater : std::strong_ordering::equal;
  }
  friend bool operator==(const Value& a, const Value& b) noexcept {
    if (a.raw_[0] == b.raw_[0] && a.raw_[1] == b.raw_[1]) return true;
    if (a.kind() != b.kind()) return false;
    if (!a.on_heap() && !b.on_heap()) return false;
    return compare(a, b) == 0;
  }
  /// Below, at or above zero as `a` sorts before, beside or after `b`. Numbers compare by value: 1 and 1.0 are equal.
  static int compare(const Value& a, const Value& b) noexcept;

  /// Equal values have equal hashes. Not stable between runs.
  [[nodiscard]] std::size_t hash() const noexcept;
  template <typename H>
  friend H AbslHashValue(H state, const Value& value) {
    return H::combine(std::move(state), value.hash());
  }

  /// Bytes 16 of which identity can be told: two values with the same identity are equal (not the other way round).
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> identity() const noexcept { return {raw_[0], raw_[1]}; }

 private:
  friend class HeapPart;
  enum class Tag : std::uint8_t { undefined, null, boolean, integer, number, short_string, string, array, object, set };
  static constexpr Kind kKinds[] = {Kind::undefined, Kind::null,   Kind::boolean, Kind::number, Kind::number,
                                    Kind::string,    Kind::string, Kind::array,   Kind::object, Kind::set};
  struct Heap {
    std::uint32_t references = 1;
    mutable std::uint32_t hash = 0;  ///< 0: not computed yet.
  };
  struct Word {
    std::uint64_t bits;
  };
  struct StringPart;
  struct ItemsPart;
  struct MembersPart;
  struct NumberPart;

  Value(Tag tag, Word low) noexcept : raw_{low.bits, static_cast<std::uint64_t>(tag) << 56} {}
  Value(Tag tag, Heap* part) noexcept : raw_{reinterpret_cast<std::uintptr_t>(part), static_cast<std::uint64_t>(tag) << 56} {}
  [[nodiscard]] Tag tag() const noexcept { return static_cast<Tag>(raw_[1] >> 56); }
  [[nodiscard]] bool on_heap() const noexcept { return tag() >= Tag::string || tag() == Tag::number; }
  [[nodiscard]] Heap* heap() const noexcept { return reinterpret_cast<Heap*>(raw_[0]); }
  void drop() noexcept {
    if (on_heap() && --heap()->references == 0) destroy();
  }
  void destroy() noexcept;
  static Value large(Number number);
  friend class Number;

  /// Little endian: the last byte of the second word is the tag, the one before it the length of a short string.
  std::uint64_t raw_[2];
};

struct Member {
  Value key;
  Value value;
};

/// Text of JSON (RFC 8259). `html`: `<`, `>` and `&` are escaped, as the language's `json.marshal` does it. Sets become arrays, keys that
/// are no strings their JSON text. `undefined` gives nothing.
void append_json(std::string& out, const Value& value, bool html = false);
std::string to_json(const Value& value, bool html = false);
/// A string in quotes, with JSON's escapes.
void append_json_string(std::string& out, std::string_view bytes, bool html = false);

/// The value as the language writes it (what `sprintf("%v")` and `print` show): sets in braces, `set()` for the empty one.
void append_rego(std::string& out, const Value& value);
std::string to_rego(const Value& value);

/// Exactly one JSON value with white space around it. INVALID_ARGUMENT: what is wrong, and at which byte. Of equal keys the last one stays;
/// broken UTF-8 and lone surrogates become U+FFFD.
absl::StatusOr<Value> parse_json(std::string_view text);

}  // namespace openshell::policy::rego
