// Reads JSON (RFC 8259) in one pass, so strictly that no two readers of the text can see different things in it: no key twice in an
// object, however it is escaped, valid UTF-8, no lone surrogates, nothing behind the value. Nothing of the text is kept; a bound on depth
// and on the keys of one object bounds the memory. Single thread; the text outlives the reader.
//
//   JsonReader json{text};
//   bool ok = json.object([&](std::string_view key) { return key == "id" ? json.string(id) : json.skip(); }) && json.finish();
//   if (!ok) refuse(json.error());
#pragma once

#include <absl/container/flat_hash_set.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace openshell::policy {

inline constexpr std::size_t kMaxJsonDepth = 128;         ///< nested objects and arrays
inline constexpr std::size_t kMaxJsonKeys = 16'384;       ///< keys of one object
inline constexpr std::size_t kMaxJsonKeyBytes = 65'536;   ///< one key, as it means
inline constexpr std::size_t kMaxJsonOpenKeys = 100'000;  ///< keys of all objects that are open at one time

enum class JsonKind : std::uint8_t { none, null, boolean, number, string, array, object };

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_{text} {}

  /// What the next value is, by its first byte; none: no value begins here.
  [[nodiscard]] JsonKind peek();

  /// Each reads one value and is false after an error. An error ends the reading: every later call is false too.
  bool string(std::string& out);
  bool skip();
  /// skip(), and the bytes of the value.
  bool raw(std::string_view& out);
  /// `member(std::string_view key) -> bool` reads the value. The key lives until it reads.
  template <class Member>
  bool object(Member&& member) {
    if (!open('{')) return false;
    Keys keys{*this};
    if (closes('}')) return close();
    std::string key;
    do {
      if (!read_key(key) || !keys.add(key) || !colon() || !member(std::string_view{key})) return fail("invalid JSON");
    } while (comma());
    return closes('}') ? close() : fail("invalid JSON");
  }
  /// `element() -> bool` reads one.
  template <class Element>
  bool array(Element&& element) {
    if (!open('[')) return false;
    if (closes(']')) return close();
    do {
      if (!element()) return fail("invalid JSON");
    } while (comma());
    return closes(']') ? close() : fail("invalid JSON");
  }
  /// True when nothing but white space is left.
  bool finish();

  /// `invalid JSON`, `duplicate key in JSON object`, `JSON is nested too deeply` or `JSON object has too many keys`; empty: no error.
  [[nodiscard]] std::string_view error() const noexcept { return error_; }

 private:
  class Keys {
   public:
    explicit Keys(JsonReader& reader) : reader_{reader} {}
    Keys(const Keys&) = delete;
    Keys& operator=(const Keys&) = delete;
    ~Keys() { reader_.open_keys_ -= seen_.size(); }
    bool add(const std::string& key);

   private:
    JsonReader& reader_;
    absl::flat_hash_set<std::string> seen_;
  };

  bool fail(std::string_view why) {
    if (error_.empty()) error_ = why;
    return false;
  }
  void white_space();
  [[nodiscard]] char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool open(char bracket);
  bool close();
  bool closes(char bracket);
  bool comma();
  bool colon();
  bool read_key(std::string& out);
  /// `out` null: only checked.
  bool read_string(std::string* out);
  bool escape(std::string* out);
  bool hex4(std::uint32_t& out);
  bool utf8(std::string* out);
  bool number();
  bool word(std::string_view expected);

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  std::size_t open_keys_ = 0;
  std::string_view error_;
};

}  // namespace openshell::policy
