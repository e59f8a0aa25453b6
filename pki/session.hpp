// The certificates of one launch of a sandbox: both ends of the channel between supervisor and sandbox get fresh ones, signed by a CA
// whose private key is forgotten before this returns, so that nobody can ever add a third end (RT-25).
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "messages/secret.hpp"
#include "messages/values.hpp"

namespace openshell::pki {

/// All PEM. Ed25519 keys; validity 1975 to 4096, since the bearer limits authority.
struct SessionCertificates {
  std::string ca_certificate;      ///< CN `OpenShell sandbox session CA`; trust anchor of both ends.
  std::string server_name;         ///< `sandbox.<session id>.openshell.internal`: what the supervisor checks.
  std::string server_certificate;  ///< For the sandbox: CN `OpenShell sandbox runtime`, serverAuth.
  Secret server_key;
  std::string client_certificate;  ///< For the supervisor: CN `OpenShell supervisor`, clientAuth.
  Secret client_key;
};

/// About 0.3 ms. INVALID_ARGUMENT where the session id is empty or does not fit into a DNS label.
absl::StatusOr<SessionCertificates> make_session_certificates(const SessionId& session);

}  // namespace openshell::pki
