#include "pki/session.hpp"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "pki/certificate.hpp"

namespace openshell::pki {
namespace {

constexpr std::size_t kMaxLabelBytes = 63;  // RFC 1035

bool is_label(std::string_view text) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  return !text.empty() && text.size() <= kMaxLabelBytes && text.front() != '-' && text.back() != '-' &&
         std::all_of(text.begin(), text.end(), allowed);
}

}  // namespace

absl::StatusOr<SessionCertificates> make_session_certificates(const SessionId& session) {
  if (!is_label(session.str()))
    return absl::InvalidArgumentError(
        absl::StrCat("session id \"", session.str(), "\" is no DNS label of lower-case letters, digits and hyphens"));
  const auto authority =
      CertificateAuthority::create({.common_name = "OpenShell sandbox session CA", .organization = "", .key_kind = KeyKind::kEd25519});
  if (!authority.ok()) return authority.status();

  SessionCertificates made;
  made.server_name = absl::StrCat("sandbox.", session.str(), ".openshell.internal");
  made.ca_certificate = authority->certificate().to_pem();
  LeafProfile server{.common_name = "OpenShell sandbox runtime"};
  server.dns_names = {made.server_name};
  const auto server_identity = authority->issue(server, KeyKind::kEd25519);
  if (!server_identity.ok()) return server_identity.status();
  const LeafProfile client{.common_name = "OpenShell supervisor", .usage = Usage::kClient};
  const auto client_identity = authority->issue(client, KeyKind::kEd25519);
  if (!client_identity.ok()) return client_identity.status();

  made.server_certificate = server_identity->certificate.to_pem();
  made.client_certificate = client_identity->certificate.to_pem();
  auto server_key = server_identity->key.to_pem();
  if (!server_key.ok()) return server_key.status();
  auto client_key = client_identity->key.to_pem();
  if (!client_key.ok()) return client_key.status();
  made.server_key = std::move(*server_key);
  made.client_key = std::move(*client_key);
  return made;
}

}  // namespace openshell::pki
