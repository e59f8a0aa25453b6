#include "policy/rego/value.hpp"

#include "policy/rego/value_parts.hpp"

#include <absl/hash/hash.h>
#include <absl/strings/string_view.h>

#include <algorithm>

namespace openshell::policy::rego {
namespace {

constexpr std::size_t kShortBytes = 14;

int sign_of(std::size_t a, std::size_t b) { return a < b ? -1 : a > b ? 1 : 0; }

std::uint32_t mixed(std::size_t hash) {
  const auto folded = static_cast<std::uint32_t>(hash ^ (hash >> 32));
  return folded == 0 ? 1 : folded;
}

}  // namespace

std::string_view kind_name(Kind kind) {
  static constexpr std::string_view kNames[] = {"undefined", "null", "boolean", "number", "string", "array", "object", "set"};
  return kNames[static_cast<std::size_t>(kind)];
}

Value Value::number(std::string_view json_text) { return Number::parse(json_text); }

Value Value::large(Number number) {
  auto* part = new NumberPart;
  part->number = std::move(number);
  return Value(Tag::number, part);
}

Value Value::string(std::string_view bytes) {
  if (bytes.size() <= kShortBytes) {
    Value made(Tag::short_string, Word{0});
    auto* raw = reinterpret_cast<char*>(made.raw_);
    std::memcpy(raw, bytes.data(), bytes.size());
    raw[kShortBytes] = static_cast<char>(bytes.size());
    return made;
  }
  auto* part = new StringPart;
  part->bytes.assign(bytes);
  return Value(Tag::string, part);
}

Value Value::array(std::vector<Value> items) {
  auto* part = new ItemsPart;
  part->items = std::move(items);
  return Value(Tag::array, part);
}

Value Value::sorted_set(std::vector<Value> items) {
  auto* part = new ItemsPart;
  part->items = std::move(items);
  return Value(Tag::set, part);
}

Value Value::set(std::vector<Value> items) {
  std::sort(items.begin(), items.end(), [](const Value& a, const Value& b) { return compare(a, b) < 0; });
  items.erase(std::unique(items.begin(), items.end()), items.end());
  return sorted_set(std::move(items));
}

Value Value::sorted_object(std::vector<Member> members) {
  auto* part = new MembersPart;
  part->members = std::move(members);
  return Value(Tag::object, part);
}

Value Value::object(std::vector<Member> members) {
  std::stable_sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return compare(a.key, b.key) < 0; });
  // Of equal keys the last: the run is collapsed onto its end.
  std::size_t kept = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i + 1 < members.size() && members[i].key == members[i + 1].key) continue;
    if (kept != i) members[kept] = std::move(members[i]);
    ++kept;
  }
  members.resize(kept);
  return sorted_object(std::move(members));
}

void Value::destroy() noexcept {
  switch (tag()) {
    case Tag::string:
      delete static_cast<StringPart*>(heap());
      break;
    case Tag::array:
    case Tag::set:
      delete static_cast<ItemsPart*>(heap());
      break;
    case Tag::object:
      delete static_cast<MembersPart*>(heap());
      break;
    case Tag::number:
      delete static_cast<NumberPart*>(heap());
      break;
    default:
      break;
  }
}

const Number& Value::large_number() const noexcept { return static_cast<const NumberPart*>(heap())->number; }

std::optional<std::int64_t> Value::as_integer() const noexcept {
  if (tag() == Tag::integer) return small_integer();
  if (tag() != Tag::number) return std::nullopt;
  const auto& integer = large_number().integer();
  if (!integer || *integer > INT64_MAX || *integer < INT64_MIN) return std::nullopt;
  return static_cast<std::int64_t>(*integer);
}

std::string_view Value::text() const noexcept {
  if (tag() == Tag::short_string) {
    const auto* raw = reinterpret_cast<const char*>(raw_);
    return {raw, static_cast<std::size_t>(raw[kShortBytes])};
  }
  if (tag() == Tag::string) return static_cast<const StringPart*>(heap())->bytes;
  return {};
}

std::span<const Value> Value::items() const noexcept {
  if (tag() == Tag::array || tag() == Tag::set) return static_cast<const ItemsPart*>(heap())->items;
  return {};
}

