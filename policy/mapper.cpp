#include "policy/mapper.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "policy/blocked_destination.hpp"
#include "policy/text.hpp"

namespace openshell::policy {
namespace {

constexpr std::array<std::string_view, 4> kStages{"connect", "forward", "ssrf", "transparent_tcp_connect"};
constexpr std::array<std::pair<std::uint16_t, std::string_view>, 18> kWellKnown{{{80, "HTTP"},
                                                                                 {443, "HTTPS"},
                                                                                 {8080, "HTTP-alt"},
                                                                                 {8443, "HTTPS-alt"},
                                                                                 {5432, "PostgreSQL"},
                                                                                 {3306, "MySQL"},
                                                                                 {6379, "Redis"},
                                                                                 {27017, "MongoDB"},
                                                                                 {9200, "Elasticsearch"},
                                                                                 {9092, "Kafka"},
                                                                                 {2181, "ZooKeeper"},
                                                                                 {11211, "Memcached"},
                                                                                 {5672, "RabbitMQ"},
                                                                                 {6443, "Kubernetes API"},
                                                                                 {53, "DNS"},
                                                                                 {587, "SMTP"},
                                                                                 {993, "IMAP"},
                                                                                 {995, "POP3"}}};

constexpr double kBase = 0.5, kOften = 0.2, kRepeated = 0.1, kKnownPort = 0.15, kPrivate = 0.2, kLeast = 0.1, kMost = 0.95;
constexpr std::uint32_t kOftenCount = 10, kRepeatedCount = 3;

std::string_view port_name(std::uint16_t port) {
  const auto* found = std::find_if(kWellKnown.begin(), kWellKnown.end(), [port](const auto& known) { return known.first == port; });
  return found == kWellKnown.end() ? std::string_view{} : found->second;
}

}  // namespace

bool is_proposable(const DeniedOpen& denied) {
  return std::find(kStages.begin(), kStages.end(), denied.stage) != kStages.end() && !denied.host.empty() && denied.port != 0 &&
         !is_always_blocked(denied.host);
}

std::string proposal_name(std::string_view host, std::uint16_t port) {
  std::string name = "allow_";
  for (const char c : host) {
    if (c == '.' || c == '-') {
      name += '_';
    } else if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      name += c;
    }
  }
  return text::cat(name, "_", port);
}

double proposal_confidence(std::uint32_t count, std::uint16_t port, std::string_view stage) {
  double confidence = kBase;
  if (count >= kOftenCount) {
    confidence += kOften;
  } else if (count >= kRepeatedCount) {
    confidence += kRepeated;
  }
  if (!port_name(port).empty()) confidence += kKnownPort;
  if (stage == "ssrf") confidence -= kPrivate;
  return std::clamp(confidence, kLeast, kMost);
}

std::string proposal_rationale(const DeniedOpen& denied) {
  const auto slash = denied.binary.rfind('/');
  auto program = slash == std::string_view::npos ? denied.binary : denied.binary.substr(slash + 1);
  if (program.empty() || program == "-") program = "unknown binary";
  const auto name = port_name(denied.port);
  return text::cat("Allow ", program, " to connect to ", denied.host, ":", denied.port, name.empty() ? "" : text::cat(" (", name, ")"),
                   ".");
}

}  // namespace openshell::policy
