#include "cli/ssh/session.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <string_view>

#include "cli/endpoint.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

constexpr std::size_t kMaxId = 128, kMaxToken = 4'096, kMaxHost = 253, kMaxFingerprint = 256;
constexpr std::uint32_t kMaxPort = 65'535;

absl::Status bad(std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("gateway returned invalid SSH session response: ", std::string{why}));
}

absl::Status check_field(const char* name, const std::string& value, std::size_t most, std::string_view others) {
  if (value.empty()) return bad(absl::StrCat(name, " is empty"));
  if (value.size() > most) return bad(absl::StrCat(name, " exceeds maximum length of ", most, " bytes"));
  const bool fine = std::all_of(value.begin(), value.end(), [others](unsigned char c) {
    return absl::ascii_isalnum(c) || others.find(static_cast<char>(c)) != std::string_view::npos;
  });
  return fine ? absl::OkStatus() : bad(absl::StrCat(name, " contains invalid characters"));
}

}  // namespace

absl::Status check_session(const v1::CreateSshSessionResponse& response) {
  absl::Status status = check_field("sandbox_id", response.sandbox_id(), kMaxId, "._-");
  if (status.ok()) status = check_field("token", response.token(), kMaxToken, "._~+/=-");
  if (status.ok()) status = check_field("gateway_host", response.gateway_host(), kMaxHost, ".:[]-");
  if (!status.ok()) return status;
  if (response.gateway_scheme() != "http" && response.gateway_scheme() != "https") return bad("gateway_scheme must be 'http' or 'https'");
  if (response.gateway_port() == 0 || response.gateway_port() > kMaxPort) return bad("gateway_port must be in range 1..=65535");
  if (response.host_key_fingerprint().empty()) return absl::OkStatus();
  return check_field("host_key_fingerprint", response.host_key_fingerprint(), kMaxFingerprint, ":+/=-");
}

std::string tunnel_url(const v1::CreateSshSessionResponse& response, const std::string& endpoint) {
  const auto said = without_brackets(response.gateway_host());
  auto host = said, port = std::to_string(response.gateway_port());
  if (said == "127.0.0.1" || said == "0.0.0.0" || said == "localhost" || said == "::1" || said == "::") {
    const auto known = split_endpoint(endpoint);
    port = known.port;
    if (!is_loopback(known.host) || said == "0.0.0.0" || said == "::1" || said == "::") host = known.host;
  }
  return absl::StrCat(response.gateway_scheme(), "://", bracketed(host), ":", port);
}

absl::StatusOr<SshSession> create_session(Context& context, const std::string& sandbox) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  const auto target = context.target();
  if (!target.ok()) return target.status();
  auto request = context.scoped<v1::CreateSshSessionRequest>();
  request.set_sandbox(sandbox);
  auto answer = (*client)->create_ssh_session(request);
  if (!answer.ok()) return answer.status();
  if (auto status = check_session(*answer); !status.ok()) return status;
  SshSession session;
  session.sandbox = sandbox;
  session.workspace = context.flags().workspace;
  session.sandbox_id = answer->sandbox_id();
  session.gateway = target->name;
  session.url = tunnel_url(*answer, target->endpoint);
  session.fingerprint = answer->host_key_fingerprint();
  session.token = Secret{std::move(*answer->mutable_token())};
  return session;
}

void revoke_session(Context& context, const SshSession& session) {
  auto client = context.client();
  if (!client.ok()) return;
  v1::RevokeSshSessionRequest request;
  request.set_token(std::string{session.token.reveal()});
  request.set_allow_missing(true);
  (void)(*client)->revoke_ssh_session(request);
}

}  // namespace openshell::cli
