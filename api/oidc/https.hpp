// Small requests to an identity provider over HTTPS: documents and tokens. Blocking; for threads that may wait, and for the command line.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "messages/secret.hpp"

namespace openshell::oidc {

constexpr std::chrono::seconds kRequestTimeout{10};
/// Of an answer's body.
constexpr std::size_t kMaxAnswerBytes = 1U << 20;

struct HttpsOptions {
  std::string extra_ca_pem;  ///< trusted besides the roots of the platform
  bool verify = true;        ///< false: whoever asked for it trusts every certificate
  std::chrono::milliseconds timeout = kRequestTimeout;
  std::function<bool()> cancelled;  ///< asked ten times a second while it is waited
};

struct HttpsAnswer {
  int status = 0;
  std::string body;
};

/// `https://`, or `http://` for a numeric loopback address where `loopback_http`. INVALID_ARGUMENT names the URL. No user, no fragment.
absl::Status check_url(std::string_view url, bool loopback_http);
/// Scheme, host and port, lower-case, default port written out: `https://id.example:443`. Empty: not a URL.
std::string origin_of(std::string_view url);

/// A redirect is an answer like any other: it is never followed. UNAVAILABLE: no answer (name, connection, TLS, timeout);
/// RESOURCE_EXHAUSTED: too long. The message names the URL.
absl::StatusOr<HttpsAnswer> https_get(const std::string& url, const HttpsOptions& options);
/// POST of a form (application/x-www-form-urlencoded), as token endpoints take it (RFC 6749). Values may be secrets; they are in no
/// message.
absl::StatusOr<HttpsAnswer> https_post(const std::string& url, const std::map<std::string, Secret>& form, const HttpsOptions& options);

}  // namespace openshell::oidc
