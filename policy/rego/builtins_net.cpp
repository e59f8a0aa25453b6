#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/operands.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

namespace openshell::policy::rego {
namespace {

__extension__ using Bits = unsigned __int128;

/// The 128 bits of an IPv6 address; an IPv4 one as its mapped form ::ffff:a.b.c.d.
struct Address {
  Bits bits = 0;
  [[nodiscard]] bool is_v4() const { return bits >> 32U == 0xFFFF; }
};

/// The addresses that share the first bits.
struct Block {
  Address first;
  unsigned prefix = 128;  ///< Of 128 bits, for IPv4 too.
  [[nodiscard]] Bits last() const { return prefix == 0 ? ~Bits{0} : first.bits | (prefix == 128 ? Bits{0} : ~Bits{0} >> prefix); }
  [[nodiscard]] bool contains(const Address& address) const {
    return address.is_v4() == first.is_v4() && address.bits >= first.bits && address.bits <= last();
  }
};

std::optional<Address> parse_address(std::string_view text) {
  const std::string copy(text);
  if (copy.size() != std::strlen(copy.c_str())) return std::nullopt;
  in_addr v4{};
  if (inet_pton(AF_INET, copy.c_str(), &v4) == 1) return Address{Bits{0xFFFF} << 32U | ntohl(v4.s_addr)};
  std::array<std::uint8_t, 16> v6{};
  if (inet_pton(AF_INET6, copy.c_str(), v6.data()) != 1) return std::nullopt;
  Address address;
  for (const auto byte : v6) address.bits = address.bits << 8U | byte;
  return address;
}

absl::Status not_a_block(std::string_view text) { return failure("invalid CIDR address: ", text); }

absl::StatusOr<Block> parse_block(std::string_view text) {
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) return not_a_block(text);
  const auto address = parse_address(text.substr(0, slash));
  const auto digits = text.substr(slash + 1);
  const bool v4 = text.substr(0, slash).find(':') == std::string_view::npos;
  if (!address || digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) return not_a_block(text);
  unsigned prefix = 0;
  for (const char digit : digits) {
    prefix = prefix * 10 + static_cast<unsigned>(digit - '0');
    if (prefix > (v4 ? 32U : 128U)) return not_a_block(text);
  }
  Block block{*address, v4 ? prefix + 96 : prefix};
  block.first.bits = block.prefix == 0 ? 0 : block.first.bits & ~Bits{0} << (128 - block.prefix);
  return block;
}

std::string address_text(Address address) {
  if (address.is_v4()) {
    const auto value = static_cast<std::uint32_t>(address.bits);
    return text::cat(value >> 24U, ".", value >> 16U & 255U, ".", value >> 8U & 255U, ".", value & 255U);
  }
  std::array<unsigned, 8> words{};
  for (unsigned i = 0; i < 8; ++i) words[i] = static_cast<unsigned>(address.bits >> (112 - 16 * i) & 0xFFFF);
  unsigned best = 8;
  unsigned length = 1;  // a single zero is written out
  for (unsigned i = 0; i < 8; ++i) {
    unsigned end = i;
    while (end < 8 && words[end] == 0) ++end;
    if (end - i > length) {
      best = i;
      length = end - i;
    }
  }
  std::string out;
  for (unsigned i = 0; i < 8; ++i) {
    if (i == best) {
      out += "::";
      i += length - 1;
      continue;
    }
    if (!out.empty() && out.back() != ':') out += ':';
    std::string digits;
    for (unsigned shift = 16; shift > 0; shift -= 4) {
      const auto digit = words[i] >> (shift - 4) & 15U;
      if (digit != 0 || !digits.empty() || shift == 4) digits += "0123456789abcdef"[digit];
    }
    out += digits;
  }
  return out;
}

std::string block_text(const Block& block) {
  return text::cat(address_text(block.first), "/", block.first.is_v4() && block.prefix >= 96 ? block.prefix - 96 : block.prefix);
}

absl::StatusOr<bool> contains_text(const Block& block, std::string_view text) {
  if (const auto address = parse_address(text)) return block.contains(*address);
  const auto other = parse_block(text);
  if (!other.ok()) return failure("not a valid textual representation of an IP address or CIDR: ", text);
  return block.contains(other->first) && block.contains(Address{other->last()});
}

BuiltinResult cidr_contains(QueryContext& /*context*/, Arguments a) {
  if (auto status = need_strings(a, {0, 1}); !status.ok()) return status;
  const auto block = parse_block(a[0].text());
  if (!block.ok()) return block.status();
  const auto answer = contains_text(*block, a[1].text());
  if (!answer.ok()) return answer.status();
  return Value::boolean(*answer);
}

BuiltinResult cidr_intersects(QueryContext& /*context*/, Arguments a) {
  if (auto status = need_strings(a, {0, 1}); !status.ok()) return status;
  const auto one = parse_block(a[0].text());
  if (!one.ok()) return one.status();
  const auto other = parse_block(a[1].text());
  if (!other.ok()) return other.status();
  return Value::boolean(one->contains(other->first) || other->contains(one->first));
}

BuiltinResult cidr_is_valid(QueryContext& /*context*/, Arguments a) {
  return Value::boolean(a[0].is_string() && parse_block(a[0].text()).ok());
}

BuiltinResult cidr_expand(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  const auto block = parse_block(a[0].text());
  if (!block.ok()) return block.status();
  const Bits count = block->last() - block->first.bits;
  if (auto status =
          context.room_for(count > context.limits().elements ? context.limits().elements + 1 : static_cast<std::size_t>(count) + 1);
      !status.ok()) {
    return status;
  }
  if (auto status = context.charge(static_cast<std::uint64_t>(count)); !status.ok()) return status;
  std::vector<Value> all;
  for (Bits i = 0; i <= count; ++i) all.push_back(Value::string(address_text(Address{block->first.bits + i})));
  return Value::set(std::move(all));
}

/// An element of the operand, with what names it in the answer.
struct Named {
  Value key;
  std::string_view text;
};

absl::StatusOr<std::string_view> text_of(const Value& element, std::size_t operand) {
  if (element.is_string()) return element.text();
  if (element.is_array() && element.size() > 0) {
    if (!element.items()[0].is_string()) return operand_error(operand, "string", element.items()[0]);
    return element.items()[0].text();
  }
  return failure("operand ", operand, ": element must be string or non-empty array");
}

absl::StatusOr<std::vector<Named>> elements(const Value& value, std::size_t operand) {
  std::vector<Named> out;
  if (value.is_string()) return out.push_back({value, value.text()}), out;
  if (!value.is_collection()) return operand_error(operand, "one of {string, array, set, object}", value);
  std::int64_t index = 0;
  for (const auto& item : value.items()) {
    const auto text = text_of(item, operand);
    if (!text.ok()) return text.status();
    out.push_back({value.is_set() ? item : Value::integer(index++), *text});
  }
  for (const auto& member : value.members()) {
    const auto text = text_of(member.value, operand);
    if (!text.ok()) return text.status();
    out.push_back({member.key, *text});
  }
  return out;
}

BuiltinResult cidr_contains_matches(QueryContext& context, Arguments a) {
  const auto blocks = elements(a[0], 1);
  if (!blocks.ok()) return blocks.status();
  const auto others = elements(a[1], 2);
  if (!others.ok()) return others.status();
  std::vector<Value> found;
  for (const auto& named : *blocks) {
    const auto block = parse_block(named.text);
    if (!block.ok()) return block.status();
    if (auto status = context.charge(others->size()); !status.ok()) return status;
    for (const auto& other : *others) {
      const auto inside = contains_text(*block, other.text);
      if (!inside.ok()) return inside.status();
      if (*inside) found.push_back(Value::array({named.key, other.key}));
    }
    if (auto status = context.room_for(found.size()); !status.ok()) return status;
  }
  return Value::set(std::move(found));
}

struct Range {
  Bits first;
  Bits last;
  std::string text;  ///< How one that merged with nothing is written; empty: by its blocks.
};

/// A bare IPv4 address stands for the network of its class.
absl::StatusOr<Block> parse_mergeable(std::string_view text) {
  if (text.find('/') != std::string_view::npos) return parse_block(text);
  const auto address = parse_address(text);
  if (!address) return not_a_block(text);
  if (!address->is_v4()) return failure("IPv6 invalid: needs prefix length");
  const auto lead = static_cast<unsigned>(address->bits >> 24U & 255U);
  return parse_block(text::cat(address_text(*address), lead < 128 ? "/8" : lead < 192 ? "/16" : "/24"));
}

void append_blocks(Range range, std::vector<Value>& out) {
  if (!range.text.empty()) {
    out.push_back(Value::string(range.text));
    return;
  }
  for (;;) {
    unsigned prefix = 128;
    while (prefix > 0) {
      const Bits size = prefix - 1 == 0 ? ~Bits{0} : ~Bits{0} >> (prefix - 1);
      if ((range.first & size) != 0 || size > range.last - range.first) break;
      --prefix;
    }
    const Block block{Address{range.first}, prefix};
    out.push_back(Value::string(block_text(block)));
    if (block.last() >= range.last) return;
    range.first = block.last() + 1;
  }
}

BuiltinResult cidr_merge(QueryContext& context, Arguments a) {
  if (!a[0].is_array() && !a[0].is_set()) return failure("operand must be an array");
  if (auto status = context.charge(a[0].size()); !status.ok()) return status;
  std::vector<Range> ranges;
  for (const auto& item : a[0].items()) {
    if (!item.is_string()) return failure("element must be string");
    const auto block = parse_mergeable(item.text());
    if (!block.ok()) return block.status();
    const bool bare = item.text().find('/') == std::string_view::npos;
    std::string text = bare ? text::cat(item.text(), "/", block->prefix - 96) : std::string();
    ranges.push_back({block->first.bits, block->last(), std::move(text)});
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& one, const Range& other) { return one.first < other.first; });
  std::vector<Range> merged;
  for (const auto& range : ranges) {
    if (!merged.empty() && (merged.back().last == ~Bits{0} || range.first <= merged.back().last + 1)) {
      merged.back().last = std::max(merged.back().last, range.last);
      merged.back().text.clear();
    } else {
      merged.push_back(range);
    }
  }
  std::vector<Value> out;
  for (const auto& range : merged) append_blocks(range, out);
  if (auto status = context.room_for(out.size()); !status.ok()) return status;
  return Value::set(std::move(out));
}

}  // namespace

const BuiltinTable& net_builtins() {
  using namespace types;
  static const Type element = any_of({string(), array_of(any())});
  static const Type operand = any_of({string(), array_of(element), object_of(string(), element), set_of(element)});
  static const BuiltinTable table = {
      {"net.cidr_contains", {string(), string()}, boolean(), cidr_contains},
      {"net.cidr_contains_matches", {operand, operand}, set_of(tuple({any(), any()})), cidr_contains_matches},
      {"net.cidr_expand", {string()}, set_of(string()), cidr_expand},
      {"net.cidr_intersects", {string(), string()}, boolean(), cidr_intersects},
      {"net.cidr_is_valid", {string()}, boolean(), cidr_is_valid},
      {"net.cidr_merge", {any_of({array_of(string()), set_of(string())})}, set_of(string()), cidr_merge},
      {"net.cidr_overlap", {string(), string()}, boolean(), cidr_contains},
  };
  return table;
}

}  // namespace openshell::policy::rego
