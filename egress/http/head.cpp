#include "egress/http/head.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

#include <fmt/format.h>

#include "egress/http/target.hpp"
#include "egress/ip_address.hpp"

namespace openshell::egress::http {
namespace {

/// Bytes of a token (RFC 9110 section 5.6.2).
constexpr std::array<bool, 256> kTokenBytes = [] {
  std::array<bool, 256> out{};
  for (const char c : std::string_view{"!#$%&'*+-.^_`|~"}) out[static_cast<unsigned char>(c)] = true;
  for (int c = 0; c < 26; ++c) out[static_cast<std::size_t>('a' + c)] = out[static_cast<std::size_t>('A' + c)] = true;
  for (int c = 0; c < 10; ++c) out[static_cast<std::size_t>('0' + c)] = true;
  return out;
}();

absl::Status bad(std::string text) { return absl::InvalidArgumentError(std::move(text)); }

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

bool is_value_byte(unsigned char c) { return c == '\t' || (c >= 0x20 && c != 0x7f); }

absl::Status parse_fields(std::string_view rest, std::string_view what, Fields& fields) {
  while (!rest.starts_with("\r\n")) {
    const auto end = rest.find("\r\n");
    if (end == std::string_view::npos) return bad(fmt::format("{} headers are incomplete", what));
    const auto line = rest.substr(0, end);
    rest.remove_prefix(end + 2);
    if (line.front() == ' ' || line.front() == '\t') return bad(fmt::format("{} header continuation lines are not supported", what));
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) return bad(fmt::format("{} header field is missing ':'", what));
    const auto name = line.substr(0, colon);
    if (!name.empty() && (name.back() == ' ' || name.back() == '\t')) {
      return bad(fmt::format("{} header field contains whitespace before ':'", what));
    }
    if (!is_token(name)) return bad(fmt::format("{} header field name is not a valid HTTP token", what));
    const auto value = trim(line.substr(colon + 1));
    if (!std::all_of(value.begin(), value.end(), [](char c) { return is_value_byte(static_cast<unsigned char>(c)); })) {
      return bad(fmt::format("{} header field value contains an invalid control byte", what));
    }
    if (fields.all().size() == kMaxFields)
      return absl::ResourceExhaustedError(fmt::format("{} has more than {} header fields", what, kMaxFields));
    fields.add(std::string{name}, std::string{value});
  }
  return absl::OkStatus();
}

absl::Status check_connection(const Fields& fields) {
  for (const auto value : fields.values("connection")) {
    for (const auto option : elements(value)) {
      if (!is_token(option)) return bad("HTTP Connection header contains an invalid option token");
      for (const auto framing : {"host", "content-length", "transfer-encoding"}) {
        if (equal_ignoring_case(option, framing)) return bad("HTTP Connection header nominates a request framing or routing field");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status check_host(const RequestHead& head) {
  const auto hosts = head.fields.values("host");
  if (hosts.size() > 1) return bad("HTTP request contains multiple Host headers");
  if (hosts.empty()) {
    return head.minor_version == 1 ? bad("HTTP/1.1 request is missing a Host header") : absl::OkStatus();
  }
  const auto host = parse_authority(hosts.front());
  if (!host.ok()) return bad("HTTP request Host header contains an invalid authority");
  const auto absolute = split_absolute_form(head.target);
  if (!absolute) return absl::OkStatus();
  const auto target = parse_authority(absolute->authority);
  const Port standard{static_cast<std::uint16_t>(equal_ignoring_case(absolute->scheme, "https") ? 443 : 80)};
  if (!target.ok() || target->host != host->host || target->port.value_or(standard) != host->port.value_or(standard)) {
    return bad("HTTP absolute-form request authority does not match the Host header");
  }
  return absl::OkStatus();
}

absl::Status parse_request_line(std::string_view line, RequestHead& head) {
  constexpr auto kForm = "HTTP request line must be exactly 'METHOD SP target SP HTTP/1.0|HTTP/1.1'";
  const auto first = line.find(' ');
  const auto last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return bad(kForm);
  const auto method = line.substr(0, first);
  const auto target = line.substr(first + 1, last - first - 1);
  const auto version = line.substr(last + 1);
  if (method.empty() || target.empty() || version.empty() || target.front() == ' ' || target.back() == ' ') return bad(kForm);
  if (!is_token(method)) return bad("HTTP request method is not a valid HTTP token");
  for (const char c : target) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte == 0x7f) return bad("HTTP request target contains whitespace or a control byte");
  }
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return version.starts_with("HTTP/") && std::all_of(version.begin(), version.end(), [](char c) { return c > 0x20 && c < 0x7f; })
               ? bad(fmt::format("Unsupported HTTP version: {}", version.substr(0, 16)))
               : bad(kForm);
  }
  head.method = method;
  head.target = target;
  head.minor_version = version.back() - '0';
  return absl::OkStatus();
}

}  // namespace

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

Values elements(std::string_view list) {
  Values out;
  while (true) {
    const auto comma = list.find(',');
    out.push_back(trim(list.substr(0, comma)));
    if (comma == std::string_view::npos) return out;
    list.remove_prefix(comma + 1);
  }
}

bool is_token(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return kTokenBytes[static_cast<unsigned char>(c)]; });
}

bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return lower(x) == lower(y); });
}

std::optional<std::string_view> Fields::first(std::string_view name) const {
  for (const auto& field : all_) {
    if (equal_ignoring_case(field.name, name)) return field.value;
  }
  return std::nullopt;
}

Values Fields::values(std::string_view name) const {
  Values out;
  for (const auto& field : all_) {
    if (equal_ignoring_case(field.name, name)) out.push_back(field.value);
  }
  return out;
}

void Fields::set(std::string_view name, std::string value) {
  for (auto& field : all_) {
    if (!equal_ignoring_case(field.name, name)) continue;
    field.value = std::move(value);
    return;
  }
  add(std::string{name}, std::move(value));
}

void Fields::remove(std::string_view name) {
  std::erase_if(all_, [&](const Field& field) { return equal_ignoring_case(field.name, name); });
}

bool Fields::lists(std::string_view name, std::string_view token) const {
  for (const auto value : values(name)) {
    for (const auto element : elements(value)) {
      if (equal_ignoring_case(element, token)) return true;
    }
  }
  return false;
}

absl::StatusOr<std::optional<std::size_t>> head_length(std::string_view buffer, std::string_view what) {
  const auto end = buffer.find("\r\n\r\n");
  const auto head = buffer.substr(0, std::min(end == std::string_view::npos ? buffer.size() : end + 4, kMaxHeadBytes));
  for (auto at = head.find('\n'); at != std::string_view::npos; at = head.find('\n', at + 1)) {
    if (at == 0 || head[at - 1] != '\r') {
      return bad(what == "HTTP request" ? "HTTP headers contain bare LF (line feed without carriage return)"
                                        : fmt::format("{} headers contain bare LF", what));
    }
  }
  if (end == std::string_view::npos ? buffer.size() >= kMaxHeadBytes : end + 4 > kMaxHeadBytes) {
    return bad(fmt::format("{} headers exceed {} bytes", what, kMaxHeadBytes));
  }
  if (end == std::string_view::npos) return std::optional<std::size_t>{};
  return std::optional<std::size_t>{end + 4};
}

absl::StatusOr<RequestHead> parse_request_head(std::string_view head) {
  if (!is_valid_utf8(head)) return bad("HTTP headers contain invalid UTF-8");
  const auto line_end = head.find("\r\n");
  if (line_end == std::string_view::npos) return bad("HTTP request headers are incomplete");
  RequestHead out;
  if (auto status = parse_request_line(head.substr(0, line_end), out); !status.ok()) return status;
  if (auto status = parse_fields(head.substr(line_end + 2), "HTTP request", out.fields); !status.ok()) return status;
  if (auto status = check_connection(out.fields); !status.ok()) return status;
  if (auto status = check_host(out); !status.ok()) return status;
  return out;
}

