#include "egress/dns/message.hpp"

#include <algorithm>
#include <map>

namespace openshell::egress::dns {
namespace {

constexpr std::size_t kHeaderBytes = 12;
constexpr std::size_t kLongestName = 255;  // RFC 1035 section 3.1, wire form
constexpr std::uint16_t kClassIn = 1;
constexpr int kMaxPointers = 64;  // of one compressed name; each must point backwards, so loops cannot be

absl::Status bad(const char* text) { return absl::InvalidArgumentError(text); }

void put16(std::string& out, std::uint16_t value) {
  out.push_back(static_cast<char>(value >> 8));
  out.push_back(static_cast<char>(value & 0xff));
}

void put32(std::string& out, std::uint32_t value) {
  put16(out, static_cast<std::uint16_t>(value >> 16));
  put16(out, static_cast<std::uint16_t>(value & 0xffff));
}

/// Reads a message front to back; every step says whether there was enough.
class Cursor {
 public:
  explicit Cursor(std::string_view message) : message_{message} {}
  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] bool at_end() const { return at_ == message_.size(); }

  bool u8(std::uint8_t& out) {
    if (at_ >= message_.size()) return false;
    out = static_cast<std::uint8_t>(message_[at_++]);
    return true;
  }
  bool u16(std::uint16_t& out) {
    std::uint8_t high = 0;
    std::uint8_t low = 0;
    if (!u8(high) || !u8(low)) return false;
    out = static_cast<std::uint16_t>(high << 8 | low);
    return true;
  }
  bool u32(std::uint32_t& out) {
    std::uint16_t high = 0;
    std::uint16_t low = 0;
    if (!u16(high) || !u16(low)) return false;
    out = std::uint32_t{high} << 16 | low;
    return true;
  }
  bool bytes(std::size_t count, std::string_view& out) {
    if (message_.size() - at_ < count) return false;
    out = message_.substr(at_, count);
    at_ += count;
    return true;
  }

  /// Lower-case dotted text. `plain` turns false where a label holds a byte that no host name has (then the text is of no use).
  bool name(std::string& out, bool& plain, bool pointers_allowed) {
    out.clear();
    plain = true;
    std::size_t wire = 1;
    std::size_t position = at_;
    std::size_t lowest = at_;
    bool jumped = false;
    int pointers = 0;
    while (true) {
      if (position >= message_.size()) return false;
      const auto length = static_cast<std::uint8_t>(message_[position]);
      if ((length & 0xc0) == 0xc0) {
        if (!pointers_allowed || position + 1 >= message_.size() || ++pointers > kMaxPointers) return false;
        const std::size_t target = std::size_t{length & 0x3fU} << 8 | static_cast<std::uint8_t>(message_[position + 1]);
        if (target >= lowest || target < kHeaderBytes) return false;
        if (!jumped) at_ = position + 2;
        jumped = true;
        lowest = target;
        position = target;
        continue;
      }
      if (length > 63) return false;
      ++position;
      if (length == 0) break;
      wire += length + 1U;
      if (wire > kLongestName || position + length > message_.size()) return false;
      if (!out.empty()) out.push_back('.');
      for (std::size_t i = 0; i < length; ++i) {
        char c = message_[position + i];
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
        plain = plain && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_');
        out.push_back(c);
      }
      position += length;
    }
    if (!jumped) at_ = position;
    return true;
  }

 private:
  std::string_view message_;
  std::size_t at_ = 0;
};

struct Header {
  std::uint16_t id = 0, flags = 0, questions = 0, answers = 0, authorities = 0, additionals = 0;
  [[nodiscard]] bool is_response() const { return (flags & 0x8000) != 0; }
  [[nodiscard]] int opcode() const { return flags >> 11 & 15; }
};

bool read_header(Cursor& cursor, Header& out) {
  return cursor.u16(out.id) && cursor.u16(out.flags) && cursor.u16(out.questions) && cursor.u16(out.answers) &&
         cursor.u16(out.authorities) && cursor.u16(out.additionals);
}

struct Record {
  std::string owner;
  std::uint16_t type = 0;
  std::uint16_t record_class = 0;
  std::uint32_t ttl = 0;
  std::size_t data_at = 0;
  std::string_view data;
};

bool read_record(Cursor& cursor, Record& out) {
  bool plain = false;
  std::uint16_t length = 0;
  if (!cursor.name(out.owner, plain, true) || !cursor.u16(out.type) || !cursor.u16(out.record_class) || !cursor.u32(out.ttl) ||
      !cursor.u16(length)) {
    return false;
  }
  out.data_at = cursor.at();
  return cursor.bytes(length, out.data);
}

std::string header_bytes(std::uint16_t id, bool recursion_desired, Rcode rcode, bool question, bool answer) {
  std::string out;
  put16(out, id);
  put16(out, static_cast<std::uint16_t>(0x8000 | (recursion_desired ? 0x0100 : 0) | 0x0080 | static_cast<int>(rcode)));
  put16(out, question ? 1 : 0);
  put16(out, answer ? 1 : 0);
  put32(out, 0);
  return out;
}

}  // namespace

