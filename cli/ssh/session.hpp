// The SSH session of a sandbox as the gateway grants it, checked before anything of it reaches a command line.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "cli/context.hpp"
#include "messages/secret.hpp"

namespace openshell::v1 {
class CreateSshSessionResponse;
}

namespace openshell::cli {

struct SshSession {
  std::string sandbox, workspace;  ///< as the user names them
  std::string sandbox_id;
  std::string gateway;  ///< its registered name, for certificates
  std::string url;      ///< scheme://host:port for the tunnel
  Secret token;
  std::string fingerprint;  ///< of the server's host key, `SHA256:...`; empty: not known
};

/// INVALID_ARGUMENT `gateway returned invalid SSH session response: <why>`: nothing but the listed characters may pass, since these fields
/// become words of a command line.
absl::Status check_session(const v1::CreateSshSessionResponse& response);

/// Where the tunnel goes. A gateway that says loopback or an unspecified address means itself: then the configured endpoint's port counts,
/// and its host too unless that is loopback.
std::string tunnel_url(const v1::CreateSshSessionResponse& response, const std::string& endpoint);

/// CreateSshSession, checked.
absl::StatusOr<SshSession> create_session(Context& context, const std::string& sandbox);
/// RevokeSshSession; what goes wrong is not said, since the session expires by itself.
void revoke_session(Context& context, const SshSession& session);

}  // namespace openshell::cli