std::span<const Member> Value::members() const noexcept {
  if (tag() == Tag::object) return static_cast<const MembersPart*>(heap())->members;
  return {};
}

std::size_t Value::size() const noexcept { return tag() == Tag::object ? members().size() : items().size(); }

const Value* Value::find(const Value& key) const noexcept {
  switch (tag()) {
    case Tag::object: {
      const auto all = members();
      const auto at = std::lower_bound(all.begin(), all.end(), key, [](const Member& m, const Value& k) { return compare(m.key, k) < 0; });
      return at != all.end() && at->key == key ? &at->value : nullptr;
    }
    case Tag::set: {
      const auto all = items();
      const auto at = std::lower_bound(all.begin(), all.end(), key, [](const Value& item, const Value& k) { return compare(item, k) < 0; });
      return at != all.end() && *at == key ? &*at : nullptr;
    }
    case Tag::array: {
      const auto index = key.as_integer();
      const auto all = items();
      return index && *index >= 0 && static_cast<std::size_t>(*index) < all.size() ? &all[static_cast<std::size_t>(*index)] : nullptr;
    }
    default:
      return nullptr;
  }
}

const Value* Value::find(std::string_view key) const noexcept {
  if (tag() != Tag::object) return nullptr;
  const auto all = members();
  const auto before = [](const Member& m, std::string_view k) {
    return m.key.kind() != Kind::string ? m.key.kind() < Kind::string : m.key.text() < k;
  };
  const auto at = std::lower_bound(all.begin(), all.end(), key, before);
  return at != all.end() && at->key.is_string() && at->key.text() == key ? &at->value : nullptr;
}

int Value::compare(const Value& a, const Value& b) noexcept {
  const Kind kind = a.kind();
  if (kind != b.kind()) return kind < b.kind() ? -1 : 1;
  if (a.raw_[0] == b.raw_[0] && a.raw_[1] == b.raw_[1]) return 0;
  switch (kind) {
    case Kind::undefined:
    case Kind::null:
      return 0;
    case Kind::boolean:
      return a.raw_[0] == b.raw_[0] ? 0 : a.raw_[0] < b.raw_[0] ? -1 : 1;
    case Kind::number:
      if (a.tag() == Tag::integer && b.tag() == Tag::integer) return a.small_integer() < b.small_integer() ? -1 : 1;
      return compare_numbers(a, b);
    case Kind::string: {
      const int order = a.text().compare(b.text());
      return order < 0 ? -1 : order > 0 ? 1 : 0;
    }
    case Kind::array:
    case Kind::set: {
      const auto left = a.items();
      const auto right = b.items();
      for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
        if (const int order = compare(left[i], right[i]); order != 0) return order;
      }
      return sign_of(left.size(), right.size());
    }
    case Kind::object: {
      const auto left = a.members();
      const auto right = b.members();
      for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
        if (const int order = compare(left[i].key, right[i].key); order != 0) return order;
        if (const int order = compare(left[i].value, right[i].value); order != 0) return order;
      }
      return sign_of(left.size(), right.size());
    }
  }
  return 0;
}

std::size_t Value::hash() const noexcept {
  switch (tag()) {
    case Tag::short_string:
    case Tag::string:
      return absl::HashOf(absl::string_view(text().data(), text().size()));
    case Tag::number: {
      if (const auto integer = as_integer()) return Value::integer(*integer).hash();
      return absl::HashOf(static_cast<double>(large_number().approximate()));
    }
    case Tag::array:
    case Tag::set:
    case Tag::object:
      break;
    default:
      return absl::HashOf(raw_[0], static_cast<int>(tag()));
  }
  if (heap()->hash != 0) return heap()->hash;
  std::size_t sum = static_cast<std::size_t>(tag());
  for (const auto& item : items()) sum = absl::HashOf(sum, item.hash());
  for (const auto& member : members()) sum = absl::HashOf(sum, member.key.hash(), member.value.hash());
  heap()->hash = mixed(sum);
  return heap()->hash;
}

}  // namespace openshell::policy::rego