ParsedQuery parse_query(std::string_view message) {
  ParsedQuery out;
  Cursor cursor{message};
  Header header;
  if (message.size() >= 2)
    out.error.id = static_cast<std::uint16_t>(static_cast<std::uint8_t>(message[0]) << 8 | static_cast<std::uint8_t>(message[1]));
  if (message.size() > kMaxMessageBytes || !read_header(cursor, header)) return out;
  if (header.is_response() || header.opcode() != 0 || header.questions != 1) return out;
  Query query;
  query.id = header.id;
  query.recursion_desired = (header.flags & 0x0100) != 0;
  bool plain = false;
  std::uint16_t question_class = 0;
  if (!cursor.name(query.name, plain, false) || !cursor.u16(query.type) || !cursor.u16(question_class)) return out;
  query.question = message.substr(kHeaderBytes, cursor.at() - kHeaderBytes);
  const auto records = std::size_t{header.answers} + header.authorities + header.additionals;
  for (std::size_t i = 0; i < records; ++i) {
    Record record;
    if (!read_record(cursor, record)) return out;
  }
  if (!cursor.at_end()) return out;
  if (question_class != kClassIn) {
    out.error.rcode = Rcode::kNotImp;
    out.question = query.question;
    return out;
  }
  if (!plain) query.name.clear();
  out.query = std::move(query);
  return out;
}

std::string build_answer(const Query& query, Rcode rcode, std::optional<IpAddress> address, std::uint32_t ttl_seconds) {
  std::string out = header_bytes(query.id, query.recursion_desired, rcode, true, address.has_value());
  out.append(query.question);
  if (address) {
    const std::size_t length = address->is_v4() ? 4 : 16;
    put16(out, 0xc000 | kHeaderBytes);  // the owner is the question's name, in whatever case it was sent
    put16(out, address->is_v4() ? kTypeA : kTypeAaaa);
    put16(out, kClassIn);
    put32(out, ttl_seconds);
    put16(out, static_cast<std::uint16_t>(length));
    out.append(reinterpret_cast<const char*>(address->bytes().data()), length);
  }
  return out;
}

std::string build_error(const Malformed& error, std::string_view question) {
  return header_bytes(error.id, false, error.rcode, !question.empty(), false).append(question);
}

absl::StatusOr<std::string> build_question(std::uint16_t id, std::string_view name, std::uint16_t type) {
  std::string out;
  put16(out, id);
  put16(out, 0x0100);
  put16(out, 1);
  out.append(6, '\0');
  std::string_view rest = name;
  while (!rest.empty()) {
    const auto dot = rest.find('.');
    const auto label = rest.substr(0, dot);
    if (label.empty() || label.size() > 63) return bad("name does not fit into a DNS question");
    out.push_back(static_cast<char>(label.size()));
    out.append(label);
    rest = dot == std::string_view::npos ? std::string_view{} : rest.substr(dot + 1);
  }
  out.push_back('\0');
  if (out.size() - kHeaderBytes > kLongestName) return bad("name does not fit into a DNS question");
  put16(out, type);
  put16(out, kClassIn);
  return out;
}

absl::StatusOr<Reply> parse_reply(std::string_view message, std::uint16_t id, std::string_view name, std::uint16_t type) {
  if (message.size() > kMaxMessageBytes) return bad("DNS reply is too long");
  Cursor cursor{message};
  Header header;
  if (!read_header(cursor, header) || header.id != id || !header.is_response() || header.opcode() != 0 || header.questions != 1) {
    return bad("DNS reply does not answer the question");
  }
  std::string asked;
  bool plain = false;
  std::uint16_t asked_type = 0;
  std::uint16_t asked_class = 0;
  if (!cursor.name(asked, plain, false) || !cursor.u16(asked_type) || !cursor.u16(asked_class)) return bad("DNS reply is malformed");
  if (asked != name || asked_type != type || asked_class != kClassIn) return bad("DNS reply echoes another question");
  Reply out;
  out.rcode = static_cast<Rcode>(header.flags & 15);
  out.truncated = (header.flags & 0x0200) != 0;
  if (out.truncated) return out;

  std::map<std::string, std::pair<std::string, std::uint32_t>> aliases;
  struct Found {
    std::string owner;
    IpAddress address;
    std::uint32_t ttl = 0;
  };
  std::vector<Found> found;
  for (int i = 0; i < header.answers; ++i) {
    Record record;
    if (!read_record(cursor, record)) return bad("DNS reply is malformed");
    if (record.record_class != kClassIn) continue;
    if (record.type == kTypeCname) {
      Cursor target{message.substr(0, record.data_at + record.data.size())};
      std::string_view skipped;
      std::string canonical;
      bool target_plain = false;
      if (!target.bytes(record.data_at, skipped) || !target.name(canonical, target_plain, true) || !target.at_end() || !target_plain) {
        return bad("DNS reply is malformed");
      }
      aliases.emplace(record.owner, std::pair{canonical, record.ttl});
    } else if (record.type == type) {
      if (record.data.size() != (type == kTypeA ? 4U : 16U)) return bad("DNS reply is malformed");
      IpAddress::Bytes bytes{};
      std::copy(record.data.begin(), record.data.end(), bytes.begin());
      const auto v4 = std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
      found.push_back({record.owner, type == kTypeA ? IpAddress::v4(v4) : IpAddress::v6(bytes), record.ttl});
    }
  }
  out.canonical_name = name;
  out.ttl_seconds = UINT32_MAX;
  for (auto hop = aliases.find(out.canonical_name); hop != aliases.end(); hop = aliases.find(out.canonical_name)) {
    if (++out.cnames > kMaxCnames) return bad("DNS reply holds too many CNAME hops");
    out.canonical_name = hop->second.first;
    out.ttl_seconds = std::min(out.ttl_seconds, hop->second.second);
  }
  for (const auto& record : found) {
    if (record.owner != out.canonical_name || out.addresses.size() == kMaxAddresses) continue;
    out.ttl_seconds = std::min(out.ttl_seconds, record.ttl);
    if (std::find(out.addresses.begin(), out.addresses.end(), record.address) == out.addresses.end())
      out.addresses.push_back(record.address);
  }
  return out;
}

}  // namespace openshell::egress::dns