absl::StatusOr<ResponseHead> parse_response_head(std::string_view head) {
  const auto line_end = head.find("\r\n");
  if (line_end == std::string_view::npos) return bad("HTTP response headers are incomplete");
  const auto line = head.substr(0, line_end);
  // status-line = HTTP-version SP 3DIGIT [SP reason]; a missing space before an empty reason is common and harmless.
  if (!(line.starts_with("HTTP/1.1 ") || line.starts_with("HTTP/1.0 ")) || line.size() < 12)
    return bad("HTTP response status line is malformed");
  ResponseHead out;
  out.minor_version = line[7] - '0';
  const auto [end, error] = std::from_chars(line.data() + 9, line.data() + 12, out.status);
  if (error != std::errc{} || end != line.data() + 12 || out.status < 100 || out.status > 999)
    return bad("HTTP response status is not three digits");
  if (line.size() > 12 && line[12] != ' ') return bad("HTTP response status line is malformed");
  out.reason = line.size() > 13 ? std::string{line.substr(13)} : std::string{};
  if (!std::all_of(out.reason.begin(), out.reason.end(), [](char c) { return is_value_byte(static_cast<unsigned char>(c)); })) {
    return bad("HTTP response reason contains a control byte");
  }
  if (auto status = parse_fields(head.substr(line_end + 2), "HTTP response", out.fields); !status.ok()) return status;
  return out;
}

void strip_hop_fields(Fields& fields) {
  std::vector<std::string> nominated;
  for (const auto value : fields.values("connection")) {
    for (const auto option : elements(value)) nominated.emplace_back(option);
  }
  for (const auto& name : nominated) fields.remove(name);
  fields.remove("connection");
  fields.remove("upgrade");
}

namespace {

constexpr std::size_t kLineBytes = 32;  // what a first line has beside method, target and reason

std::size_t size_of(const Fields& fields) {
  std::size_t out = 2;
  for (const auto& field : fields.all()) out += field.name.size() + field.value.size() + 4;
  return out;
}

void append_fields(std::string& out, const Fields& fields) {
  for (const auto& field : fields.all()) {
    out.append(field.name).append(": ").append(field.value).append("\r\n");
  }
  out.append("\r\n");
}

}  // namespace

std::string write_head(const RequestHead& head) {
  std::string out;
  out.reserve(size_of(head.fields) + head.method.size() + head.target.size() + kLineBytes);
  fmt::format_to(std::back_inserter(out), "{} {} HTTP/1.{}\r\n", head.method, head.target, head.minor_version);
  append_fields(out, head.fields);
  return out;
}

std::string write_head(const ResponseHead& head) {
  std::string out;
  out.reserve(size_of(head.fields) + head.reason.size() + kLineBytes);
  fmt::format_to(std::back_inserter(out), "HTTP/1.{} {} {}\r\n", head.minor_version, head.status, head.reason);
  append_fields(out, head.fields);
  return out;
}

absl::StatusOr<Authority> parse_authority(std::string_view text) {
  const auto invalid = [&] { return bad("authority is not host[:port]"); };
  if (text.empty() || text.size() > 300) return invalid();
  std::string_view host = text;
  std::string_view port;
  bool has_port = false;
  if (text.front() == '[') {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return invalid();
    host = text.substr(1, close - 1);
    const auto rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') return invalid();
    has_port = !rest.empty();
    if (has_port) port = rest.substr(1);
    const auto address = IpAddress::parse(host);
    if (!address.ok() || address->is_v4()) return invalid();
  } else if (const auto colon = text.find(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    has_port = true;
  }
  Authority out;
  if (has_port) {
    unsigned number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (port.empty() || port.size() > 5 || error != std::errc{} || end != port.data() + port.size() || number == 0 || number > 65535)
      return invalid();
    out.port = Port{static_cast<std::uint16_t>(number)};
  }
  if (const auto address = IpAddress::parse(host); address.ok()) {
    out.host = address->str();
    return out;
  }
  const auto name = Host::parse(host);
  if (!name.ok()) return invalid();
  out.host = name->str();
  return out;
}

}  // namespace openshell::egress::http
