// The shapes that both directions share, and the streams' JSON.
#include "isolation/boundary/control.hpp"

#include "isolation/boundary/control_fields.hpp"

namespace openshell::boundary {

using internal::from_json;
using internal::to_json;
using internal::wrong;
namespace json = internal::json;

namespace {

constexpr std::array<std::string_view, 7> kDecisions{"RelayReady",         "PolicyDenied",      "IdentityUnavailable",
                                                     "InvalidDestination", "ResourceExhausted", "MediationUnavailable",
                                                     "RelayHandover"};

constexpr bool is_allowed(OpenDecision decision) {
  return decision == OpenDecision::relay_ready || decision == OpenDecision::relay_handover;
}

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

json::array bytes_to_json(std::string_view bytes) {
  json::array array;
  array.reserve(bytes.size());
  for (const char c : bytes) array.emplace_back(static_cast<std::uint64_t>(static_cast<unsigned char>(c)));
  return array;
}

absl::Status bytes_from_json(const json::value& value, std::string& out, const std::string& where) {
  if (!value.is_array()) return wrong(where, "not an array of bytes");
  out.clear();
  out.reserve(value.get_array().size());
  for (const auto& item : value.get_array()) {
    std::uint8_t byte = 0;
    if (auto s = from_json(item, byte, where); !s.ok()) return s;
    out += static_cast<char>(byte);
  }
  return absl::OkStatus();
}

}  // namespace

json::value encode_json(const ExitStatus& x) { return json::object{{"kind", x.signaled ? "signaled" : "exited"}, {"value", x.value}}; }

absl::Status decode_json(const json::value& value, ExitStatus& x, const std::string& where) {
  if (!value.is_object()) return wrong(where, "not an object");
  std::string kind;
  internal::Reader reader{value.get_object(), where};
  reader("kind", kind);
  reader("value", x.value);
  if (auto s = reader.finish(); !s.ok()) return s;
  if (kind != "exited" && kind != "signaled") return wrong(where, "kind is neither exited nor signaled");
  x.signaled = kind == "signaled";
  return absl::OkStatus();
}

json::value encode_json(const ProcessSummary& x) {
  return json::object{{"process_id", internal::valid_utf8(x.process_id)},
                      {"kind", x.main ? "main" : "exec"},
                      {"terminal", x.terminal},
                      {"status", to_json(x.status)},
                      {"retained_output", to_json(x.retained_output)}};
}

absl::Status decode_json(const json::value& value, ProcessSummary& x, const std::string& where) {
  if (!value.is_object()) return wrong(where, "not an object");
  std::string kind;
  internal::Reader reader{value.get_object(), where};
  reader("process_id", x.process_id);
  reader("kind", kind);
  reader("terminal", x.terminal);
  reader("status", x.status);
  reader("retained_output", x.retained_output);
  if (auto s = reader.finish(); !s.ok()) return s;
  if (kind != "main" && kind != "exec") return wrong(where, "kind is neither main nor exec");
  x.main = kind == "main";
  return absl::OkStatus();
}

json::value encode_json(const ProcessIdentity& x) {
  if (const auto* failed = std::get_if<FailedIdentity>(&x)) {
    return json::object{{"result", "failed"}, {"message", internal::valid_utf8(failed->message)}};
  }
  const auto& resolved = std::get<ResolvedIdentity>(x);
  return json::object{{"result", "resolved"},
                      {"executable", to_json(resolved.executable)},
                      {"ancestors", to_json(resolved.ancestors)},
                      {"cmdline_paths", to_json(resolved.cmdline_paths)}};
}

absl::Status decode_json(const json::value& value, ProcessIdentity& x, const std::string& where) {
  if (!value.is_object()) return wrong(where, "not an object");
  const json::value* result = value.get_object().if_contains("result");
  if (result == nullptr || !result->is_string()) return wrong(where, "no result");
  internal::Reader reader{value.get_object(), where};
  reader.expect("result");
  if (view(result->get_string()) == "failed") {
    FailedIdentity failed;
    reader("message", failed.message);
    x = std::move(failed);
  } else if (view(result->get_string()) == "resolved") {
    ResolvedIdentity resolved;
    reader("executable", resolved.executable);
    reader("ancestors", resolved.ancestors);
    reader("cmdline_paths", resolved.cmdline_paths);
    x = std::move(resolved);
  } else {
    return wrong(where, "result is neither resolved nor failed");
  }
  return reader.finish();
}

std::string encode_exit_status(const ExitStatus& status) { return json::serialize(encode_json(status)); }

absl::StatusOr<ExitStatus> decode_exit_status(std::string_view text) {
  auto value = internal::parse_strict(text);
  if (!value.ok()) return value.status();
  ExitStatus status;
  if (auto s = decode_json(*value, status, "exit status"); !s.ok()) return s;
  return status;
}

std::string encode_open_decision(OpenDecision decision) {
  const std::string_view name = kDecisions[static_cast<std::size_t>(decision)];
  return is_allowed(decision) ? fmt::format("\"{}\"", name) : fmt::format("{{\"Denied\":\"{}\"}}", name);
}

absl::StatusOr<OpenDecision> decode_open_decision(std::string_view text) {
  auto value = internal::parse_strict(text);
  if (!value.ok()) return value.status();
  for (const auto allowed : {OpenDecision::relay_ready, OpenDecision::relay_handover}) {
    if (value->is_string() && view(value->get_string()) == kDecisions[static_cast<std::size_t>(allowed)]) return allowed;
  }
  if (value->is_object() && value->get_object().size() == 1) {
    const json::value* denied = value->get_object().if_contains("Denied");
    for (std::size_t i = 1; denied != nullptr && denied->is_string() && i < kDecisions.size(); ++i) {
      const auto decision = static_cast<OpenDecision>(i);
      if (!is_allowed(decision) && view(denied->get_string()) == kDecisions[i]) return decision;
    }
  }
  return absl::InvalidArgumentError("not a TCP decision");
}

std::string encode_dns_question(const DnsQuestion& question) {
  return json::serialize(json::object{{"request", bytes_to_json(question.request)},
                                      {"transport", question.tcp ? "Tcp" : "Udp"},
                                      {"identity", to_json(question.identity)},
                                      {"timing", to_json(question.timing)}});
}

absl::StatusOr<DnsQuestion> decode_dns_question(std::string_view text) {
  auto value = internal::parse_strict(text);
  if (!value.ok()) return value.status();
  if (!value->is_object()) return absl::InvalidArgumentError("DNS question: not an object");
  DnsQuestion question;
  std::string transport;
  internal::Reader reader{value->get_object(), "DNS question"};
  reader.expect("request");
  reader("transport", transport);
  reader("identity", question.identity);
  reader("timing", question.timing);
  if (auto s = reader.finish(); !s.ok()) return s;
  const json::value* request = value->get_object().if_contains("request");
  if (request == nullptr) return absl::InvalidArgumentError("DNS question.request: missing");
  if (auto s = bytes_from_json(*request, question.request, "DNS question.request"); !s.ok()) return s;
  if (transport != "Udp" && transport != "Tcp") return absl::InvalidArgumentError("DNS question.transport: neither Udp nor Tcp");
  question.tcp = transport == "Tcp";
  return question;
}

std::string encode_dns_answer(const DnsAnswer& answer) {
  if (const auto* bytes = std::get_if<std::string>(&answer)) {
    return json::serialize(json::object{{"result", "response"}, {"value", bytes_to_json(*bytes)}});
  }
  const std::string message = internal::valid_utf8(std::string(std::get<absl::Status>(answer).message())).substr(0, kMaxErrorMessageBytes);
  return json::serialize(json::object{{"result", "error"}, {"value", internal::valid_utf8(message)}});
}

absl::StatusOr<DnsAnswer> decode_dns_answer(std::string_view text) {
  auto value = internal::parse_strict(text);
  if (!value.ok()) return value.status();
  if (!value->is_object() || value->get_object().size() != 2) return absl::InvalidArgumentError("DNS answer: not an object of two keys");
  const json::value* result = value->get_object().if_contains("result");
  const json::value* content = value->get_object().if_contains("value");
  if (result == nullptr || content == nullptr || !result->is_string())
    return absl::InvalidArgumentError("DNS answer: result or value missing");
  if (view(result->get_string()) == "response") {
    std::string bytes;
    if (auto s = bytes_from_json(*content, bytes, "DNS answer.value"); !s.ok()) return s;
    return DnsAnswer{std::move(bytes)};
  }
  if (view(result->get_string()) == "error" && content->is_string())
    return DnsAnswer{absl::UnavailableError(std::string(content->get_string()))};
  return absl::InvalidArgumentError("DNS answer: result is neither response nor error");
}

}  // namespace openshell::boundary
